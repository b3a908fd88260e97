"""Answers as the real daemon gives them, for the command line's tests; each takes what is different."""

from typing import Any

from msgspec import convert, to_builtins

from ckpt_protocol.methods import METHODS

__all__ = ["B64", "ID", "OTHER", "SAFETY", "head", "history", "hits", "record", "restored", "saved", "shown", "status"]

ID = "1a2b3c4d5e" + "0" * 30
OTHER = "2b3c4d5e6f" + "0" * 30
SAFETY = "3c4d5e6f70" + "0" * 30
B64 = {"b64": "Y2Fm6Q=="}
"""The name ``caf\\xe9``, which is not UTF-8."""


def _checked(method: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Give the answer as the protocol's Struct has it, so that no test lives on a shape that is not real."""
    return to_builtins(convert(answer, METHODS[method].result))


def record(**changes: Any) -> dict[str, Any]:
    """A checkpoint."""
    usual: dict[str, Any] = {
        "id": ID,
        "seq": 7,
        "time": "2026-11-30T10:00:00Z",
        "kind": "manual",
        "message": "before",
        "tags": [],
        "meta": {},
        "complete": True,
    }
    return {**usual, **changes}


def saved(**changes: Any) -> dict[str, Any]:
    """The answer to ``checkpoint.save``."""
    usual: dict[str, Any] = {
        "id": ID,
        "seq": 7,
        "created": True,
        "complete": True,
        "skipped": [],
        "excluded": [],
        "files": 3,
    }
    return _checked("checkpoint.save", {**usual, **changes})


def head() -> dict[str, Any]:
    """The answer to ``checkpoint.head``."""
    return _checked("checkpoint.head", {"id": ID})


def history(*records: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The answer to ``checkpoint.list``."""
    return _checked("checkpoint.list", {"checkpoints": list(records), "head": ID, "more": False, **changes})


def hits(*found: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The answer to ``checkpoint.search``."""
    return _checked("checkpoint.search", {"hits": list(found), "head": ID, "next_seq": None, "searched": 3, **changes})


def shown(**changes: Any) -> dict[str, Any]:
    """The answer to ``checkpoint.show``."""
    usual: dict[str, Any] = {"checkpoint": record(), "base": OTHER, "changes": [], "skipped": [], "excluded": []}
    return _checked("checkpoint.show", {**usual, **changes})


def status(**changes: Any) -> dict[str, Any]:
    """The answer to ``worktree.status``."""
    usual: dict[str, Any] = {
        "head": ID,
        "head_record": record(),
        "last_manual": None,
        "changes": [],
        "skipped": [],
        "excluded": [],
        "files": 3,
        "state": "IDLE",
        "halted": None,
        "interrupted": None,
    }
    return _checked("worktree.status", {**usual, **changes})


def restored(**changes: Any) -> dict[str, Any]:
    """The answer to ``checkpoint.restore``, ``.undo`` and ``.redo``."""
    usual: dict[str, Any] = {
        "target": ID,
        "written": ["a"],
        "deleted": ["b"],
        "kept": ["c"],
        "conflicts": [],
        "edited": [],
        "safety": SAFETY,
        "head": ID,
        "digest": "d1",
        "weak": False,
        "dry_run": False,
    }
    return _checked("checkpoint.restore", {**usual, **changes})
