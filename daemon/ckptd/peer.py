"""Who is at the other end of a connection: what its hello said, its requests without an answer, what it listens to."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from ckpt_protocol.envelope import RequestId, notification
from ckpt_protocol.events import EVENT
from ckptd.asked import Asked
from ckptd.core.bus import Bus
from ckptd.core.subscription import Subscription, Wanted
from ckptd.errors import DomainError

__all__ = ["MAX_SUBSCRIPTIONS", "Peer"]

MAX_SUBSCRIPTIONS: Final = 32
"""Of one connection."""


class Outbox:
    """Where a peer is told what it did not ask for in so many words. This one has nobody at its end."""

    def post(self, _message: bytes, _still_true: Callable[[], bool]) -> None:
        """Send a message unless the peer is slow, or it is no longer true when its turn comes. Never waits."""

    async def send(self, _message: bytes) -> None:
        """Send a message, however long that takes."""

    def spawn(self, _work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Do something beside, as long as the connection lasts."""


class Peer:
    """The state of one connection. A connection without a hello is unknown.

    ``refused`` is why its hello was refused: then it gets nothing but the methods about the daemon itself.
    ``wants_progress``: its hello asked to be told how far its requests are.
    """

    def __init__(self, outbox: Outbox | None = None) -> None:
        self.client = "unknown"
        self.session: str | None = None
        self.refused: DomainError | None = None
        self.wants_progress = False
        self._outbox = outbox or Outbox()
        self._open: dict[Asked, None] = {}
        self._subscriptions: dict[int, tuple[Bus, Subscription]] = {}

    def begin(self, request_id: RequestId, *, writes: bool) -> Asked:
        """Note a request that has arrived; it can be called off from now on, until end()."""
        asked = Asked(self, request_id, writes=writes)
        self._open[asked] = None
        if self.wants_progress and request_id is not None:
            asked.tell_progress()
        return asked

    def end(self, asked: Asked) -> None:
        """Note that a request has its answer. May be called again."""
        asked.close()
        self._open.pop(asked, None)

    def cancel(self, request_id: str | int) -> None:
        """Call off what has this id and no answer yet; nothing else has any."""
        for asked in [asked for asked in self._open if asked.id == request_id]:
            asked.caller.call_off()

    def is_gone(self) -> None:
        """Call off what only reads: nobody is there to take the answer. What writes is done to its end."""
        for asked in [asked for asked in self._open if not asked.writes]:
            asked.caller.call_off()

    def post(self, message: bytes, still_true: Callable[[], bool]) -> None:
        """Tell something that is of no use later."""
        self._outbox.post(message, still_true)

    def subscribe(self, bus: Bus, wanted: Wanted, limit: int) -> int:
        """Send events from now on; give the number of the subscription. Raises DomainError where there are many."""
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            raise DomainError("too_many_requests", f"more than {MAX_SUBSCRIPTIONS} subscriptions on one connection")
        subscription = bus.subscribe(wanted, limit)
        self._subscriptions[subscription.number] = (bus, subscription)
        self._outbox.spawn(partial(self._pump, subscription))
        return subscription.number

    def unsubscribe(self, number: int) -> bool:
        """Send no more events of a subscription; False where there is none of this number."""
        bus, subscription = self._subscriptions.pop(number, (None, None))
        if bus is None or subscription is None:
            return False
        bus.unsubscribe(subscription)
        subscription.close()
        return True

    def close(self) -> None:
        """Send no more events at all."""
        for number in [*self._subscriptions]:
            self.unsubscribe(number)

    async def _pump(self, subscription: Subscription) -> None:
        while (event := await subscription.next()) is not None:
            await self._outbox.send(notification(EVENT, event))
