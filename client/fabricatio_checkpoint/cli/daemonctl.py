"""The daemon seen from outside: whether a process has ended, and the end of its log."""

from __future__ import annotations

import os
import time

from ckpt_protocol.address import file_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO

__all__ = ["Follower", "is_alive", "tail", "wait_until_ended"]

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


def wait_until_ended(pid: int, address: str, seconds: float) -> bool:
    """Wait until a daemon that was told to stop has ended; False where it has not after ``seconds``.

    It is never asked by connecting: under socket activation that would start the next one. A socket that is gone
    while the process seems to live gives the process a moment more (in a container the number may be another's).
    """
    socket = file_of(address)
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
    with open(path, "rb", buffering=0) as file:
        return _tail(file, lines)


class Follower:
    """Reads what is added to a file, and goes on with the one that takes its place, as ``tail -F`` does.

    A file that is not there, at first or in between, is waited for. Methods raise OSError.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: FileIO | None = None

    def begin(self, lines: int) -> bytes | None:
        """Give the last lines, to go on after them; None where there is no file yet."""
        self._file = _open_if_there(self._path)
        return None if self._file is None else _tail(self._file, lines)

    def added(self) -> Iterator[bytes]:
        """Give what was added since the last time, piece by piece; nothing where that is nothing."""
        yield from self._rest()
        if self._is_replaced():
            # Its writer has left it by now: what came in between belongs before the new one's first line.
            yield from self._rest()
            self.close()
            self._file = _open_if_there(self._path)
            yield from self._rest()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rest(self) -> Iterator[bytes]:
        if self._file is None:
            return
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            # Cut short: all that is in it now is new.
            self._file.seek(0)
        while data := self._file.read(_BLOCK_BYTES):
            yield data

    def _is_replaced(self) -> bool:
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        return self._file is None or not os.path.samestat(there, os.fstat(self._file.fileno()))


def _open_if_there(path: str) -> FileIO | None:
    try:
        return open(path, "rb", buffering=0)
    except FileNotFoundError:
        return None


def _tail(file: FileIO, lines: int) -> bytes:
    end = position = file.seek(0, os.SEEK_END)
    found = b""
    while position and found.count(b"\n", 0, -1) < lines:
        length = min(_BLOCK_BYTES, position)
        position -= length
        file.seek(position)
        found = file.read(length) + found
    file.seek(end)
    return b"".join(found.splitlines(keepends=True)[-lines:])
