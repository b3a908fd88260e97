"""``checkpoint_status`` and ``checkpoint_diff``."""

from binascii import a2b_base64
from typing import Any, Final

from ckpt_protocol.checkpoint import DiffParams, DiffResult
from ckpt_protocol.structs import WirePath
from ckpt_protocol.wirepath import encode
from ckpt_protocol.worktree import StatusParams, StatusResult
from fabricatio_checkpoint.errors import StateError, error_of
from fabricatio_checkpoint.mcp.answer import Answer
from fabricatio_checkpoint.mcp.desk import Desk, Notice
from fabricatio_checkpoint.mcp.field import Field, arguments_of, result_of
from fabricatio_checkpoint.mcp.gist import Gist
from fabricatio_checkpoint.mcp.history import brief
from fabricatio_checkpoint.mcp.page import paged
from fabricatio_checkpoint.mcp.shelf import Kept
from fabricatio_checkpoint.mcp.slice import as_text, file_names, patch_end
from fabricatio_checkpoint.mcp.tool import AFTER_PATH, COUNTS, HINT, MAX_BYTES, NEXT_PATH, PATHS, Call, Tool, limit

__all__ = ["DIFF", "STATUS", "read_patch"]

_KEPT_BYTES: Final = 4 << 20
_READ_BYTES: Final = 64 << 20
_OF_NO_USE: Final = ("watcher", "state", "scans")
_READ_AGAIN: Final = 3
_OTHERS: Final = 20

_STATUS_TEXT: Final = """\
Say which files of the worktree differ from the last checkpoint (head): added, modified, deleted, type, mode. Also: \
which directory this is about, the name of your session in the history, what a save has to leave out, and whether a \
restore was interrupted. Changes need not be yours: people and other agents may work in the same directory."""

_DIFF_TEXT: Final = """\
Show what differs, as a patch: by default between the last checkpoint and the worktree as it is now, or between any \
two checkpoints. Long patches come in pages that end between files where possible; cursor gets the next page of the \
very same patch. format stat or name-status gives an overview first; paths narrows it. The content of binary files is \
left out."""


def _status(call: Call) -> Answer:
    desk = call.desk
    after = desk.place(call.arguments.get("after_path"))
    result = desk.ask("worktree.status", {}, call.tell)
    for name in _OF_NO_USE:
        result.pop(name, None)
    for name in ("head_record", "last_manual"):
        result[name] = result[name] and brief(result[name])
    told = result.get("interruption")
    if told:
        told["others"] = told["others"][:_OTHERS]
    shown = paged(result, ("changes",), ("skipped", "excluded"), call.arguments["limit"], after)
    shown = {"worktree": encode(desk.worktree), "session": desk.session, **shown}
    if result["interrupted"]:
        shown["hint"] = (
            "A restore was interrupted. Tell the user: ckpt resume --finish goes on with it, ckpt resume --undo takes "
            f"it back. What was there before is in checkpoint {result['interrupted']}."
        )
    elif result["head"] is None:
        shown["hint"] = "There is no checkpoint yet: make one with checkpoint_save."
    return Answer(shown)


def _diff(call: Call) -> Answer:
    shelf = call.desk.shelf
    notes: list[str] = []
    cursor = call.arguments["cursor"]
    if cursor is not None:
        key, kept, start = shelf.find(cursor)
    else:
        wanted = call.some("from_id", "to_id", "format", "context_lines")
        paths = call.desk.filter(call.arguments["paths"])
        kept, notes = read_patch(call.desk, {**wanted, "paths": paths}, call.tell)
        key, start = shelf.put(kept), 0
    return _page(key, kept, start, call.arguments["max_bytes"], notes)


def _page(key: str, kept: Kept, start: int, most: int, notes: list[str]) -> Answer:
    end = patch_end(kept.text, start, most)
    found = as_text(kept.text[start:end])
    if found.replaced:
        notes = [*notes, f"{found.replaced} characters that are not UTF-8 are shown as U+FFFD"]
    shown: dict[str, Any] = {"patch": found.text, "cursor": None, "notes": notes}
    hint = None if found.text or notes else "No differences."
    if end < len(kept.text):
        shown["cursor"] = f"{key}:{end}"
        left, names = file_names(kept.text, end)
        hint = f"There is more ({len(kept.text) - end} bytes): call again with cursor, or with paths."
        if left:
            shown.update(files_left=left, next_files=names)
    elif kept.missing_bytes:
        hint = f"The patch goes on for about {kept.missing_bytes} bytes, which are too many: narrow it with paths."
    if hint:
        shown["hint"] = hint
    told = [found.text, *(f"[{line}]\n" for line in [*notes, *([hint] if hint else [])])]
    return Answer(shown, "".join(told))


def read_patch(desk: Desk, wanted: dict[str, Any], tell: Notice | None = None) -> tuple[Kept, list[str]]:
    """Read a patch as far as it is kept, and the notes that go with it; raises CheckpointError."""
    for _ in range(_READ_AGAIN):
        try:
            return _read(desk, wanted, tell)
        except StateError as error:
            # A daemon that was replaced in between does not know the cursor: begin again.
            if error.kind != "expired_cursor":
                raise
    raise error_of("expired_cursor", "the daemon was replaced while it was asked", hint="ask again")


def _read(desk: Desk, wanted: dict[str, Any], tell: Notice | None) -> tuple[Kept, list[str]]:
    gist, read = Gist(_KEPT_BYTES), 0
    result = desk.ask("checkpoint.diff", wanted, tell)
    notes = list(result.get("notes", ()))
    while True:
        piece = a2b_base64(result["data"]["b64"])
        gist.feed(piece)
        read += len(piece)
        if result["cursor"] is None or gist.full or read >= _READ_BYTES or not piece:
            break
        result = desk.ask("checkpoint.diff", {**wanted, "cursor": result["cursor"], "offset": read}, tell)
    gist.end()
    whole = result["cursor"] is None and not gist.full
    missing = 0 if whole else max(1, int(result["total_bytes"]) - len(gist.text))
    return Kept(bytes(gist.text), missing), notes


STATUS: Final = Tool(
    "checkpoint_status",
    "What has changed since the last checkpoint",
    _STATUS_TEXT,
    arguments_of("StatusArguments", StatusParams, {}, (limit(100), AFTER_PATH)),
    result_of(
        "StatusAnswer",
        StatusResult,
        _OF_NO_USE,
        (
            Field("worktree", WirePath, "The directory that all of this is about."),
            Field("session", str, "Your session, as the history has it."),
            COUNTS,
            NEXT_PATH,
            HINT,
        ),
    ),
    _status,
)

DIFF: Final = Tool(
    "checkpoint_diff",
    "Show differences as a patch",
    _DIFF_TEXT,
    arguments_of(
        "DiffArguments",
        DiffParams,
        {
            "from_id": "The older side: an id in any form; default is the last checkpoint (HEAD).",
            "to_id": "The newer side: an id in any form, or WORKTREE for the files as they are now.",
            "paths": PATHS,
            "format": "patch, or an overview: stat or name-status.",
            "context_lines": "How many unchanged lines to show around a change.",
            "cursor": "That of the page before this one; all but max_bytes is then as it was for that page.",
        },
        (MAX_BYTES,),
    ),
    result_of(
        "DiffAnswer",
        DiffResult,
        ("data", "offset", "total_bytes"),
        (
            Field("patch", str, "A page of the patch, or of the overview."),
            Field("files_left", int, "How many files come after this page."),
            Field("next_files", list[str], "The first of them, as the patch names them."),
            HINT,
        ),
    ),
    _diff,
)
