"""Removing checkpoints, whoever decided it: what is to go is durable before the first ref goes."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ckptd.errors import DomainError
from ckptd.shadow.record.history import UNDOABLE
from ckptd.shadow.record.oplog import Dropped, Intent, Verb
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.recovery import finish_drop, interrupted
from ckptd.shadow.store.repository import Repository

__all__ = ["Need", "begin_removal", "finish_removal", "needs"]


class Need(NamedTuple):
    """Why a checkpoint is needed: ``operation`` is the number of what could not be reversed or gone on with."""

    why: str
    operation: int


def needs(repo: Repository) -> dict[str, Need]:
    """Tell which checkpoints an undo, a redo or an interrupted restore cannot do without."""
    log, history = repo.log, repo.history
    found: dict[str, Need] = {}
    for number in (*history.undoable[-UNDOABLE:], *history.redoable[-UNDOABLE:]):
        done = log.intents[number]
        word = "redone" if number in history.redoable else "undone"
        for one in _safeties(done):
            found[one] = Need(f"without it the {done.verb} of {done.time} could not be {word}", number)
    begun = interrupted(log)
    if begun is not None:
        for one in filter(None, (begun.target, *(part.checkpoint for part in begun.parts), *_safeties(begun))):
            found[one] = Need(f"without it the interrupted {begun.verb} could not be ended", begun.n)
    return found


def _safeties(intent: Intent) -> list[str]:
    return [one for one in (intent.safety, *(later.safety for later in intent.resumed)) if one is not None]


def begin_removal(
    repo: Repository,
    verb: Verb,
    token: str,
    asker: Asker,
    gone: Iterable[Dropped],
    answer: msgspec.Struct,
    *,
    head_after: str | None,
    untagged: Iterable[str] = (),
    given_up: Iterable[int] = (),
) -> Intent:
    """Make it durable what is to go; to be followed by finish_removal()."""
    dropped = tuple(gone)
    ids = {one.id for one in dropped}
    intent = Intent(
        n=repo.log.next_number,
        verb=verb,
        time=repo.now(),
        token=token,
        client=asker.client,
        session=asker.session,
        # The number of the newest must not come again, whatever is left.
        next_seq=repo.next_seq,
        before=repo.head,
        after=head_after,
        dropped=dropped,
        untagged=tuple(sorted(untagged)),
        uncopied=tuple(sorted(old for old, oid in repo.refs.copies().items() if oid.decode("ascii") in ids)),
        given_up=tuple(sorted(given_up)),
        answer=msgspec.Raw(msgspec.json.encode(answer)),
    )
    try:
        repo.log.write(intent)
    except DomainError as error:
        if error.kind != "no_space":
            raise
        # On a full disk removing must work all the same: each ref goes by itself, and head can be found out again.
        repo.make_room()
        repo.log.conclude(intent)
    return intent


def finish_removal(repo: Repository, intent: Intent) -> None:
    """Let them go. Raises DomainError where the disk refuses; opening the store goes on with it."""
    try:
        finish_drop(intent, repo.log, repo.refs)
    except DomainError as error:
        if error.kind != "no_space":
            raise
        repo.make_room()
        finish_drop(intent, repo.log, repo.refs)
    repo.gone += len(intent.dropped)
    if intent.after != repo.head:
        repo.set_head(intent.after)
