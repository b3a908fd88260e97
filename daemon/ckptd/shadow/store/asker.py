"""Who asks for an operation, as the engine needs to know it."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Protocol, TypeVar

from ckptd.errors import DomainError

__all__ = ["Asker", "AskerLike"]

T = TypeVar("T")


class AskerLike(Protocol):
    """What the core hands in with each operation."""

    client: str
    session: str | None
    cancelled: threading.Event
    progress: Callable[[str, int, int, int], None]
    since_s: float


class _Daemon:
    """The daemon, as one who asks."""

    client: str = "ckptd"
    session: str | None = None

    def __init__(self) -> None:
        self.since_s = time.monotonic()
        self.cancelled = threading.Event()
        self.progress: Callable[[str, int, int, int], None] = lambda _phase, _done, _total, _bytes: None


class Asker:
    """``client`` and ``session`` for the record; whether it was called off; where progress goes."""

    def __init__(self, caller: AskerLike) -> None:
        self.client = caller.client
        self.session = caller.session
        self.is_cancelled: Callable[[], bool] = caller.cancelled.is_set
        self._progress = caller.progress
        self._since_s = caller.since_s

    def waited_s(self) -> float:
        """Give the seconds since it was asked for."""
        return time.monotonic() - self._since_s

    @classmethod
    def of_the_daemon(cls) -> "Asker":
        """Give the daemon itself, which nobody calls off and which tells nobody."""
        return cls(_Daemon())

    def undisturbed(self) -> "Asker":
        """Give the same asker, who cannot call off what is done from here on."""
        calm = copy(self)
        calm.is_cancelled = lambda: False
        return calm

    def check(self, doing: str) -> None:
        """Raise DomainError ``cancelled`` where it was called off."""
        if self.is_cancelled():
            raise DomainError("cancelled", f"the {doing} was cancelled; nothing was changed")

    def heeding(self, items: Iterable[T], doing: str) -> Iterator[T]:
        """Give the same, as long as it was not called off; raises as check()."""
        for item in items:
            self.check(doing)
            yield item

    def tell(self, phase: str, done: int = 0, total: int = 0, done_bytes: int = 0) -> None:
        """Tell how far a phase is; 0 as total: it is not known."""
        self._progress(phase, done, total, done_bytes)

    def acting_for(self, session: str | None) -> "Asker":
        """Give the same asker as one who acts for a session; None: for its own."""
        other = copy(self)
        other.session = self.session if session is None else session
        return other

    def progress_of(self, phase: str, total: int = 0) -> Callable[[int, int], None]:
        """Tell that a phase begins, and give what takes files and bytes done in it."""
        self.tell(phase, 0, total)

        def tell(files: int, done_bytes: int) -> None:
            self._progress(phase, files, total, done_bytes)

        return tell

    def hashing(self, total: int = 0) -> Callable[[int, int], None]:
        """As progress_of() for a scan: it is ``scan`` until the first file is read, and ``hash`` from there on."""
        self.tell("scan", 0, total)

        def tell(files: int, done_bytes: int) -> None:
            self._progress("hash" if files else "scan", files, total, done_bytes)

        return tell
