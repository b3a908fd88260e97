"""A path that differs between two trees, with what stands there on either side."""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from ckptd.shadow.trees.tree import DIRECTORY, EXECUTABLE, REGULAR

__all__ = ["HUGE_BYTES", "Pair", "Side", "is_huge", "is_regular", "without_directories"]

HUGE_BYTES: Final = 16 * 1024 * 1024
"""A file above this is told of, but its content is neither loaded nor shown."""


class Side(msgspec.Struct, frozen=True, gc=False):
    """One side of a comparison: a mode of git's, a 20-byte id, and the way from an id to the bytes.

    There are hundreds of thousands in a large comparison, and all of them have the same ``load`` and ``measure``.
    ``load`` must give the bytes that ``oid`` names (git verifies the ids of a binary patch when it applies one);
    what it raises goes through to whoever asked for the patch. It is not called for directories, nor where ``measure``
    gives more than HUGE_BYTES; without ``measure`` whatever there is gets loaded.
    """

    mode: int
    oid: bytes
    load: Callable[[bytes], bytes]
    measure: Callable[[bytes], int] | None = None

    def content(self) -> bytes:
        """Give the bytes."""
        return self.load(self.oid)

    def size(self) -> int:
        """Give the size in bytes."""
        return self.measure(self.oid) if self.measure is not None else len(self.content())


class Pair(msgspec.Struct, frozen=True, gc=False):
    """A path and its two sides, None where there is nothing. ``old_path`` is set for a rename, and only then.

    Neither leads back to itself: the garbage collector need look at none of them.
    """

    path: bytes
    old: Side | None
    new: Side | None
    old_path: bytes | None = None


def is_regular(side: Side | None) -> bool:
    """Tell whether a side is a regular file, executable or not."""
    return side is not None and side.mode in (REGULAR, EXECUTABLE)


def is_huge(side: Side | None) -> bool:
    """Tell whether a side is too large to be loaded."""
    if side is None or side.mode == DIRECTORY or side.measure is None:
        return False
    return side.measure(side.oid) > HUGE_BYTES


def without_directories(pair: Pair) -> Pair:
    """Put nothing in place of an (empty) directory: a patch has no word for one."""
    old = None if pair.old is not None and pair.old.mode == DIRECTORY else pair.old
    new = None if pair.new is not None and pair.new.mode == DIRECTORY else pair.new
    return replace(pair, old=old, new=new)
