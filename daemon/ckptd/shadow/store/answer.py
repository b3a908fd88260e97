"""What a caller is told of a restore."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from ckpt_protocol.checkpoint import RestoreResult
from ckpt_protocol.structs import to_wire
from ckpt_protocol.wirepath import to_text
from ckptd.errors import spelled
from ckptd.shadow.restore.plan import Plan
from ckptd.shadow.restore.writer import Outcome
from ckptd.shadow.scan.exclusion import Exclusion
from ckptd.shadow.store.changes import to_left_out
from ckptd.shadow.store.passes import was_edited
from ckptd.shadow.store.preparing import Prepared
from ckptd.shadow.trees.step import Step

__all__ = ["answer_done", "answer_head_moved", "answer_planned", "implied_directories"]

_MAX_NAMED: Final = 10


def answer_planned(prepared: Prepared) -> RestoreResult:
    """Tell what a plan would do."""
    steps = prepared.plan.steps
    written = [step.path for step in steps if step.after is not None]
    deleted = [step.path for step in steps if step.after is None]
    return _answer(prepared, None, Outcome(written, deleted, [], [], False))


def answer_done(
    prepared: Prepared,
    safety: str | None,
    outcome: Outcome,
    earlier: Sequence[Step] = (),
    *,
    overwritten_in: str | None = None,
    cancelled: bool = False,
) -> RestoreResult:
    """Tell what was done; ``safety`` holds what it overwrote and deleted.

    ``earlier`` are the steps of a restore that was cut off and is now done; ``overwritten_in`` then holds what has
    been edited since. A ``cancelled`` one has not moved head.
    """
    left = {item.path for item in prepared.plan.conflicts} | {item.path for item in outcome.failed}
    left.update(prepared.plan.kept, outcome.kept)
    before = [step for step in earlier if step.path not in left]
    both = outcome._replace(
        written=list({*outcome.written, *(step.path for step in before if step.after is not None)}),
        deleted=list({*outcome.deleted, *(step.path for step in before if step.after is None)}),
    )
    result = _answer(prepared, safety, both, earlier)
    notes = [*result.notes, *_edited_meanwhile(prepared, earlier, overwritten_in)]
    if cancelled:
        notes.append("it was cancelled before its end, so head stays; ckpt undo takes back what was done")
    return msgspec.structs.replace(
        result, head=prepared.head_before if cancelled else result.head, notes=[spelled(note) for note in notes]
    )


def _edited_meanwhile(prepared: Prepared, earlier: Sequence[Step], holder: str | None) -> Iterator[str]:
    """Name what somebody wrote after the restore was cut off, and that it has overwritten now."""
    first = {step.path: step for step in earlier}
    edited = [
        to_text(step.path)
        for step in prepared.plan.steps
        if step.path in first and was_edited(step.before, first[step.path].before, first[step.path].after)
    ]
    if edited and holder is not None:
        more = f" and {len(edited) - _MAX_NAMED} more" if len(edited) > _MAX_NAMED else ""
        yield (
            f"edited after it was cut off: {', '.join(edited[:_MAX_NAMED])}{more}; undo brings back what was there "
            f"before, and checkpoint {holder[:12]} holds the edits"
        )


def answer_head_moved(head: str | None, *, dry_run: bool) -> RestoreResult:
    """Tell of an operation that had no file to change, and of which head is all there is to bring back."""
    return RestoreResult(
        target=None,
        written=[],
        deleted=[],
        kept=[],
        conflicts=[],
        edited=[],
        safety=None,
        head=head,
        digest=Plan([], [], [], {}).digest,
        weak=False,
        dry_run=dry_run,
    )


def _answer(prepared: Prepared, safety: str | None, outcome: Outcome, earlier: Iterable[Step] = ()) -> RestoreResult:
    request, plan = prepared.request, prepared.plan
    implied = implied_directories({step.path: step for step in (*plan.steps, *earlier)}.values())
    kept = {*plan.kept, *(path + b"/" for path in outcome.kept)}
    failed = [Exclusion(*one) for one in outcome.failed]
    return RestoreResult(
        target=request.target.checkpoint.id,
        written=[to_wire(path) for path in sorted(outcome.written) if path not in implied],
        deleted=[to_wire(path) for path in sorted(outcome.deleted) if path not in implied],
        kept=[to_wire(path) for path in sorted(kept)],
        conflicts=to_left_out(sorted([*plan.conflicts, *failed])),
        edited=[to_wire(path) for path in prepared.edited],
        safety=safety,
        head=request.head_after,
        digest=plan.digest,
        weak=outcome.weak,
        dry_run=request.dry_run,
        notes=[spelled(note) for note in (*request.notes, *prepared.scan.problems)],
    )


def implied_directories(steps: Collection[Step]) -> set[bytes]:
    """Give the directories that come or go with what they hold: a person is told of the files alone."""
    parents = {step.path.rpartition(b"/")[0] for step in steps}
    return {
        step.path
        for step in steps
        if step.path in parents
        and all(state is None or state.is_dir for state in (step.before, step.after))
        and (step.before is None or step.after is None)
    }
