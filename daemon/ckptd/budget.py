"""How much memory the clients' requests and answers take, all together, and who has to go when it is too much."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

import anyio

from ckpt_protocol.framing import MAX_REPLY_BYTES

__all__ = ["MAX_TOTAL_BYTES", "Account", "Budget"]

MAX_TOTAL_BYTES: Final = MAX_REPLY_BYTES + 64 * 1024 * 1024
"""The longest answer there is, and room for what others ask meanwhile."""


class Budget:
    """The bytes that are held for all connections. Over ``limit_bytes`` the one that holds the most is ended.

    Whoever asks for much without fetching it is the first to go; a client that takes what it asked for holds little.
    """

    def __init__(self, limit_bytes: int = MAX_TOTAL_BYTES) -> None:
        self.total_bytes = 0
        self._limit = limit_bytes
        self._accounts: set[Account] = set()

    def account(self, end: Callable[[], None]) -> "Account":
        """Give an account for a connection, to be used in a ``with`` block; ``end`` ends the connection."""
        return Account(self, end)

    def enter(self, account: "Account") -> None:
        """Take an account into the count: before that nothing is held, and nothing has to be given back."""
        self._accounts.add(account)

    def change(self, bytes_more: int) -> None:
        """Count more bytes, or fewer."""
        self.total_bytes += bytes_more
        if self.total_bytes > self._limit and self._accounts:
            # One that was ended already counts as well: what it holds is about to go, and nobody else has to.
            max(self._accounts, key=lambda account: account.held_bytes).end()

    def close(self, account: "Account") -> None:
        """Forget an account, whatever it holds."""
        self.total_bytes -= account.held_bytes
        self._accounts.discard(account)


class Account:
    """What is held for one connection: requests under way, one that has begun to arrive, answers to be sent."""

    def __init__(self, budget: Budget, end: Callable[[], None]) -> None:
        self.held_bytes = 0
        self._budget = budget
        self._end = end
        self._ended = False
        self._partial_bytes = 0
        self._fell = anyio.Event()

    def __enter__(self) -> "Account":
        self._budget.enter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._budget.close(self)

    def end(self) -> None:
        """End the connection; what it holds goes as its requests end."""
        if not self._ended:
            self._ended = True
            self._end()

    def set_partial(self, length_bytes: int) -> None:
        """Count what has arrived of a request that is not whole yet."""
        more, self._partial_bytes = length_bytes - self._partial_bytes, length_bytes
        self._change(more)

    @contextmanager
    def holding(self, length_bytes: int) -> Iterator[None]:
        """Count bytes while they are held."""
        self._change(length_bytes)
        try:
            yield
        finally:
            self._change(-length_bytes)

    async def below(self, limit_bytes: int) -> None:
        """Wait until no more than this is held, the request that is arriving aside: it could not become whole."""
        while self.held_bytes - self._partial_bytes > limit_bytes:
            self._fell = anyio.Event()
            await self._fell.wait()

    def _change(self, bytes_more: int) -> None:
        self.held_bytes += bytes_more
        self._budget.change(bytes_more)
        if bytes_more < 0:
            self._fell.set()
