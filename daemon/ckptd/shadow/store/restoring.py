"""Restores: reset, rollback, undo and redo are one mechanism.

Plan, safety checkpoint, record, write, sync, record. The safety checkpoint and the intent are durable before the first
write; the intent names the safety checkpoint and all paths, so that a restore that is cut off can be undone.
"""

import contextlib
import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NoReturn

import msgspec

from ckpt_protocol.checkpoint import RestoreParams, RestoreResult, StepParams
from ckpt_protocol.structs import Worktree, from_wire, to_wire
from ckpt_protocol.wirepath import to_text
from ckpt_protocol.worktree import ResumeParams
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.pack import HashOnly, PackWriter
from ckptd.shadow.record.info import write_info_tree
from ckptd.shadow.record.lookup import Loaded
from ckptd.shadow.record.oplog import Intent, Outcome, Verb
from ckptd.shadow.restore.space import free_bytes, missing_bytes, used_bytes
from ckptd.shadow.restore.writer import BATCH_STEPS, RestoreWriter, sync
from ckptd.shadow.restore.writer import Outcome as Written
from ckptd.shadow.scan.exclusion import Exclusion
from ckptd.shadow.store.adopting import copy_legacy, look_closer
from ckptd.shadow.store.answer import answer_done, answer_head_moved, answer_planned
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.conditions import NO_CONDITIONS, Conditions, check_conditions
from ckptd.shadow.store.counters import count_work
from ckptd.shadow.store.intents import intent_of, new_intent
from ckptd.shadow.store.passes import passes_of, planned
from ckptd.shadow.store.place import Place, is_at, is_missing, open_root, require_place
from ckptd.shadow.store.preparing import Prepared, RestoreRequest, Terms, prepare
from ckptd.shadow.store.proving import DAMAGE
from ckptd.shadow.store.recovery import RESTORES, incomplete, interrupted, unfinished
from ckptd.shadow.store.repository import Draft, Repository
from ckptd.shadow.store.resuming import finishing, nothing_to_resume, taking_back
from ckptd.shadow.store.reversing import accepted_digest, head_reversed, reversal
from ckptd.shadow.trees.compare import compare, same_state
from ckptd.shadow.trees.graft import graft
from ckptd.shadow.trees.step import Step
from ckptd.shadow.trees.view import find_state

__all__ = ["Restorer"]

# Permission bits are recorded with each checkpoint; this is for one whose record is lost.
_UMASK: Final = 0o022


class _NotHeldError(DomainError):
    """The safety checkpoint cannot be trusted to hold what is going to be overwritten."""

    def __init__(self, why: str) -> None:
        super().__init__("store_damaged", f"the safety checkpoint cannot be read back, so nothing was changed: {why}")


def _in_conflict(conflicts: list[Exclusion]) -> DomainError:
    shown = ", ".join(f"{to_text(item.path)} ({item.reason})" for item in conflicts[:3])
    paths = [item.path for item in conflicts]
    damage = [item.reason for item in conflicts if item.reason in DAMAGE]
    if damage:
        return DomainError(
            damage[0],
            f"the store has lost content, or it is damaged: {shown}; nothing was changed",
            hint="ckpt verify --read-data tells what else is hurt; --skip-conflicts restores the rest",
            paths=paths,
        )
    return DomainError(
        "conflicts",
        f"{len(paths)} paths cannot be restored without loss: {shown}; nothing was changed",
        hint="move them away, or restore the rest with --skip-conflicts",
        paths=paths,
    )


class Restorer:
    """Writes checkpoints back into one worktree."""

    def __init__(self, repository: Repository) -> None:
        self._repo = repository

    def restore(self, params: RestoreParams, asker: Asker) -> RestoreResult:
        """Restore the whole tree or some paths; errors as the protocol's table has them, before the first write."""
        answered = self._answered(params.token)
        if answered is not None:
            return answered
        paths = None if params.paths is None else tuple(sorted({from_wire(path) for path in params.paths}))
        verb: Verb = "reset" if paths is None else "rollback"
        begun = None if params.dry_run else self._begun(params.token, verb)
        target = self._target(params, begun, asker)
        request = RestoreRequest(
            verb=verb,
            target=target,
            token=params.token,
            dry_run=params.dry_run,
            digest=accepted_digest(params, begun),
            skip_conflicts=params.skip_conflicts,
            head_after=target.checkpoint.id if paths is None else self._repo.head,
            paths=paths,
            delete=params.delete,
            notes=tuple(self._notes(target, params)),
            begun=begun,
            conditions=Conditions.of(params),
            recreate=params.recreate,
        )
        if params.recreate and not params.dry_run and is_missing(self._repo):
            # Nothing is made for a request that is going to be refused.
            self._refuse(prepare(self._repo, request, HashOnly(), asker))
            self._recreate()
        return self._run(request, asker)

    def _target(self, params: RestoreParams, begun: Intent | None, asker: Asker) -> Loaded:
        """Give the checkpoint to restore; one of 0.3.6 becomes a checkpoint of ours, unless this is only a plan."""
        repo = self._repo
        if begun is not None and begun.target is not None:
            return repo.lookup.open(begun.target)
        target = repo.lookup.open(repo.lookup.resolve("HEAD" if params.id is None else params.id))
        if repo.legacy is None or not target.checkpoint.legacy:
            return target
        if params.dry_run:
            return look_closer(repo, repo.legacy.objects, target)
        return copy_legacy(repo, repo.legacy.objects, target, asker)

    def undo(self, params: StepParams, asker: Asker) -> RestoreResult:
        """Reverse the newest restore that is not undone, over exactly its paths.

        Or finish an undo that was cut off, or that could not change all of its paths.
        """
        return self._step("undo", params, asker)

    def redo(self, params: StepParams, asker: Asker) -> RestoreResult:
        """Reverse the newest undo; or finish a redo that was cut off or could not change all of its paths."""
        return self._step("redo", params, asker)

    def resume(self, params: ResumeParams, asker: Asker) -> RestoreResult:
        """Finish the restore that was cut off, or take it back; raises DomainError ``nothing_to_resume``."""
        answered = self._answered(params.token)
        if answered is not None:
            return answered
        begun, terms = interrupted(self._repo.log), Terms.of(params)
        known = self._repo.log.unanswered(params.token)
        if begun is None or (known is not None and known != begun):
            raise nothing_to_resume()
        # Sent again after it was itself cut off, an undo is to be gone on with, not to be taken back.
        if params.action == "finish" or known is not None:
            return self._run(finishing(self._repo, begun, terms), asker)
        return self._run(reversal(self._repo, taking_back(begun), begun, terms, None), asker)

    def _step(self, verb: Verb, params: StepParams, asker: Asker) -> RestoreResult:
        log = self._repo.log
        answered = self._answered(params.token)
        if answered is not None:
            return answered
        asker = asker.acting_for(params.session)
        begun = unfinished(log) or incomplete(log)
        goes_on = begun is not None and begun.verb == verb and params.session in (None, begun.session)
        if begun is not None and goes_on and begun.undoes in log.intents:
            return self._reverse(verb, begun.undoes, params, asker, begun)
        number = self._retried(params.token, verb)
        return self._reverse(verb, self._next(verb, params, asker) if number is None else number, params, asker)

    def _next(self, verb: Verb, params: StepParams, asker: Asker) -> int:
        history, intents = self._repo.history, self._repo.log.intents
        numbers = history.undoable if verb == "undo" else history.redoable
        wanted = [number for number in numbers if params.session in (None, intents[number].session)]
        if wanted:
            return wanted[-1]
        if params.session is not None:
            raise DomainError(f"nothing_to_{verb}", f"there is nothing to {verb} of session {params.session}")
        if verb == "undo":
            raise self._nothing_to_undo(asker)
        raise DomainError("nothing_to_redo", "there is no undo to take back")

    def _answered(self, token: str) -> RestoreResult | None:
        outcome = self._repo.log.answered(token, *RESTORES)
        if outcome is not None and outcome.head_stays:
            raise DomainError("cancelled", "this very request was cancelled before", hint="ask anew")
        return msgspec.json.decode(outcome.result, type=RestoreResult) if outcome is not None else None

    def _begun(self, token: str, verb: Verb) -> Intent | None:
        """Give the intent of a request that was cut off, where it can be gone on with."""
        intent = self._repo.log.unanswered(token)
        return intent if intent is not None and intent.verb == verb and intent == unfinished(self._repo.log) else None

    def _retried(self, token: str, verb: Verb) -> int | None:
        """Give what a step that was cut off was reversing: retried, it reverses the same, not what lies before it."""
        intent = self._repo.log.unanswered(token)
        return intent.undoes if intent is not None and intent.verb == verb else None

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

    def _reverse(
        self, verb: Verb, number: int, params: StepParams, asker: Asker, begun: Intent | None = None
    ) -> RestoreResult:
        done = self._repo.log.intents[number]
        if done.safety is None:
            return self._move_head(verb, done, params, asker)
        return self._run(reversal(self._repo, verb, done, Terms.of(params), begun), asker)

    def _move_head(self, verb: Verb, done: Intent, params: StepParams, asker: Asker) -> RestoreResult:
        """Reverse a reset that changed no file: head is all there is to bring back."""
        conditions = Conditions.of(params)
        if conditions != NO_CONDITIONS:
            check_conditions(self._repo, conditions, self._repo.scan(HashOnly()).root, asker)
        head_after = head_reversed(self._repo, done)
        result = answer_head_moved(head_after, dry_run=params.dry_run)
        if not params.dry_run:
            intent = new_intent(self._repo, verb, params.token, asker, undoes=done.n, after=head_after)
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

    def _run(self, request: RestoreRequest, asker: Asker) -> RestoreResult:
        if request.dry_run:
            return answer_planned(prepare(self._repo, request, HashOnly(), asker))
        self._repo.clear_up()
        try:
            return self._attempt(request, asker)
        except _NotHeldError:
            # What could not be read back counts as missing now, so that another scan stores it anew.
            return self._attempt(request, asker)

    def _attempt(self, request: RestoreRequest, asker: Asker) -> RestoreResult:
        pack = self._repo.objects.writer()
        try:
            prepared = prepare(self._repo, request, pack, asker)
            self._refuse(prepared)
            if not prepared.plan.steps:
                return self._do_nothing(prepared, asker)
            return self._write(prepared, pack, asker)
        finally:
            pack.abort()

    def _refuse(self, prepared: Prepared) -> None:
        """Stop before anything is written: another plan than the caller's, or conflicts."""
        request, plan = prepared.request, prepared.plan
        if request.digest is not None and request.digest != plan.digest:
            raise DomainError(
                "plan_changed",
                "the worktree has changed since the plan was made; nothing was changed",
                hint="look at the new plan (--dry-run), then try again",
            )
        if plan.conflicts and not request.skip_conflicts:
            raise _in_conflict(plan.conflicts)

    def _do_nothing(self, prepared: Prepared, asker: Asker) -> RestoreResult:
        """Record a restore that has no file to change: it makes no safety checkpoint, but a reset moves head."""
        request, begun, earlier = prepared.request, prepared.request.begun, self._earlier(prepared)
        intent = intent_of(self._repo, request, asker)
        self._repo.log.write(intent)
        if begun is None:
            result = msgspec.structs.replace(answer_planned(prepared), stats=count_work(prepared.scan, None))
        else:
            nothing = Written([], [], [], [], False)
            result = answer_done(prepared, begun.safety, nothing, earlier)
        self._conclude(intent, result, planned(intent))
        return result

    def _write(self, prepared: Prepared, pack: PackWriter, asker: Asker) -> RestoreResult:
        request, steps = prepared.request, prepared.plan.steps
        fresh = pack.oids
        reach("planned")
        self._refuse_full(steps)
        asker.tell("safety", 0, len(steps))
        draft = self._make_safety(prepared, pack, asker)
        reach("safe")
        self._read_back(draft.id, steps, fresh)
        earlier = self._earlier(prepared)
        asker.check(request.verb)
        require_place(self._repo, prepared.place)
        intent = intent_of(self._repo, request, asker, draft, steps)
        root_fd = open_root(self._repo)
        try:
            self._begin(intent, draft, request.begun)
            reach("begun")
            written, half_done = self._carry_out(root_fd, steps, prepared.place, asker)
        finally:
            os.close(root_fd)
        if not written.failed and not half_done:
            self._repo.settled.expect(prepared.scan.root, steps)
        cancelled = any(one.reason == "cancelled" for one in written.failed)
        result = answer_done(prepared, intent.safety, written, earlier, overwritten_in=draft.id, cancelled=cancelled)
        result = msgspec.structs.replace(result, stats=count_work(prepared.scan, pack, steps, written.written))
        changed = {*written.written, *written.deleted, *half_done}
        if request.begun is not None:
            changed |= planned(request.begun)
        self._conclude(intent, result, changed, head_stays=cancelled, incomplete=bool(written.failed))
        if cancelled:
            self._take_back(intent, len(changed), asker.undisturbed())
        return result

    def _refuse_full(self, steps: Sequence[Step]) -> None:
        """Stop before anything is written where the worktree's file system has no room for it."""
        repo = self._repo
        root_fd = open_root(repo)
        try:
            free = free_bytes(root_fd)
        finally:
            os.close(root_fd)
        if free is None:
            return
        missing = missing_bytes(
            steps, free, lambda path: used_bytes(os.path.join(repo.worktree, path)), self._size_of, BATCH_STEPS
        )
        if missing > 0:
            raise DomainError(
                "no_space",
                f"the restore needs {missing:,} bytes more than there are free at {to_text(repo.worktree)}; "
                "nothing was changed",
                hint="free some space, then try again",
                paths=(repo.worktree,),
            )

    def _size_of(self, oid: bytes) -> int:
        try:
            return self._repo.objects.size(oid)
        except DomainError:
            # Damage has its own answer, at its own path.
            return 0

    def _take_back(self, intent: Intent, changed: int, asker: Asker) -> NoReturn:
        """Reverse what was called off in the middle, and tell so; it is an operation of its own, with its own safety.

        Raises DomainError: ``cancelled`` where all is as it was, ``restore_incomplete`` where it is not.
        """
        if not changed:
            raise DomainError("cancelled", f"the {intent.verb} was cancelled; nothing was changed")
        try:
            self._repo.settings.hooks("before-take-back", b"")
            verb: Verb = "redo" if intent.verb == "undo" else "undo"
            back = self._reverse(verb, intent.n, self._own_step(), asker)
        except DomainError as error:
            raise _not_taken_back(intent, error.message, error.paths) from error
        if back.conflicts:
            first = back.conflicts[0]
            raise _not_taken_back(intent, first.reason, [from_wire(item.path) for item in back.conflicts])
        raise DomainError(
            "cancelled",
            f"the {intent.verb} was cancelled after it had changed {changed} paths; they were put back as they were "
            f"before, and what it had written is in the safety checkpoint {back.safety}",
        )

    def _own_step(self) -> StepParams:
        repo = self._repo
        return StepParams(
            checkpoint_dir=to_wire(os.path.dirname(repo.folder)),
            worktree=Worktree(path=to_wire(repo.worktree)),
            token=os.urandom(16).hex(),
            skip_conflicts=True,
        )

    def _earlier(self, prepared: Prepared) -> list[Step]:
        """Give the steps of what was cut off; they only serve to tell of them, so a checkpoint may be damaged."""
        begun = prepared.request.begun
        if begun is None:
            return []
        try:
            return prepared.earlier(passes_of(begun, self._repo.lookup, answered=False))
        except DomainError:
            return []

    def _make_safety(self, prepared: Prepared, pack: PackWriter, asker: Asker) -> Draft:
        repo, request, scan = self._repo, prepared.request, prepared.scan
        key = graft(scan.root, prepared.plan.captured, pack)
        draft = repo.draft(
            pack,
            key,
            write_info_tree(pack, repo.info_of(scan, key[1])),
            f"before {request.verb} to {request.target.checkpoint.id[:12]}",
            kind="safety",
            complete=not scan.skipped,
            client=asker.client,
            meta={},
            watched=scan.partial,
        )
        repo.adopt(scan.root)
        return draft

    def _read_back(self, safety: str, steps: list[Step], fresh: set[bytes]) -> None:
        """Make sure that the safety checkpoint holds whatever is going to be overwritten or deleted.

        What the scan took for known may rest on a pack that has gone bad since. ``fresh`` has just been written.
        """
        objects = self._repo.objects
        try:
            root = self._repo.lookup.open(safety).root
            for path, before, _ in steps:
                if before is None:
                    continue
                if not same_state(before, find_state(root, path)):
                    raise _NotHeldError(f"{to_text(path)} is not in the safety checkpoint")
                if not before.is_dir and before.oid not in fresh:
                    objects.check(before.oid)
        except _NotHeldError:
            raise
        except DomainError as error:
            raise _NotHeldError(error.message) from error

    def _begin(self, intent: Intent, draft: Draft, begun: Intent | None) -> None:
        """Make it durable what is about to be written, and the safety checkpoint; else nothing of either holds."""
        repo = self._repo
        repo.log.write(intent)
        try:
            repo.publish(draft)
        except DomainError:
            if begun is None:
                repo.withdraw(draft, intent.n)
                # Whatever the disk let us take back: no file has been touched, so there is nothing to undo.
                repo.log.conclude(Outcome(n=intent.n, done=False))
            else:
                # What was begun stays so; a pass whose safety checkpoint does not exist is passed over.
                with contextlib.suppress(DomainError):
                    repo.refs.withdraw_checkpoint(draft.seq)
            raise

    def _carry_out(
        self, root_fd: int, steps: list[Step], place: Place | None, asker: Asker
    ) -> tuple[Written, list[bytes]]:
        """Write; give what came of it, and the paths that failed when a part of them was done."""
        writer = RestoreWriter(
            root_fd,
            self._repo.objects,
            umask=_UMASK,
            root_dev=os.fstat(root_fd).st_dev,
            cancelled=asker.is_cancelled,
            progress=asker.progress_of("write", len(steps)),
            hooks=self._repo.settings.hooks,
            at_home=partial(is_at, self._repo, place, root_fd),
        )
        written = writer.run(steps)
        reach("restored")
        sync(root_fd)
        reach("synced")
        return written, writer.half_done

    def _conclude(
        self,
        intent: Intent,
        result: RestoreResult,
        paths: Iterable[bytes] | None,
        *,
        head_stays: bool = False,
        incomplete: bool = False,
    ) -> None:
        changed = None if paths is None else [to_wire(path) for path in sorted(paths)]
        raw = msgspec.Raw(msgspec.json.encode(result))
        self._repo.log.conclude(
            Outcome(n=intent.n, result=raw, paths=changed, head_stays=head_stays, incomplete=incomplete)
        )
        reach("concluded")
        if not head_stays:
            self._repo.set_head(intent.after)


def _not_taken_back(intent: Intent, why: str, paths: Iterable[bytes]) -> DomainError:
    safety = (intent.safety or "")[:12]
    return DomainError(
        "restore_incomplete",
        f"the {intent.verb} was cancelled, and not all that it had changed could be put back: {why}; the safety "
        f"checkpoint {safety} holds what was there",
        hint="ckpt redo takes it back" if intent.verb == "undo" else "ckpt undo takes it back",
        paths=paths,
    )
