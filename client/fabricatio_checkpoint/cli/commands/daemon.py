"""``daemon run``, ``start``, ``stop``, ``status`` and ``logs``."""

from __future__ import annotations

import os
import sys

from ckpt_protocol.address import state_dir
from ckpt_protocol.version import BUILD
from ckpt_protocol.wirepath import encode
from fabricatio_checkpoint.cli.clock import span
from fabricatio_checkpoint.cli.failure import EXIT_INTERRUPTED, EXIT_NOT_RUNNING, UsageError
from fabricatio_checkpoint.cli.text import counted, quoted, visible, wire_text
from fabricatio_checkpoint.errors import CheckpointError, error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from fabricatio_checkpoint.cli.daemonctl import Follower
    from fabricatio_checkpoint.cli.output import Output
    from fabricatio_checkpoint.cli.session import Session

__all__ = ["logs", "run", "start", "status", "stop", "stop_quietly"]

_STOP_DEADLINE_S = 30.0
_USUAL_LINES = 50
_POLL_S = 0.2


def run(session: Session) -> int:
    """Become the daemon: this process is replaced."""
    # -P: a worktree whose files have the names of modules must not become part of the daemon.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "ckptd", *session.arguments.all_words("ARG")])


def start(session: Session) -> int:
    """Start the daemon, or say that it runs."""
    found = _if_running(session, "daemon.status")
    result = found or _started(session)
    if session.out.json:
        session.out.document(_described(result))
    else:
        session.out.line(f"the daemon {'runs already' if found else 'has started'}, pid {result['pid']}")
    return 0


def _started(session: Session) -> dict[str, Any]:
    from fabricatio_checkpoint.launch import connect

    connect(session.socket).close()
    return session.call("daemon.status", {})


def stop(session: Session) -> int:
    """Stop the daemon and wait until its process has ended."""
    pid = stop_quietly(session)
    if session.out.json:
        session.out.document({"stopped": pid is not None, "pid": pid})
    else:
        session.out.line("the daemon does not run" if pid is None else f"the daemon has ended, pid {pid}")
    return 0


def stop_quietly(session: Session) -> int | None:
    """Stop the daemon, wait until its process has ended, and give its pid; None where none ran."""
    from fabricatio_checkpoint.cli.daemonctl import wait_until_ended

    result = _if_running(session, "daemon.stop")
    if result is None:
        return None
    session.close()
    pid = int(result["pid"])
    if not wait_until_ended(pid, session.socket, _STOP_DEADLINE_S):
        raise error_of(
            "stopping",
            f"the daemon (pid {pid}) has not ended after {_STOP_DEADLINE_S:.0f} seconds",
            hint="it finishes what runs; ckpt daemon logs shows what",
        )
    return pid


def status(session: Session) -> int:
    """Say whether the daemon runs; one that does not is not started, and the exit code tells it."""
    result = _if_running(session, "daemon.status")
    if session.out.json:
        session.out.document(_described(result) if result else _absent(session))
    elif result is None:
        session.out.line("the daemon does not run")
    else:
        _print(session, result)
    return 0 if result else EXIT_NOT_RUNNING


def _print(session: Session, result: dict[str, Any]) -> None:
    up = span(result["uptime_s"])
    session.out.line(f"the daemon runs, pid {result['pid']}, version {visible(result['version'])}, up {up}")
    if result["version"] != BUILD:
        session.out.note(f"this client is version {BUILD}; an older daemon makes room when it is idle")
    session.out.line(f"socket {wire_text(result['socket'])}")
    session.out.line(f"{counted(len(result['stores']), 'open store')}")
    for store in result["stores"]:
        queued = f", {store['queued']} waiting" if store["queued"] else ""
        session.out.line(f"  {wire_text(store['worktree'])} ({visible(store['state'])}{queued})")


def logs(session: Session) -> int:
    """Print the end of the log, and with ``--follow`` what is added to it until somebody interrupts."""
    path = os.path.join(state_dir(os.environ), "ckptd.log")
    number = session.arguments.number("lines") or _USUAL_LINES
    if session.arguments.flag("follow"):
        return _follow(session, path, number)
    found = _log_tail(path, number)
    if session.out.json:
        lines = found.decode("utf-8", "replace").splitlines()
        session.out.document({"path": encode(os.fsencode(path)), "lines": lines})
    else:
        session.out.raw(found)
    return 0


def _follow(session: Session, path: str, lines: int) -> int:
    """Ctrl-C is how this ends, so nothing is said of it; the exit code is that of every interrupted command."""
    if session.out.json:
        raise UsageError("--follow never ends, and --json is one document", "leave one of them out")
    from fabricatio_checkpoint.cli.daemonctl import Follower

    log = Follower(path)
    try:
        _print_for_ever(session.out, log, path, lines)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        log.close()


def _print_for_ever(out: Output, log: Follower, path: str, lines: int) -> NoReturn:
    found = log.begin(lines)
    if found is None:
        out.note(f"there is no log yet at {quoted(path)}; waiting for it")
    out.raw(found or b"")
    while True:
        out.flush()
        out.wait(_POLL_S)
        for piece in log.added():
            out.raw(piece)


def _log_tail(path: str, lines: int) -> bytes:
    from fabricatio_checkpoint.cli.daemonctl import tail

    try:
        return tail(path, lines)
    except FileNotFoundError as error:
        raise error_of("not_running", f"there is no log yet at {quoted(path)}") from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> CheckpointError:
    return error_of("io_error", f"cannot read {quoted(path)}: {error.strerror}")


def _if_running(session: Session, method: str) -> dict[str, Any] | None:
    """Ask a daemon that runs; None where none does. None is started."""
    try:
        return session.call(method, {}, start=False)
    except CheckpointError as error:
        if error.kind != "not_running":
            raise
        return None


def _described(result: dict[str, Any]) -> dict[str, Any]:
    return {"running": True, **result}


def _absent(session: Session) -> dict[str, Any]:
    unknown = dict.fromkeys(("pid", "version", "protocol", "uptime_s"))
    return {"running": False, **unknown, "socket": encode(os.fsencode(session.socket)), "stores": []}
