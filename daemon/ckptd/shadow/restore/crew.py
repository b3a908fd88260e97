"""Doing pieces of work side by side: most of a restore is spent in the system, where several processors can be at work.

And where a disk is told of each block that is freed, an unlink takes as long as the disk takes to answer, many times
what everything else takes that is done for a file.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

__all__ = ["Crew"]


class Crew:
    """Does pieces of work: by the caller and as many ``helpers`` at once, in any order; with none, one by one."""

    def __init__(self, helpers: int) -> None:
        self._helpers: Final = helpers

    def do(self, pieces: Sequence[Callable[[], None]]) -> None:
        """Do all of it, and come back then.

        When a piece raises something no other is begun; it is raised here when those that were begun have ended.
        """
        shift = _Shift(pieces)
        helpers = list(shift.start(min(self._helpers, len(pieces) - 1)))
        shift.work()
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
                thread = threading.Thread(target=self.work, name=f"ckptd-restore-{number}", daemon=True)
                thread.start()
                yield thread

    def work(self) -> None:
        """Do pieces until none is left, or one has failed."""
        while (piece := self._take()) is not None:
            try:
                piece()
            except BaseException as error:
                self.failures.append(error)

    def _take(self) -> Callable[[], None] | None:
        with self._taking:
            return None if self.failures else next(self._left, None)
