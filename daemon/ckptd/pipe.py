"""A Windows named pipe, for where there is no Unix socket and nobody wants a port.

Written by the documentation of asyncio's Proactor loop and tried with a stand-in for it. It has not been run on
Windows, where other parts of the daemon (locks by ``flock``, signals) would have to be brought first.
"""

import asyncio
import stat
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

from ckpt_protocol.endpoint import Endpoint
from ckptd.listen import Address
from ckptd.stream import Listener, Stream
from ckptd.tcp import Turnstile, token_of, write_private

__all__ = ["PipeAddress", "PipeListener", "PipeStream", "pipe_path"]


class _Server(Protocol):
    def close(self) -> None: ...


ProtocolFactory = Callable[[], asyncio.Protocol]
Serve = Callable[[ProtocolFactory, str], Awaitable[list[_Server]]]


def pipe_path(endpoint: Endpoint) -> str:
    """The name by which Windows knows the pipe."""
    return rf"\\.\pipe\{endpoint.place}"


class PipeAddress(Address):
    """A named pipe. ``path`` is the address file, the token lies beside it, as with TCP."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint: Final = endpoint
        super().__init__(endpoint.file, text=endpoint.text)

    def listen(self, file: str) -> Listener:
        """Write the address file. The pipe itself is made by the first accept(), which has the event loop."""
        token = token_of(self._endpoint)
        write_private(file, f"{self._endpoint.name}\n")
        return PipeListener(pipe_path(self._endpoint), Turnstile(token, self._endpoint.name))

    def belongs(self, mode: int) -> bool:
        """An address file is a regular one."""
        return stat.S_ISREG(mode)

    def answers(self) -> bool:
        """Nothing is known of a pipe without taking part in it: a start waits for its lock as long as it may."""
        return False


class PipeListener:
    """Accepts clients of a pipe. ``serve`` is the event loop's own, unless another one is given."""

    def __init__(self, path: str, turnstile: Turnstile, serve: Serve | None = None) -> None:
        self._path = path
        self._turnstile = turnstile
        self._serve = serve or _serve_pipe
        self._servers: list[_Server] | None = None
        self._accepted: asyncio.Queue[Stream] = asyncio.Queue()

    async def accept(self) -> Stream:
        """Wait for the next client; raises OSError where another process has a pipe of this name."""
        if self._servers is None:
            self._servers = await self._serve(self._protocol, self._path)
        return await self._accepted.get()

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers or ():
            server.close()

    def _protocol(self) -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._connected)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._accepted.put_nowait(PipeStream(reader, writer, self._turnstile))


class PipeStream:
    """A client of a pipe."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, turnstile: Turnstile) -> None:
        self._reader = reader
        self._writer = writer
        self._turnstile = turnstile

    def stranger(self) -> str | None:
        """Nobody is one until it fails to prove itself."""
        return None

    async def prove(self) -> None:
        """See Stream."""
        await self._turnstile.prove(self)

    async def receive(self, most_bytes: int) -> bytes:
        """See Stream."""
        return await self._reader.read(most_bytes)

    async def send(self, data: bytes) -> None:
        """See Stream."""
        self._writer.write(data)
        await self._writer.drain()

    def say(self, data: bytes) -> None:
        """See Stream."""
        self._writer.write(data)

    def is_gone(self) -> bool:
        """See Stream. A pipe has no half: who ends its side is gone."""
        return self._reader.at_eof()

    def end(self) -> None:
        """See Stream."""
        self._writer.transport.abort()

    def close(self) -> None:
        """See Stream. What was said is still sent."""
        self._writer.close()


async def _serve_pipe(factory: ProtocolFactory, path: str) -> list[_Server]:
    # Only the Proactor loop of Windows has it, so that types elsewhere do not know it.
    loop = cast("Any", asyncio.get_running_loop())
    return list(await loop.start_serving_pipe(factory, path))
