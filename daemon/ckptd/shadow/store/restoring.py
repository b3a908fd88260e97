"""Restores: reset, rollback, undo, redo and resume become requests of one mechanism, which ``carrying`` is."""

import os
from collections.abc import Iterable
from typing import Final, NoReturn

import msgspec

from ckpt_protocol.checkpoint import RestoreParams, RestoreResult, StepParams
from ckpt_protocol.structs import Worktree, from_wire, to_wire
from ckpt_protocol.worktree import ResumeParams
from ckptd.errors import DomainError
from ckptd.shadow.objects.pack import HashOnly
from ckptd.shadow.record.lookup import Loaded
from ckptd.shadow.record.oplog import Intent, Verb
from ckptd.shadow.store.adopting import copy_legacy, look_closer
from ckptd.shadow.store.answer import answer_head_moved
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.carrying import Carrier
from ckptd.shadow.store.conditions import NO_CONDITIONS, Conditions, check_conditions
from ckptd.shadow.store.intents import new_intent
from ckptd.shadow.store.preparing import RestoreRequest, Terms
from ckptd.shadow.store.recovery import RESTORES, incomplete, interrupted, unfinished
from ckptd.shadow.store.repository import Repository
from ckptd.shadow.store.resuming import finishing, nothing_to_resume, taking_back
from ckptd.shadow.store.reversing import accepted_digest, head_reversed, reversal
from ckptd.shadow.store.sessionundo import SessionUndo
from ckptd.shadow.trees.compare import compare, visible

__all__ = ["Restorer"]


class Restorer:
    """Writes checkpoints back into one worktree."""

    def __init__(self, repository: Repository) -> None:
        self._repo = repository
        self._carrier: Final = Carrier(repository, self._take_back)

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
        return self._carrier.run(request, asker)

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

        Or finish an undo that was cut off, or that could not change all of its paths. With ``whole_session`` it takes
        back all that the session changed, as far as the saves around its tool calls tell.
        """
        if params.whole_session:
            return self._undo_session(params, asker)
        return self._step("undo", params, asker)

    def redo(self, params: StepParams, asker: Asker) -> RestoreResult:
        """Reverse the newest undo; or finish a redo that was cut off or could not change all of its paths."""
        if params.whole_session:
            raise DomainError("bad_option", "whole_session is for an undo; a redo reverses that as any other undo")
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
            return self._carrier.run(finishing(self._repo, begun, terms), asker)
        return self._carrier.run(reversal(self._repo, taking_back(begun), begun, terms, None), asker)

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
        if begun is not None and goes_on and begun.undoes is None:
            # Of a whole session; nothing older is reversed before that.
            return self._carrier.run(finishing(self._repo, begun, Terms.of(params)), asker)
        number = self._retried(params.token, verb)
        return self._reverse(verb, self._next(verb, params, asker) if number is None else number, params, asker)

    def _undo_session(self, params: StepParams, asker: Asker) -> RestoreResult:
        repo, session = self._repo, params.session
        if session is None:
            raise DomainError("bad_option", "whole_session needs the session whose changes are to be taken back")
        answered = self._answered(params.token)
        if answered is not None:
            return answered
        asker = asker.acting_for(session)
        begun, terms = unfinished(repo.log) or incomplete(repo.log), Terms.of(params)._replace(own_only=False)
        if begun is not None and (begun.verb, begun.undoes, begun.session) == ("undo", None, session):
            return self._carrier.run(finishing(repo, begun, terms), asker)
        if repo.head is None:
            raise DomainError("nothing_to_undo", "there is no checkpoint yet, so nothing is known to be a session's")
        request = RestoreRequest(
            verb="undo",
            # Until it is settled which paths come from where.
            target=repo.lookup.open(repo.head),
            token=terms.token,
            dry_run=terms.dry_run,
            digest=terms.digest,
            skip_conflicts=terms.skip_conflicts,
            head_after=repo.head,
            paths=(),
            exact=True,
            conditions=terms.conditions,
            settle=SessionUndo(repo, session, asker).settle,
        )
        return self._carrier.run(request, asker)

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

    def _reverse(
        self, verb: Verb, number: int, params: StepParams, asker: Asker, begun: Intent | None = None
    ) -> RestoreResult:
        done = self._repo.log.intents[number]
        if done.safety is None:
            return self._move_head(verb, done, params, asker)
        return self._carrier.run(reversal(self._repo, verb, done, Terms.of(params), begun), asker)

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
            self._carrier.conclude(intent, result, None)
        return result

    def _nothing_to_undo(self, asker: Asker) -> DomainError:
        repo = self._repo
        head = repo.head
        if head is None:
            return DomainError("nothing_to_undo", "no restore has been made, and there is no checkpoint yet")
        scan = repo.scan(HashOnly(), cancelled=asker.is_cancelled)
        count = len(visible(list(compare(repo.lookup.open(head).root, scan.root))))
        differ = "1 path differs" if count == 1 else f"{count} paths differ"
        return DomainError(
            "nothing_to_undo",
            f"no restore has been made that is not undone; {differ} from the last checkpoint",
            hint=f"to go back to it: ckpt reset {head[:12]}" if count else None,
        )

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


def _not_taken_back(intent: Intent, why: str, paths: Iterable[bytes]) -> DomainError:
    safety = (intent.safety or "")[:12]
    return DomainError(
        "restore_incomplete",
        f"the {intent.verb} was cancelled, and not all that it had changed could be put back: {why}; the safety "
        f"checkpoint {safety} holds what was there",
        hint="ckpt redo takes it back" if intent.verb == "undo" else "ckpt undo takes it back",
        paths=paths,
    )
