"""Tells whoever listens what has happened to worktrees and stores."""

import itertools
import time
from collections.abc import Callable
from datetime import UTC, datetime

from ckpt_protocol.events import Detail, Event, EventKind
from ckpt_protocol.structs import to_wire
from ckptd.core.subscription import Subscription, Wanted

__all__ = ["Bus"]


class Bus:
    """The events of one daemon. Used in the event loop only: a thread goes by ``loop.call_soon_threadsafe``.

    Publishing never waits and never fails: a listener that does not read loses its oldest events, nobody else any.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.seq = 0
        """The number of the newest event."""
        self._clock = clock
        self._numbers = itertools.count(1)
        self._subscriptions: dict[int, Subscription] = {}

    def publish(self, kind: EventKind, checkpoint_dir: bytes, worktree: bytes | None = None, **data: Detail) -> None:
        """Tell an event, after it has become true on disk. Both paths are real and absolute."""
        self.seq += 1
        listening = [one for one in self._subscriptions.values() if one.wanted.has(kind, checkpoint_dir, worktree)]
        if not listening:
            return
        event = Event(
            subscription=0,
            seq=self.seq,
            time=datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            kind=kind,
            checkpoint_dir=to_wire(checkpoint_dir),
            worktree=None if worktree is None else to_wire(worktree),
            data=data,
        )
        for one in listening:
            one.offer(event)

    def subscribe(self, wanted: Wanted, limit: int) -> Subscription:
        """Queue what is published from now on, until unsubscribe()."""
        subscription = Subscription(next(self._numbers), wanted, limit)
        self._subscriptions[subscription.number] = subscription
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Queue nothing more. May be called again."""
        self._subscriptions.pop(subscription.number, None)
