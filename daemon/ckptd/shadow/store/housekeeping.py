"""Housekeeping by itself, while nothing else is asked for: a pure decision, and the steps that carry it out."""

import logging
import os
import time
from collections.abc import Generator
from enum import Enum
from typing import Final, NamedTuple

from ckpt_protocol.store import ThinParams
from ckpt_protocol.structs import Worktree, to_wire
from ckptd.errors import DomainError
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.collecting import Collection, Extent
from ckptd.shadow.store.memory import give_back
from ckptd.shadow.store.repository import Repository
from ckptd.shadow.store.thinner import Thinner

__all__ = ["Chore", "Housekeeper", "Situation", "next_chore"]

_logger = logging.getLogger(__name__)

_STEP_S: Final = 0.05
_MANY_LOOSE_REFS: Final = 1_000
_MANY_PACKS: Final = 24
_MANY_LOOSE_OBJECT_FOLDERS: Final = 16
_MANY_NEW: Final = 50
_MANY_GONE: Final = 200


class Chore(Enum):
    """What can be done."""

    THIN = "remove what goes by rule"
    COLLECT = "remove what nothing needs, which makes few packs of many as well"
    TIDY = "make few packs and refs of many, and remove nothing"
    CHECK = "hold what a watcher says against what is on disk"
    REMEMBER = "write down what the last scan saw"
    RELEASE = "give memory back that was needed for a moment"


class Situation(NamedTuple):
    """What a store has by now.

    ``done_packs`` is how many packs the last housekeeping left that it could not merge, ``new`` counts the checkpoints
    since the last thinning, ``gone`` those that were removed since the last collection. Of a store above its size cap:
    ``over_cap`` that it is, ``wasteful`` that it is so by what nothing needs, ``weighing_due`` that it is not known
    what thinning leaves.
    """

    loose_refs: int
    packs: int
    loose_object_folders: int = 0
    done_packs: int = 0
    new: int = 0
    gone: int = 0
    over_cap: bool = False
    wasteful: bool = False
    weighing_due: bool = False
    check_due: bool = False
    model_due: bool = False
    is_strewn: bool = False


def next_chore(now: Situation) -> Chore | None:
    """Decide what comes next, if anything.

    Looking a thing up costs the number of files that it may be in, so many become few. What was removed by rule is
    collected only once it is worth copying the rest, or where space is short.
    """
    if now.model_due:
        return Chore.REMEMBER
    if now.is_strewn:
        return Chore.RELEASE
    if now.new >= _MANY_NEW or now.weighing_due:
        return Chore.THIN
    if now.gone >= _MANY_GONE or (now.gone and now.over_cap) or now.wasteful:
        return Chore.COLLECT
    if (
        now.loose_refs > _MANY_LOOSE_REFS
        or now.packs - now.done_packs > _MANY_PACKS
        or now.loose_object_folders > _MANY_LOOSE_OBJECT_FOLDERS
    ):
        return Chore.TIDY
    return Chore.CHECK if now.check_due else None


class Housekeeper:
    """Looks after one store in its idle time, a moment at a time."""

    def __init__(self, repository: Repository, thinner: Thinner) -> None:
        self._repo = repository
        self._thinner = thinner
        self._under_way: Generator[None, None, None] | None = None
        self._done_packs = 0
        self._left_gone = 0
        self._has_collected = False
        self._thinned_at = _last_thinning(repository)

    def tend(self) -> bool:
        """Do a little, if there is something to do; tell whether there is more. Raises nothing that is no bug.

        It begins with nothing while somebody has asked for a collection.
        """
        try:
            if self._under_way is None:
                chore = None if self._repo.collecting else next_chore(self._look())
                if chore is None:
                    return False
                self._under_way = self._do(chore)
            end = time.monotonic() + _STEP_S
            for _ in self._under_way:
                if time.monotonic() > end:
                    return True
        except DomainError as error:
            # Another time: by then there may be space, or whoever asked for a collection is served.
            _logger.info("housekeeping ended: %s", error)
            self._done_packs = self._repo.objects.pack_count
            self.stop()
            return False
        self._under_way = None
        return True

    def stop(self) -> None:
        """End what is under way; nothing is lost by it."""
        if self._under_way is not None:
            self._under_way.close()
            self._under_way = None

    def _do(self, chore: Chore) -> Generator[None, None, None]:
        if chore is Chore.THIN:
            yield from self._thin()
        elif chore is Chore.REMEMBER:
            yield from self._repo.writing_model()
        elif chore is Chore.RELEASE:
            self._repo.is_strewn = False
            self._repo.objects.rest()
            give_back()
        elif chore is Chore.CHECK:
            yield from self._repo.watched.check()
        else:
            yield from self._collect(Extent(keep_all=chore is Chore.TIDY, keep_model=True))

    def _thin(self) -> Generator[None, None, None]:
        # Also where it comes to nothing: what is damaged now is damaged at the next look.
        self._thinned_at = self._repo.next_seq
        yield from self._thinner.warm()
        if self._repo.cap.is_over():
            self._repo.cap.looking()
            self._thinner.thin(self._own_request(), Asker.of_the_daemon())
        else:
            self._thinner.by_rule(os.urandom(16).hex(), Asker.of_the_daemon())

    def _own_request(self) -> ThinParams:
        repo = self._repo
        return ThinParams(
            checkpoint_dir=to_wire(os.path.dirname(repo.folder)),
            worktree=Worktree(path=to_wire(repo.worktree)),
            token=os.urandom(16).hex(),
        )

    def _collect(self, extent: Extent) -> Generator[None, None, None]:
        collection = Collection(self._repo, extent)
        try:
            while collection.step() is None:
                yield
        finally:
            collection.close()
            # Also where it came to nothing: what is damaged now is damaged at the next look.
            self._left_gone = self._repo.gone
            self._has_collected |= not extent.keep_all
        self._done_packs = self._repo.objects.pack_count

    def _look(self) -> Situation:
        repo = self._repo
        repo.objects.refresh()
        try:
            names = os.listdir(os.path.join(repo.folder, b"objects"))
        except OSError:
            names = []
        self._left_gone = min(self._left_gone, repo.gone)
        return Situation(
            loose_refs=repo.refs.loose_count(),
            packs=repo.objects.pack_count,
            loose_object_folders=sum(1 for name in names if len(name) == 2),
            done_packs=self._done_packs,
            new=repo.next_seq - self._thinned_at,
            gone=repo.gone - self._left_gone,
            over_cap=repo.cap.is_over(),
            # How many have gone is known of this process's life; what nothing needs was there before, too.
            wasteful=not self._has_collected and repo.cap.is_wasteful(),
            weighing_due=repo.cap.is_weighing_due(),
            check_due=repo.watched.is_check_due(),
            model_due=repo.is_model_due(),
            is_strewn=repo.is_strewn,
        )


def _last_thinning(repo: Repository) -> int:
    """Give the number that the next checkpoint had after the last thinning that the log knows of."""
    return max((intent.next_seq for intent in repo.log.intents.values() if intent.verb == "thin"), default=1)
