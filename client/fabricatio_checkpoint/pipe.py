"""A Windows named pipe, with the meaning of a socket.

Written by the documentation of Windows and the ``_winapi`` module, after what the standard library's multiprocessing
does with it, and tried with a stand-in: it has not been run on Windows.
"""

from __future__ import annotations

import _socket
import importlib
import time

from ckpt_protocol.endpoint import Endpoint, published, read_token
from ckpt_protocol.proof import PATIENCE_S
from ckpt_protocol.remote import prove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Overlapped(Protocol):
        """An operation under way."""

        event: int

        def GetOverlappedResult(self, wait: bool, /) -> tuple[int, int]: ...
        def getbuffer(self) -> bytes | None: ...
        def cancel(self) -> None: ...

    class Api(Protocol):
        """What is used of ``_winapi``."""

        def CreateFile(self, *values: object) -> int: ...
        def ReadFile(self, handle: int, size: int, overlapped: bool) -> tuple[Overlapped, int]: ...
        def WriteFile(self, handle: int, data: bytes, overlapped: bool) -> tuple[Overlapped, int]: ...
        def WaitForMultipleObjects(self, events: list[int], wait_all: bool, milliseconds: int) -> int: ...
        def PeekNamedPipe(self, handle: int, size: int) -> tuple[int, ...]: ...
        def CloseHandle(self, handle: int) -> None: ...


__all__ = ["PipeChannel", "connect"]

_GENERIC_READ_WRITE = 0xC0000000
_OPEN_EXISTING = 3
_OVERLAPPED = 0x40000000
_WAIT_TIMEOUT = 258
_ERROR_PIPE_BUSY = 231
_ERROR_BROKEN_PIPE = 109
_SLICE_MS = 50
"""So often a wait looks whether another thread has ended the channel."""


def connect(endpoint: Endpoint, api: Api | None = None) -> PipeChannel | None:
    """Connect to the pipe and prove; None where there is none. Raises UnprovedError, AddressError and OSError."""
    found = published(endpoint)
    if found is None:
        return None
    token = read_token(found.token_file)
    try:
        channel = _open(rf"\\.\pipe\{found.place}", api or importlib.import_module("_winapi"))
    except FileNotFoundError:
        return None
    try:
        channel.settimeout(PATIENCE_S)
        prove(channel, token, found.name)
        channel.settimeout(None)
    except BaseException:
        channel.close()
        raise
    return channel


def _open(path: str, api: Api) -> PipeChannel:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            values = (path, _GENERIC_READ_WRITE, 0, 0, _OPEN_EXISTING, _OVERLAPPED, 0)
            return PipeChannel(api.CreateFile(*values), api)
        except OSError as error:
            # All instances of the pipe are taken: the daemon makes the next one at once.
            if getattr(error, "winerror", None) != _ERROR_PIPE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(_SLICE_MS / 1000)


class PipeChannel:
    """An open pipe; the methods mean what they mean with a socket."""

    def __init__(self, handle: int, api: Api) -> None:
        self._handle = handle
        self._api = api
        self._timeout_s: float | None = None
        self._ended = False

    def settimeout(self, timeout: float | None) -> None:
        """Set the longest wait in seconds; None for any."""
        self._timeout_s = timeout

    def gettimeout(self) -> float | None:
        """Give the longest wait in seconds."""
        return self._timeout_s

    def sendall(self, data: bytes, _flags: int = 0) -> None:
        """Send all of it; raises ConnectionError, TimeoutError and OSError."""
        while data:
            data = data[self.send(data) :]

    def send(self, data: bytes, _flags: int = 0) -> int:
        """Send some of it."""
        operation, _ = self._begun(lambda: self._api.WriteFile(self._handle, data, True))
        return self._finished(operation)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """Receive some bytes, none where the daemon has hung up."""
        try:
            if flags & _socket.MSG_PEEK:
                return self._peek()
            operation, _ = self._api.ReadFile(self._handle, bufsize, True)
            self._finished(operation)
            return bytes(operation.getbuffer() or b"")
        except OSError as error:
            if getattr(error, "winerror", None) == _ERROR_BROKEN_PIPE:
                return b""
            raise

    def shutdown(self, _how: int) -> None:
        """End what another thread waits for."""
        self._ended = True

    def close(self) -> None:
        """Close the pipe. May be called again."""
        handle, self._handle = self._handle, 0
        if handle:
            self._api.CloseHandle(handle)

    def _peek(self) -> bytes:
        if not self._api.PeekNamedPipe(self._handle, 0)[0]:
            raise BlockingIOError("nothing has come")
        return b"?"

    def _begun(self, begin: Callable[[], tuple[Overlapped, int]]) -> tuple[Overlapped, int]:
        try:
            return begin()
        except OSError as error:
            if getattr(error, "winerror", None) == _ERROR_BROKEN_PIPE:
                raise BrokenPipeError("the daemon closed the pipe") from error
            raise

    def _finished(self, operation: Overlapped) -> int:
        """Wait for an operation and give how many bytes it moved; raises TimeoutError and ConnectionError."""
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while self._api.WaitForMultipleObjects([operation.event], False, _SLICE_MS) == _WAIT_TIMEOUT:
            late = deadline is not None and time.monotonic() > deadline
            if late or self._ended:
                operation.cancel()
                raise TimeoutError("timed out") if late else ConnectionAbortedError("hung up")
        return operation.GetOverlappedResult(True)[0]
