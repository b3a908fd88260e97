"""Lets another thread, that of an event loop, call off what a thread waits for.

Cheap to import: the connection of the command line's hot path looks here whether anybody may call it off.
"""

from __future__ import annotations

from _thread import _local, allocate_lock

from fabricatio_checkpoint.errors import error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from fabricatio_checkpoint.link import Link

__all__ = ["Interruption", "current"]


class Interruption:
    """Calls off the calls that a thread makes inside of ``with interruption:``. All methods are safe for threads."""

    def __init__(self) -> None:
        self.asked: bool = False
        self.begun: bool = False
        self.ended: bool = False
        self._lock = allocate_lock()
        self._link: Link | None = None

    def ask(self) -> None:
        """Ask the daemon to give up what is waited for; whatever has not been sent yet will not be."""
        with self._lock:
            self.asked = True
            if self._link is not None:
                self._link.call_off()

    def hang_up(self) -> None:
        """End the waiting at once."""
        with self._lock:
            self.asked = True
            if self._link is not None:
                self._link.hang_up()

    def check(self) -> None:
        """Raise StateError ``cancelled`` where it was asked for."""
        if self.asked:
            raise error_of("cancelled", "the call was cancelled")

    def watch(self, link: Link | None) -> None:
        """Say which socket the thread is about to wait for; None once it must not be touched any more."""
        with self._lock:
            self._link = link
            if link is not None:
                self.check()

    def __enter__(self) -> Interruption:
        self.begun = True
        _mine.interruption = self
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        _mine.interruption = None
        self.ended = True


class _Mine(_local):
    interruption: Interruption | None = None


_mine = _Mine()


def current() -> Interruption | None:
    """Give what can call off the calls of this thread, if anything can."""
    return _mine.interruption
