"""Restores: reset, rollback, undo and redo are one mechanism.

Plan, safety checkpoint, record, write, sync, record. The safety checkpoint and the intent are durable before the first
write; the intent names the safety checkpoint and all paths, so that a restore that is cut off can be undone.
"""

import os
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from ckpt_protocol.checkpoint import RestoreParams, RestoreResult, StepParams
from ckpt_protocol.structs import from_wire, to_wire
from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.asker import Asker
from ckptd.shadow.capture import Disk
from ckptd.shadow.compare import Delta, compare, same_state
from ckptd.shadow.exclusion import Exclusion
from ckptd.shadow.graft import graft
from ckptd.shadow.info import write_info_tree
from ckptd.shadow.lookup import Loaded
from ckptd.shadow.model import iter_nodes
from ckptd.shadow.oplog import Intent, Outcome, Verb
from ckptd.shadow.pack import HashOnly, ObjectSink, PackWriter
from ckptd.shadow.plan import Plan, make_plan
from ckptd.shadow.reader import to_left_out
from ckptd.shadow.repository import Repository
from ckptd.shadow.rules import Coverage
from ckptd.shadow.scan import ScanResult
from ckptd.shadow.selection import select_exactly, select_paths
from ckptd.shadow.step import Step
from ckptd.shadow.writer import Outcome as Written
from ckptd.shadow.writer import RestoreWriter, sync

__all__ = ["Restorer"]

# Permission bits are recorded with each checkpoint; this is for one whose record is lost.
_UMASK: Final = 0o022


class _Request(NamedTuple):
    """One restore, whatever verb asked for it.

    ``paths`` None: the whole tree. ``exact``: those very paths and nothing below them, whether the target speaks
    about them or not (undo and redo). ``head_after`` is head afterwards; ``left_by`` the checkpoint whose content
    these paths had after the operation that is undone.
    """

    verb: Verb
    target: Loaded
    token: str
    dry_run: bool
    digest: str | None
    skip_conflicts: bool
    head_after: str | None
    paths: tuple[bytes, ...] | None = None
    exact: bool = False
    delete: bool = False
    undoes: int | None = None
    left_by: Loaded | None = None
    notes: tuple[str, ...] = ()


class _Prepared(NamedTuple):
    """A request, looked at: what the worktree holds now, and the plan."""

    request: _Request
    scan: ScanResult
    plan: Plan
    edited: list[bytes]
    head_before: str | None


class Restorer:
    """Writes checkpoints back into one worktree."""

    def __init__(self, repository: Repository) -> None:
        self._repo = repository

    def restore(self, params: RestoreParams, asker: Asker) -> RestoreResult:
        """Restore the whole tree or some paths; errors as the protocol's table has them, before the first write."""
        answered = self._answered(params.token)
        if answered is not None:
            return answered
        target = self._repo.lookup.open(self._repo.lookup.resolve(params.id or "HEAD"))
        paths = None if params.paths is None else tuple(sorted({from_wire(path) for path in params.paths}))
        request = _Request(
            verb="reset" if paths is None else "rollback",
            target=target,
            token=params.token,
            dry_run=params.dry_run,
            digest=params.digest,
            skip_conflicts=params.skip_conflicts,
            head_after=target.checkpoint.id if paths is None else self._repo.head,
            paths=paths,
            delete=params.delete,
            notes=tuple(self._notes(target, params)),
        )
        if params.recreate and not params.dry_run:
            self._recreate()
        return self._run(request, asker)

    def undo(self, params: StepParams, asker: Asker) -> RestoreResult:
        """Reverse the newest restore that is not undone, over exactly its paths."""
        answered = self._answered(params.token)
        if answered is not None:
            return answered
        undoable = self._repo.history.undoable
        if not undoable:
            raise self._nothing_to_undo(asker)
        return self._reverse("undo", undoable[-1], params, asker)

    def redo(self, params: StepParams, asker: Asker) -> RestoreResult:
        """Reverse the newest undo."""
        answered = self._answered(params.token)
        if answered is not None:
            return answered
        redoable = self._repo.history.redoable
        if not redoable:
            raise DomainError("nothing_to_redo", "there is no undo to take back")
        return self._reverse("redo", redoable[-1], params, asker)

    def _answered(self, token: str) -> RestoreResult | None:
        outcome = self._repo.log.answered(token)
        return msgspec.json.decode(outcome.result, type=RestoreResult) if outcome is not None else None

    def _notes(self, target: Loaded, params: RestoreParams) -> Iterable[str]:
        if target.info is None:
            yield "what this checkpoint left out is no longer known, so nothing that it lacks is deleted"
        if params.id is None and target.checkpoint.facts.kind == "auto":
            yield "head is an autosave; ckpt ls --kind manual shows the checkpoints that you made"

    def _recreate(self) -> None:
        try:
            os.makedirs(self._repo.worktree, exist_ok=True)
        except OSError as error:
            raise from_os_error(error, "make the worktree", self._repo.worktree) from error

    def _reverse(self, verb: Verb, number: int, params: StepParams, asker: Asker) -> RestoreResult:
        repo = self._repo
        done = repo.log.intents[number]
        head_after = repo.head
        if done.before != done.after and done.before in repo.lookup.ids():
            head_after = done.before
        if done.safety is None:
            return self._move_head(verb, number, head_after, params, asker)
        outcome = repo.log.outcomes.get(number)
        changed = done.paths if outcome is None or outcome.paths is None else outcome.paths
        request = _Request(
            verb=verb,
            target=repo.lookup.open(done.safety),
            token=params.token,
            dry_run=params.dry_run,
            digest=params.digest,
            skip_conflicts=params.skip_conflicts,
            head_after=head_after,
            paths=tuple(sorted(from_wire(path) for path in changed)),
            exact=True,
            undoes=number,
            left_by=repo.lookup.open(done.target) if done.target is not None else None,
        )
        return self._run(request, asker)

    def _move_head(
        self, verb: Verb, number: int, head_after: str | None, params: StepParams, asker: Asker
    ) -> RestoreResult:
        """Reverse a reset that changed no file: head is all there is to bring back."""
        result = RestoreResult(
            target=None,
            written=[],
            deleted=[],
            kept=[],
            conflicts=[],
            edited=[],
            safety=None,
            head=head_after,
            digest=Plan([], [], [], {}).digest,
            weak=False,
            dry_run=params.dry_run,
        )
        if not params.dry_run:
            intent = self._intent(verb, params.token, asker, undoes=number, after=head_after)
            self._repo.log.write(intent)
            self._conclude(intent, result, None)
        return result

    def _nothing_to_undo(self, asker: Asker) -> DomainError:
        repo = self._repo
        head = repo.head
        if head is None:
            return DomainError("nothing_to_undo", "no restore has been made, and there is no checkpoint yet")
        scan = repo.scan(HashOnly(), cancelled=asker.is_cancelled)
        count = sum(1 for _ in compare(repo.lookup.open(head).root, scan.root))
        return DomainError(
            "nothing_to_undo",
            f"no restore has been made that is not undone; {count} paths differ from the last checkpoint",
            hint=f"to go back to it: ckpt reset {head[:12]}" if count else None,
        )

    def _run(self, request: _Request, asker: Asker) -> RestoreResult:
        if request.dry_run:
            prepared = self._prepare(request, HashOnly(), asker)
            return self._result(prepared, None, None)
        pack = self._repo.objects.writer()
        try:
            prepared = self._prepare(request, pack, asker)
            self._refuse(prepared)
            if not prepared.plan.steps:
                return self._do_nothing(prepared, asker)
            return self._write(prepared, pack, asker)
        finally:
            pack.abort()

    def _prepare(self, request: _Request, sink: ObjectSink, asker: Asker) -> _Prepared:
        repo = self._repo
        scan = repo.scan(sink, cancelled=asker.is_cancelled, progress=asker.progress_of("scan"))
        if scan.unknown_rules:
            raise DomainError(
                "permission_denied",
                f"cannot read {to_text(scan.unknown_rules[0])}, so what is ignored is not known; nothing was changed",
                hint="make it readable, then try again",
                paths=scan.unknown_rules,
            )
        left_alone = _left_alone(scan)
        deltas, staying = self._select(request, scan)
        coverage = Coverage(repo.objects, request.target.root, request.target.info)
        root_fd = self._open_root()
        try:
            plan = make_plan(
                deltas,
                Disk(root_fd, sink),
                lambda path, is_dir: request.exact or request.delete or coverage.says_absent(path, is_dir=is_dir),
                [*left_alone, *staying],
            )
        finally:
            os.close(root_fd)
        if request.paths is not None:
            plan = plan._replace(kept=[path for path in plan.kept if _is_selected(path, request)])
        plan = self._without_lost(plan)
        return _Prepared(request, scan, plan, _edited(request, scan), repo.head)

    def _select(self, request: _Request, scan: ScanResult) -> tuple[list[Delta], list[bytes]]:
        """Give what differs in the requested paths, and what must stay although a directory above it should go."""
        if request.paths is None:
            return list(compare(scan.root, request.target.root)), []
        if request.exact:
            return select_exactly(request.paths, scan.root, request.target.root)
        name = request.target.checkpoint.id[:12]
        return select_paths(request.paths, scan.root, request.target.root, name, delete=request.delete), []

    def _without_lost(self, plan: Plan) -> Plan:
        """Turn steps whose content is gone from the store into conflicts: missing is not the same as absent."""
        objects = self._repo.objects
        lost = [step for step in plan.steps if not _held(step, objects.__contains__)]
        if not lost:
            return plan
        gone = {step.path for step in lost}
        told = [Exclusion(step.path, "object_missing", "its content is missing from the store") for step in lost]
        steps = [step for step in plan.steps if step.path not in gone]
        return plan._replace(steps=steps, conflicts=sorted([*plan.conflicts, *told]))

    def _refuse(self, prepared: _Prepared) -> None:
        """Stop before anything is written: another plan than the caller's, or conflicts."""
        request, plan = prepared.request, prepared.plan
        if request.digest is not None and request.digest != plan.digest:
            raise DomainError(
                "plan_changed",
                "the worktree has changed since the plan was made; nothing was changed",
                hint="look at the new plan (--dry-run), then try again",
            )
        if plan.conflicts and not request.skip_conflicts:
            shown = ", ".join(f"{to_text(item.path)} ({item.reason})" for item in plan.conflicts[:3])
            raise DomainError(
                "conflicts",
                f"{len(plan.conflicts)} paths cannot be restored without loss: {shown}; nothing was changed",
                hint="move them away, or restore the rest with --skip-conflicts",
                paths=[item.path for item in plan.conflicts],
            )

    def _do_nothing(self, prepared: _Prepared, asker: Asker) -> RestoreResult:
        """Record a restore that has no file to change: it makes no safety checkpoint, but a reset moves head."""
        request = prepared.request
        result = self._result(prepared, None, None)
        if request.verb != "rollback":
            intent = self._intent(
                request.verb,
                request.token,
                asker,
                undoes=request.undoes,
                after=request.head_after,
                target=request.target.checkpoint.id,
            )
            self._repo.log.write(intent)
            self._conclude(intent, result, [])
        return result

    def _write(self, prepared: _Prepared, pack: PackWriter, asker: Asker) -> RestoreResult:
        repo, request, plan, scan = self._repo, prepared.request, prepared.plan, prepared.scan
        key = graft(scan.root, plan.captured, pack)
        draft = repo.draft(
            pack,
            key,
            write_info_tree(pack, repo.info_of(scan, key[1])),
            f"before {request.verb} to {request.target.checkpoint.id[:12]}",
            kind="safety",
            complete=not scan.skipped,
            client=asker.client,
            meta={},
        )
        repo.adopt(scan.root)
        intent = self._intent(
            request.verb,
            request.token,
            asker,
            undoes=request.undoes,
            after=request.head_after,
            target=request.target.checkpoint.id,
            safety=draft.id,
            next_seq=draft.seq + 1,
            paths=[step.path for step in plan.steps],
        )
        repo.log.write(intent)
        repo.publish(draft)
        written = self._carry_out(plan.steps, asker)
        result = self._result(prepared, draft.id, written)
        self._conclude(intent, result, [*written.written, *written.deleted])
        return result

    def _carry_out(self, steps: list[Step], asker: Asker) -> Written:
        root_fd = self._open_root()
        try:
            writer = RestoreWriter(
                root_fd,
                self._repo.objects,
                umask=_UMASK,
                root_dev=os.fstat(root_fd).st_dev,
                cancelled=asker.is_cancelled,
                hooks=self._repo.settings.hooks,
            )
            written = writer.run(steps)
            sync(root_fd)
            return written
        finally:
            os.close(root_fd)

    def _conclude(self, intent: Intent, result: RestoreResult, paths: list[bytes] | None) -> None:
        changed = None if paths is None else [to_wire(path) for path in sorted(paths)]
        outcome = Outcome(n=intent.n, result=msgspec.Raw(msgspec.json.encode(result)), paths=changed)
        self._repo.log.write(outcome)
        self._repo.set_head(intent.after)

    def _intent(
        self,
        verb: Verb,
        token: str,
        asker: Asker,
        *,
        after: str | None,
        undoes: int | None = None,
        target: str | None = None,
        safety: str | None = None,
        next_seq: int | None = None,
        paths: Iterable[bytes] = (),
    ) -> Intent:
        repo = self._repo
        return Intent(
            n=repo.log.next_number,
            verb=verb,
            time=repo.now(),
            token=token,
            client=asker.client,
            session=asker.session,
            next_seq=repo.log.next_seq if next_seq is None else next_seq,
            before=repo.head,
            after=after,
            target=target,
            safety=safety,
            undoes=undoes,
            paths=[to_wire(path) for path in paths],
        )

    def _open_root(self) -> int:
        try:
            return os.open(self._repo.worktree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise from_os_error(error, "open the worktree", self._repo.worktree) from error

    def _result(self, prepared: _Prepared, safety: str | None, outcome: Written | None) -> RestoreResult:
        request, plan = prepared.request, prepared.plan
        conflicts = plan.conflicts
        if outcome is None:
            written = [step.path for step in plan.steps if step.after is not None]
            deleted = [step.path for step in plan.steps if step.after is None]
            kept = plan.kept
        else:
            written, deleted = outcome.written, outcome.deleted
            kept = sorted({*plan.kept, *(path + b"/" for path in outcome.kept)})
            conflicts = sorted([*conflicts, *(Exclusion(*failed) for failed in outcome.failed)])
        implied = _implied_directories(plan.steps)
        return RestoreResult(
            target=request.target.checkpoint.id,
            written=[to_wire(path) for path in sorted(written) if path not in implied],
            deleted=[to_wire(path) for path in sorted(deleted) if path not in implied],
            kept=[to_wire(path) for path in kept],
            conflicts=to_left_out(conflicts),
            edited=[to_wire(path) for path in prepared.edited],
            safety=safety,
            head=request.head_after,
            digest=plan.digest,
            weak=outcome.weak if outcome is not None else False,
            dry_run=request.dry_run,
            notes=[*request.notes, *prepared.scan.problems],
        )


def _held(step: Step, contains: Callable[[bytes], bool]) -> bool:
    """Tell whether the store has what a step needs to write."""
    after = step.after
    if after is None or after.is_dir or (step.before is not None and step.before.oid == after.oid):
        return True
    return contains(after.oid)


def _left_alone(scan: ScanResult) -> list[bytes]:
    """Give every path on disk that the scan left out; directories that rules leave out end with a slash."""
    found = [item.path for item in (*scan.skipped, *scan.excluded)]
    for path, node in iter_nodes(scan.root):
        start = path + b"/" if path else b""
        found += [start + name for name in node.ignored]
    return found


def _is_selected(path: bytes, request: _Request) -> bool:
    plain = path.rstrip(b"/")
    return any(plain == one or plain.startswith(one + b"/") for one in request.paths or ())


def _edited(request: _Request, scan: ScanResult) -> list[bytes]:
    """Give the paths that are no longer as the operation that is undone left them."""
    if request.left_by is None or request.paths is None:
        return []
    deltas, _ = select_exactly(request.paths, scan.root, request.left_by.root)
    exact = set(request.paths)
    return sorted(delta.path for delta in deltas if delta.path in exact and not same_state(delta.old, delta.new))


def _implied_directories(steps: list[Step]) -> set[bytes]:
    """Give the directories that come or go with what they hold: a person is told of the files alone."""
    parents = {step.path.rpartition(b"/")[0] for step in steps}
    return {
        step.path
        for step in steps
        if step.path in parents and all(state is None or state.is_dir for state in (step.before, step.after))
    }
