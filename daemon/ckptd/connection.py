"""One connection: frames in, each a task of its own; answers out, each whole."""

import asyncio
import socket
from typing import Final, Protocol

import anyio
import anyio.abc
import anyio.lowlevel

from ckpt_protocol.framing import MAX_REQUEST_BYTES, FrameDecoder, FrameTooLargeError, encode_frame
from ckptd.dispatch import encode_failure
from ckptd.handlers import Peer

__all__ = ["MAX_IN_FLIGHT", "Connection", "Handling"]

MAX_IN_FLIGHT: Final = 256
"""Requests of one connection that may be under way at once."""

_READ_BYTES: Final = 65536
_HELLO: Final = b'"daemon.hello"'


class Handling(Protocol):
    """What a connection needs of the dispatcher: neither method raises for what a client sent."""

    async def handle(self, frame: bytes, peer: Peer) -> bytes | None:
        """Do what a frame asks; return the answer, or None."""
        ...

    def refuse(self, frame: bytes, kind: str, message: str) -> bytes | None:
        """Return the answer to a frame that is not done."""
        ...


class Connection:
    """A client's socket, connected and not blocking, which is closed at the end.

    ``in_flight`` counts the requests that are under way or whose answer is being sent.
    """

    def __init__(self, client: socket.socket, handling: Handling, limit_bytes: int = MAX_REQUEST_BYTES) -> None:
        self.in_flight = 0
        self._quiet = anyio.Event()
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._handling = handling
        self._limit_bytes = limit_bytes
        self._peer = Peer()
        self._sending = anyio.Lock()

    async def run(self) -> None:
        """Serve until the client has closed and all its requests are answered. Raises nothing but cancellation."""
        with self._client:
            async with anyio.create_task_group() as tasks:
                await self._read(tasks)

    async def quiet(self) -> None:
        """Wait until no request is under way."""
        if self.in_flight:
            await self._quiet.wait()

    async def _read(self, tasks: anyio.abc.TaskGroup) -> None:
        decoder = FrameDecoder(self._limit_bytes)
        while piece := await self._receive():
            try:
                frames = decoder.feed(piece)
            except FrameTooLargeError as error:
                await self._send(encode_failure(None, "frame_too_large", str(error), hint="send less in one request"))
                return
            for frame in frames:
                await self._begin(frame, tasks)
        if decoder.pending_bytes:
            await self._send(encode_failure(None, "parse_error", "the last line has no end"))

    async def _receive(self) -> bytes:
        # A read that need not wait does not yield: one busy client would keep the others from being served.
        await anyio.lowlevel.checkpoint()
        try:
            return await self._loop.sock_recv(self._client, _READ_BYTES)
        except OSError:
            return b""

    async def _begin(self, frame: bytes, tasks: anyio.abc.TaskGroup) -> None:
        if not frame.strip():
            return
        if self.in_flight >= MAX_IN_FLIGHT:
            message = f"more than {MAX_IN_FLIGHT} requests at once on one connection"
            # Sent from here, so that a client that does not read its answers is not read from either.
            await self._send(self._handling.refuse(frame, "too_many_requests", message))
            return
        if self.in_flight == 0:
            self._quiet = anyio.Event()
        self.in_flight += 1
        if _HELLO in frame:
            # What was sent along with a hello must not begin before it is known whether the two can work together.
            await self._answer(frame)
        else:
            tasks.start_soon(self._answer, frame)

    async def _answer(self, frame: bytes) -> None:
        try:
            await self._send(await self._handling.handle(frame, self._peer))
        finally:
            self.in_flight -= 1
            if self.in_flight == 0:
                self._quiet.set()

    async def _send(self, answer: bytes | None) -> None:
        if answer is None:
            return
        try:
            async with self._sending:
                await self._loop.sock_sendall(self._client, encode_frame(answer))
        except OSError:
            # The client went away; what it asked for is done, and nobody waits for the answer.
            return
