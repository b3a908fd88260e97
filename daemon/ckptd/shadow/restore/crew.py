"""Doing pieces of work side by side, where that is worth it.

Most of a restore is spent in short calls of the system, and threads that take turns for the interpreter at each of them
cost more than they bring: on a quiet machine half as much time again, and twice that of the processors. But where a
disk is told of each block that is freed, an unlink waits for its answer, and where thousands of files have been deleted
in the last minutes, ext4 passes over the inode of each before it makes a new one: many times as long as everything else
takes that is done for a file. Then others do their pieces meanwhile.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final

__all__ = ["MEASURED", "Crew"]

MEASURED: Final = 32
"""So many calls of a kind tell how long they take; half of them may be long for other reasons."""
_LONG_S: Final = 0.000_075


class Crew:
    """Does pieces of work: the caller alone, or with up to ``helpers`` others, in any order.

    They come when a kind of call that the interpreter is not needed for has been found to take longer than ``long_s``;
    0: at once.
    """

    def __init__(self, helpers: int, long_s: float = _LONG_S) -> None:
        self._helpers: Final = helpers
        self._long_s: Final = long_s
        self._calls_s: Final[dict[str, list[float]]] = {}
        self._is_slow = long_s == 0

    def note(self, kind: str, took_s: float) -> None:
        """Be told how long a call of a kind has taken. Several threads may tell."""
        calls_s = self._calls_s.setdefault(kind, [])
        if self._is_slow or len(calls_s) >= MEASURED:
            return
        calls_s.append(took_s)
        self._is_slow = len(calls_s) >= MEASURED and median(calls_s) > self._long_s

    def do(self, pieces: Sequence[Callable[[], None]]) -> None:
        """Do all of it, and come back then.

        When a piece raises something no other is begun; it is raised here when those that were begun have ended.
        """
        shift = _Shift(pieces)
        while not (self._is_slow and self._helpers) and shift.work_once():
            pass
        helpers = list(shift.start(min(self._helpers, len(pieces) - 1)))
        while shift.work_once():
            pass
        for helper in helpers:
            helper.join()
        if shift.failures:
            raise shift.failures[0]


class _Shift:
    """Some pieces, and what came of them."""

    def __init__(self, pieces: Sequence[Callable[[], None]]) -> None:
        self._left: Final = iter(pieces)
        self._taking: Final = threading.Lock()
        self.failures: Final[list[BaseException]] = []

    def start(self, count: int) -> Iterator[threading.Thread]:
        """Have threads work beside the caller. Where no more threads can be had it is done with fewer, or with none."""
        with contextlib.suppress(RuntimeError):
            for number in range(count):
                thread = threading.Thread(target=self._work, name=f"ckptd-restore-{number}", daemon=True)
                thread.start()
                yield thread

    def work_once(self) -> bool:
        """Do a piece; false where none was left, or one has failed."""
        piece = self._take()
        if piece is None:
            return False
        try:
            piece()
        except BaseException as error:
            self.failures.append(error)
        return True

    def _work(self) -> None:
        while self.work_once():
            pass

    def _take(self) -> Callable[[], None] | None:
        with self._taking:
            return None if self.failures else next(self._left, None)
