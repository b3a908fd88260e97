"""Making sure that a safety checkpoint holds what a restore is going to take away.

What the scan took for known may rest on a pack that has gone bad since, so it is read: the directories that a path is
found by, and the content. What this very operation has written is what it was when it was written.
"""

from collections.abc import Sequence, Set

from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.scan.model import DirNode
from ckptd.shadow.trees.compare import same_state
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.view import DirectoryView, StoredTree, find_states

__all__ = ["NotHeldError", "read_back"]


class NotHeldError(DomainError):
    """The safety checkpoint cannot be trusted to hold what is going to be overwritten."""

    def __init__(self, why: str) -> None:
        super().__init__("store_damaged", f"the safety checkpoint cannot be read back, so nothing was changed: {why}")


class _Written(StoredTree):
    """A directory whose trees have just been written, from this very node: nothing need be read to find what is in it.

    Below it others may be older.
    """

    def __init__(self, objects: ObjectStore, node: DirNode, fresh: Set[bytes]) -> None:
        super().__init__(objects, node.tree, node.modes, node.perm)
        self._node = node
        self._fresh = fresh

    def file(self, name: bytes) -> State | None:
        return self._node.file(name)

    def dir(self, name: bytes) -> DirectoryView | None:
        child = self._node.children.get(name)
        return None if child is None else _view_of(self._objects, child, self._fresh)


def _view_of(objects: ObjectStore, node: DirNode, fresh: Set[bytes]) -> StoredTree:
    if node.tree in fresh and (node.modes is None or node.modes in fresh):
        return _Written(objects, node, fresh)
    return StoredTree(objects, node.tree, node.modes, node.perm)


def read_back(
    objects: ObjectStore, safety: StoredTree, scanned: DirNode, fresh: Set[bytes], steps: Sequence[Step]
) -> None:
    """Look for all that goes in the safety checkpoint; raises NotHeldError where something is not there.

    ``safety`` is its root as it was read, ``scanned`` the worktree as the scan saw it, which it was made of; ``fresh``
    are the objects that the scan has written.
    """
    # Where more was put into it than the scan saw, all of it is read.
    root = _view_of(objects, scanned, fresh) if safety.key == scanned.key else safety
    going = [(path, before) for path, before, _ in steps if before is not None]
    try:
        for (path, before), held in zip(going, find_states(root, [path for path, _ in going]), strict=True):
            if not same_state(before, held):
                raise NotHeldError(f"{to_text(path)} is not in the safety checkpoint")
            if not before.is_dir and before.oid not in fresh:
                objects.check(before.oid)
    except NotHeldError:
        raise
    except DomainError as error:
        raise NotHeldError(error.message) from error
