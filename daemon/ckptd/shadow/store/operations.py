"""The operations of one worktree, as the core calls them."""

from collections.abc import Callable
from typing import Final
from weakref import ref

from ckpt_protocol import checkpoint, store, worktree
from ckpt_protocol.structs import CheckpointRecord, Worktree
from ckptd.autosave import Autosave
from ckptd.shadow.objects.pack import HashOnly
from ckptd.shadow.scan.watchplan import ModelWatchPlan
from ckptd.shadow.store.asker import Asker, AskerLike
from ckptd.shadow.store.changes import to_changes, to_left_out
from ckptd.shadow.store.collecting import Collection, Extent
from ckptd.shadow.store.diffing import Snapshot
from ckptd.shadow.store.dropping import Dropper
from ckptd.shadow.store.housekeeping import Housekeeper
from ckptd.shadow.store.identity import check_identity
from ckptd.shadow.store.recovery import interrupted
from ckptd.shadow.store.repository import Repository
from ckptd.shadow.store.restoring import Restorer
from ckptd.shadow.store.resuming import tell_interruption
from ckptd.shadow.store.saving import Saver
from ckptd.shadow.store.stepping import Steps
from ckptd.shadow.store.tagging import Tagger
from ckptd.shadow.store.thinner import Thinner
from ckptd.shadow.trees.compare import compare

__all__ = ["StoreWriter"]

_MOST_SNAPSHOTS: Final = 4


class StoreWriter:
    """Fulfils the core's Writer for one store."""

    def __init__(self, repository: Repository) -> None:
        self._repo = repository
        self._saver = Saver(repository)
        self._restorer = Restorer(repository)
        self._tagger = Tagger(repository)
        self._thinner = Thinner(repository)
        self._dropper = Dropper(repository)
        self._housekeeper = Housekeeper(repository, self._thinner)
        self._collection: Collection | None = None
        self._snapshots: list[ref[Snapshot]] = []

    def check_place(self, place: Worktree) -> None:
        """Compare the client's view of the worktree with ours; raises DomainError ``identity_mismatch``."""
        check_identity(self._repo.worktree, place)

    def save(self, params: checkpoint.SaveParams, caller: AskerLike) -> checkpoint.SaveResult:
        """Make a checkpoint of the worktree as it is."""
        return self._saved(self._saver.save(params, Asker(caller)))

    def autosave(self, params: checkpoint.SaveParams, caller: AskerLike) -> checkpoint.SaveResult:
        """Make a checkpoint that nobody asked for, unless what is there looks like an accident."""
        return self._saved(self._saver.autosave(params, Asker(caller)))

    def _saved(self, result: checkpoint.SaveResult) -> checkpoint.SaveResult:
        if result.created:
            self._housekeeper.saved()
        return result

    def set_autosave(self, on: bool) -> Autosave:
        """Remember whether to save without being asked, and what was agreed to by that; give the options."""
        self._repo.set_autosave(on)
        if on:
            self._repo.accept_place()
            self._saver.accept_rules()
        return self._repo.autosave()

    def watch_plan(self) -> ModelWatchPlan:
        """Tell what is worth watching, by the last scan."""
        return ModelWatchPlan(self._repo.model)

    def restore(self, params: checkpoint.RestoreParams, caller: AskerLike) -> checkpoint.RestoreResult:
        """Bring back a checkpoint, or some paths of it."""
        return self._restorer.restore(params, Asker(caller))

    def undo(self, params: checkpoint.StepParams, caller: AskerLike) -> checkpoint.RestoreResult:
        """Reverse the newest restore that is not undone."""
        return self._restorer.undo(params, Asker(caller))

    def redo(self, params: checkpoint.StepParams, caller: AskerLike) -> checkpoint.RestoreResult:
        """Reverse the newest undo."""
        return self._restorer.redo(params, Asker(caller))

    def resume(self, params: worktree.ResumeParams, caller: AskerLike) -> checkpoint.RestoreResult:
        """Finish or undo the restore that was cut off."""
        return self._restorer.resume(params, Asker(caller))

    def tag(self, params: checkpoint.TagParams, caller: AskerLike) -> checkpoint.TagResult:
        """Name a checkpoint."""
        return self._tagger.tag(params, Asker(caller))

    def untag(self, params: checkpoint.UntagParams, caller: AskerLike) -> checkpoint.TagResult:
        """Remove a name."""
        return self._tagger.untag(params, Asker(caller))

    def drop(self, params: checkpoint.DropParams, caller: AskerLike) -> checkpoint.DropResult:
        """Remove checkpoints by hand."""
        return self._dropper.drop(params, Asker(caller))

    def gc(self, params: store.GcParams, caller: AskerLike) -> Collection:
        """Begin a collection; one that is under way ends where it is."""
        self._housekeeper.stop()
        if self._collection is not None:
            self._collection.close()
        self._collection = Collection(self._repo, Extent(dry_run=params.dry_run), Asker(caller))
        return self._collection

    def thin(self, params: store.ThinParams, caller: AskerLike) -> Steps[store.ThinResult]:
        """Begin to remove the checkpoints that go by rule."""
        # What housekeeping removes meanwhile would have to be weighed again.
        self._housekeeper.stop()
        asker = Asker(caller)
        return Steps(self._thinner.thin(params, asker), asker, "thinning")

    @property
    def pressure(self) -> float:
        """Tell how long tend() is to have for each second that others have had; 0: it can wait for a rest."""
        return self._repo.pressure

    def tend(self, is_wanted: Callable[[], bool] = lambda: False, at_most_s: float = 0.05) -> bool:
        """Do a little of what keeps the store small and quick; tell whether there is more."""
        return self._housekeeper.tend(is_wanted, at_most_s)

    def snapshot(self, params: checkpoint.DiffParams, caller: AskerLike) -> Snapshot | None:
        """Look at the worktree for a patch that leads to it; nothing of the store changes.

        None while there are several that are not closed: what each keeps takes room.
        """
        self._snapshots = [one for one in self._snapshots if (found := one()) is not None and found.is_open]
        if len(self._snapshots) >= _MOST_SNAPSHOTS:
            return None
        made = Snapshot(self._repo, params, Asker(caller))
        self._snapshots.append(ref(made))
        return made

    def status(self, params: worktree.StatusParams, caller: AskerLike) -> worktree.StatusResult:
        """Compare the worktree with head; nothing of the store changes."""
        del params  # which worktree is decided by the store that is open
        repo, asker = self._repo, Asker(caller)
        head = repo.head
        root = repo.lookup.open(head).root if head is not None else None
        scan = repo.scan(HashOnly(), cancelled=asker.is_cancelled, progress=asker.hashing())
        record = self._record(head)
        asker.tell("compare", scan.root.files_below, scan.root.files_below)
        cut_off = interrupted(repo.log)
        return worktree.StatusResult(
            head=head,
            head_record=record,
            last_manual=self._last_manual() if record is not None and record.kind == "auto" else None,
            changes=to_changes(list(compare(root, scan.root))),
            skipped=to_left_out(scan.skipped),
            excluded=to_left_out(scan.excluded),
            files=scan.root.files_below,
            state="IDLE",
            halted=None,
            interrupted=cut_off.safety if cut_off is not None else None,
            interruption=tell_interruption(repo, cut_off, scan) if cut_off is not None else None,
            notes=repo.standing_notes(),
            scans=self.scans(),
        )

    def scans(self) -> worktree.Scans:
        """Tell how saves have found what had changed."""
        return self._repo.watched.tell()

    def close(self) -> None:
        """Write the model and let go of all files."""
        self._housekeeper.stop()
        if self._collection is not None:
            self._collection.close()
        self._repo.close()

    def _record(self, checkpoint_id: str | None) -> CheckpointRecord | None:
        if checkpoint_id is None:
            return None
        tags = self._repo.lookup.tags_by_id().get(checkpoint_id, [])
        return self._repo.lookup.load(checkpoint_id).record(tags)

    def _last_manual(self) -> CheckpointRecord | None:
        by_seq = self._repo.lookup.by_seq()
        for seq in sorted(by_seq, reverse=True):
            if self._repo.lookup.is_readable(by_seq[seq]):
                record = self._record(by_seq[seq])
                if record is not None and record.kind == "manual":
                    return record
        return None
