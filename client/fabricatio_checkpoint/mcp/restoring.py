"""``checkpoint_restore``, ``checkpoint_undo`` and ``checkpoint_redo``."""

from collections.abc import Callable
from types import GenericAlias
from typing import Any, Final

from ckpt_protocol.checkpoint import Expected, RestoreParams, RestoreResult, StepParams
from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.mcp.answer import Answer
from fabricatio_checkpoint.mcp.field import Field, arguments_of, result_of
from fabricatio_checkpoint.mcp.page import paged
from fabricatio_checkpoint.mcp.tool import AFTER_PATH, COUNTS, HINT, NEXT_PATH, Call, Tool, limit

__all__ = ["REDO", "RESTORE", "UNDO"]

_LISTS: Final = ("written", "deleted", "kept")
_BESIDE: Final = ("conflicts", "edited")
_GIVEN: Final = ("skip_conflicts", "expect_head")

_RESTORE_TEXT: Final = """\
Bring back files of a checkpoint: the whole worktree, or only paths. It takes two calls. The first changes nothing and \
returns the plan: which files would be written, deleted (they are not in the checkpoint) and kept, what is in \
conflict, and a digest. Look at it: does it touch changes that are not yours? The second call, with the same arguments \
and confirm_digest set to that digest, does it, and does nothing at all if anything has changed since the plan. \
Whatever is overwritten or deleted goes into a safety checkpoint first, so checkpoint_undo takes it back. Ignored \
files are not touched. To repair a few files give paths rather than restoring everything."""

_UNDO_TEXT: Final = """\
Take back the last checkpoint_restore (or reset or rollback by the user) that is not undone, over exactly its files. \
This is no undo of edits: for these use checkpoint_restore. With dry_run it only returns the plan. Files that have \
changed since are overwritten, named in edited, and kept in a safety checkpoint; checkpoint_redo takes the undo back."""

_REDO_TEXT: Final = """\
Do again what the last checkpoint_undo took back. With dry_run it only returns the plan."""

_CONFIRM: Final = Field(
    "confirm_digest", str, "The digest of the plan that this is to carry out; any other plan is refused.", None
)


def _restore(call: Call) -> Answer:
    given = call.arguments
    wanted = {**call.some("id", "delete", *_GIVEN), "expect": _expected(call), "digest": given["confirm_digest"]}
    if given.get("paths") is not None:
        wanted["paths"] = [call.desk.path(path) for path in given["paths"]]
        if not wanted["paths"]:
            raise error_of("bad_path", "no path to restore", hint="name some, or leave paths out to restore everything")
    wanted["dry_run"] = given["confirm_digest"] is None
    return _shown(call, call.desk.write("checkpoint.restore", wanted, call.tell), "checkpoint_undo takes it back.")


def _step(method: str, way_back: str) -> Callable[[Call], Answer]:
    def step(call: Call) -> Answer:
        wanted = {**call.some("dry_run", "session", *_GIVEN), "digest": call.arguments["confirm_digest"]}
        return _shown(call, call.desk.write(method, wanted, call.tell), way_back)

    return step


def _expected(call: Call) -> list[dict[str, Any]]:
    return [{**each, "path": call.desk.path(each["path"])} for each in call.arguments.get("expect", [])]


def _shown(call: Call, result: dict[str, Any], way_back: str) -> Answer:
    result.pop("stats", None)
    after = call.desk.place(call.arguments.get("after_path"))
    shown = paged(result, _LISTS, _BESIDE, call.arguments["limit"], after)
    next_step = _next_step(result, call.arguments["skip_conflicts"], way_back)
    shown["hint"] = " ".join([next_step, *([shown["hint"]] if "hint" in shown else [])])
    return Answer(shown)


def _next_step(result: dict[str, Any], skips: bool, way_back: str) -> str:
    if not result["dry_run"]:
        done = "Done" if result["written"] or result["deleted"] else "There was nothing to do"
        return f"{done}. {way_back}" if result["safety"] else f"{done}."
    if result["conflicts"] and not skips:
        return (
            "Nothing was changed. The conflicts cannot be kept safe and stop this; with skip_conflicts=true everything "
            "else is planned."
        )
    if not (result["written"] or result["deleted"]):
        return "There is nothing to do: everything is as it would be afterwards."
    return f"Nothing was changed yet. To do it, call again with confirm_digest={result['digest']!r}."


_SKIP: Final = "Leave out paths whose present content cannot be kept safe, instead of doing nothing."
_HEAD: Final = "Do nothing if somebody else has made a checkpoint since the one with this id."
_PAGE: Final = (_CONFIRM, limit(50), AFTER_PATH)

_SEEN: Final = arguments_of(
    "Expected", Expected, {"path": "A file.", "oid": "Its Git blob id (git hash-object gives it), or absent."}
)
_EXPECT: Final = Field(
    "expect", GenericAlias(list, (_SEEN,)), "Do nothing unless these paths hold what you last saw there.", []
)

_STEP: Final = {
    "dry_run": "Only return the plan.",
    "session": "Only a restore of this session; what others have changed since is then a conflict.",
    "skip_conflicts": _SKIP,
    "expect_head": _HEAD,
}
_RESULT: Final = result_of("RestoreAnswer", RestoreResult, ("stats",), (COUNTS, NEXT_PATH, HINT))

RESTORE: Final = Tool(
    "checkpoint_restore",
    "Restore files from a checkpoint",
    _RESTORE_TEXT,
    arguments_of(
        "RestoreArguments",
        RestoreParams,
        {
            "id": "The checkpoint: an id in any form; default is the last one (HEAD).",
            "paths": "Only these files and directories. Left out: the whole worktree.",
            "delete": "With paths: delete those that the checkpoint does not have, instead of refusing.",
            "skip_conflicts": _SKIP,
            "expect_head": _HEAD,
        },
        (_EXPECT, *_PAGE),
    ),
    _RESULT,
    _restore,
    writes=True,
    destroys=True,
    repeatable=True,
)

UNDO: Final = Tool(
    "checkpoint_undo",
    "Undo the last restore",
    _UNDO_TEXT,
    arguments_of("UndoArguments", StepParams, _STEP, _PAGE),
    _RESULT,
    _step("checkpoint.undo", "checkpoint_redo takes it back."),
    writes=True,
    destroys=True,
)

REDO: Final = Tool(
    "checkpoint_redo",
    "Redo what was undone",
    _REDO_TEXT,
    arguments_of("RedoArguments", StepParams, _STEP, _PAGE),
    _RESULT,
    _step("checkpoint.redo", "checkpoint_undo takes it back."),
    writes=True,
    destroys=True,
)
