"""stdin and stdout for the SDK's transport, which would use them in threads that nothing can end."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from select import PIPE_BUF
from typing import Final

from anyio import wait_readable, wait_writable

from ckpt_protocol.framing import MAX_REQUEST_BYTES, FrameDecoder

__all__ = ["Lines", "Outlet", "own_stdout"]

_PIECE_BYTES: Final = 64 * 1024
_STDOUT: Final = 1
_STDERR: Final = 2


class Lines:
    """Gives one line after the other, until the other end is closed; can be cancelled at any time.

    Raises FrameTooLargeError for a line that does not end.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def __aiter__(self) -> AsyncIterator[str]:
        """Give the next line."""
        decoder = FrameDecoder(MAX_REQUEST_BYTES)
        while True:
            await _ready(wait_readable, self._fd)
            data = os.read(self._fd, _PIECE_BYTES)
            if not data:
                return
            for frame in decoder.feed(data):
                yield frame.decode("utf-8", "replace")


class Outlet:
    """Takes text; can be cancelled at any time, also where nobody reads. Raises BrokenPipeError where nobody can."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def write(self, text: str) -> None:
        """Write all of a text."""
        data = memoryview(text.encode())
        while data:
            await _ready(wait_writable, self._fd)
            # A pipe that can be written to has room for so much; for more it would hold up everything.
            data = data[os.write(self._fd, data[:PIPE_BUF]) :]

    async def flush(self) -> None:
        """Nothing is held back."""


@contextmanager
def own_stdout() -> Iterator[int]:
    """Give stdout as a descriptor that nobody else has: what else is written to it meanwhile goes to stderr."""
    private = os.dup(_STDOUT)
    try:
        os.dup2(_STDERR, _STDOUT)
        try:
            yield private
        finally:
            os.dup2(private, _STDOUT)
    finally:
        os.close(private)


async def _ready(wait: Callable[[int], Awaitable[None]], fd: int) -> None:
    try:
        await wait(fd)
    except PermissionError:
        # A regular file or /dev/null is always ready, and cannot be asked.
        return
