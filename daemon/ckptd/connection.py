"""One connection: frames in, each a task of its own; answers out, each whole."""

import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Final, Protocol

import anyio
import anyio.abc
import anyio.lowlevel

from ckpt_protocol.framing import MAX_REQUEST_BYTES, FrameDecoder, FrameTooLargeError, encode_frame
from ckptd.budget import Budget
from ckptd.dispatch import encode_failure
from ckptd.peer import Outbox, Peer
from ckptd.stream import Stream

__all__ = ["MAX_HELD_BYTES", "MAX_IN_FLIGHT", "Connection", "Handling"]

MAX_IN_FLIGHT: Final = 192
"""Requests of one connection that may be under way at once: fewer than fit into the mailbox of a worktree."""

MAX_HELD_BYTES: Final = 2 * MAX_REQUEST_BYTES
"""A connection of which so much is held, requests under way and answers not sent yet, is not read from."""

_LOOK_S: Final = 0.1
_READ_BYTES: Final = 65536
_HELLO: Final = b'"daemon.hello"'


class Handling(Protocol):
    """What a connection needs of the dispatcher: neither method raises for what a client sent."""

    async def handle(self, frame: bytes, peer: Peer) -> bytes | None:
        """Do what a frame asks; return the answer, or None."""
        ...

    def refuse(self, frame: bytes, kind: str, message: str, peer: Peer) -> bytes | None:
        """Return the answer to a frame that is not done."""
        ...


class Connection(Outbox):
    """A client's stream, which is closed at the end.

    ``in_flight`` counts the requests that are under way or whose answer is being sent; ``last_active`` is when a
    request came in or an answer was sent, on the clock of time.monotonic(). ``budget`` counts what is held.
    """

    def __init__(
        self,
        client: Stream,
        handling: Handling,
        limit_bytes: int = MAX_REQUEST_BYTES,
        budget: Budget | None = None,
    ) -> None:
        self.in_flight = 0
        self.last_active = time.monotonic()
        self._at_work = 0
        self._account = (budget or Budget()).account(self.abandon)
        self._quiet = anyio.Event()
        self._client = client
        self._handling = handling
        self._limit_bytes = limit_bytes
        self._peer = Peer(self)
        self._tasks: anyio.abc.TaskGroup | None = None
        self._sending = anyio.Lock()

    async def run(self) -> None:
        """Serve until the client has closed and all its requests are answered. Raises nothing but cancellation."""
        with closing(self._client), self._account:
            async with anyio.create_task_group() as self._tasks:
                await self._read(self._tasks)
                self._peer.close()
                await self._look_whether_gone()

    @property
    def rests(self) -> bool:
        """Tell whether nothing is being done for the client: it says nothing, or does not fetch its answers."""
        return self._at_work == 0

    def abandon(self) -> None:
        """Hang up: nothing more is read or sent. What is under way is finished all the same."""
        # Not closed, which would pull the descriptor from under a read or a write that waits.
        self._client.end()

    async def quiet(self) -> None:
        """Wait until no request is under way."""
        if self.in_flight:
            await self._quiet.wait()

    def post(self, message: bytes, still_true: Callable[[], bool]) -> None:
        """See Outbox."""
        if self._tasks is not None and not self._sending.locked():
            self._tasks.start_soon(self._send, message, still_true)

    async def send(self, message: bytes) -> None:
        """See Outbox."""
        await self._send(message)

    def spawn(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """See Outbox."""
        if self._tasks is not None:
            self._tasks.start_soon(self._work, work)

    async def _work(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        # Who listens for events does not sit there for nothing.
        self._at_work += 1
        try:
            await work()
        finally:
            self._at_work -= 1

    async def _look_whether_gone(self) -> None:
        """Wait for the answers of a client that says nothing more, and notice when it does not even listen."""
        while self.in_flight:
            if self._client.is_gone():
                self._peer.is_gone()
                return
            with anyio.move_on_after(_LOOK_S):
                await self.quiet()

    async def _read(self, tasks: anyio.abc.TaskGroup) -> None:
        decoder = FrameDecoder(self._limit_bytes)
        while piece := await self._receive():
            try:
                frames = decoder.feed(piece)
            except FrameTooLargeError as error:
                await self._send(encode_failure(None, "frame_too_large", str(error), hint="send less in one request"))
                return
            self._account.set_partial(decoder.pending_bytes)
            for frame in frames:
                await self._begin(frame, tasks)
        if decoder.pending_bytes:
            await self._send(encode_failure(None, "parse_error", "the last line has no end"))

    async def _receive(self) -> bytes:
        # A read that need not wait does not yield: one busy client would keep the others from being served.
        await anyio.lowlevel.checkpoint()
        # Who asks for much and fetches nothing waits for room, and nobody else does.
        await self._account.below(MAX_HELD_BYTES)
        try:
            return await self._client.receive(_READ_BYTES)
        except OSError:
            return b""

    async def _begin(self, frame: bytes, tasks: anyio.abc.TaskGroup) -> None:
        if not frame.strip():
            return
        self.last_active = time.monotonic()
        if self.in_flight >= MAX_IN_FLIGHT:
            message = f"more than {MAX_IN_FLIGHT} requests at once on one connection"
            # Sent from here, so that a client that does not read its answers is not read from either.
            await anyio.lowlevel.checkpoint()
            await self._send(self._handling.refuse(frame, "too_many_requests", message, self._peer))
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
            await self._send(await self._handle(frame))
        finally:
            self.in_flight -= 1
            if self.in_flight == 0:
                self._quiet.set()

    async def _handle(self, frame: bytes) -> bytes | None:
        self._at_work += 1
        try:
            with self._account.holding(len(frame)):
                return await self._handling.handle(frame, self._peer)
        finally:
            self._at_work -= 1

    async def _send(self, answer: bytes | None, still_true: Callable[[], bool] = lambda: True) -> None:
        if answer is None:
            return
        try:
            with self._account.holding(len(answer)):
                async with self._sending:
                    if not still_true():
                        return
                    await self._client.send(encode_frame(answer))
                    self.last_active = time.monotonic()
        except OSError:
            # The client went away; what it asked for is done, and nobody waits for the answer.
            self._peer.is_gone()
