"""What Windows offers for named pipes, played with Unix sockets: as much as ``fabricatio_checkpoint.pipe`` uses."""

import select
import socket
from collections.abc import Callable

__all__ = ["ERROR_BROKEN_PIPE", "ERROR_PIPE_BUSY", "FakeWinApi", "windows_error"]

ERROR_PIPE_BUSY = 231
ERROR_BROKEN_PIPE = 109
WAIT_OBJECT_0 = 0
WAIT_TIMEOUT = 258


def windows_error(number: int) -> OSError:
    error = OSError(f"Windows error {number}")
    error.winerror = number
    return error


class Operation:
    """A read or a write under way; its event is the number by which the fake knows it."""

    def __init__(self, event: int, connected: socket.socket, write: bytes | None, size: int = 0) -> None:
        self.event = event
        self.connected = connected
        self.write = write
        self.size = size
        self.buffer = b""
        self.cancelled = False

    def is_ready(self, seconds: float) -> bool:
        waits = ([], [self.connected], []) if self.write is not None else ([self.connected], [], [])
        return any(select.select(*waits, seconds))

    def GetOverlappedResult(self, wait: bool) -> tuple[int, int]:
        assert not self.cancelled
        if self.write is not None:
            return self.connected.send(self.write), 0
        self.buffer = self.connected.recv(self.size)
        if not self.buffer:
            raise windows_error(ERROR_BROKEN_PIPE)
        return len(self.buffer), 0

    def getbuffer(self) -> bytes:
        return self.buffer

    def cancel(self) -> None:
        self.cancelled = True


class FakeWinApi:
    """``where`` tells which Unix socket stands for a pipe; ``busy`` so many times all instances are taken."""

    def __init__(self, where: Callable[[str], str], busy: int = 0) -> None:
        self.where = where
        self.busy = busy
        self.open: dict[int, socket.socket] = {}
        self._operations: dict[int, Operation] = {}

    def CreateFile(self, name: str, *_values: object) -> int:
        if self.busy:
            self.busy -= 1
            raise windows_error(ERROR_PIPE_BUSY)
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.connect(self.where(name))
        except BaseException:
            connected.close()
            raise
        self.open[connected.fileno()] = connected
        return connected.fileno()

    def ReadFile(self, handle: int, size: int, overlapped: bool) -> tuple[Operation, int]:
        return self._begin(handle, None, size), 0

    def WriteFile(self, handle: int, data: bytes, overlapped: bool) -> tuple[Operation, int]:
        return self._begin(handle, data, 0), 0

    def WaitForMultipleObjects(self, events: list[int], wait_all: bool, milliseconds: int) -> int:
        (event,) = events
        return WAIT_OBJECT_0 if self._operations[event].is_ready(milliseconds / 1000) else WAIT_TIMEOUT

    def PeekNamedPipe(self, handle: int, size: int) -> tuple[int, int]:
        waiting = select.select([self.open[handle]], [], [], 0)[0]
        if not waiting:
            return 0, 0
        found = len(self.open[handle].recv(1, socket.MSG_PEEK))
        if not found:
            raise windows_error(ERROR_BROKEN_PIPE)
        return found, found

    def CloseHandle(self, handle: int) -> None:
        self.open.pop(handle).close()

    def _begin(self, handle: int, write: bytes | None, size: int) -> Operation:
        event = len(self._operations)
        self._operations[event] = Operation(event, self.open[handle], write, size)
        return self._operations[event]
