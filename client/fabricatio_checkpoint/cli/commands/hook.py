"""``hook`` and ``hook install``: checkpoints around what a coding agent does, which never get in its way."""

from __future__ import annotations

import os
import signal
import sys
import time

from fabricatio_checkpoint import wire
from fabricatio_checkpoint.cli import hookmark, worktree
from fabricatio_checkpoint.cli.clock import stamp
from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.cli.hookevent import read_event, settings_with_hook
from fabricatio_checkpoint.cli.prompt import agreed, somebody_there
from fabricatio_checkpoint.errors import CheckpointError, error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

    from fabricatio_checkpoint.cli.hookevent import HookEvent
    from fabricatio_checkpoint.cli.session import Session

__all__ = ["hook", "install"]

_BUDGET_S = 2.0
_TO_SEND_S = 0.05
_MOST_BYTES = 64 * 1024 * 1024


class _TimeIsUpError(Exception):
    """The agent has waited long enough."""


def hook(session: Session) -> int:
    """Save at a moment that an agent tells of on stdin. Always 0, and never a word on stdout."""
    begun = time.monotonic()
    budget_s = _budget(session)
    event = _event(session)
    if event is None or not event.is_worth_a_save():
        return 0
    directory = _directory(event)
    if directory is None:
        return 0
    with _Alarm(budget_s - (time.monotonic() - begun)) as alarm:
        try:
            # The agent's configuration counts, wherever its hooks are started from.
            os.chdir(directory)
            session.session_name = event.session
            place = _worktree(session, directory)
            alarm.asked()
            session.ask_directory("checkpoint.save", worktree=wire.worktree(place), **_params(event, budget_s))
            hookmark.clear_marks(os.environ, place)
        except _TimeIsUpError:
            _mark(directory, event, f"there was no answer within {budget_s:g} seconds")
        except (CheckpointError, OSError) as error:
            _mark(directory, event, str(error))
    return 0


class _Alarm:
    """Ends the waiting in time. What the daemon has been asked for by then it goes on with; else _TimeIsUpError."""

    def __init__(self, seconds: float) -> None:
        self._seconds = max(0.01, seconds)
        self._asked_at: float | None = None

    def asked(self) -> None:
        """The next thing that happens is that the daemon is asked for the save."""
        self._asked_at = time.monotonic()

    def __enter__(self) -> Self:
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, _number: int, _frame: object) -> None:
        if self._asked_at is None:
            raise _TimeIsUpError
        if time.monotonic() - self._asked_at < _TO_SEND_S:
            signal.setitimer(signal.ITIMER_REAL, _TO_SEND_S)
            return
        # Not by an exception: the connection would call the save off on its way out.
        os._exit(0)


def _budget(session: Session) -> float:
    text = session.arguments.value("budget")
    try:
        budget = _BUDGET_S if text is None else float(text)
    except ValueError:
        raise UsageError(f"--budget takes seconds, not {text!r}") from None
    if not 0 < budget < 3600:
        raise UsageError(f"--budget takes seconds between 0 and an hour, not {text}")
    return budget


def _event(session: Session) -> HookEvent | None:
    import json

    try:
        data = sys.stdin.buffer.read(_MOST_BYTES)
        return read_event(json.loads(data))
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        session.out.note(f"no hook event on stdin: {error}")
        return None


def _directory(event: HookEvent) -> bytes | None:
    """Where the agent is; its project where it does not say."""
    for place in (event.directory, os.environ.get("CLAUDE_PROJECT_DIR"), "."):
        if place and os.path.isdir(place):
            return os.path.realpath(os.fsencode(place))
    return None


def _worktree(session: Session, directory: bytes) -> bytes:
    """The tracked worktree that holds a directory, else the agent's project, else the directory itself."""
    found = worktree.innermost_tracked(directory, session.is_tracked)
    if found is not None:
        return found
    project = os.environ.get("CLAUDE_PROJECT_DIR")
    if project and os.path.isdir(project):
        real = os.path.realpath(os.fsencode(project))
        if directory == real or directory.startswith(real.rstrip(b"/") + b"/"):
            return real
    return directory


def _params(event: HookEvent, budget_s: float) -> dict[str, Any]:
    return {
        "token": wire.new_token(),
        "kind": "auto",
        "message": event.message(),
        "meta": event.meta(),
        "late_after_s": budget_s,
    }


def _mark(directory: bytes, event: HookEvent, why: str) -> None:
    hookmark.set_mark(os.environ, directory, f"{stamp()} {event.message()}: {why}")


def install(session: Session) -> int:
    """Put the hook into an agent's settings, after showing them."""
    import json

    path = os.path.join(os.fsdecode(session.worktree), ".claude", "settings.json")
    before = _settings(path)
    try:
        after = settings_with_hook(before)
    except ValueError as error:
        raise error_of("bad_option", f"{path}: {error}", hint="add the hook by hand: ckpt help hook") from error
    text = json.dumps(after, indent=2, ensure_ascii=False) + "\n"
    if session.out.json:
        session.out.document({"path": path, "changed": after != before, "settings": after})
    else:
        session.out.line(text.rstrip())
    if after == before:
        session.out.note(f"{path} has the hook already")
        return 0
    if session.arguments.flag("dry-run") or not _may_write(session, path):
        return 0
    _replace(path, text)
    session.out.note(f"written to {path}")
    return 0


def _may_write(session: Session, path: str) -> bool:
    if session.arguments.flag("yes"):
        return True
    if not somebody_there():
        session.out.note(f"not written; --yes writes it to {path}")
        return False
    return agreed(f"Write this to {path}?")


def _settings(path: str) -> dict[str, object]:
    import json

    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise error_of("bad_option", f"cannot read {path}: {error}", hint="mend it, or add the hook by hand") from error
    if not isinstance(found, dict):
        raise error_of("bad_option", f"{path} is not a JSON object")
    return found


def _replace(path: str, text: str) -> None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.{os.getpid()}.tmp"
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        raise error_of("io_error", f"cannot write {path}: {error.strerror}") from error
