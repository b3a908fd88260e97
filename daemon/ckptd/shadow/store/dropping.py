"""Dropping checkpoints by hand.

The intent is durable before the first ref goes; what is cut off is done to its end when the store is opened.
What is dropped can no longer be listed or restored. Its content stays in the store until a collection, and longer
where another checkpoint needs it.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ckpt_protocol.checkpoint import DropParams, DroppedCheckpoint, DropResult
from ckpt_protocol.structs import Kind
from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.record.checkpoint import Checkpoint
from ckptd.shadow.record.message import Facts
from ckptd.shadow.record.oplog import Dropped
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.holding import Holding, brought
from ckptd.shadow.store.removing import Need, begin_removal, finish_removal, needs
from ckptd.shadow.store.repository import Repository

__all__ = ["Dropper"]

_MAX_NAMED: Final = 10
_KINDS: Final[dict[str, Kind]] = {"manual": "manual", "auto": "auto", "safety": "safety"}


class Dropper:
    """Drops checkpoints of one store."""

    def __init__(self, repository: Repository) -> None:
        self._repo = repository

    def drop(self, params: DropParams, asker: Asker) -> DropResult:
        """Drop checkpoints, or tell what that would do.

        Raises DomainError: ``unknown_checkpoint`` and its kin, ``checkpoint_needed`` where one is tagged or an undo
        needs it, unless ``force``, and storage errors; after those the rest goes with the next opening of the store.
        """
        log = self._repo.log
        answered = log.answered(params.token, "drop")
        if answered is not None:
            return msgspec.json.decode(answered.result, type=DropResult)
        begun = log.unanswered(params.token)
        if begun is not None and begun.verb == "drop":
            finish_removal(self._repo, begun)
            return msgspec.json.decode(begun.answer, type=DropResult)
        chosen = self._chosen(params.ids)
        tags = self._tags_of(chosen)
        needed = needs(self._repo)
        why = {one.id: needed[one.id] for one in chosen if one.id in needed}
        if not params.force:
            _refuse(chosen, tags, why)
        result = self._plan(params, chosen, tags, why, asker)
        if params.dry_run:
            return result
        intent = begin_removal(
            self._repo,
            "drop",
            params.token,
            asker,
            [Dropped(seq=one.facts.seq, id=one.id) for one in chosen],
            result,
            head_after=result.head,
            untagged=[name for names in tags.values() for name in names],
            given_up={need.operation for need in why.values()} - log.outcomes.keys(),
        )
        finish_removal(self._repo, intent)
        return result

    def _chosen(self, names: Iterable[str]) -> list[Checkpoint]:
        """Find what is meant, each once, in the order of their numbers. One that cannot be read can be dropped, too."""
        repo, found = self._repo, {}
        for name in names:
            checkpoint_id = repo.lookup.resolve(name)
            if checkpoint_id not in repo.lookup.ids():
                raise DomainError(
                    "bad_option",
                    f"{name} was made by version 0.3.6 and lies in its own folder",
                    hint="delete that folder by hand when you no longer want it",
                )
            found[checkpoint_id] = self._load(checkpoint_id)
        if not found:
            raise DomainError("bad_option", "no checkpoint to drop", hint="name at least one")
        return sorted(found.values(), key=lambda one: one.facts.seq)

    def _load(self, checkpoint_id: str) -> Checkpoint:
        try:
            return self._repo.lookup.load(checkpoint_id)
        except DomainError as error:
            seq = next(seq for seq, one in self._repo.lookup.by_seq().items() if one == checkpoint_id)
            facts = Facts(seq=seq, kind="unreadable")
            return Checkpoint(checkpoint_id, EMPTY_TREE, 0, error.message, facts)

    def _tags_of(self, chosen: list[Checkpoint]) -> dict[str, list[str]]:
        tags = self._repo.lookup.tags_by_id()
        return {one.id: tags[one.id] for one in chosen if one.id in tags}

    def _plan(
        self,
        params: DropParams,
        chosen: list[Checkpoint],
        tags: dict[str, list[str]],
        why: dict[str, Need],
        asker: Asker,
    ) -> DropResult:
        ids = {one.id for one in chosen}
        files = brought(self._repo.lookup, chosen)
        others = {seq: one for seq, one in self._repo.lookup.by_seq().items() if one not in ids}
        holding = Holding(self._repo.objects, files, asker)
        held = [holder for seq, one in others.items() if (holder := holding.look(self._repo.lookup, seq, one))]
        return DropResult(
            dropped=[_told(one, tags.get(one.id, [])) for one in chosen],
            head=self._head_without(ids),
            files=len(files),
            held=held,
            all_searched=not holding.gave_up,
            notes=[*_notes(why, len(files), len(held)), *holding.notes],
            dry_run=params.dry_run,
        )

    def _head_without(self, ids: set[str]) -> str | None:
        if self._repo.head not in ids:
            return self._repo.head
        return self._repo.newest_but(ids)


def _refuse(chosen: list[Checkpoint], tags: dict[str, list[str]], why: dict[str, Need]) -> None:
    reasons = [
        f"#{one.facts.seq} has the tag {', '.join(tags[one.id])}"
        if one.id in tags
        else f"#{one.facts.seq}: {why[one.id].why}"
        for one in chosen
        if one.id in tags or one.id in why
    ]
    if reasons:
        more = f", and {len(reasons) - _MAX_NAMED} more" if len(reasons) > _MAX_NAMED else ""
        raise DomainError(
            "checkpoint_needed",
            f"{'; '.join(reasons[:_MAX_NAMED])}{more}; nothing was dropped",
            hint="--force drops it all the same",
        )


def _told(one: Checkpoint, tags: list[str]) -> DroppedCheckpoint:
    return DroppedCheckpoint(id=one.id, seq=one.facts.seq, kind=_KINDS.get(one.facts.kind), tags=tags)


def _notes(why: dict[str, Need], files: int, held: int) -> Iterator[str]:
    for need in {one.operation: one for one in why.values()}.values():
        yield need.why.replace("could not be", "can no longer be").replace("without it the", "the")
    if files and held:
        others = "another checkpoint" if held == 1 else f"{held} other checkpoints"
        yield f"content that it brought is in {others} as well; it is gone when that is dropped, too"
    if files:
        yield "what no checkpoint holds any more leaves the store with: ckpt gc"
