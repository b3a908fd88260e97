"""What a tool gives back, and what a model is told when it fails. Pure."""

import os
from typing import Any, Final, NamedTuple

from ckpt_protocol.wirepath import encode
from fabricatio_checkpoint.errors import CheckpointError

__all__ = ["Answer", "fault"]

_PATHS: Final = 20

_HINTS: Final = {
    "not_tracked": "checkpoint_save begins to track this directory",
    "no_checkpoint": "begin with checkpoint_save",
    "conflicts": "skip_conflicts=true restores everything else",
    "plan_changed": "something has changed since that plan: call again without confirm_digest and look at the new one",
    "precondition_failed": "somebody else has been at work here: look at checkpoint_list and checkpoint_status first",
    "worktree_empty": "checkpoint_restore brings the files back; only a person may save it empty: ckpt save --force",
    "protected_place": "this server works in the wrong directory: its user has to start it as ckpt mcp -w PROJECT",
    "worktree_missing": "tell the user that the directory is not there",
    "unknown_checkpoint": "checkpoint_list shows what there is",
    "ambiguous_id": "give more digits of the id",
    "path_not_in_checkpoint": "checkpoint_list with paths tells where it is; checkpoint_restore can delete it",
    "nothing_to_undo": "checkpoint_undo takes back restores only; to go back to a checkpoint use checkpoint_restore",
    "expired_cursor": "ask again without cursor",
    "restore_incomplete": "checkpoint_undo takes back what was done",
}
"""In the words of the tools; they go before the hint of the daemon, which speaks to people."""


class Answer(NamedTuple):
    """``structured`` is all of it; ``text`` is given where something reads better as it is than inside of JSON."""

    structured: dict[str, Any]
    text: str | None = None


def fault(error: CheckpointError) -> dict[str, Any]:
    """Give the document of an error: what is wrong, where, what to do, and whether the same call can succeed later."""
    # A name that is not UTF-8 may be quoted in a message: JSON cannot hold it as it is.
    message = error.message.encode("utf-8", "backslashreplace").decode("utf-8")
    document: dict[str, Any] = {"kind": error.kind, "message": message, "retryable": error.retryable}
    hint = _HINTS.get(error.kind) or error.hint
    if hint:
        document["hint"] = hint.encode("utf-8", "backslashreplace").decode("utf-8")
    if error.paths:
        document["paths"] = [encode(os.fsencode(path)) for path in error.paths[:_PATHS]]
        document["paths_total"] = len(error.paths)
    if error.error_id:
        document["error_id"] = error.error_id
    return {"error": document}
