"""Work in pieces: what takes long is a generator, so that whoever drives it can do something else in between.

It gives True where there is nothing to do by now but wait, for a disk or another process.
"""

import threading
import time
from collections.abc import Callable, Generator
from typing import Final, TypeVar

__all__ = ["PIECE_BYTES", "PIECE_OBJECTS", "Pieces", "Portion", "at_once", "beside", "drained", "emptying"]

R = TypeVar("R")

Pieces = Generator[bool, None, R]

PIECE_OBJECTS: Final = 32
"""So many objects are copied in a piece, and no more."""

PIECE_BYTES: Final = 256 * 1024
"""So many bytes; of what is larger, a piece is a chunk of it."""


_PAUSE_S: Final = 0.001
_LET_GO_AT_ONCE: Final = 10_000


class Portion:
    """Tells when what has been done is enough for a piece."""

    def __init__(self, most: int = PIECE_OBJECTS, most_bytes: int = PIECE_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._number = 0
        self._bytes = 0

    def is_full(self, number: int = 1, size: int = 0) -> bool:
        """Add so many things of ``size`` bytes together; the next portion begins empty."""
        self._number += number
        self._bytes += size
        if self._number < self._most and self._bytes < self._most_bytes:
            return False
        self._number = self._bytes = 0
        return True


def drained(pieces: Pieces[R], beat: Callable[[], None] = lambda: None) -> R:
    """Do all pieces, calling ``beat`` between them, and give what comes of them."""
    while True:
        try:
            if next(pieces):
                time.sleep(_PAUSE_S)
        except StopIteration as end:
            result: R = end.value
            return result
        beat()


def emptying(things: set[bytes]) -> Pieces[None]:
    """Empty a set in pieces: to let go of a hundred thousand things takes some time, too."""
    while things:
        for _ in range(min(len(things), _LET_GO_AT_ONCE)):
            things.pop()
        if things:
            yield False


def at_once(work: Callable[[], None]) -> Pieces[None]:
    """Do something right here, however long it takes: stands in for beside()."""
    work()
    yield from ()


def beside(work: Callable[[], None]) -> Pieces[None]:
    """Do what waits for the disk in a thread of its own, one piece as long as it takes.

    What it raises is raised here. Where it is given up meanwhile, it is waited for: nothing goes on unseen.
    """
    failure: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="ckptd-disk")
    try:
        thread.start()
    except RuntimeError:
        # The system has no more threads.
        run()
    else:
        try:
            while thread.is_alive():
                yield True
        finally:
            thread.join()
    if failure:
        raise failure[0]
