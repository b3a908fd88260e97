"""What an undo or a redo is to write: the request that reverses one operation of the log."""

from ckpt_protocol.checkpoint import RestoreParams
from ckpt_protocol.structs import from_wire
from ckptd.errors import DomainError
from ckptd.shadow.record.lookup import Loaded
from ckptd.shadow.record.oplog import Intent, Verb
from ckptd.shadow.store.passes import origins, passes_of, planned
from ckptd.shadow.store.preparing import RestoreRequest, Terms
from ckptd.shadow.store.repository import Repository

__all__ = ["accepted_digest", "head_reversed", "reversal"]


def reversal(repo: Repository, verb: Verb, done: Intent, terms: Terms, begun: Intent | None) -> RestoreRequest:
    """Give the request that reverses ``done``, which has a safety checkpoint.

    ``begun`` is the intent of this very reversal where it was cut off. Raises DomainError where a safety checkpoint
    of ``done`` is gone.
    """
    _refuse_dropped(repo, verb, done)
    outcome = repo.log.outcomes.get(done.n)
    changed = planned(done) if outcome is None or outcome.paths is None else {from_wire(one) for one in outcome.paths}
    passes = passes_of(done, repo.lookup, answered=outcome is not None)
    by_pass = origins(passes, changed)
    return RestoreRequest(
        verb=verb,
        target=repo.lookup.open(done.safety or ""),
        token=terms.token,
        dry_run=terms.dry_run,
        digest=accepted_digest(terms, begun),
        skip_conflicts=terms.skip_conflicts,
        head_after=head_reversed(repo, done),
        paths=tuple(sorted(changed)),
        others=tuple((one.root, frozenset(own)) for one, own in zip(passes[1:], by_pass[1:], strict=True)),
        exact=True,
        undoes=done.n,
        left_by=_left_by(repo, done),
        begun=begun,
        conditions=terms.conditions,
        own_only=terms.own_only,
    )


def _refuse_dropped(repo: Repository, verb: Verb, done: Intent) -> None:
    """Nothing older is reversed in its place: it would not lead to what was there before ``done``."""
    dropped = {one.id: one.seq for intent in repo.log.intents.values() for one in intent.dropped}
    for one in (done.safety, *(later.safety for later in done.resumed)):
        if one in dropped and one not in repo.lookup.ids():
            raise DomainError(
                "nothing_to_redo" if verb == "redo" else "nothing_to_undo",
                f"the {done.verb} of {done.time} cannot be reversed: its safety checkpoint #{dropped[one]} was dropped",
                hint="ckpt ls shows what there is to go back to, with ckpt reset ID",
            )


def head_reversed(repo: Repository, done: Intent) -> str | None:
    """Give head after an operation has been reversed."""
    moved = done.before != done.after and done.before in repo.lookup.ids()
    return done.before if moved else repo.head


def accepted_digest(terms: RestoreParams | Terms, begun: Intent | None) -> str | None:
    """Give the digest that the plan must have: sent again, a request has passed that gate before it was cut off."""
    return None if begun is not None and begun.token == terms.token else terms.digest


def _left_by(repo: Repository, done: Intent) -> Loaded | None:
    """Give what an operation wrote; it only serves to tell what has been edited since, so it may be gone."""
    try:
        return repo.lookup.open(done.target) if done.target is not None else None
    except DomainError:
        return None
