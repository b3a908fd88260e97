"""The history of paths: which checkpoints changed them, and under which names they were before."""

from collections.abc import Iterable, Iterator
from typing import Final

from ckpt_protocol.structs import Renamed, to_wire
from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.patch.pair import Pair, Side
from ckptd.shadow.patch.rename import find_origin
from ckptd.shadow.record.lookup import Lookup
from ckptd.shadow.trees.compare import Delta, compare
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.view import DirectoryView, find_view
from ckptd.shadow.trees.way import Ways

__all__ = ["Trail"]

_MAX_NAMES: Final = 100
"""So many former names are followed: each is looked up in every checkpoint from there on."""


class Trail:
    """Goes back in history, from newer to older checkpoints, with a set of paths.

    Where ``followed`` is not None, a path that came with a checkpoint is followed under the name of the file that went
    with it: one of the same content, else the most similar one, as a diff joins them. A directory is followed to one
    that went and held exactly the same. The paths given stay in the set: they may have been there before.
    """

    def __init__(
        self, lookup: Lookup, objects: ObjectStore, paths: Iterable[bytes], followed: Iterable[bytes] | None
    ) -> None:
        self._lookup = lookup
        self._objects = objects
        self._paths = list(paths)
        self.follows: Final = followed is not None
        self.followed: Final = list(followed or ())
        self._ways: Final = Ways(objects)
        self._modes: Final[dict[bytes, bytes | None]] = {}

    def look_at(self, checkpoint_id: str) -> tuple[bool, list[Renamed]]:
        """Tell whether a checkpoint changed any of the paths, and which of them it renamed.

        Raises DomainError where it cannot be compared.
        """
        base = self._lookup.before(self._lookup.load(checkpoint_id))
        now = self._lookup.key(checkpoint_id, self._modes)
        before = None if base is None else self._lookup.key(base, self._modes)
        changed = [path for path in (*self._paths, *self.followed) if self._ways.differs(before, now, path)]
        if not self.follows or before is None or base is None:
            return bool(changed), []
        came = [path for path in changed if not self._ways.holds(before, path)]
        return bool(changed), list(self._renames(base, checkpoint_id, came)) if came else []

    def _renames(self, base: str, checkpoint_id: str, came: list[bytes]) -> Iterator[Renamed]:
        before, now = self._lookup.open(base).root, self._lookup.open(checkpoint_id).root
        deltas = list(compare(before, now))
        for path in came:
            origin = self._origin(before, now, path, deltas)
            if origin is None:
                continue
            if origin not in self._paths and origin not in self.followed and len(self.followed) < _MAX_NAMES:
                self.followed.append(origin)
            yield Renamed(path=to_wire(path), renamed_from=to_wire(origin))

    def _origin(self, before: DirectoryView, now: DirectoryView, path: bytes, deltas: list[Delta]) -> bytes | None:
        view = find_view(now, path)
        if view is not None:
            return _same_directory(before, view.key[0], deltas)
        pairs = [Pair(delta.path, self._side(delta.old), self._side(delta.new)) for delta in sorted(deltas)]
        try:
            return find_origin(pairs, path)
        except DomainError:
            # The content of one that went is lost: that the path was changed is known all the same.
            return None

    def _side(self, state: State | None) -> Side | None:
        if state is None or state.is_dir:
            return None
        return Side(state.mode, state.oid, self._objects.read_blob, self._objects.size)


def _same_directory(before: DirectoryView, tree: bytes, deltas: list[Delta]) -> bytes | None:
    if tree == EMPTY_TREE:
        return None
    gone = sorted(path for path, old, new in deltas if old is not None and old.is_dir and new is None)
    return next((path for path in gone if _tree_at(before, path) == tree), None)


def _tree_at(root: DirectoryView, path: bytes) -> bytes | None:
    view = find_view(root, path)
    return view.key[0] if view is not None else None
