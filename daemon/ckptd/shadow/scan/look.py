"""Where a scan has to look when everything else is known not to have changed: a tree of names."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

__all__ = ["Look", "covers", "look_at", "look_into"]


class Look:
    """What to look at in one directory.

    ``names`` may have been made, changed or deleted; one that is a directory is walked whole. ``below`` are
    directories that are themselves unchanged, with names in them to look at. ``itself``: who may enter the directory
    may be somebody else now, so that each of its names is looked at, but not what is in directories that are known.
    """

    __slots__ = ("below", "itself", "names")

    def __init__(self) -> None:
        self.itself = False
        self.names: Final[set[bytes]] = set()
        self.below: Final[dict[bytes, Look]] = {}

    def child(self, name: bytes) -> "Look":
        """Give the look at a directory below, a new one where there was none."""
        found = self.below.get(name)
        if found is None:
            found = self.below[name] = Look()
        return found


def look_at(names: Mapping[bytes, Iterable[bytes]]) -> Look:
    """Make a tree of what is given as names by the path of their directory (empty: the root).

    An empty name is the directory itself.
    """
    root = Look()
    for folder, some in names.items():
        look = look_into(root, folder)
        look.names.update(some)
        look.itself = look.itself or b"" in look.names
        look.names.discard(b"")
    return root


def look_into(look: Look, folder: bytes) -> Look:
    """Give the look at a directory anywhere below."""
    for part in folder.split(b"/") if folder else ():
        look = look.child(part)
    return look


def covers(tops: frozenset[bytes], path: bytes) -> bool:
    """Tell whether a path or a directory above it is among ``tops``; the empty top covers everything."""
    return any(part in tops for part in _ways_up(path))


def _ways_up(path: bytes) -> Iterator[bytes]:
    while path:
        yield path
        path = path.rpartition(b"/")[0]
    yield b""
