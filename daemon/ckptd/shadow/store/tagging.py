"""Tags: names of checkpoints, which are then never thinned."""

import msgspec

from ckpt_protocol.checkpoint import TagParams, TagResult, UntagParams
from ckptd.errors import DomainError
from ckptd.shadow.record.oplog import Outcome, Verb
from ckptd.shadow.record.resolve import check_tag
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.intents import new_intent
from ckptd.shadow.store.repository import Repository

__all__ = ["Tagger", "refuse_taken"]


def refuse_taken(repo: Repository, name: str, allowed: str | None, *, move: bool = False) -> None:
    """Refuse a name that is no tag's, is taken (but by ``allowed``, or to be moved), or a folder of other tags' names.

    Raises DomainError ``bad_tag`` or ``tag_exists``.
    """
    check_tag(name)
    for other, oid in repo.refs.tags().items():
        # What a tag stood for may be gone: then its name is free again.
        free = move or oid.decode("ascii") == allowed or oid.decode("ascii") not in repo.lookup.ids()
        if other == name and free:
            continue
        if other == name or other.startswith(name + "/") or name.startswith(other + "/"):
            raise DomainError("tag_exists", f"there is a tag {other} already", hint="choose another name")


class Tagger:
    """Sets and removes the tags of one store."""

    def __init__(self, repository: Repository) -> None:
        self._repo = repository

    def tag(self, params: TagParams, asker: Asker) -> TagResult:
        """Name a checkpoint; the same name for the same checkpoint again is no fault.

        Raises DomainError: ``bad_tag``, ``tag_exists`` without ``move``, ``unknown_checkpoint`` and its kin.
        """
        answered = self._answered(params.token, "tag")
        if answered is not None:
            return answered
        checkpoint_id = self._repo.lookup.resolve(params.id)
        if checkpoint_id not in self._repo.lookup.ids():
            raise DomainError(
                "bad_option",
                f"{params.id} was made by version 0.3.6 and lies in its own folder",
                hint="ckpt reset to it copies it into the store; the copy can be tagged",
            )
        refuse_taken(self._repo, params.name, checkpoint_id, move=params.move)
        before = self._repo.refs.tags().get(params.name)
        result = TagResult(name=params.name, id=checkpoint_id, before=before.decode("ascii") if before else None)
        if result.before != checkpoint_id:
            self._repo.refs.write_tag(params.name, checkpoint_id.encode("ascii"))
        self._note("tag", params.token, result, asker)
        return result

    def untag(self, params: UntagParams, asker: Asker) -> TagResult:
        """Remove a tag; the checkpoint stays. Raises DomainError ``unknown_tag``."""
        answered = self._answered(params.token, "untag")
        if answered is not None:
            return answered
        before = self._repo.refs.tags().get(params.name)
        if before is None:
            raise DomainError("unknown_tag", f"there is no tag {params.name!r}", hint="ckpt ls shows the tags")
        self._repo.refs.delete([], [params.name])
        result = TagResult(name=params.name, id=None, before=before.decode("ascii"))
        self._note("untag", params.token, result, asker)
        return result

    def _answered(self, token: str, verb: Verb) -> TagResult | None:
        outcome = self._repo.log.answered(token, verb)
        return None if outcome is None else msgspec.json.decode(outcome.result, type=TagResult)

    def _note(self, verb: Verb, token: str, result: TagResult, asker: Asker) -> None:
        """Record what is done: without the record, doing it again would do the same."""
        repo = self._repo
        intent = new_intent(repo, verb, token, asker, after=repo.head)
        repo.log.conclude(intent)
        repo.log.conclude(Outcome(n=intent.n, result=msgspec.Raw(msgspec.json.encode(result))))
