"""Making changes final beside the work that goes on: where a disk is told of each block that is freed, unlinking waits.

On a file system that is mounted so, an unlink takes as long as the disk takes to answer, many times what everything
else takes that is done for a file.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Final

__all__ = ["Finisher"]

# Each piece that waits holds a directory open.
_MOST_WAITING: Final = 16


class Finisher:
    """Does pieces of work: with ``threads``, beside whoever gives them and in any order; with none, at once."""

    def __init__(self, threads: int) -> None:
        self._pieces: Final[Queue[Callable[[], None] | None]] = Queue(_MOST_WAITING)
        self._failure: BaseException | None = None
        self._threads: Final = list(self._start(threads))

    def take(self, work: Callable[[], None]) -> None:
        """Take a piece of work. What it raises comes here where there are no threads, else out of check() or wait()."""
        if self._threads:
            self._pieces.put(work)
        else:
            work()

    def check(self) -> None:
        """Raise what a piece has raised, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def wait(self) -> None:
        """Come back when all pieces have been done; raises as check() does."""
        self._pieces.join()
        self.check()

    def close(self) -> None:
        """End the threads when all has been done; what was raised and not asked for is forgotten."""
        for _ in self._threads:
            self._pieces.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _start(self, count: int) -> Iterator[threading.Thread]:
        # Where no more threads can be had, it is done with fewer, or with none.
        with contextlib.suppress(RuntimeError):
            for number in range(count):
                thread = threading.Thread(target=self._run, name=f"ckptd-finisher-{number}", daemon=True)
                thread.start()
                yield thread

    def _run(self) -> None:
        while (piece := self._pieces.get()) is not None:
            try:
                piece()
            except BaseException as error:
                self._failure = self._failure or error
            finally:
                self._pieces.task_done()
