"""A checkpoint and what it changed, found out in small steps beside everything else."""

from collections.abc import Iterator
from typing import Final

from ckpt_protocol.checkpoint import ShowParams, ShowResult
from ckpt_protocol.structs import Change
from ckptd.shadow.record.lookup import Lookup
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.changes import to_change, to_left_out
from ckptd.shadow.store.stepping import go_on
from ckptd.shadow.trees.compare import Delta, compare, picking_visible

__all__ = ["Showing"]


class Showing:
    """One checkpoint that is looked at; step() goes on with it. Used by one thread at a time."""

    is_waiting: Final = False

    def __init__(self, lookup: Lookup, params: ShowParams, asker: Asker) -> None:
        self._lookup = lookup
        self._params = params
        self._asker = asker
        self._result: ShowResult | None = None
        self._run: Final = self._look()

    def step(self) -> ShowResult | None:
        """Go on for a moment; give the result once it is there. Raises DomainError ``cancelled``, and as resolve()."""
        return self._result if go_on(self._run, self._asker, "comparison") else None

    def close(self) -> None:
        """Let go of what is not needed any more."""

    def _look(self) -> Iterator[bool]:
        loaded = self._lookup.open(self._lookup.resolve(self._params.id))
        base = self._lookup.before(loaded.checkpoint)
        base_root = self._lookup.open(base).root if base is not None else None
        deltas: list[Delta] = []
        for delta in compare(base_root, loaded.root):
            deltas.append(delta)
            self._asker.tell("compare", len(deltas))
            yield False
        shown = yield from picking_visible(deltas)
        changes: list[Change] = []
        for delta in shown:
            changes.append(to_change(delta))
            yield False
        info = loaded.info
        self._result = ShowResult(
            checkpoint=loaded.checkpoint.record(self._lookup.tags_by_id().get(loaded.checkpoint.id, [])),
            base=base,
            changes=changes,
            skipped=to_left_out(info.skipped if info is not None else []),
            excluded=to_left_out(info.excluded if info is not None else []),
        )
