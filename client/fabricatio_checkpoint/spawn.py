"""Starts the daemon as a process of its own, once for however many clients ask, and waits until it answers."""

import errno
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from ckpt_protocol.address import ensure_private, state_dir
from ckpt_protocol.framing import encode_frame
from fabricatio_checkpoint.errors import CheckpointError, error_of
from fabricatio_checkpoint.launch import dial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fabricatio_checkpoint.launch import Channel

__all__ = ["DEADLINE_S", "start"]

DEADLINE_S = 15.0
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.2
_TAIL_BYTES = 4096
_TAIL_LINES = 15
_LOG_LIMIT_BYTES = 1024 * 1024
_ENDING_S = 5.0
"""How long a daemon that hung up may take to end."""

_STARTS = 3
_ENDED_FROM_OUTSIDE = (0, -signal.SIGHUP, -signal.SIGINT, -signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of a daemon that somebody told to stop in its first moment: that is no reason not to start one."""

_WRITABLE = "its logs and its socket need a directory that you can write to: set HOME, or XDG_STATE_HOME"
_UNWRITABLE = (errno.EROFS, errno.ENOSPC, errno.EDQUOT)
_QUESTION = encode_frame(b'{"jsonrpc":"2.0","method":"daemon.status","params":{},"id":"start"}')
"""Answered once all is loaded. Any answer will do, also one of another version, and one that comes too late."""

_NOT_INHERITED = (
    "GIT_",  # would lead the daemon to another repository
    "LISTEN_",  # sockets, watchdogs and the notify socket are of the unit that the caller runs in
    "NOTIFY_SOCKET",
    "WATCHDOG_",
    "JOURNAL_STREAM",
    "INVOCATION_ID",
    # How the caller wants its own program looked at: a warning of some library must not end the daemon.
    "PYTHONWARNINGS",
    "PYTHONDEVMODE",
    "PYTHONINSPECT",
    "PYTHONVERBOSE",
    "PYTHONPROFILEIMPORTTIME",
    "PYTHONTRACEMALLOC",
    "PYTHONASYNCIODEBUG",
)


class _Detached(subprocess.Popen[bytes]):
    """A child that is meant to outlive its parent: that it still runs when this object goes is no leak."""

    def __del__(self) -> None:
        return None


class _Log(NamedTuple):
    path: str
    offset: int


# Kept so that they can be waited for: a daemon that ends leaves a zombie until the next start, no longer.
_children: list[_Detached] = []


def start(path: str, environ: Mapping[str, str]) -> "Channel":
    """Start the daemon for the socket ``path``, unless another client just does, and connect to it.

    Waits at most DEADLINE_S. Raises DaemonStartError with the end of what the daemon wrote.
    """
    directory = state_dir(environ)
    try:
        lock = _open_lock(directory, path)
    except OSError as error:
        hint = _WRITABLE if error.filename is not None else None
        raise error_of("start_failed", f"cannot start the daemon: {error}", hint=hint) from error
    try:
        return _start_under(lock, path, directory, environ)
    finally:
        if lock is not None:
            # Unlocked by name: a child forked elsewhere in the process may hold a copy of the descriptor.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)


def _start_under(lock: int | None, path: str, directory: str, environ: Mapping[str, str]) -> "Channel":
    log = _Log(os.path.join(directory, "ckptd.start.log"), 0)
    deadline = time.monotonic() + DEADLINE_S
    pause = _FIRST_PAUSE_S
    child: _Detached | None = None
    starts = _STARTS
    while True:
        mine = child is None and starts > 0 and _locked(lock)
        code = None if child is None else child.poll()
        connected = dial(path)
        if connected is not None and (child is None or _answers(connected, deadline)):
            return connected
        if connected is not None and child is not None:
            code = _end_of(child)
        if code in _ENDED_FROM_OUTSIDE and starts:
            child, code = None, None
        if code is not None or time.monotonic() > deadline:
            raise _failed(path, child, log)
        if mine:
            child, log = _spawn(path, log.path, environ)
            starts -= 1
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _answers(sock: "Channel", deadline: float) -> bool:
    """Wait for the first answer; False where the daemon hangs up instead: what it imports may be broken."""
    piece = b"\n"
    try:
        sock.settimeout(max(0.1, deadline - time.monotonic()))
        sock.sendall(_QUESTION)
        while (piece := sock.recv(65536)) and not piece.endswith(b"\n"):
            pass
    except TimeoutError:
        # It is slow, but it is there: from here on it is the caller's patience that counts.
        pass
    except OSError:
        piece = b""
    sock.settimeout(None)
    if not piece:
        sock.close()
    return bool(piece)


def _end_of(child: _Detached) -> int | None:
    """Wait for the exit code of a daemon that has hung up."""
    try:
        return child.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        return None


def _open_lock(directory: str, path: str) -> int | None:
    """Open the start lock; None where nothing can be written: then the daemon's own lock has to do."""
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        ensure_private(directory)
        lock = os.open(os.path.join(directory, f"start-{digest}.lock"), flags, 0o600)
    except OSError as error:
        if error.errno in _UNWRITABLE:
            return None
        raise
    _set_mode(lock)
    return lock


def _locked(lock: int | None) -> bool:
    if lock is None:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks: two daemons may be started, and their own lock leaves one.
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _spawn(path: str, log_path: str, environ: Mapping[str, str]) -> tuple[_Detached, _Log]:
    if not sys.executable:
        raise error_of("start_failed", "cannot start the daemon: this program does not know its Python interpreter")
    _reap()
    wanted = {name: value for name, value in environ.items() if not name.startswith(_NOT_INHERITED)}
    try:
        log = _open_log(log_path)
        try:
            offset = os.fstat(log).st_size
            child = _Detached(
                # -P: what lies in the current directory must not become part of the daemon.
                [sys.executable, "-P", "-m", "ckptd", "--socket", path],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=wanted,
                start_new_session=True,
            )
        finally:
            os.close(log)
    except OSError as error:
        raise error_of("start_failed", f"cannot start the daemon: {error}") from error
    _children.append(child)
    return child, _Log(log_path, offset)


def _open_log(path: str) -> int:
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno not in (*_UNWRITABLE, errno.ENOENT):
            raise
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    _set_mode(log)
    if os.fstat(log).st_size > _LOG_LIMIT_BYTES:
        os.ftruncate(log, 0)
    return log


def _set_mode(fd: int) -> None:
    """Make a file one that its owner can open again, whatever umask took away when it was made."""
    if os.fstat(fd).st_mode & 0o777 != 0o600:
        os.fchmod(fd, 0o600)


def _reap() -> None:
    _children[:] = [child for child in _children if child.poll() is None]


def _failed(path: str, child: _Detached | None, log: _Log) -> CheckpointError:
    if child is None:
        return error_of("start_failed", f"another client is starting the daemon, and nothing listens at {path} yet")
    ended = child.poll()
    what = f"did not listen at {path} within {DEADLINE_S:g} s" if ended is None else f"ended with status {ended}"
    tail = _tail(log)
    said = f"; it said:\n{tail}" if tail else " without a word"
    return error_of("start_failed", f"the daemon was started and {what}{said}", hint=f"see {log.path}")


def _tail(log: _Log) -> str:
    """Read the end of what this start wrote."""
    try:
        with open(log.path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(log.offset, size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_TAIL_LINES:]).rstrip()
