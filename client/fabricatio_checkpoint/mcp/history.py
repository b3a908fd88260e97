"""``checkpoint_list`` and ``checkpoint_show``."""

from typing import Any, Final

import msgspec

from ckpt_protocol.checkpoint import ListParams, ListResult, ShowParams, ShowResult
from ckpt_protocol.structs import CheckpointRecord
from fabricatio_checkpoint.mcp.answer import Answer
from fabricatio_checkpoint.mcp.field import Field, arguments_of, result_of
from fabricatio_checkpoint.mcp.page import BUDGET_BYTES, LONG, clipped, head_of, paged
from fabricatio_checkpoint.mcp.tool import AFTER_PATH, COUNTS, HINT, NEXT_PATH, PATHS, Call, Tool, limit

__all__ = ["LIST", "SHOW", "brief", "shown_checkpoint"]

_WHOLE_MESSAGE: Final = 4000
_TOLD: Final = ("client", "legacy", "renames")
_VALUES: Final = 20
_META_BYTES: Final = 2000
_OPTIONAL: Final = {field.name for field in msgspec.structs.fields(CheckpointRecord) if not field.required}

_LIST_TEXT: Final = """\
List the checkpoints of the worktree, newest first: id, seq, time, kind, message, tags, meta. kind is manual (made on \
purpose), auto, or safety (made by a restore, of what it overwrote or deleted). With paths: only checkpoints that \
changed one of these, also under a former name. head is what checkpoint_status and checkpoint_diff compare with."""

_SHOW_TEXT: Final = """\
Show one checkpoint: its message, and which files it changed (added, modified, deleted, type, mode) since the one that \
it was compared with (base). For the lines use checkpoint_diff from base to its id."""

_ID: Final = "An id or its first digits (4 or more), a tag, #SEQ, HEAD, HEAD~N, or a time such as @{1 hour ago}."


def brief(record: dict[str, Any], most: int = LONG) -> dict[str, Any]:
    """Show a checkpoint without what is of no use to a model, and without the end of long texts."""
    shown = {name: value for name, value in record.items() if name not in _OPTIONAL or (name in _TOLD and value)}
    if record["message"] is not None:
        shown["message"] = clipped(record["message"], most)
    meta = [(clipped(key), clipped(value)) for key, value in record["meta"].items()]
    shown["meta"] = dict(head_of(meta, _VALUES, _META_BYTES))
    if len(shown["meta"]) < len(meta):
        shown["meta"]["…"] = f"{len(meta) - len(shown['meta'])} more values"
    return shown


def _list(call: Call) -> Answer:
    wanted = call.some("before_seq", "kind", "meta", "limit")
    wanted["paths"] = call.desk.filter(call.arguments["paths"])
    if wanted["paths"]:
        wanted["follow"] = [call.desk.path(path) for path in call.arguments["follow"] or ()]
    result = call.desk.ask("checkpoint.list", wanted, call.tell)
    records = head_of([brief(record) for record in result["checkpoints"]], call.arguments["limit"], BUDGET_BYTES)
    if len(records) < len(result["checkpoints"]):
        # What is followed is true at the end of a page, so the page has to end here for the daemon, too.
        result = call.desk.ask("checkpoint.list", {**wanted, "limit": len(records)}, call.tell)
        records = [brief(record) for record in result["checkpoints"]]
    shown = {**result, "checkpoints": records}
    if result["more"] and records:
        shown["next_before_seq"] = records[-1]["seq"]
        shown["hint"] = "For older ones call again with before_seq=next_before_seq" + (
            " and follow=followed." if result.get("followed") else "."
        )
    elif not records:
        shown["hint"] = "There is none. checkpoint_save makes one; with kind, meta or paths only some are listed."
    return Answer(shown)


def shown_checkpoint(result: dict[str, Any], most: int, after: object = None) -> dict[str, Any]:
    """Show a checkpoint and a page of what it changed."""
    whole = {**result, "checkpoint": brief(result["checkpoint"], _WHOLE_MESSAGE)}
    return paged(whole, ("changes",), ("skipped", "excluded"), most, after)


def _show(call: Call) -> Answer:
    after = call.desk.place(call.arguments.get("after_path"))
    result = call.desk.ask("checkpoint.show", call.some("id"), call.tell)
    return Answer(shown_checkpoint(result, call.arguments["limit"], after))


LIST: Final = Tool(
    "checkpoint_list",
    "List checkpoints",
    _LIST_TEXT,
    arguments_of(
        "ListArguments",
        ListParams,
        {
            "before_seq": "Only checkpoints with a lower seq: the next page of a list.",
            "kind": "Only checkpoints of this kind.",
            "meta": 'Only checkpoints with these values, such as {"session": "..."}.',
            "paths": PATHS,
            "follow": "Former names of the paths: what the page before this one returned as followed.",
        },
        (limit(20),),
    ),
    result_of(
        "ListAnswer", ListResult, (), (Field("next_before_seq", int, "There is more: pass it as before_seq."), HINT)
    ),
    _list,
)

SHOW: Final = Tool(
    "checkpoint_show",
    "Show a checkpoint",
    _SHOW_TEXT,
    arguments_of("ShowArguments", ShowParams, {"id": _ID}, (limit(100), AFTER_PATH)),
    result_of("ShowAnswer", ShowResult, (), (COUNTS, NEXT_PATH, HINT)),
    _show,
)
