"""What a caller is told of a restore."""

from ckpt_protocol.checkpoint import RestoreResult
from ckpt_protocol.structs import to_wire
from ckptd.errors import spelled
from ckptd.shadow.restore.plan import Plan
from ckptd.shadow.restore.writer import Outcome
from ckptd.shadow.scan.exclusion import Exclusion
from ckptd.shadow.store.preparing import Prepared
from ckptd.shadow.store.reader import to_left_out
from ckptd.shadow.trees.step import Step

__all__ = ["answer_done", "answer_head_moved", "answer_planned"]


def answer_planned(prepared: Prepared) -> RestoreResult:
    """Tell what a plan would do."""
    steps = prepared.plan.steps
    written = [step.path for step in steps if step.after is not None]
    deleted = [step.path for step in steps if step.after is None]
    return _answer(prepared, None, Outcome(written, deleted, [], [], False))


def answer_done(prepared: Prepared, safety: str, outcome: Outcome) -> RestoreResult:
    """Tell what was done; ``safety`` holds what it overwrote and deleted."""
    return _answer(prepared, safety, outcome)


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


def _answer(prepared: Prepared, safety: str | None, outcome: Outcome) -> RestoreResult:
    request, plan = prepared.request, prepared.plan
    implied = _implied_directories(plan.steps)
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


def _implied_directories(steps: list[Step]) -> set[bytes]:
    """Give the directories that come or go with what they hold: a person is told of the files alone."""
    parents = {step.path.rpartition(b"/")[0] for step in steps}
    return {
        step.path
        for step in steps
        if step.path in parents
        and all(state is None or state.is_dir for state in (step.before, step.after))
        and (step.before is None or step.after is None)
    }
