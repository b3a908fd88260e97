"""One page of a list of checkpoints, newest first, made in small steps beside everything else."""

from collections.abc import Iterator
from typing import Final

from ckpt_protocol.checkpoint import ListParams, ListResult
from ckpt_protocol.structs import CheckpointRecord, WirePath, from_wire, to_wire
from ckptd.errors import DomainError
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import Checkpoint
from ckptd.shadow.record.lookup import Lookup
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.stepping import go_on
from ckptd.shadow.store.trail import Trail

__all__ = ["Listing"]


class Listing:
    """One list under way; step() goes on with it. Used by one thread at a time.

    A checkpoint that cannot be read, or not be compared, is counted and passed over; one that was dropped meanwhile
    is not there.
    """

    is_waiting: Final = False

    def __init__(self, lookup: Lookup, objects: ObjectStore, params: ListParams, asker: Asker) -> None:
        self._lookup = lookup
        self._params = params
        self._asker = asker
        followed = None if params.follow is None else [from_wire(path) for path in params.follow]
        self._trail = Trail(lookup, objects, [from_wire(path) for path in params.paths], followed)
        self._found: list[CheckpointRecord] = []
        self._followed: list[WirePath] = self._trail_so_far()
        self._damaged = 0
        self._more = False
        self._at = (0, 0)
        self._run: Final = self._look()

    def step(self) -> ListResult | None:
        """Go on for a moment; give the result once it is there. Raises DomainError ``cancelled``."""
        if not go_on(self._run, self._asker, "list"):
            self._asker.tell("list", *self._at)
            return None
        return ListResult(
            checkpoints=self._found,
            head=self._lookup.known_head(),
            more=self._more,
            damaged=self._damaged,
            followed=self._followed,
        )

    def close(self) -> None:
        """Let go of what is not needed any more."""

    def _look(self) -> Iterator[None]:
        """Go through what there is of the list from where it goes on, up to its limit."""
        by_seq, before = self._lookup.listed(), self._params.before_seq
        tags = self._lookup.tags_by_id()
        seqs = [seq for seq in sorted(by_seq, reverse=True) if before is None or seq < before]
        for number, seq in enumerate(seqs):
            if len(self._found) == self._params.limit:
                # Whatever they are, they will be on the next page: they need not be read for this one.
                self._more = True
                return
            self._at = (number, len(seqs))
            yield
            self._look_at(by_seq[seq], tags.get(by_seq[seq], []))

    def _look_at(self, checkpoint_id: str, tags: list[str]) -> None:
        try:
            record = self._record(checkpoint_id, tags)
        except DomainError:
            self._damaged += self._lookup.is_listed(checkpoint_id)
            return
        if record is not None:
            self._found.append(record)
            self._followed = self._trail_so_far()

    def _record(self, checkpoint_id: str, tags: list[str]) -> CheckpointRecord | None:
        """Give a checkpoint that belongs in the list."""
        checkpoint = self._lookup.load(checkpoint_id)
        wanted = self._is_wanted(checkpoint)
        # One that is not listed may be where a path has its name from.
        if not self._params.paths or not (wanted or self._trail.follows):
            return checkpoint.record(tags) if wanted else None
        changed, renames = self._trail.look_at(checkpoint_id)
        return checkpoint.record(tags, renames) if wanted and changed else None

    def _is_wanted(self, checkpoint: Checkpoint) -> bool:
        if self._params.kind not in (None, checkpoint.kind):
            return False
        meta = checkpoint.facts.meta
        return all(meta.get(key) == value for key, value in self._params.meta.items())

    def _trail_so_far(self) -> list[WirePath]:
        return [to_wire(path) for path in self._trail.followed]
