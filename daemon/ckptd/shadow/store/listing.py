"""One page of a list of checkpoints, newest first."""

from ckpt_protocol.checkpoint import ListParams, ListResult
from ckpt_protocol.structs import CheckpointRecord, WirePath, from_wire, to_wire
from ckptd.errors import DomainError
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.lookup import Lookup
from ckptd.shadow.store.trail import Trail

__all__ = ["Listing"]


class Listing:
    """Makes one page; a checkpoint that cannot be read, or not be compared, is counted and passed over."""

    def __init__(self, lookup: Lookup, objects: ObjectStore, params: ListParams) -> None:
        self._lookup = lookup
        self._params = params
        followed = None if params.follow is None else [from_wire(path) for path in params.follow]
        self._trail = Trail(lookup, objects, [from_wire(path) for path in params.paths], followed)
        self._found: list[CheckpointRecord] = []
        self._followed: list[WirePath] = self._trail_so_far()
        self._damaged = 0

    def page(self) -> ListResult:
        """Give what there is of the list from where it goes on, up to its limit."""
        params, by_seq = self._params, self._lookup.listed()
        tags = self._lookup.tags_by_id()
        all_match = not (params.paths or params.meta or params.kind)
        for seq in sorted(by_seq, reverse=True):
            if params.before_seq is not None and seq >= params.before_seq:
                continue
            is_full = len(self._found) == params.limit
            if all_match and is_full:
                # Whatever it is, it will be on the next page: it need not be read for this one.
                return self._result(more=True)
            record = self._look_at(by_seq[seq], tags.get(by_seq[seq], []))
            if record is not None and is_full:
                return self._result(more=True)
            if record is not None:
                self._found.append(record)
                self._followed = self._trail_so_far()
        return self._result(more=False)

    def _look_at(self, checkpoint_id: str, tags: list[str]) -> CheckpointRecord | None:
        """Give a checkpoint that belongs in the list."""
        try:
            checkpoint = self._lookup.load(checkpoint_id)
            record = checkpoint.record(tags)
            wanted = self._is_wanted(record)
            # One that is not listed may be where a path has its name from.
            if not self._params.paths or not (wanted or self._trail.follows):
                return record if wanted else None
            changed, renames = self._trail.look_at(checkpoint_id)
            return checkpoint.record(tags, renames) if wanted and changed else None
        except DomainError:
            self._damaged += 1
            return None

    def _is_wanted(self, record: CheckpointRecord) -> bool:
        if self._params.kind not in (None, record.kind):
            return False
        return all(record.meta.get(key) == value for key, value in self._params.meta.items())

    def _trail_so_far(self) -> list[WirePath]:
        return [to_wire(path) for path in self._trail.followed]

    def _result(self, *, more: bool) -> ListResult:
        return ListResult(
            checkpoints=self._found,
            head=self._lookup.known_head(),
            more=more,
            damaged=self._damaged,
            followed=self._followed,
        )
