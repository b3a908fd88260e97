"""``checkpoint_save``."""

from typing import Final

from ckpt_protocol.checkpoint import SaveParams, SaveResult
from fabricatio_checkpoint.mcp.answer import Answer
from fabricatio_checkpoint.mcp.field import arguments_of, result_of
from fabricatio_checkpoint.mcp.page import paged
from fabricatio_checkpoint.mcp.tool import COUNTS, HINT, Call, Tool

__all__ = ["SAVE"]

_SHOWN: Final = 20

_TEXT: Final = """\
Make a checkpoint: a snapshot of every file of the worktree that is not ignored, kept outside of it and apart from the \
user's Git repository, which is not touched. Use it before you change, move or delete files or run a command that may, \
and when a step is done. It is quick and costs next to nothing where little has changed. The id that it returns brings \
everything back with checkpoint_restore. With nothing changed since the last one it makes none and returns that one's \
id (created: false)."""


def _save(call: Call) -> Answer:
    given = call.some("message", "tag", "kind", "expect_head")
    # Without an event all that comes after it, whoever does it, would count as changed by this session.
    ours = {"session": call.desk.session, "event": "save", **({"agent": call.agent} if call.agent else {})}
    meta = {**call.arguments["meta"], **ours}
    result = call.desk.write("checkpoint.save", {**given, "meta": meta}, call.tell)
    result.pop("stats", None)
    shown = paged(result, (), ("skipped", "excluded"), _SHOWN)
    if not result["complete"]:
        shown["hint"] = (
            "The skipped paths could not be read and are not in this checkpoint; a restore leaves them alone."
        )
    return Answer(shown)


SAVE: Final = Tool(
    "checkpoint_save",
    "Save a checkpoint",
    _TEXT,
    arguments_of(
        "SaveArguments",
        SaveParams,
        {
            "message": "What comes next, or what was just done, in a few words: 'before the refactoring of auth'.",
            "tag": "A name for this checkpoint, which then works wherever an id does and is never thinned.",
            "meta": "Values to keep with the checkpoint.",
            "kind": "manual ones are kept for ever; auto ones, for routine saves, are thinned when they grow old.",
            "expect_head": "Do nothing if somebody else has made a checkpoint since the one with this id.",
        },
    ),
    result_of("SaveAnswer", SaveResult, ("stats",), (COUNTS, HINT)),
    _save,
    writes=True,
    repeatable=True,
)
