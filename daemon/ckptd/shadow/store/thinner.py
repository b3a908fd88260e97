"""Thinning: history loses by rule what nobody would miss."""

import msgspec

from ckpt_protocol.checkpoint import DroppedCheckpoint
from ckpt_protocol.store import ThinParams, ThinResult
from ckptd.errors import DomainError
from ckptd.shadow.objects.pieces import Pieces
from ckptd.shadow.objects.weights import Weights
from ckptd.shadow.record.checkpoint import Checkpoint
from ckptd.shadow.record.oplog import Dropped
from ckptd.shadow.record.thinning import Item, over_cap, thinned
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.removing import begin_removal, finish_removal, needs
from ckptd.shadow.store.repository import Repository

__all__ = ["Thinner"]


class Thinner:
    """Thins the history of one store."""

    def __init__(self, repository: Repository) -> None:
        self._repo = repository

    def thin(self, params: ThinParams, asker: Asker) -> Pieces[ThinResult]:
        """Remove what goes by rule and by the size cap, or tell what that would be, in pieces.

        Raises DomainError ``store_damaged`` or ``object_missing`` where it is not known what hangs on what, and then
        has removed nothing; and storage errors.
        """
        known = self._known_answer(params.token)
        if known is not None:
            return known
        self._repo.weighing = True
        try:
            weights = yield from self._weighing(asker)
        finally:
            self._repo.weighing = False
        # The same request may have been sent again, and have come to its end before.
        known = self._known_answer(params.token)
        if known is not None:
            return known
        result = self._decide(weights, dry_run=params.dry_run)
        if result.dropped and not params.dry_run:
            self._remove(params.token, result, asker)
        return result

    def _known_answer(self, token: str) -> ThinResult | None:
        """Give what a request with this token came to; what of it is not done is done."""
        log = self._repo.log
        answered = log.answered(token, "thin")
        if answered is not None:
            return msgspec.json.decode(answered.result, type=ThinResult)
        begun = log.unanswered(token)
        if begun is not None and begun.verb == "thin":
            finish_removal(self._repo, begun)
            return msgspec.json.decode(begun.answer, type=ThinResult)
        return None

    def thinning(self, token: str, asker: Asker, *, by_cap: bool) -> Pieces[None]:
        """Remove what goes by rule, and ``by_cap`` what the size cap wants, in pieces; errors as thin() has them.

        Others may save and drop in between: what has come or gone meanwhile is looked at before anything is decided.
        Without the cap nothing is weighed.
        """
        for one in self._repo.lookup.by_seq().values():
            self._repo.lookup.is_readable(one)
            yield False
        if by_cap:
            result = self._decide((yield from self._weighing(asker)), dry_run=False)
        else:
            known = self._known()
            gone = thinned(self._items(known), self._repo.settings.keep, self._repo.clock())
            result = self._result([known[seq] for seq in gone], 0, 0, dry_run=False)
        if result.dropped:
            self._remove(token, result, asker)

    def _weighing(self, asker: Asker) -> Pieces[Weights]:
        """Weigh what there is at its end; raises DomainError where it is not known what hangs on a checkpoint."""
        lookup = self._repo.lookup
        while True:
            weights, weighed = Weights(self._repo.objects), set[str]()
            try:
                yield from self._weighing_all(weights, weighed, asker)
                for one in weighed - lookup.ids():
                    weights.remove(bytes.fromhex(one))
            except DomainError:
                if weighed <= lookup.ids():
                    raise
                # One has gone meanwhile, and what it was made of with it: from the beginning.
                continue
            return weights

    def _weighing_all(self, weights: Weights, weighed: set[str], asker: Asker) -> Pieces[None]:
        """Weigh one after the other, also those that come meanwhile; the one that is under way is in ``weighed``."""
        lookup = self._repo.lookup
        # Not asked for each: right after the refs were packed, each answer is a look at all of them.
        while new := lookup.ids() - weighed:
            total = len(weighed) + len(new)
            self._repo.objects.refresh()
            yield from weights.learning()
            for one in new:
                weighed.add(one)
                yield from weights.adding(bytes.fromhex(one))
                # To be remembered, so that the decision reads none.
                lookup.is_readable(one)
                asker.tell("weigh", len(weighed), total)
                yield False

    def _decide(self, weights: Weights, *, dry_run: bool) -> ThinResult:
        """Tell what goes, of what there is by now: ``weights`` hold all of that, and are of no use afterwards."""
        repo, known = self._repo, self._known()
        items = self._items(known)
        before = weights.total
        by_rule = thinned(items, repo.settings.keep, repo.clock())
        for seq in by_rule:
            weights.remove(bytes.fromhex(known[seq].id))
        left = [one for one in items if one.seq not in set(by_rule)]

        def remove(seq: int) -> int:
            commit = bytes.fromhex(known[seq].id)
            freed = weights.remove(commit)
            if not freed:
                weights.add(commit)
            return freed

        by_cap, total = over_cap(left, weights.total, repo.settings.keep.max_bytes, remove)
        repo.cap.weighed(total)
        gone = [known[seq] for seq in sorted({*by_rule, *by_cap})]
        return self._result(gone, before - total, total, dry_run=dry_run)

    def _known(self) -> dict[int, Checkpoint]:
        """Give the checkpoints that can be read; what cannot be is no business of rules."""
        lookup = self._repo.lookup
        return {seq: lookup.load(one) for seq, one in lookup.by_seq().items() if lookup.is_readable(one)}

    def _items(self, known: dict[int, Checkpoint]) -> list[Item]:
        repo = self._repo
        fixed = {repo.head, *repo.lookup.tags_by_id(), *needs(repo)}
        newest = max(repo.lookup.by_seq(), default=0)
        return [Item(seq, one.time_s, one.facts.kind, one.id in fixed or seq == newest) for seq, one in known.items()]

    def _result(self, gone: list[Checkpoint], frees: int, left: int, *, dry_run: bool) -> ThinResult:
        tags: list[str] = []
        note = self._repo.cap.note_of(left)
        return ThinResult(
            dropped=[
                DroppedCheckpoint(
                    id=one.id,
                    seq=one.facts.seq,
                    kind=one.record(tags).kind,
                    tags=tags,
                )
                for one in gone
            ],
            frees_bytes=frees,
            left_bytes=left,
            over_cap=note is not None,
            dry_run=dry_run,
            notes=[] if note is None else [note],
        )

    def _remove(self, token: str, result: ThinResult, asker: Asker) -> None:
        """Remove what was decided on; nobody may have come in between."""
        gone = [Dropped(seq=one.seq, id=one.id) for one in result.dropped]
        intent = begin_removal(self._repo, "thin", token, asker, gone, result, head_after=self._repo.head)
        finish_removal(self._repo, intent)
