"""A thread that does one thing after the other for somebody who has better things to do than to wait."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from ckptd.errors import DomainError
from ckptd.shadow.objects.pieces import Pieces

__all__ = ["Relay"]

_MOST: Final = 4096
_MOST_BYTES: Final = 16 << 20


class Relay:
    """Takes what is to be done, in order; none of it is begun after one that failed.

    Whoever puts something in gives way (by a piece that is True) while much waits, and is told of a failure then. The
    thread starts with the first thing and lives until end(). Used by one thread at a time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Callable[[], None], int]] = deque()
        self._under_way = 0
        self._bytes = 0
        self._failure: BaseException | None = None
        self._last: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None

    def put(self, work: Callable[[], None], size: int = 0) -> None:
        """Have something done that holds ``size`` bytes. Raises DomainError where no thread can be started."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name)
            try:
                thread.start()
            except RuntimeError as error:
                raise DomainError("too_many_requests", "the system lets the daemon start no more threads") from error
            self._thread = thread
        with self._changed:
            if self._failure is None:
                self._waiting.append((work, size))
                self._under_way += 1
                self._bytes += size
                self._changed.notify()

    def room(self) -> Pieces[None]:
        """Wait until not too much waits; raises what has failed."""
        return self._until(lambda: self._under_way < _MOST and self._bytes < _MOST_BYTES)

    def settled(self) -> Pieces[None]:
        """Wait until all is done; raises what has failed."""
        return self._until(lambda: not self._under_way)

    def end(self, last: Callable[[], None] = lambda: None) -> None:
        """Begin nothing more, but for one last thing, after what is under way. Never waits; may be called again."""
        with self._changed:
            if self._last is None:
                self._last = last
                self._waiting.clear()
                self._changed.notify()

    def join(self, seconds: float) -> None:
        """Wait for the end, for so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _until(self, holds: Callable[[], bool]) -> Pieces[None]:
        while self._failure is None and not holds():
            yield True
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while (work := self._next()) is not None:
            self._do(*work)
            # What an ended one refers to must not live until the next one comes.
            del work
        if self._last is not None:
            self._last()

    def _next(self) -> tuple[Callable[[], None], int] | None:
        with self._changed:
            while not self._waiting and self._last is None:
                self._changed.wait()
            return self._waiting.popleft() if self._waiting else None

    def _do(self, work: Callable[[], None], size: int) -> None:
        try:
            work()
        except BaseException as error:
            # Handed on, not swallowed: whoever waits raises it.
            with self._changed:
                self._failure = error
                self._waiting.clear()
                self._under_way = self._bytes = 0
        else:
            with self._changed:
                if self._failure is None:
                    self._under_way -= 1
                    self._bytes -= size
