"""A path that differs between two trees, with what stands there on either side."""

from collections.abc import Callable
from typing import NamedTuple

from ckptd.shadow.trees.tree import DIRECTORY, EXECUTABLE, REGULAR

__all__ = ["Pair", "Side", "is_regular", "without_directories"]


class Side(NamedTuple):
    """One side of a comparison: a mode of git's, a 20-byte id, and the way to get the bytes.

    ``load`` must give the bytes that ``oid`` names (git verifies the ids of a binary patch when it applies one);
    what it raises goes through to whoever asked for the patch. It is not called for directories.
    """

    mode: int
    oid: bytes
    load: Callable[[], bytes]


class Pair(NamedTuple):
    """A path and its two sides, None where there is nothing. ``old_path`` is set for a rename, and only then."""

    path: bytes
    old: Side | None
    new: Side | None
    old_path: bytes | None = None


def is_regular(side: Side | None) -> bool:
    """Tell whether a side is a regular file, executable or not."""
    return side is not None and side.mode in (REGULAR, EXECUTABLE)


def without_directories(pair: Pair) -> Pair:
    """Put nothing in place of an (empty) directory: a patch has no word for one."""
    old = None if pair.old is not None and pair.old.mode == DIRECTORY else pair.old
    new = None if pair.new is not None and pair.new.mode == DIRECTORY else pair.new
    return pair._replace(old=old, new=new)
