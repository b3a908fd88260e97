"""Looking for damage in a store, in small steps beside everything else; nothing of the store is changed.

What turns out bad counts as missing from then on (in memory), so that the next save writes it again.
"""

import os
from typing import Final

from ckpt_protocol.store import DamagedFile, VerifyParams, VerifyResult
from ckpt_protocol.structs import to_wire
from ckptd.errors import DomainError, spelled
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.objects.links import Link, Reach
from ckptd.shadow.objects.packcheck import PackChecks
from ckptd.shadow.objects.pieces import Pieces
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.objects.store import ObjectStore, Suspects
from ckptd.shadow.record.checkpoint import load_checkpoint
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.damage import LISTED_MOST, Damage
from ckptd.shadow.store.recordcheck import check_records, check_refs
from ckptd.shadow.store.stepping import go_on
from ckptd.shadow.trees.tree import parse_tree

__all__ = ["Verification"]


class _StrictReach(Reach):
    """Also refuses what no save of ours writes: such a checkpoint cannot be restored."""

    def __init__(self, objects: ObjectStore, packs: PackChecks) -> None:
        super().__init__(objects, packs.has_blob)
        self._store = objects

    def follow(self, link: Link) -> list[Link]:
        """Give what an object refers to, if it is one of ours."""
        found = super().follow(link)
        if link.kind == b"tree" and link.oid not in self.lost and link.oid != EMPTY_TREE:
            try:
                parse_tree(self._store.read_own(link.oid, b"tree"))
            except DomainError:
                self.lose(link, senseless=True)
        return found


class Verification:
    """One verification under way; step() goes on with it. Used by one thread at a time.

    ``suspects`` is the set that the store's readers and its writer share.
    """

    is_waiting: Final = False

    def __init__(self, folder: bytes, suspects: Suspects, params: VerifyParams, asker: Asker) -> None:
        self._folder = folder
        self._read_data = params.read_data
        self._asker = asker
        self._objects = ObjectStore(folder, suspects)
        self._refs = Refs(folder)
        self._files: list[DamagedFile] = []
        self._notes: list[str] = []
        self._packs = PackChecks(folder, self._objects, read_data=params.read_data)
        self._reach = _StrictReach(self._objects, self._packs)
        self._result: VerifyResult | None = None
        self._run: Final = self._look()

    def step(self) -> VerifyResult | None:
        """Go on for a moment; give the result once it is there.

        Raises DomainError ``cancelled``, and where something cannot be read for a reason that is no damage.
        """
        try:
            if not go_on(self._run, self._asker, "verification"):
                return None
        except BaseException:
            self.close()
            raise
        self.close()
        return self._result

    def close(self) -> None:
        """Let go of all files."""
        self._run.close()
        self._packs.close()
        self._objects.close()

    def _look(self) -> Pieces[None]:
        self._objects.refresh()
        flaws = yield from check_records(self._folder, self._notes)
        flaws += yield from check_refs(self._folder, self._refs, self._objects)
        self._files += [DamagedFile(path=to_wire(path), problem=spelled(problem)) for path, problem in flaws]
        self._name_unlisted()
        tell = self._asker.progress_of("packs", self._objects.object_count if self._read_data else 0)
        for done in self._packs.run():
            tell(done, self._packs.bytes)
            yield False
        yield from self._walk()
        damage = Damage(self._objects, self._refs, self._reach, self._packs)
        yield from damage.gather()
        self._result = self._answer(damage)
        if not self._result.clean:
            # An index or pack that others have open may be remembered as it was.
            self._objects.suspects.renew()

    def _walk(self) -> Pieces[None]:
        tell = self._asker.progress_of("history", self._objects.object_count)
        named = [*self._refs.checkpoints().values()]
        yield False
        named += self._refs.everything().values()
        yield False
        for oid in named:
            raw = bytes.fromhex(oid.decode("ascii"))
            if raw in self._reach.seen:
                continue
            for seen in self._reach.walk([self._reach.root(raw)]):
                tell(seen, self._packs.bytes)
                yield False
        for oid in self._refs.checkpoints().values():
            self._check_message(bytes.fromhex(oid.decode("ascii")))
            yield False

    def _check_message(self, oid: bytes) -> None:
        if oid not in self._reach.lost:
            try:
                load_checkpoint(self._objects, oid)
            except DomainError:
                self._reach.lose(Link(b"commit", oid), senseless=True)

    def _name_unlisted(self) -> None:
        """A ref that cannot be read is told of by its file; what it was of may be found by hand (git fsck)."""
        for path, problem in self._refs.unreadable():
            self._files.append(DamagedFile(path=to_wire(path), problem=problem))

    def _answer(self, damage: Damage) -> VerifyResult:
        files = [*self._files, *(DamagedFile(path=to_wire(path), problem=text) for path, text in self._packs.flaws)]
        return VerifyResult(
            clean=not files and not damage.affected and not damage.objects,
            read_data=self._read_data,
            checkpoints=len(self._refs.checkpoint_names()),
            objects=len(self._reach.seen),
            packs=self._packs.count,
            bytes=self._packs.bytes,
            affected=damage.affected,
            damaged=damage.objects,
            damaged_count=damage.count,
            listed_most=LISTED_MOST,
            files=sorted(files, key=lambda one: os.fsencode(str(one.path))),
            notes=[spelled(note) for note in [*self._notes, *self._packs.notes]],
        )
