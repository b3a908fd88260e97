"""Who asks for an operation, how far it is, and the way to call it off."""

import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeVar

import anyio

from ckptd.errors import DomainError

__all__ = ["WAITING", "Caller", "Progress", "Reason", "unless_called_off"]

R = TypeVar("R")

Reason = Literal["cancelled", "deadline_exceeded"]
"""Why a request was called off: a kind of the table of errors."""


class Progress(NamedTuple):
    """How far an operation is. ``total`` 0: not known."""

    phase: str
    done: int = 0
    total: int = 0
    bytes: int = 0


WAITING = Progress("waiting")


class _Noted:
    """Keeps what it is told. A caller that referred to itself would be garbage that has to be looked for."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = WAITING

    def __call__(self, phase: str, done: int, total: int, done_bytes: int) -> None:
        self.at = Progress(phase, done, total, done_bytes)


class Caller:
    """Who asks, for the record of an operation, and the way to call it off.

    ``cancelled`` is set from another thread; the git side looks at it between files. ``progress`` takes a phase,
    a count done, a total (0: not known) and bytes done; it may be called from any thread and must not block. ``at``
    is the last that it was told. ``owner`` is the same for requests that take turns with those of others, such as all
    of one connection. ``since_s`` is when it asked, on the clock of time.monotonic().
    """

    __slots__ = (
        "_called_off",
        "_listeners",
        "_noted",
        "cancelled",
        "client",
        "owner",
        "progress",
        "session",
        "since_s",
        "why",
    )

    def __init__(
        self,
        client: str,
        session: str | None = None,
        progress: Callable[[str, int, int, int], None] | None = None,
        owner: Hashable = None,
    ) -> None:
        self.client = client
        self.session = session
        self.owner = owner
        self.since_s = time.monotonic()
        self._noted = _Noted()
        self.progress: Callable[[str, int, int, int], None] = progress or self._noted
        self.cancelled = threading.Event()
        self._called_off = False
        self.why: Reason = "cancelled"
        self._listeners: list[Callable[[], object]] = []

    def call_off(self, why: Reason = "cancelled") -> None:
        """Ask for an end, in the event loop; what cannot be called off any more goes on. May be called again."""
        if self._called_off:
            return
        self._called_off = True
        self.why = why
        self.cancelled.set()
        for tell in [*self._listeners]:
            tell()

    @contextmanager
    def listening(self, tell: Callable[[], object]) -> Iterator[None]:
        """Have ``tell`` called when the request is called off meanwhile."""
        self._listeners.append(tell)
        try:
            yield
        finally:
            self._listeners.remove(tell)

    def check(self) -> None:
        """Raise DomainError ``cancelled`` where it was called off."""
        if self.cancelled.is_set():
            raise DomainError("cancelled", "the request was called off before its turn came; nothing was done")

    @property
    def at(self) -> Progress:
        """How far it is, as it was told last."""
        return self._noted.at


async def unless_called_off(caller: Caller, waiting: Awaitable[R]) -> R:
    """Wait for something that does not mind if nobody waits for it any more; raises DomainError ``cancelled``."""
    with anyio.CancelScope() as scope, caller.listening(scope.cancel):
        if caller.cancelled.is_set():
            scope.cancel()
        return await waiting
    caller.check()
    raise RuntimeError("a wait ended without a reason")
