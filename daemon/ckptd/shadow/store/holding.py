"""Which other checkpoints hold the content that some of them brought."""

from typing import Final

from ckpt_protocol.checkpoint import HoldingCheckpoint
from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import Checkpoint
from ckptd.shadow.record.lookup import Lookup
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.trees.compare import Delta, compare
from ckptd.shadow.trees.tree import DIRECTORY, TreeEntry, parse_tree

__all__ = ["Holding", "brought"]

_TREES_MOST: Final = 200_000
_NOTHING: Final[frozenset[bytes]] = frozenset()


def brought(lookup: Lookup, chosen: list[Checkpoint]) -> set[bytes]:
    """Give the ids of the contents that these checkpoints have and the ones that they are compared with have not.

    What cannot be read brought nothing that could be looked for.
    """
    found: set[bytes] = set()
    for checkpoint in chosen:
        try:
            base = lookup.before(checkpoint)
            old = lookup.open(base).root if base is not None else None
            new = lookup.open(checkpoint.id).root
            found.update(oid for delta in compare(old, new) if (oid := _new_content(delta)) is not None)
        except DomainError:
            continue
    return found


def _new_content(delta: Delta) -> bytes | None:
    old, new = delta.old, delta.new
    if new is None or new.is_dir or (old is not None and old.oid == new.oid):
        return None
    return new.oid


class Holding:
    """Looks for contents in checkpoints. Each tree is read once, however many share it.

    It gives up (``gave_up``) after so many trees that a person would not wait for the answer; ``notes`` name what could
    not be read.
    """

    def __init__(self, objects: ObjectStore, wanted: set[bytes], asker: Asker) -> None:
        self.gave_up = False
        self.notes: Final[list[str]] = []
        self._objects = objects
        self._wanted = wanted
        self._asker = asker
        self._below: dict[bytes, frozenset[bytes]] = {EMPTY_TREE: _NOTHING}
        self._progress = asker.progress_of("holders")

    def look(self, lookup: Lookup, seq: int, checkpoint_id: str) -> HoldingCheckpoint | None:
        """Tell whether a checkpoint holds any of the contents, and how many; raises DomainError ``cancelled``."""
        if not self._wanted or self.gave_up:
            return None
        if self._asker.is_cancelled():
            raise DomainError("cancelled", "the request was called off; nothing was dropped")
        try:
            files = len(self._contents(lookup.load(checkpoint_id).tree))
        except DomainError as error:
            if error.kind not in ("store_damaged", "object_missing"):
                raise
            self.notes.append(f"#{seq} cannot be read, so it is not known whether it holds any of it")
            return None
        return HoldingCheckpoint(id=checkpoint_id, seq=seq, files=files) if files else None

    def _contents(self, root: bytes) -> frozenset[bytes]:
        stack = [root]
        while stack:
            tree = stack[-1]
            if tree in self._below:
                stack.pop()
                continue
            if len(self._below) >= _TREES_MOST:
                self.gave_up = True
                return _NOTHING
            entries = self._entries(tree)
            unknown = [one.oid for one in entries if one.mode == DIRECTORY and one.oid not in self._below]
            if unknown:
                stack.extend(unknown)
                continue
            self._below[tree] = self._join(entries)
            self._progress(len(self._below), 0)
            stack.pop()
        return self._below[root]

    def _join(self, entries: list[TreeEntry]) -> frozenset[bytes]:
        own = {one.oid for one in entries if one.mode != DIRECTORY and one.oid in self._wanted}
        parts = [self._below[one.oid] for one in entries if one.mode == DIRECTORY]
        return _NOTHING.union(own, *parts)

    def _entries(self, tree: bytes) -> list[TreeEntry]:
        return list(parse_tree(self._objects.read_own(tree, b"tree")).values())
