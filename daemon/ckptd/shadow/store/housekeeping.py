"""Housekeeping by itself, while nothing else is asked for: a pure decision, and the steps that carry it out."""

import logging
import os
import time
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import count
from typing import Final, NamedTuple

from ckptd.errors import DomainError
from ckptd.shadow.objects.deltas import Plain
from ckptd.shadow.objects.merge import free_bytes, making_deltas, merging
from ckptd.shadow.objects.pieces import PIECE_BYTES, PIECE_OBJECTS, Pieces
from ckptd.shadow.objects.surveying import MANY_ALIKE, alike, pack_sizes, small_beside_others
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.collecting import Collection, Extent
from ckptd.shadow.store.memory import give_back
from ckptd.shadow.store.repository import Repository
from ckptd.shadow.store.thinner import Thinner

__all__ = ["Chore", "Housekeeper", "Situation", "next_chore"]

_logger = logging.getLogger(__name__)

_PAUSE_S: Final = 0.001
_MANY_LOOSE_REFS: Final = 1_000
_MANY_PACKS: Final = 8
_MANY_LOOSE_OBJECT_FOLDERS: Final = 16
_MANY_NEW: Final = 50
_MANY_GONE: Final = 200
_SAVES_A_MERGE: Final = MANY_ALIKE // 2
_LAST_ROOM_BYTES: Final = 64 * 1024 * 1024


class Chore(Enum):
    """What can be done."""

    THIN = "remove what goes by rule"
    COLLECT = "remove what nothing needs, which makes few packs of many as well"
    MERGE = "make few packs of many, and remove nothing"
    TIDY = "put loose refs into one file, and loose objects into a pack"
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
    if now.gone and now.over_cap:
        # Before it is weighed again: what is left of it stands in the way.
        return Chore.COLLECT
    if now.new >= _MANY_NEW or now.weighing_due:
        return Chore.THIN
    if now.gone >= _MANY_GONE or now.wasteful:
        return Chore.COLLECT
    if now.packs - now.done_packs > _MANY_PACKS:
        return Chore.MERGE
    if now.loose_refs > _MANY_LOOSE_REFS or now.loose_object_folders > _MANY_LOOSE_OBJECT_FOLDERS:
        return Chore.TIDY
    return Chore.CHECK if now.check_due else None


class Housekeeper:
    """Looks after one store in its idle time, a moment at a time; and a little beside saves, where those never rest."""

    def __init__(self, repository: Repository, thinner: Thinner) -> None:
        self._repo = repository
        self._thinner = thinner
        self._under_way: Pieces[None] | None = None
        self._presses = False
        self._beside_saves: Pieces[None] | None = None
        self._pieces_a_save = 0
        self._unmergeable: set[bytes] = set()
        self._being_collected: frozenset[bytes] = frozenset()
        self._known_packs: dict[bytes, Plain] = {}
        self._done_packs = 0
        self._left_gone = 0
        self._has_collected = False
        self._thinned_at = _last_thinning(repository)

    def tend(self, is_wanted: Callable[[], bool], at_most_s: float) -> bool:
        """Do a little, if there is something to do; tell whether there is more. Raises nothing that is no bug.

        It ends early, after any piece, once it ``is_wanted`` for something else. It begins with nothing while somebody
        has asked for a collection.
        """
        end = time.monotonic() + at_most_s

        def is_over() -> bool:
            return is_wanted() or time.monotonic() > end

        more = self._go_on(is_over)
        while more and self._is_pressed() and not is_over():
            if self._beside_saves is not None:
                time.sleep(_PAUSE_S)
            more = self._go_on(is_over)
        self._repo.pressure = self._repo.cap.pressure() if more and self._is_pressed() else 0.0
        return more

    def _is_pressed(self) -> bool:
        """Tell whether what is under way, or is to come, brings a store below its cap that grows meanwhile."""
        cap = self._repo.cap
        if self._under_way is not None and self._presses:
            return True
        return cap.is_weighing_due() or (
            self._under_way is None and cap.is_over() and self._repo.gone > self._left_gone
        )

    def _go_on(self, is_over: Callable[[], bool]) -> bool:
        """Go on with what is under way, or begin with what comes next; tell whether there may be more."""
        if self._beside_saves is not None:
            self._go_on_beside(is_over)
            return True
        try:
            if self._under_way is None:
                is_asked = self._repo.collecting or self._repo.weighing
                chore = None if is_asked else next_chore(self._look())
                if chore is None:
                    return False
                self._presses = chore in (Chore.THIN, Chore.COLLECT) and self._is_pressed()
                self._under_way = self._do(chore)
            for waits in self._under_way:
                if waits and self._presses:
                    time.sleep(_PAUSE_S)
                if is_over() or (waits and not self._presses):
                    return True
        except DomainError as error:
            # Another time: by then there may be space, or whoever asked for a collection is served.
            _logger.info("housekeeping ended: %s", error)
            self._done_packs = self._repo.objects.pack_count
            self.stop()
            return False
        self._under_way = None
        return True

    def saved(self) -> None:
        """Merge a little of what the last saves have left, so that there are few packs although nobody ever rests.

        Sixteen packs are one again before sixteen others have come, and no save waits for more than a part of that, nor
        for the disk.
        """
        if self._beside_saves is None:
            if self._repo.collecting and self._under_way is None:
                # Somebody has asked for it, so that it goes on.
                return
            sizes = self._repo.objects.pack_sizes
            left = self._unmergeable | self._being_collected
            chosen = alike({stem: size for stem, size in sizes.items() if stem not in left})
            if not chosen:
                return
            self._unmergeable = {stem for stem in self._unmergeable if stem in sizes}
            # Each object is looked at once, and copied once.
            objects, size = self._repo.objects.objects_in(chosen), sum(sizes[stem] for stem in chosen)
            self._pieces_a_save = 1 + 2 * max(objects // PIECE_OBJECTS, size // PIECE_BYTES) // _SAVES_A_MERGE
            self._beside_saves = self._merge_alike(chosen)
        done = count()
        self._go_on_beside(lambda: next(done) >= self._pieces_a_save - 1)

    def _go_on_beside(self, is_enough: Callable[[], bool]) -> None:
        if self._beside_saves is None:
            return
        try:
            for waits in self._beside_saves:
                if waits or is_enough():
                    return
        except DomainError as error:
            _logger.info("packs could not be merged: %s", error)
        self._beside_saves = None

    def _merge_alike(self, stems: list[bytes]) -> Pieces[None]:
        repo = self._repo
        kept = {stem for stem in stems if os.path.exists(stem + b".keep")}
        # Unless it comes to a good end: until they are merged in idle time, if they can be.
        self._unmergeable.update(stems)
        if len(kept) < len(stems):
            left = yield from merging(repo.objects, [stem for stem in stems if stem not in kept], repo.repacking)
            self._unmergeable = (self._unmergeable - set(stems)) | kept | set(left)

    def stop(self) -> None:
        """End what is under way; nothing is lost by it."""
        for pieces in (self._under_way, self._beside_saves):
            if pieces is not None:
                pieces.close()
        self._under_way = self._beside_saves = None

    def _do(self, chore: Chore) -> Pieces[None]:
        if chore is Chore.THIN:
            yield from self._thin()
        elif chore is Chore.REMEMBER:
            yield from _each(self._repo.writing_model())
        elif chore is Chore.RELEASE:
            self._repo.is_strewn = False
            self._repo.objects.rest()
            give_back()
        elif chore is Chore.CHECK:
            yield from _each(self._repo.watched.check())
        elif chore is Chore.MERGE:
            yield from self._merge()
        else:
            tidy = chore is Chore.TIDY
            yield from self._collect(Extent(keep_all=tidy, keep_model=True, leave_packs=tidy, sparing=True))

    def _merge(self) -> Pieces[None]:
        repo = self._repo
        try:
            sizes = pack_sizes(repo.objects.pack_dir)
            chosen = small_beside_others(sizes, repo.cap.slice_bytes)
            if sum(sizes[stem] for stem in chosen) + _LAST_ROOM_BYTES < free_bytes(repo.objects):
                yield from merging(repo.objects, chosen, repo.repacking)
            failure = yield from making_deltas(
                repo.objects, self._known_packs, repo.repacking, repo.cap.slice_bytes, repo.cap.is_over
            )
            if failure is not None:
                _logger.info("%s", failure)
        finally:
            # Also where it came to nothing: what cannot be merged now cannot be merged at the next look.
            self._done_packs = repo.objects.pack_count

    def _thin(self) -> Pieces[None]:
        # Also where it comes to nothing: what is damaged now is damaged at the next look.
        self._thinned_at = self._repo.next_seq
        by_cap = self._repo.cap.is_over()
        if by_cap:
            self._repo.cap.looking()
        yield from self._thinner.thinning(os.urandom(16).hex(), Asker.of_the_daemon(), by_cap=by_cap)

    def _collect(self, extent: Extent) -> Pieces[None]:
        collection = Collection(self._repo, extent)
        # It may rest for long while saves come: they go on merging their own.
        self._being_collected = frozenset(self._repo.objects.pack_sizes)
        try:
            yield from collection.pieces()
        finally:
            collection.close()
            self._being_collected = frozenset()
            # Also where it came to nothing: what is damaged now is damaged at the next look.
            self._left_gone = self._repo.gone
            self._has_collected |= not extent.keep_all
        if not extent.leave_packs:
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


def _each(work: Iterable[None]) -> Pieces[None]:
    for _ in work:
        yield False


def _last_thinning(repo: Repository) -> int:
    """Give the number that the next checkpoint had after the last thinning that the log knows of."""
    return max((intent.next_seq for intent in repo.log.intents.values() if intent.verb == "thin"), default=1)
