"""``rollback``, ``reset``, ``undo``, ``redo`` and ``resume``."""

from __future__ import annotations

from fabricatio_checkpoint.cli import outcome
from fabricatio_checkpoint.cli.failure import EXIT_LEFT_OUT, UsageError
from fabricatio_checkpoint.cli.prompt import agreed, somebody_there
from fabricatio_checkpoint.cli.words import print_changes
from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.wire import new_token

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["redo", "reset", "resume", "rollback", "undo"]

_RESTORE = "checkpoint.restore"
_VALUES = {"expect-digest": "digest", "expect-head": "expect_head", "session": "session"}


def rollback(session: Session) -> int:
    """Bring back some paths; head stays."""
    words = session.arguments.words
    params = {**_flags(session), "id": words["ID"][0], "paths": session.paths(words["PATH"])}
    return _finish(session, "rolled back to", "ckpt undo", _ask(session, _RESTORE, params))


def reset(session: Session) -> int:
    """Bring everything back. A person at a terminal sees the plan first, and what is done is that very plan."""
    params = _flags(session)
    word = session.arguments.word("ID")
    if word is not None:
        params["id"] = word
    if not (session.arguments.flag("dry-run") or session.arguments.flag("yes")) and somebody_there():
        agreed_digest = _agreed_digest(session, params)
        params.setdefault("digest", agreed_digest)
    return _finish(session, "reset to", "ckpt undo", _ask(session, _RESTORE, params))


def undo(session: Session) -> int:
    """Take the last restore back, or all that a session changed."""
    if session.arguments.value("session") is not None:
        result = _ask(session, "checkpoint.undo", {**_flags(session), "whole_session": True})
        # Its paths come from several checkpoints.
        return _finish(session, "taken back", "ckpt redo", result, names_target=False)
    return _finish(session, "undone: back to", "ckpt redo", _ask(session, "checkpoint.undo", _flags(session)))


def redo(session: Session) -> int:
    """Do again what undo took back."""
    return _finish(session, "redone: at", "ckpt undo", _ask(session, "checkpoint.redo", _flags(session)))


def resume(session: Session) -> int:
    """End a restore that was interrupted, one way or the other."""
    given = [action for action in ("finish", "undo") if session.arguments.flag(action)]
    if len(given) != 1:
        raise UsageError("resume needs one of --finish and --undo", "ckpt status tells what was interrupted")
    result = _ask(session, "worktree.resume", {**_flags(session), "action": given[0]})
    if given == ["finish"]:
        return _finish(session, "finished: at", "ckpt undo", result)
    return _finish(session, "undone: back to", "ckpt redo", result)


def _flags(session: Session) -> dict[str, Any]:
    names = ("dry-run", "delete", "skip-conflicts", "recreate")
    flags: dict[str, Any] = {name.replace("-", "_"): True for name in names if session.arguments.flag(name)}
    values = {name: session.arguments.value(option) for option, name in _VALUES.items()}
    return {**flags, **{name: value for name, value in values.items() if value is not None}}


def _ask(session: Session, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return session.ask(method, token=new_token(), **params)


def _agreed_digest(session: Session, params: dict[str, Any]) -> str:
    """Show the plan and ask; return its digest. Raises StateError where the answer is no or the plan has conflicts."""
    plan = _ask(session, _RESTORE, {**params, "dry_run": True})
    if plan["conflicts"] and not params.get("skip_conflicts"):
        raise outcome.conflict_error(plan)
    if not outcome.is_empty(plan):
        for line in outcome.question(plan):
            session.out.note(line)
        if not agreed("Reset?"):
            raise error_of("cancelled", "not reset; nothing was changed")
    return str(plan["digest"])


def _finish(session: Session, done: str, way_back: str, result: dict[str, Any], *, names_target: bool = True) -> int:
    """Tell what was done, or would be; 3 where conflicts were left out."""
    if session.out.json:
        session.out.document(result)
    else:
        shown = result if names_target else {**result, "target": None}
        print_changes(session.out, list(outcome.lines(shown, done, way_back)))
        for note in outcome.notes(result):
            session.out.note(note)
    return EXIT_LEFT_OUT if result["conflicts"] else 0
