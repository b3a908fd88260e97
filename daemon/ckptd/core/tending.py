"""Looking after a store while its worktree's actor rests, a moment at a time."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

__all__ = ["MOMENT_S", "TEND_AFTER_S", "Tender"]

logger = logging.getLogger(__name__)

TEND_AFTER_S: Final = 3.0
"""So long nothing must have been asked for."""

_PATIENCE: Final = 10
"""After so many times that, it is done in the gaps between requests: where one comes every other second, a store would
grow without an end."""
_IMPATIENCE: Final = 100
"""After so many times that, it is done in any gap: each request may then wait for a piece of it."""
_NEXT_S: Final = 0.1

MOMENT_S: Final = 0.05
_LONGEST_S: Final = 0.5
"""What is pressing gets so much between two requests at the most."""


class Tender:
    """Asks for a moment's work after each stretch of requests, until there is nothing left to do.

    ``work`` begins it, for up to so many seconds, and gives the future of whether there is more; it gives None where it
    must not be done now. A request that comes meanwhile waits for the moment that has begun, and for no other; so it
    should end then. While there is ``pressure``, no rest is waited for: moments follow one another, and after each
    request comes one that ends for nobody, ``hurried`` true. It has so many times as long as the request has taken.
    """

    def __init__(
        self,
        work: "Callable[[float, bool], asyncio.Future[bool] | None]",
        *,
        after_s: float = TEND_AFTER_S,
        pressure: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._work = work
        self._after_s = after_s
        self._pressure = pressure
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = False
        self._since: float | None = None
        self._asked_s = self._loop.time()

    def busy(self) -> None:
        """Something was asked for: afterwards there may be work."""
        self._asked_s = self._loop.time()
        if self._since is None:
            self._since = self._asked_s
        self._due = True
        self.stop()

    def between(self) -> None:
        """What was asked for is done; others may wait already."""
        pressure = self._pressure()
        if self._due and pressure:
            self.stop()
            self._begin(min(_LONGEST_S, (self._loop.time() - self._asked_s) * pressure), True)

    def at_rest(self) -> None:
        """Nothing is asked for any more."""
        if self._due and self._timer is None:
            self._timer = self._loop.call_later(min(self._rest_s(), self._after_s), self._begin)

    def _rest_s(self) -> float:
        """Give how long nothing must have been asked for; the longer work has been left, the less."""
        left_s = 0.0 if self._since is None else self._loop.time() - self._since
        if left_s > self._after_s * _IMPATIENCE:
            return 0.0
        return _NEXT_S if left_s > self._after_s * _PATIENCE else self._after_s

    def stop(self) -> None:
        """Begin nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self, at_most_s: float = MOMENT_S, hurried: bool = False) -> None:
        self._timer = None
        begun = self._work(at_most_s, hurried)
        if begun is not None:
            self._due = False
            begun.add_done_callback(self._ended)

    def _ended(self, done: "asyncio.Future[bool]") -> None:
        error = done.exception()
        if error is not None or not done.result():
            self._since = self._loop.time() if self._due else None
        if error is not None:
            logger.error("housekeeping broke", exc_info=error)
        elif done.result() and not self._due and self._timer is None:
            self._due = True
            self._timer = self._loop.call_later(0.0 if self._pressure() else _NEXT_S, self._begin)
