"""Collection: what nothing needs leaves the store, and many packs become few; in small steps between other operations.

Needed is what a ref needs, whoever made it. What the model alone knows (files of a save that was called off, or that no
checkpoint holds any more) leaves the model, so that the next save reads it again. Nothing is removed while it is not
known what is needed: with a damaged ref, commit or tree the packs are merged, and all stays.

Each group of packs is made new, durably, before the old ones go. Between the steps others may save: what has become
needed meanwhile is looked up again right before anything goes.
"""

import glob
import os
import time
from typing import Final, NamedTuple

from ckpt_protocol.store import GcResult
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.deltas import clear_deltas
from ckptd.shadow.objects.links import Link, Reach
from ckptd.shadow.objects.loose import pack_loose
from ckptd.shadow.objects.merge import Around, free_bytes, making_deltas, replacing
from ckptd.shadow.objects.packcheck import loose_objects
from ckptd.shadow.objects.pieces import Pieces, drained
from ckptd.shadow.objects.rewrite import Rewrite, hide_indexes_over_packs
from ckptd.shadow.objects.surveying import PackFacts, left_overs, slices, survey, twins
from ckptd.shadow.objects.users import can_tell, user_of
from ckptd.shadow.scan.entry import OID
from ckptd.shadow.scan.model import DirNode, new_nodes
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.layout import folder_bytes
from ckptd.shadow.store.lostrefs import is_any_lost
from ckptd.shadow.store.repository import Repository

__all__ = ["Collection", "Extent"]

_STEP_S: Final = 0.01
_STALE_S: Final = 3600.0
_FEW_REFS: Final = 2


class Extent(NamedTuple):
    """How far a collection goes: with ``keep_all`` it removes nothing, and only makes few packs and refs of many.

    ``keep_model``: what the model alone knows stays, so that no save has to read it again. ``leave_packs``: packs stay
    as they are. ``sparing``: what can go stays where it takes little, unless the store is above its cap by it.
    """

    dry_run: bool = False
    keep_all: bool = False
    keep_model: bool = False
    leave_packs: bool = False
    sparing: bool = False


class Collection:
    """One collection under way; step() goes on with it, on the thread of the store's writer, between its operations."""

    def __init__(self, repository: Repository, extent: Extent, asker: Asker | None = None) -> None:
        self._repo = repository
        self._dry_run = extent.dry_run
        self._is_cancelled = asker.is_cancelled if asker is not None else lambda: False
        self._reach = Reach(repository.objects)
        self._rewrite: Rewrite | None = None
        self._waits = False
        self._keep_all = extent.keep_all
        self._keep_model = extent.keep_model
        self._leave_packs = extent.leave_packs
        self._sparing = extent.sparing
        self._is_urgent = False
        self._kept_model: DirNode | None = None
        self._removed = 0
        self._removed_bytes = 0
        self._refs_packed = 0
        self._notes: list[str] = []
        self._copied = 0
        repository.objects.refresh()
        known = repository.objects.object_count
        self._progress = asker.progress_of("collect", known) if asker is not None else _tell_nobody
        self._before = (folder_bytes(repository.folder), repository.objects.pack_count)
        self._result: GcResult | None = None
        self._over = False
        self._run: Final = self._collect()
        repository.collecting = True

    @property
    def is_waiting(self) -> bool:
        """Whether the next step only looks whether a disk or another process is done: it need not come at once."""
        return self._waits

    def step(self) -> GcResult | None:
        """Go on for a moment; give the result once it is there.

        Raises DomainError ``cancelled`` where it was called off or the store was closed meanwhile, and where the disk
        refuses; what has been done by then is done, and nothing is lost.
        """
        if self._over:
            raise DomainError("cancelled", "the collection was cut off", hint="begin again: nothing is lost by that")
        end = time.monotonic() + _STEP_S
        try:
            for waits in self._run:
                self._waits = waits
                if self._is_cancelled():
                    raise DomainError("cancelled", "the collection was called off; what it has done so far is kept")
                if waits or time.monotonic() > end:
                    return None
        except BaseException:
            self.close()
            raise
        self.close()
        return self._result

    def pieces(self) -> Pieces[None]:
        """Go on to the end, in pieces; to be closed by the caller, whatever comes of it. Errors as step() has them."""
        yield from self._run

    def close(self) -> None:
        """Forget what is not finished. May be called again."""
        if not self._over:
            self._over = True
            self._run.close()
            self._let_go()
            self._repo.collecting = False

    def _let_go(self) -> None:
        if self._rewrite is not None:
            self._rewrite.close()
            self._rewrite = None

    def _collect(self) -> Pieces[None]:
        if not self._keep_all:
            refs_are_whole = self._find_refs()
            yield from self._mark()
            self._decide(refs_are_whole)
        if not self._dry_run:
            self._refs_packed = yield from self._repo.refs.pack(_FEW_REFS)
            self._clear_up()
            yield from self._take_loose()
        packs: list[PackFacts] = []
        if not self._leave_packs:
            packs = yield from survey(self._repo.objects.pack_dir, self._is_needed)
        if self._dry_run:
            loose = sum(1 for oid, _ in loose_objects(self._repo.folder) if not self._is_needed(oid))
            self._removed = loose + sum(one.dead for one in packs if one.why_left is None)
            self._removed_bytes = sum(one.dead_bytes for one in packs if one.why_left is None)
        elif not self._leave_packs:
            yield from self._rewrite_packs(packs)
            yield from self._make_deltas()
        self._tell_left(packs)
        if not (self._keep_all or self._dry_run):
            self._repo.gone = 0
        self._result = self._answer()

    def _mark(self) -> Pieces[None]:
        """Find what is needed, as the refs are by now; what has been seen is not looked at again."""
        if self._keep_all:
            return
        self._repo.objects.refresh()
        for oid in set(self._repo.refs.everything().values()):
            raw = bytes.fromhex(oid.decode("ascii"))
            if raw in self._reach.seen:
                continue
            for seen in self._reach.walk([self._root(raw)]):
                self._progress(seen, self._copied)
                yield False
        while self._keep_model and self._repo.model is not self._kept_model and self._repo.model is not None:
            yield from self._keep_known(self._repo.model)

    def _keep_known(self, model: DirNode) -> Pieces[None]:
        """Need what the model knows. What of it is lost is no damage: it can be made again."""
        known = Reach(self._repo.objects)
        for node in new_nodes(model, self._kept_model):
            self._reach.seen.update(entry[OID] for entry in node.entries.values())
            self._reach.seen.update(filter(None, (node.tree,)))
            # Only a tree of permission bits leads to what no other node has.
            for _ in known.walk([Link(b"tree", node.modes)] if node.modes else []):
                continue
            yield False
        self._reach.seen.update(known.seen)
        self._kept_model = model

    def _root(self, oid: bytes) -> Link:
        return self._reach.root(oid)

    def _find_refs(self) -> bool:
        """Make the refs anew that somebody took away; False where some are gone and stay so."""
        repo = self._repo
        if self._dry_run:
            return not is_any_lost(repo.log, repo.refs, repo.objects)
        return repo.bring_back()

    def _decide(self, refs_are_whole: bool) -> None:
        """Keep everything where it is not known what is needed."""
        if not refs_are_whole:
            self._keep_all = True
            self._notes.append("nothing is removed: the refs of checkpoints that nobody dropped are gone")
        lost = [kind for kind in self._reach.lost.values() if kind != b"blob"]
        unreadable = list(self._repo.refs.unreadable())
        if lost or unreadable:
            self._keep_all = True
            self._notes.append(
                f"nothing is removed: {len(lost)} commits or trees and {len(unreadable)} refs cannot be read, so it is "
                "not known what is needed; ckpt verify names them"
            )

    def _is_needed(self, oid: bytes) -> bool:
        return self._keep_all or oid in self._reach.seen

    def _clear_up(self) -> None:
        """Remove what speaks of many packs at once, and what killed processes left."""
        folder = self._repo.folder
        try:
            hide_indexes_over_packs(folder)
            clear_deltas(folder)
            rests = [*left_overs(self._repo.objects.pack_dir, ()), *_marks_of_git(folder)]
            used = bool(rests) and (not can_tell() or user_of(folder) is not None)
            for path in rests:
                if self._may_go(path, used):
                    os.unlink(path)
        except OSError as error:
            raise from_os_error(error, "clean up", folder) from error

    def _may_go(self, path: bytes, used: bool) -> bool:
        """A pack whose index was lost may hold what is missing; what git has begun is in use while one is at work."""
        if os.path.splitext(path)[1] == b".pack" and os.path.basename(path).startswith(b"pack-"):
            return not self._reach.lost and not self._keep_all
        name = os.path.basename(path)
        begun = name.startswith((b"tmp_", b"gc.pid")) or name.endswith(b".lock")
        return not begun or not used or (_is_stale(path) and not name.endswith(b".lock"))

    def _rewrite_packs(self, packs: list[PackFacts]) -> Pieces[None]:
        cap = self._repo.cap
        spare = cap.excess_bytes() if self._sparing else None
        self._is_urgent = bool(spare)
        # Nothing in them can go, and yet half of it is too much.
        same = yield from twins(packs, self._is_needed, cap.slice_bytes, free_bytes(self._repo.objects), spare)
        for group in same:
            yield from self._rewrite_group(group)
        packs = [one for one in packs if not any(one.stem in group for group in same)]
        groups = slices(packs, free_bytes(self._repo.objects), cap.slice_bytes, spare)
        if groups.too_large:
            self._notes.append(f"{len(groups.too_large)} packs are too large to be copied into the space that is free")
        for group in groups.groups:
            yield from self._rewrite_group(group)

    def _rewrite_group(self, stems: list[bytes]) -> Pieces[None]:
        stems = [stem for stem in stems if os.path.exists(stem + b".idx")]
        repo, before = self._repo, self._copied
        rewrite = self._rewrite = Rewrite(repo.objects, stems, self._is_needed)
        for waits in rewrite.run():
            self._copied = before + rewrite.copied_bytes
            self._progress(len(self._reach.seen), self._copied)
            yield waits
        yield from rewrite.settling(repo.repacking)
        # From here on nobody else comes in between until what is not needed is out of sight.
        drained(self._mark())
        with repo.repacking():
            rewrite.finish()
        around = self._removing() if rewrite.dropped else repo.repacking
        yield from replacing(repo.objects, rewrite.replaced, around, at_once=rewrite.dropped > 0)
        yield from rewrite.emptying()
        self._removed += rewrite.dropped
        self._removed_bytes += rewrite.dropped_bytes
        for stem, why in rewrite.left.items():
            self._notes.append(f"{os.fsdecode(os.path.basename(stem))} is left as it is: {why}")
        self._let_go()

    def _make_deltas(self) -> Pieces[None]:
        if self._is_urgent:
            # They would take long, and room.
            return
        repo = self._repo
        give_up = repo.cap.is_over if self._sparing else lambda: False
        failure = yield from making_deltas(repo.objects, {}, repo.repacking, repo.cap.slice_bytes, give_up)
        self._notes += [failure] if failure is not None else []

    def _take_loose(self) -> Pieces[None]:
        drained(self._mark())
        with self._removing()():
            self._removed += pack_loose(self._repo.objects, self._repo.folder, self._is_needed)
        yield False

    def _removing(self) -> Around:
        """Give what is to surround the removal of objects: the model knows some of them, unless it is to be kept."""
        return self._repo.repacking if self._keep_all or self._keep_model else self._repo.forgetting

    def _tell_left(self, packs: list[PackFacts]) -> None:
        for one in packs:
            if one.why_left is not None and os.path.exists(one.stem + b".idx"):
                self._notes.append(f"{os.fsdecode(os.path.basename(one.stem))} is left as it is: {one.why_left}")

    def _answer(self) -> GcResult:
        self._repo.objects.refresh()
        # What a full disk has refused may have room now.
        if not self._dry_run:
            self._repo.log.catch_up()
        return GcResult(
            bytes_before=self._before[0],
            bytes_after=folder_bytes(self._repo.folder),
            packs_before=self._before[1],
            packs_after=self._repo.objects.pack_count,
            objects_removed=self._removed,
            removed_bytes=self._removed_bytes,
            refs_packed=self._refs_packed,
            all_kept=self._keep_all,
            dry_run=self._dry_run,
            notes=list(dict.fromkeys(self._notes)),
        )


def _tell_nobody(_done: int, _bytes: int) -> None:
    return None


def _is_stale(path: bytes) -> bool:
    return time.time() - os.lstat(path).st_mtime > _STALE_S


def _marks_of_git(folder: bytes) -> list[bytes]:
    """Give what else a git program that was killed leaves: its locks, the mark of its collection, half-written objects.

    None of ours is like that by now: nothing of ours is in the making between two steps.
    """
    names = (b"*.lock", b"gc.pid", b"refs/**/*.lock", b"objects/tmp_obj_*", b"objects/??/tmp_obj_*")
    here = glob.escape(folder)
    return [path for name in names for path in glob.glob(os.path.join(here, name), recursive=True)]
