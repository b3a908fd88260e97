"""What a store would shrink by without some of its checkpoints: each object counts while something refers to it."""

from typing import Final

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.objects.links import Link, links
from ckptd.shadow.objects.packfile import PackFile
from ckptd.shadow.objects.pieces import Pieces, Portion, drained
from ckptd.shadow.objects.store import ObjectStore

__all__ = ["Weights"]


class Weights:
    """Counts references. Every checkpoint is added first; ``total`` are the packed bytes of all that is referred to,
    ``sizes`` those of each object.

    learning() comes before that, and again where more has been stored meanwhile. Raises DomainError where a commit or
    tree cannot be read: then nobody knows what hangs on it.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self.total = 0
        self._objects = objects
        self._packs: set[bytes] = set()
        self.sizes: Final[dict[bytes, int]] = {}
        self._counts: dict[bytes, int] = {}

    def learning(self) -> Pieces[None]:
        """Learn what objects take in the packs that have come."""
        while (stem := next(iter(self._objects.pack_sizes.keys() - self._packs), None)) is not None:
            try:
                pack = PackFile(stem + b".idx")
            except DomainError:
                self._objects.refresh()
                if stem in self._objects.pack_sizes:
                    raise
                # It was merged with others meanwhile.
                continue
            try:
                for part in pack.parts():
                    for entry in part:
                        # What has been counted stays as it was counted: copied into another pack it may take less.
                        self.sizes.setdefault(entry.oid, entry.end - entry.start)
                    yield False
            finally:
                pack.close()
            self._packs.add(stem)

    def add(self, root: bytes) -> None:
        """Count a reference to a commit, and all that hangs on it if it is the first."""
        drained(self.adding(root))

    def adding(self, root: bytes) -> Pieces[None]:
        """Do so in pieces."""
        stack = [Link(b"commit", root)]
        portion = Portion()
        while stack:
            link = stack.pop()
            count = self._counts.get(link.oid, 0)
            self._counts[link.oid] = count + 1
            if not count:
                self.total += self.sizes.get(link.oid, 0)
                stack.extend(self._below(link))
            if portion.is_full(link.kind != b"blob"):
                yield False

    def remove(self, root: bytes) -> int:
        """Take a reference to a commit away; give the bytes that nothing refers to any more."""
        before = self.total
        stack = [Link(b"commit", root)]
        while stack:
            link = stack.pop()
            self._counts[link.oid] -= 1
            if not self._counts[link.oid]:
                self.total -= self.sizes.get(link.oid, 0)
                stack.extend(self._below(link))
        return before - self.total

    def _below(self, link: Link) -> list[Link]:
        if link.kind == b"blob" or link.oid == EMPTY_TREE:
            return []
        return list(links(link.kind, self._objects.read_own(link.oid, link.kind)))
