"""What stands at some paths of many trees, most of which are the same: nothing is read twice, or for nothing."""

from typing import Final

from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.trees.compare import same_state
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.view import UNRECORDED, Key, StoredTree

__all__ = ["Ways"]

_MOST_STEPS: Final = 200_000
_MOST_OPEN: Final = 32

_Found = Key | State | None
"""What a name stands for: a directory, a file or link, nothing."""


class Ways:
    """Goes down from root directories along paths.

    It remembers what each name of each directory stood for, and not the directories: of a history of ten thousand
    roots with thousands of names each, a few are of interest. What is remembered is true for ever, since a key is
    equal only for equal content; it is made for one walk all the same, for content that is damaged meanwhile.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._known: dict[tuple[Key, bytes], _Found] = {}
        self._open: dict[Key, StoredTree] = {}

    def differs(self, old: Key | None, new: Key | None, path: bytes) -> bool:
        """Tell whether something else stands at a path, or below it, of two roots; None: of an empty one.

        What is equal on the way there is not looked into. Raises DomainError where a directory cannot be read.
        """
        one: _Found = old
        other: _Found = new
        for name in path.split(b"/"):
            if one == other:
                return False
            one, other = self._step(one, name), self._step(other, name)
        return not _is_same(one, other)

    def holds(self, root: Key, path: bytes) -> bool:
        """Tell whether anything stands at a path; raises DomainError where that cannot be known."""
        found: _Found = root
        for name in path.split(b"/"):
            found = self._step(found, name)
        return found is not None

    def _step(self, found: _Found, name: bytes) -> _Found:
        if found is None or isinstance(found, State):
            return None
        at = (found, name)
        if at not in self._known:
            if len(self._known) >= _MOST_STEPS:
                self._known.clear()
            self._known[at] = self._look(found, name)
        return self._known[at]

    def _look(self, key: Key, name: bytes) -> _Found:
        view = self._open.get(key)
        if view is None:
            if len(self._open) >= _MOST_OPEN:
                self._open.pop(next(iter(self._open)))
            view = self._open[key] = StoredTree(self._objects, *key)
        below = view.look(name)
        return below.key if isinstance(below, StoredTree) else below


def _is_same(one: _Found, other: _Found) -> bool:
    """Tell whether two things are equal; permission bits that nobody recorded are equal to any."""
    if isinstance(one, State) or isinstance(other, State):
        return isinstance(one, State) and isinstance(other, State) and same_state(one, other)
    if one is None or other is None:
        return one is other
    if UNRECORDED in (one[1], other[1]):
        return one[0] == other[0]
    return one == other
