"""The words around the panes: the first line of the screen, what went wrong, and what others did."""

from __future__ import annotations

from typing import NamedTuple

from fabricatio_checkpoint.cli.text import counted, quoted, size, visible
from fabricatio_checkpoint.errors import CheckpointError, TransportError
from fabricatio_checkpoint.events import Event
from fabricatio_checkpoint.progress import Progress
from fabricatio_checkpoint.record import StatusResult
from fabricatio_checkpoint.ui.span import Line, Span, cut_path, fitted, width

__all__ = ["Doing", "count_title", "heading", "is_only_gone", "news", "noticed", "place", "progressed"]

_LEAST_OF_A_PATH = 16
_PHASES = {
    "waiting": "waiting for others",
    "scan": "looking",
    "hash": "reading",
    "plan": "planning",
    "safety": "saving what is there",
    "write": "writing",
}


class Doing(NamedTuple):
    """What goes on: ``busy`` is the change under way, ``progress`` how far it is."""

    connected: bool
    busy: str | None = None
    progress: str = ""


def place(worktree: str, home: str | None) -> str:
    """Name the worktree as a shell's prompt does; ``home`` is the user's home directory, if it is known."""
    if home and home != "/" and (worktree + "/").startswith(home.rstrip("/") + "/"):
        return quoted("~" + worktree[len(home.rstrip("/")) :])
    return quoted(worktree)


def heading(name: str, status: StatusResult | None, doing: Doing, columns: int) -> Line:
    """Say which worktree it is, whether it is saved by itself, and what goes on; the last at the right edge."""
    right = _doing(doing)
    facts = tuple(Span(f"  {text}", role) for text, role in _facts(status))
    room = columns - width(right) - 2
    if room - width(facts) < _LEAST_OF_A_PATH:
        facts = ()
    left = (Span(cut_path(name, max(_LEAST_OF_A_PATH, room - width(facts))), "strong"), *facts)
    space = " " * max(2, columns - width(left) - width(right))
    return fitted((*left, Span(space), *right), columns)


def _facts(status: StatusResult | None) -> list[tuple[str, str]]:
    if status is None:
        return []
    if status.halted is not None:
        return [(f"stopped: {visible(status.halted)}", "error")]
    if status.watcher is None:
        return []
    return [("autosave on", "added")] if status.watcher.on else [("autosave off", "dim")]


def _doing(doing: Doing) -> Line:
    if doing.busy is not None:
        return (Span(f"{doing.busy} {doing.progress}".rstrip() + " …", "warning"),)
    return (Span("live", "added"),) if doing.connected else (Span("no daemon: trying again …", "error"),)


def progressed(told: Progress) -> str:
    """Say how far a call is."""
    words = _PHASES.get(told.phase, told.phase)
    if told.total:
        return f"{words} {told.done}/{told.total}"
    return f"{words} {counted(told.done, 'file')}, {size(told.bytes)}" if told.done else words


def noticed(error: CheckpointError) -> str:
    """Say what went wrong and what can be done, in one or two lines."""
    message = "\n".join(map(visible, error.message.splitlines())) or error.kind
    if error.error_id:
        message += f" (error {error.error_id} in the daemon's log)"
    return f"{message}\n{visible(error.hint)}" if error.hint else message


def is_only_gone(error: CheckpointError) -> bool:
    """Tell whether it is the daemon that is missing, which is said once and for all questions together."""
    return isinstance(error, TransportError) and error.kind in ("connection_lost", "not_running", "stopping")


def news(event: Event) -> str | None:
    """Say what happened that a person should hear of, None for what the screen shows by itself."""
    reason = visible(str(event.data.get("reason") or event.data.get("message") or event.data.get("kind") or ""))
    match event.kind:
        case "autosave.failed":
            return f"an autosave failed: {reason}"
        case "autosave.halted":
            return f"autosave has stopped: {reason}"
        case "restore.interrupted":
            return "a restore was cut off: ckpt resume --finish or --undo ends it"
    return None


def count_title(shown: int, known: int, *, more: bool, query: str) -> str:
    """Say how many checkpoints there are, and how many of them a filter leaves."""
    total = f"{known}{'+' if more else ''}"
    if not query.strip():
        return f"Checkpoints: {total}"
    return f"Checkpoints: {shown} of {total} match {quoted(query.strip())}"
