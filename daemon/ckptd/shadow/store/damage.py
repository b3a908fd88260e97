"""From lost objects to the checkpoints and paths that need them."""

from collections.abc import Iterator
from typing import Final

from ckpt_protocol.store import AffectedCheckpoint, DamagedObject
from ckpt_protocol.structs import to_wire
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.objects.links import Reach, info_named, links
from ckptd.shadow.objects.packcheck import PackChecks
from ckptd.shadow.objects.pieces import Pieces
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.trees.tree import DIRECTORY, TreeEntry, parse_tree

__all__ = ["LISTED_MOST", "Damage"]

LISTED_MOST: Final = 20
"""So many sequence numbers and paths are listed of each object."""

_OBJECTS_MOST: Final = 5_000
_PATHS_KNOWN: Final = 1_000
_INFO: Final = b"(info)"


class _Lost:
    """What is known of one lost object."""

    def __init__(self, kind: bytes, *, missing: bool) -> None:
        self.kind = kind
        self.missing = missing
        self.seqs: list[int] = []
        self.last = -1
        self.seq_count = 0
        self.paths: dict[bytes, None] = {}
        self.path_count = 0

    def note(self, seq: int, path: bytes) -> None:
        """Count a place where it stands; checkpoints come in the order of their numbers."""
        if self.last != seq:
            self.last = seq
            self.seq_count += 1
            if len(self.seqs) < LISTED_MOST:
                self.seqs.append(seq)
        if path not in self.paths:
            self.path_count += 1
            if len(self.paths) < _PATHS_KNOWN:
                self.paths[path] = None


class Damage:
    """What the lost objects of a walk mean; ``count`` is how many there are, ``objects`` lists the first of them."""

    def __init__(self, objects: ObjectStore, refs: Refs, reach: Reach, packs: PackChecks) -> None:
        self._objects = objects
        self._refs = refs
        self._packs = packs
        self._reach = reach
        self._lost: dict[bytes, _Lost] = {}
        self._tainted: dict[bytes, bool] = {}
        self.affected: Final[list[AffectedCheckpoint]] = []
        self.objects: Final[list[DamagedObject]] = []
        self.count = 0

    def gather(self) -> Pieces[None]:
        """Find out, as the store is by now: what a checkpoint needed that is gone meanwhile is no loss."""
        self._lost = {oid: _Lost(kind, missing=oid not in self._seen_copies()) for oid, kind in self._still_lost()}
        yield False
        known = self._refs.checkpoints()
        for seq in sorted(self._refs.checkpoint_names()):
            if seq not in known:
                self.affected.append(AffectedCheckpoint(id=None, seq=seq, readable=False))
            elif self._lost:
                yield from self._look_into(seq, known[seq].decode("ascii"))
        self._list()

    def _still_lost(self) -> Iterator[tuple[bytes, bytes]]:
        """Look again: what was merged into another pack while it was looked for is there."""
        self._objects.refresh()
        for oid, kind in self._reach.lost.items():
            if not self._is_there(oid, kind):
                self._objects.distrust(oid)
                yield oid, kind

    def _is_there(self, oid: bytes, kind: bytes) -> bool:
        if kind == b"blob":
            return self._packs.has_blob(oid)
        # What can be read but makes no sense was counted as lost by its reader, and stays so.
        return oid not in self._reach.senseless and self._objects.is_readable(oid, kind)

    def _seen_copies(self) -> set[bytes]:
        return {oid for oid in self._reach.lost if self._objects.has_copy(oid)}

    def _look_into(self, seq: int, checkpoint_id: str) -> Pieces[None]:
        commit = bytes.fromhex(checkpoint_id)
        if commit in self._lost:
            self._lost[commit].note(seq, b"")
            self.affected.append(AffectedCheckpoint(id=checkpoint_id, seq=seq, readable=False))
            return
        paths: set[bytes] = set()
        for root, within in self._roots(commit):
            if root in self._lost:
                self._lost[root].note(seq, within)
                paths.add(within)
                continue
            for oid, path in self._lost_below(root, within):
                self._lost[oid].note(seq, path)
                paths.add(path)
                yield False
        if paths:
            self.affected.append(
                AffectedCheckpoint(id=checkpoint_id, seq=seq, readable=b"" not in paths, paths=len(paths))
            )

    def _roots(self, commit: bytes) -> list[tuple[bytes, bytes]]:
        """Give the trees of a checkpoint, and under which path each is told of; its info has a name of no file."""
        data = self._objects.read_own(commit, b"commit")
        found = [(link.oid, b"") for link in links(b"commit", data) if link.kind == b"tree"]
        info = info_named(data)
        if info is None:
            return found
        if info in self._lost:
            return [*found, (info, _INFO)]
        below = links(b"commit", self._objects.read_own(info, b"commit"))
        return [*found, *((link.oid, _INFO) for link in below if link.kind == b"tree")]

    def _lost_below(self, root: bytes, within: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Give each place of a lost object below a tree, going only where there is one."""
        stack = [(root, within)] if self._is_tainted(root) else []
        while stack:
            tree, path = stack.pop()
            for name, entry in self._entries(tree).items():
                below = path + b"/" + name if path else name
                if entry.oid in self._lost:
                    yield entry.oid, below
                elif entry.mode == DIRECTORY and self._is_tainted(entry.oid):
                    stack.append((entry.oid, below))

    def _is_tainted(self, root: bytes) -> bool:
        """Tell whether anything is lost below a tree; each tree is read once, however many checkpoints share it."""
        stack = [root]
        while stack:
            tree = stack[-1]
            if tree in self._tainted:
                stack.pop()
                continue
            entries = self._entries(tree).values()
            below = [one.oid for one in entries if one.mode == DIRECTORY and one.oid not in self._lost]
            unknown = [oid for oid in below if oid not in self._tainted]
            if unknown:
                stack.extend(unknown)
                continue
            self._tainted[tree] = any(one.oid in self._lost for one in entries) or any(map(self._tainted.get, below))
            stack.pop()
        return self._tainted[root]

    def _entries(self, tree: bytes) -> dict[bytes, TreeEntry]:
        return {} if tree == EMPTY_TREE else parse_tree(self._objects.read_own(tree, b"tree"))

    def _list(self) -> None:
        # What only refs of others need is told of, too, with no checkpoint.
        ordered = sorted(self._lost.items(), key=lambda item: (item[1].seqs or [1 << 62], item[0]))
        self.count = len(ordered)
        for oid, lost in ordered[:_OBJECTS_MOST]:
            self.objects.append(
                DamagedObject(
                    id=oid.hex(),
                    kind=lost.kind.decode("ascii"),
                    missing=lost.missing,
                    seqs=lost.seqs,
                    seq_count=lost.seq_count,
                    paths=[to_wire(path) for path in sorted(lost.paths)[:LISTED_MOST]],
                    path_count=lost.path_count,
                )
            )
