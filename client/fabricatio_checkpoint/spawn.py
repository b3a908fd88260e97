"""Starts the daemon as a process of its own, once for however many clients ask, and waits until it answers."""

import _socket
import errno
import fcntl
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from ckpt_protocol.address import ensure_private, state_dir
from fabricatio_checkpoint.errors import CheckpointError, error_of
from fabricatio_checkpoint.launch import dial

__all__ = ["DEADLINE_S", "start"]

DEADLINE_S = 15.0
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.2
_TAIL_BYTES = 4096
_TAIL_LINES = 15
_LOG_LIMIT_BYTES = 1024 * 1024

_NOT_INHERITED = (
    "GIT_",  # would lead the daemon to another repository
    "LISTEN_",  # sockets, watchdogs and the notify socket are of the unit that the caller runs in
    "NOTIFY_SOCKET",
    "WATCHDOG_",
    "JOURNAL_STREAM",
    "INVOCATION_ID",
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


def start(path: str, environ: Mapping[str, str]) -> _socket.socket:
    """Start the daemon for the socket ``path``, unless another client just does, and connect to it.

    Waits at most DEADLINE_S. Raises DaemonStartError with the end of what the daemon wrote.
    """
    directory = state_dir(environ)
    try:
        ensure_private(directory)
        lock = _open_lock(directory, path)
    except OSError as error:
        raise error_of("start_failed", f"cannot start the daemon: {error}") from error
    try:
        return _start_under(lock, path, directory, environ)
    finally:
        # Unlocked by name: a child forked elsewhere in the process may hold a copy of the descriptor.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _start_under(lock: int, path: str, directory: str, environ: Mapping[str, str]) -> _socket.socket:
    log = _Log(os.path.join(directory, "ckptd.start.log"), 0)
    deadline = time.monotonic() + DEADLINE_S
    pause = _FIRST_PAUSE_S
    child: _Detached | None = None
    while True:
        mine = child is None and _locked(lock)
        ended = child is not None and child.poll() is not None
        connected = dial(path)
        if connected is not None:
            return connected
        if ended or time.monotonic() > deadline:
            raise _failed(path, child, log)
        if mine:
            child, log = _spawn(path, log.path, environ)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def _open_lock(directory: str, path: str) -> int:
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(os.path.join(directory, f"start-{digest}.lock"), flags, 0o600)


def _locked(lock: int) -> bool:
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
                [sys.executable, "-m", "ckptd", "--socket", path],
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
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(log).st_size > _LOG_LIMIT_BYTES:
        os.ftruncate(log, 0)
    return log


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
