"""One request of a connection, from its arrival until its answer is made."""

import asyncio
import time
from typing import TYPE_CHECKING, Final

from ckpt_protocol.envelope import RequestId, notification
from ckpt_protocol.events import PROGRESS, Progress
from ckptd.core.caller import Caller
from ckptd.errors import DomainError

if TYPE_CHECKING:
    from ckptd.peer import Peer

__all__ = ["PROGRESS_EVERY_S", "Asked"]

PROGRESS_EVERY_S: Final = 0.25
"""So often a peer that wants it is told how far a request is, also where nothing has changed: that proves life."""


class Asked:
    """A request that has no answer yet. ``caller`` is what its operation sees; ``id`` None: it cannot be named.

    ``writes`` tells whether it is done to its end although nobody waits for the answer any more.
    """

    def __init__(self, peer: "Peer", request_id: RequestId, *, writes: bool) -> None:
        self.peer: Final = peer
        self.id: Final = request_id
        self.writes: Final = writes
        self.caller: Final = Caller(peer.client, peer.session, owner=peer)
        self.is_open = True
        self._begun = time.monotonic()
        self._deadline_s = 0.0
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def tell_progress(self) -> None:
        """Tell the peer from time to time how far this is, until close()."""
        self._timers["progress"] = asyncio.get_running_loop().call_later(PROGRESS_EVERY_S, self._tick)

    def set_deadline(self, seconds: float) -> None:
        """Call it off so long after its arrival."""
        self._deadline_s = seconds
        left = max(0.0, self._begun + seconds - time.monotonic())
        loop = asyncio.get_running_loop()
        self._timers["deadline"] = loop.call_later(left, self.caller.call_off, "deadline_exceeded")

    def as_told(self, error: DomainError) -> DomainError:
        """Give the error that the peer is told: it may have been its own deadline that called the request off."""
        if error.kind != "cancelled" or self.caller.why != "deadline_exceeded":
            return error
        message = f"the deadline of {self._deadline_s:g} s has passed: {error.message}"
        return DomainError("deadline_exceeded", message, hint="give it more time, or none", paths=error.paths)

    def close(self) -> None:
        """It has its answer: nothing more is told of it. May be called again."""
        self.is_open = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _tick(self) -> None:
        phase, done, total, done_bytes = self.caller.at
        told = Progress(id=self.id, phase=phase, done=done, total=total, bytes=done_bytes)
        self.peer.post(notification(PROGRESS, told), lambda: self.is_open)
        self.tell_progress()
