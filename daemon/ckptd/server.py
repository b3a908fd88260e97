"""The server: accepts connections, keeps to its limits, and stays where clients look for it."""

import logging
import time
from contextlib import closing
from typing import Final

import anyio
import anyio.abc
import anyio.lowlevel

from ckpt_protocol.framing import encode_frame
from ckptd.budget import Budget
from ckptd.connection import Connection, Handling
from ckptd.descriptors import connection_limit, descriptors
from ckptd.dispatch import encode_failure
from ckptd.listen import Address
from ckptd.log import Seldom
from ckptd.stream import Listener, NotProvedError, Stream

__all__ = ["Server"]

_RESTED_S: Final = 1.0
"""A connection that said and heard nothing for so long may have to make room for a new one."""

_CHECK_S: Final = 3.0
_PAUSE_S: Final = 0.2
_LOST_CHECKS: Final = 3
"""So many checks in a row without the socket's directory mean that it is gone for good."""
_HASTE: Final = 5
"""So many times more often it is looked for once it was missed: the stores are for the next daemon then."""

_logger = logging.getLogger(__name__)


class Server:
    """Serves one address until run() is cancelled. ``check_s`` is the interval of looking after the socket.

    Of ``limit`` connections that are open, the one that has rested longest makes room for a new one, if it has rested
    for ``rested_s`` seconds: clients that come and go are served whoever sits there.
    """

    def __init__(
        self,
        address: Address,
        handling: Handling,
        *,
        check_s: float = _CHECK_S,
        limit: int | None = None,
        rested_s: float = _RESTED_S,
        budget: Budget | None = None,
    ) -> None:
        self.lost: Final = anyio.Event()
        """Set when the address cannot be kept: its directory is gone, or another process has taken it."""
        self.last_active = time.monotonic()
        self._address = address
        self._handling = handling
        self._check_s = check_s
        self._limit = limit or connection_limit(descriptors())
        self._rested_s = rested_s
        self._budget = budget or Budget()
        self._connections: set[Connection] = set()
        self._leaving: set[Connection] = set()
        self._unproved: set[Connection] = set()
        self._full = Seldom(_logger)
        self._strangers = Seldom(_logger)
        self._accepting = anyio.CancelScope()

    @property
    def connections(self) -> int:
        """How many clients are connected, those included that left with a request under way."""
        return len(self._connections)

    @property
    def in_flight(self) -> int:
        """How many requests of all clients are under way."""
        return sum(connection.in_flight for connection in self._connections)

    async def run(self) -> None:
        """Accept and serve; comes back only by cancellation, which ends the connections too."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look_after_address, tasks)
            tasks.start_soon(self._accept, self._address.listener, tasks)

    async def settle(self, timeout_s: float) -> None:
        """Wait until no request is under way, at most ``timeout_s`` seconds."""
        with anyio.move_on_after(timeout_s):
            while (busy := next((one for one in self._connections if one.in_flight), None)) is not None:
                await busy.quiet()

    async def _accept(self, listener: Listener, tasks: anyio.abc.TaskGroup) -> None:
        # The event loop must let go of the listener before it is closed: closing is left to this task.
        with closing(listener), anyio.CancelScope() as self._accepting:
            while True:
                await self._accept_one(listener, tasks)

    async def _accept_one(self, listener: Listener, tasks: anyio.abc.TaskGroup) -> None:
        await anyio.lowlevel.checkpoint()
        try:
            client = await listener.accept()
        except OSError as error:
            # The connection waits in the backlog until there is room again.
            self._full.warn("cannot accept for now: %s", error)
            self._make_room()
            await anyio.sleep(_PAUSE_S)
        else:
            self._admit(client, tasks)

    def _admit(self, client: Stream, tasks: anyio.abc.TaskGroup) -> None:
        if (stranger := client.stranger()) is not None:
            self._strangers.warn("refused a connection of %s", stranger)
            _turn_away(client, "forbidden_peer", "this daemon serves another user")
        elif len(self._connections) - len(self._leaving) >= self._limit and not self._make_room():
            self._full.warn("refused a connection: %s are open and busy", self._limit)
            _turn_away(client, "too_many_requests", f"more than {self._limit} connections")
        else:
            connection = Connection(client, self._handling, budget=self._budget)
            self._connections.add(connection)
            tasks.start_soon(self._serve, client, connection)

    def _make_room(self) -> bool:
        """Hang up on the client that has rested longest, on one that has proved nothing first; False if none rests."""
        latest = time.monotonic() - self._rested_s
        resting = [one for one in self._connections - self._leaving if one.rests and one.last_active < latest]
        if not resting:
            return False
        longest = min(resting, key=lambda one: (one not in self._unproved, one.last_active))
        self._full.warn("hung up on a client that rested, for there are %s", len(self._connections))
        self._leaving.add(longest)
        longest.abandon()
        return True

    async def _serve(self, client: Stream, connection: Connection) -> None:
        self._unproved.add(connection)
        try:
            await client.prove()
            self._unproved.discard(connection)
            await connection.run()
        except (NotProvedError, OSError) as error:
            self._strangers.warn("refused a connection: %s", error)
            _turn_away(client, "forbidden_peer", f"this address needs a proof first: {error}")
        finally:
            client.close()
            self._connections.discard(connection)
            self._leaving.discard(connection)
            self._unproved.discard(connection)
            self.last_active = time.monotonic()

    async def _look_after_address(self, tasks: anyio.abc.TaskGroup) -> None:
        missing = 0
        while not self.lost.is_set():
            await anyio.sleep(self._check_s / _HASTE if missing else self._check_s)
            if self._address.is_ours():
                missing = 0
                self._look_after_lock()
            elif self._address.adopted or missing >= _LOST_CHECKS:
                _logger.error("the socket %s is gone", self._address.path)
                self.lost.set()
            elif not self._address.directory_exists():
                missing += 1
            else:
                self._rebind(tasks)

    def _look_after_lock(self) -> bool:
        """Tell whether the lock is ours, which it must be to touch the socket."""
        try:
            kept = self._address.keep_lock()
        except OSError as error:
            _logger.warning("cannot look after the lock of %s: %s", self._address.path, error)
            return False
        if not kept:
            _logger.error("another daemon has taken %s", self._address.path)
            self.lost.set()
        return kept

    def _rebind(self, tasks: anyio.abc.TaskGroup) -> None:
        if not self._look_after_lock():
            return
        try:
            new = self._address.bind()
        except OSError as error:
            _logger.warning("cannot bind %s again: %s", self._address.path, error)
            return
        _logger.warning("the socket %s was replaced or removed: bound again", self._address.path)
        self._accepting.cancel()
        tasks.start_soon(self._accept, new, tasks)


def _turn_away(client: Stream, kind: str, message: str) -> None:
    with closing(client):
        try:
            # One small frame always fits into the buffer of a new connection: nobody can hold the server up here.
            client.say(encode_frame(encode_failure(None, kind, message)))
        except OSError as error:
            _logger.info("could not say why: %s", error)
