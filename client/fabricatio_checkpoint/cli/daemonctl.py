"""The daemon seen from outside: whether a process has ended, and the end of its log."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

__all__ = ["is_alive", "tail", "wait_until_ended"]

_POLL_S = 0.02
_GRACE_S = 2.0
_BLOCK_BYTES = 65536


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not yet waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return False


def wait_until_ended(pid: int, socket: str, seconds: float) -> bool:
    """Wait until a daemon that was told to stop has ended; False where it has not after ``seconds``.

    It is never asked by connecting: under socket activation that would start the next one. A socket that is gone
    while the process seems to live gives the process a moment more (in a container the number may be another's).
    """
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        now = time.monotonic()
        if now >= deadline:
            return not os.path.lexists(socket)
        if not os.path.lexists(socket):
            deadline = min(deadline, now + _GRACE_S)
        time.sleep(_POLL_S)
    return True


def tail(path: str, lines: int) -> bytes:
    """Read the last lines of a file; raises OSError."""
    with open(path, "rb") as file:
        return _tail(file, lines)


def _tail(file: BinaryIO, lines: int) -> bytes:
    position = file.seek(0, os.SEEK_END)
    found = b""
    while position and found.count(b"\n", 0, -1) < lines:
        length = min(_BLOCK_BYTES, position)
        position -= length
        file.seek(position)
        found = file.read(length) + found
    return b"".join(found.splitlines(keepends=True)[-lines:])
