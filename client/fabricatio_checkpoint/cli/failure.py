"""What goes wrong, as text or JSON and as an exit code: the last arrow of the error chain."""

from __future__ import annotations

import os

from fabricatio_checkpoint.cli.output import ClosedOutputError
from fabricatio_checkpoint.cli.text import MANY, quoted, visible
from fabricatio_checkpoint.errors import CheckpointError, InternalError, Interrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fabricatio_checkpoint.cli.output import Output

__all__ = ["EXIT_INTERRUPTED", "EXIT_LEFT_OUT", "EXIT_NOT_RUNNING", "UsageError", "report", "report_interrupt"]

EXIT_LEFT_OUT = 3
"""Done, but something that should be in it is not."""

_RESTORES = frozenset({"checkpoint.restore", "checkpoint.undo", "checkpoint.redo", "worktree.resume"})

EXIT_NOT_RUNNING = 20
EXIT_INTERRUPTED = 130

_BEGIN = "begin with: ckpt save"

# The words of the command line; they go before the hint of the answer, which speaks to every kind of client.
_HINTS = {
    "not_tracked": _BEGIN,
    "no_checkpoint": _BEGIN,
    "conflicts": "--skip-conflicts restores everything else",
    "plan_changed": "look at the new plan with --dry-run, then repeat",
    "worktree_empty": "ckpt save --force saves it as it is, ckpt reset brings the files back",
    "not_running": "ckpt daemon start starts it, and so does any command that needs it",
}
_FALLBACK_HINTS = {
    "worktree_missing": "check its name; one that was tracked comes back with: ckpt -w DIR reset --recreate",
    "protected_place": "--force does it all the same",
    "unknown_checkpoint": "ckpt ls shows what there is",
    "ambiguous_id": "give more digits",
    "path_not_in_checkpoint": "--delete deletes what the checkpoint does not have",
}


class UsageError(CheckpointError):
    """A command line that the grammar does not have."""

    exit_code = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, kind="usage", hint=hint)


class _Interrupted(CheckpointError):
    exit_code = EXIT_INTERRUPTED


def report(error: Exception, out: Output) -> int:
    """Tell an error in one or two lines, or as the JSON document; return the exit code."""
    told = error if isinstance(error, CheckpointError) else _bug(error, out)
    hint = _hint(told)
    if not (out.json and _written({"error": _document(told, hint)}, out)):
        _print(told, hint, out)
    return told.exit_code


def _hint(told: CheckpointError) -> str | None:
    if told.kind == "owned_elsewhere" and (told.hint or "").startswith("/"):
        # The hint is an address for programs; the message names it.
        return "nobody can be reached there; end that process, then try again"
    return _HINTS.get(told.kind) or told.hint or _FALLBACK_HINTS.get(told.kind)


def _written(document: dict[str, object], out: Output) -> bool:
    """Write the JSON document of an error; where stdout is what is wrong, the text has to do."""
    try:
        out.document(document)
        out.flush()
    except (CheckpointError, ClosedOutputError):
        return False
    return True


def report_interrupt(interrupt: KeyboardInterrupt, out: Output) -> int:
    """Tell that Ctrl-C ended the command, and what came of it as far as that is known; return its exit code."""
    message, hint = _come_of(interrupt) if isinstance(interrupt, Interrupted) else ("interrupted", None)
    return report(_Interrupted(message, kind="cancelled", hint=hint), out)


def _come_of(interrupt: Interrupted) -> tuple[str, str | None]:
    answer, saves = interrupt.answer, interrupt.method == "checkpoint.save"
    if answer is None:
        return "interrupted; the daemon was asked to give it up", "ckpt status shows how things stand"
    result, error = answer.get("result"), answer.get("error") or {}
    if isinstance(result, dict):
        if saves:
            return f"interrupted too late: checkpoint {result.get('id')} was made", None
        if interrupt.method in _RESTORES and result.get("written") is not None and not result.get("dry_run"):
            return "interrupted too late: it was done", "ckpt undo takes it back"
        return "interrupted", None
    if saves and (error.get("data") or {}).get("kind") == "cancelled":
        return "interrupted: no checkpoint was made; what was read is kept for the next save", None
    return f"interrupted: {error.get('message')}", (error.get("data") or {}).get("hint")


def _document(told: CheckpointError, hint: str | None) -> dict[str, object]:
    from ckpt_protocol.wirepath import encode

    # A name that is not UTF-8 may be quoted in a message: JSON cannot hold it as it is.
    message = told.message.encode("utf-8", "backslashreplace").decode("utf-8")
    paths = [encode(os.fsencode(path)) for path in told.paths]
    return {"kind": told.kind, "message": message, "hint": hint, "paths": paths}


def _print(told: CheckpointError, hint: str | None, out: Output) -> None:
    message = "\n".join(map(visible, told.message.splitlines())) or told.kind
    if told.error_id:
        message += f" (error {told.error_id})"
    out.alarm(f"{message}; {visible(hint)}" if hint else message)
    if told.kind == "conflicts" or not any(path in told.message for path in told.paths):
        for path in told.paths[:MANY]:
            out.remark(f"  {quoted(path)}")
        if len(told.paths) > MANY:
            out.remark(f"  and {len(told.paths) - MANY} more (--json lists all)")


def _bug(error: Exception, out: Output) -> CheckpointError:
    import traceback

    trace = "".join(traceback.format_exception(error))
    if os.environ.get("CKPT_DEBUG") == "1":
        out.remark(trace.rstrip())
    where = _keep_trace(trace)
    kept = f"the traceback is in {where}" if where else "the traceback could not be written"
    return InternalError(f"unexpected {type(error).__name__}; {kept}", hint="CKPT_DEBUG=1 shows it")


def _keep_trace(trace: str) -> str | None:
    """Write the traceback to the one crash file of the state directory; None where that cannot be done."""
    from ckpt_protocol.address import ensure_private, state_dir

    try:
        directory = state_dir(os.environ)
        ensure_private(directory)
        path = os.path.join(directory, "ckpt-crash.txt")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8", errors="backslashreplace") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(trace)
    except OSError:
        return None
    return path
