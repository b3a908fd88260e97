"""One listener's events: what it wants to hear, and those that it has not read yet."""

from collections import deque
from typing import NamedTuple

import anyio
import msgspec

from ckpt_protocol.events import Event

__all__ = ["Subscription", "Wanted"]


class Wanted(NamedTuple):
    """Which events are of interest; None and empty stand for all. Paths are real and absolute."""

    checkpoint_dir: bytes | None = None
    worktree: bytes | None = None
    kinds: frozenset[str] = frozenset()

    def has(self, kind: str, checkpoint_dir: bytes, worktree: bytes | None) -> bool:
        """Tell whether an event is one of them."""
        return (
            (not self.kinds or kind in self.kinds)
            and self.checkpoint_dir in (None, checkpoint_dir)
            and self.worktree in (None, worktree)
        )


class Subscription:
    """A bounded queue of events. At most ``limit`` wait; the oldest make room, and the next one read says so."""

    def __init__(self, number: int, wanted: Wanted, limit: int) -> None:
        self.number = number
        self.wanted = wanted
        self._limit = limit
        self._waiting: deque[Event] = deque()
        self._missed = 0
        self._arrived = anyio.Event()
        self._closed = False

    def offer(self, event: Event) -> None:
        """Queue an event; never waits for the reader."""
        if len(self._waiting) >= self._limit:
            self._waiting.popleft()
            self._missed += 1
        self._waiting.append(msgspec.structs.replace(event, subscription=self.number))
        self._arrived.set()

    def close(self) -> None:
        """Give no more events, not even those that wait."""
        self._closed = True
        self._arrived.set()

    async def next(self) -> Event | None:
        """Give the oldest event that waits, or the next one; it tells how many were lost before it. None: closed."""
        while not self._waiting and not self._closed:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        if self._closed:
            return None
        event, missed = self._waiting.popleft(), self._missed
        self._missed = 0
        return msgspec.structs.replace(event, lost=True, missed=missed) if missed else event
