"""The autosaver with a watcher that does what the test says: when it looks, what it makes of silence, how it heals."""

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from ckptd.autosave import Autosave
from ckptd.core.actor import Actor, Terms
from ckptd.core.autosavers import Autosavers, Unwatched
from ckptd.core.bus import Bus
from ckptd.core.caller import Caller
from ckptd.core.event import Halt, Stop
from ckptd.core.machine import Phase
from ckptd.core.ports import Coverage, News
from ckptd.core.restore_lock import RestoreLocks
from ckptd.core.subscription import Wanted
from ckptd.core.watcher import ACTIVE, DEGRADED, POLLING, Health, health_of, pause_s, rescan_s
from ckptd.errors import DomainError
from support.faulty_stores import FailsOnceStore, MemoryCatalog, MemoryPlan, MemoryStore, place
from support.poll import eventually

pytestmark = pytest.mark.core

DIR, PATH = b"/data", b"/home/u/w"
KEY = (DIR, PATH)
OPTIONS = Autosave(True, 0.02, 0.1)
GOOD = Coverage(True, True, 1, 0, None)
KEPT = GOOD._replace(fresh=False)
RARELY = 1000.0


class ScriptedWatches:
    """Fulfils Watches: ``answers`` are given one after the other, the last one for ever; ``asked`` has the orders."""

    def __init__(self, *answers: Coverage) -> None:
        self.answers = list(answers or (GOOD, KEPT))
        self.asked: list[tuple[list[bytes], bool, bool]] = []
        self.news: News | None = None
        self.removed = 0

    def add(self, path: bytes, step_s: float, news: News) -> int:
        self.news = news
        return 7

    def remove(self, number: int) -> None:
        self.removed += 1

    async def cover(
        self, number: int, directories: Sequence[bytes], *, try_out: bool = False, afresh: bool = False
    ) -> Coverage:
        self.asked.append((list(directories), try_out, afresh))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Changing(MemoryStore):
    """A worktree: ``changed`` files are saved by the next save, which makes a checkpoint only then."""

    changed = True

    def save(self, params, caller):
        result = super().save(params, caller)
        created, self.changed = self.changed, False
        return type(result)(**{name: getattr(result, name) for name in result.__struct_fields__} | {"created": created})


class Scene:
    """An actor with an autosaver."""

    def __init__(self, actor, autosavers, watches, catalog, bus):
        self.actor, self.autosavers, self.watches, self.catalog = actor, autosavers, watches, catalog
        self.heard = bus.subscribe(Wanted(), 1000)

    @property
    def store(self):
        return self.catalog.kept[KEY]

    @property
    def told(self):
        return self.autosavers.describe(KEY, self.actor)

    async def rest(self):
        await eventually(
            lambda: self.actor.state.phase is Phase.IDLE and self.watches.asked and self.told.reason != Health().reason
        )


@asynccontextmanager
async def scene(watches=None, make=Changing, idle_rescan_s=RARELY):
    bus, catalog = Bus(), MemoryCatalog(make)
    watches = watches or ScriptedWatches()
    actor = Actor(catalog, DIR, PATH, RestoreLocks(), bus=bus)
    autosavers = Autosavers(watches, bus, idle_rescan_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(actor.run)
        await actor.open(Terms(place(PATH), create=True))
        autosavers.begin(KEY, actor, OPTIONS, tasks)
        try:
            yield Scene(actor, autosavers, watches, catalog, bus)
        finally:
            autosavers.end(KEY)
            actor.post(Stop())
    catalog.check()
    assert not isinstance(watches, ScriptedWatches) or watches.removed == 1


async def test_it_begins_with_a_trial_and_a_look_and_rests_then():
    async with scene() as stage:
        await stage.rest()
        assert (stage.told.state, stage.told.saved) == (ACTIVE, 1)
        assert stage.watches.asked[0] == ([b""], True, False)
        # Two looks: one because nothing is known, one after the watches were put.
        assert len(stage.store.saves) <= 2


async def test_what_is_told_is_saved_and_what_rules_leave_out_is_not_looked_at():
    async with scene() as stage:
        stage.store.plan = MemoryPlan([b"", b"src"], frozenset({b"x.log"}))
        await stage.rest()
        looks = len(stage.store.saves)
        stage.watches.news.seen([b"x.log"], more=False)
        assert stage.told.seen == 0
        stage.store.changed = True
        stage.watches.news.seen([b"x.log", b"src/a"], more=False)
        await eventually(lambda: stage.told.saved == 2)
        await stage.rest()
        assert len(stage.store.saves) == looks + 1


async def test_a_change_of_directories_is_covered_and_looked_at_once_more():
    async with scene() as stage:
        await stage.rest()
        asked = len(stage.watches.asked)
        stage.store.plan = MemoryPlan([b"", b"new"])
        stage.watches.answers = [GOOD, KEPT]
        stage.watches.news.seen([b"new"], more=False)
        await eventually(lambda: len(stage.watches.asked) == asked + 1)
        assert stage.watches.asked[-1] == ([b"", b"new"], False, False)
        await eventually(lambda: stage.told.rebuilt == 2)
        await stage.rest()


async def test_a_change_of_files_alone_asks_for_nothing():
    async with scene() as stage:
        await stage.rest()
        await asyncio.sleep(0.05)
        asked = len(stage.watches.asked)
        stage.store.changed = True
        stage.watches.news.seen([b"file"], more=False)
        await eventually(lambda: stage.told.saved == 2)
        await asyncio.sleep(0.05)
        assert len(stage.watches.asked) == asked


async def test_a_directory_that_was_touched_is_asked_for_though_the_list_is_the_same():
    async with scene() as stage:
        stage.store.plan = MemoryPlan([b"", b"src"])
        await stage.rest()
        await asyncio.sleep(0.05)
        asked = len(stage.watches.asked)
        stage.watches.news.seen([b"src"], more=False)
        await eventually(lambda: len(stage.watches.asked) == asked + 1)


async def test_where_nothing_is_told_it_looks_by_itself_and_says_so():
    async with scene(Unwatched()) as stage:
        await eventually(lambda: stage.told.state == POLLING and stage.told.rescans >= 1 and stage.told.saved == 1)
        assert stage.told.reason == "this daemon has no watcher"
        stage.store.changed = True
        await eventually(lambda: stage.told.saved == 2)
        assert stage.told.missed == 0


async def test_directories_that_cannot_be_watched_degrade_and_are_looked_at():
    watches = ScriptedWatches(Coverage(True, True, 3, 2, "odd names"), Coverage(True, False, 3, 2, "odd names"))
    async with scene(watches) as stage:
        await eventually(lambda: stage.told.state == DEGRADED)
        assert "2 directories" in stage.told.reason
        await eventually(lambda: stage.told.rescans >= 2)


async def test_what_breaks_is_looked_after_and_put_again_afresh():
    async with scene() as stage:
        await stage.rest()
        stage.watches.answers = [GOOD, KEPT]
        stage.store.changed = True
        stage.watches.news.broken("for the test")
        assert (stage.told.state, stage.told.reason) == (POLLING, "for the test")
        await eventually(lambda: stage.told.saved == 2)
        await eventually(lambda: stage.told.state == ACTIVE)
        assert stage.watches.asked[-1] == ([b""], False, True)


async def test_one_that_had_to_make_room_comes_back_with_its_next_change():
    async with scene() as stage:
        await stage.rest()
        asked = len(stage.watches.asked)
        stage.watches.news.broken("too many", over_budget=True)
        await eventually(lambda: stage.told.rescans >= 3)
        assert len(stage.watches.asked) == asked
        stage.store.changed = True
        await eventually(lambda: stage.told.state == ACTIVE)


async def test_a_watcher_that_misses_changes_is_found_out_counted_and_given_up_in_the_end():
    watches = ScriptedWatches(GOOD, KEPT)
    async with scene(watches, idle_rescan_s=0.1) as stage:
        await stage.rest()
        for missed in (1, 2, 3):
            stage.store.changed = True
            await eventually(lambda count=missed: stage.told.missed == count)
        await eventually(lambda: stage.told.state == POLLING)
        assert "3 times in a row" in stage.told.reason
        assert ([b""], True, True) in watches.asked
        # Somebody who wants it gets another trial.
        stage.autosavers.begin(KEY, stage.actor, OPTIONS, None)
        await eventually(lambda: stage.told.state == ACTIVE)


async def test_the_look_that_checks_the_watcher_is_a_full_one_and_no_other_is():
    async with scene(idle_rescan_s=0.1) as stage:
        await stage.rest()
        stage.watches.news.seen([b"a"], more=False)
        await eventually(lambda: stage.told.rescans >= 2)
        await stage.rest()
        assert {params.full for params in stage.store.saves} == {False, True}
        assert not stage.store.saves[0].full


async def test_a_look_that_finds_what_is_told_late_proves_nothing():
    async with scene(idle_rescan_s=0.1) as stage:
        await stage.rest()
        stage.store.changed = True
        saved = stage.told.saved
        await eventually(lambda: stage.told.saved > saved)
        stage.watches.news.seen([b"late"], more=False)
        rescans = stage.told.rescans
        await eventually(lambda: stage.told.rescans > rescans + 1)
        assert stage.told.missed == 0


async def test_a_halt_stops_looking_and_a_save_begins_it_all_again():
    async with scene(Unwatched()) as stage:
        await eventually(lambda: stage.told.rescans >= 1)
        stage.actor.post(Halt("worktree_missing"))
        await eventually(lambda: stage.actor.state.phase is Phase.HALTED)
        rescans, saves = stage.told.rescans, len(stage.store.saves)
        await asyncio.sleep(0.2)
        assert (stage.told.rescans, len(stage.store.saves)) == (rescans, saves)
        stage.autosavers.begin(KEY, stage.actor, OPTIONS, None)
        await eventually(lambda: len(stage.store.saves) > saves and stage.actor.state.halted is None)
        heard = [(await stage.heard.next()).kind for _ in range(len(stage.heard._waiting))]
        assert "autosave.halted" in heard
        assert "watcher.changed" in heard


async def test_a_halt_is_told_once_whatever_is_asked_for_meanwhile():
    def refuse(_writer: object) -> None:
        raise DomainError("worktree_missing", "as the test wants it")

    async with scene(Unwatched()) as stage:
        await eventually(lambda: stage.told.rescans >= 1)
        stage.actor.post(Halt("worktree_missing"))
        await eventually(lambda: stage.actor.state.phase is Phase.HALTED)
        for _ in range(3):
            with pytest.raises(DomainError, match="as the test wants it"):
                await stage.actor.write(Terms(place(PATH)), refuse, Caller("test"))
            await eventually(lambda: stage.actor.state.phase is Phase.HALTED)
        heard = [(await stage.heard.next()).kind for _ in range(len(stage.heard._waiting))]
        assert heard.count("autosave.halted") == 1


async def test_a_failure_is_told_counted_tried_again_and_forgotten_with_the_next_success():
    async with scene(make=lambda: FailsOnceStore(times=2)) as stage:
        await eventually(lambda: stage.told.failed == 1)
        failure = stage.told.failure
        assert (failure.kind, failure.message) == ("no_space", "as the test wants it")
        assert failure.retry_in_s is None or failure.retry_in_s >= 0
        await eventually(lambda: stage.told.saved >= 1)
        assert (stage.told.failed, stage.told.failure) == (2, None)


async def test_turned_off_nothing_is_saved_any_more():
    async with scene() as stage:
        await stage.rest()
        stage.watches.news.seen([b"a"], more=False)
        stage.autosavers.stop(KEY)
        saves = len(stage.store.saves)
        await eventually(lambda: stage.watches.removed == 1)
        await eventually(lambda: stage.actor.state.phase is Phase.IDLE)
        await asyncio.sleep(0.1)
        assert len(stage.store.saves) == saves
        assert stage.told.state == "off"


async def test_a_bug_in_it_ends_nothing(caplog):
    class Broken(ScriptedWatches):
        async def cover(self, *arguments, **options):
            raise ZeroDivisionError("a bug")

    async with scene(Broken()) as stage:
        await eventually(lambda: "it begins again" in caplog.text)
        assert stage.actor.state.phase in (Phase.IDLE, Phase.DIRTY, Phase.BUSY)


@pytest.mark.parametrize(
    ("coverage", "state"),
    [
        (GOOD, ACTIVE),
        (GOOD._replace(left=1, reason="x"), DEGRADED),
        (GOOD._replace(native=False, reason="x"), POLLING),
    ],
)
def test_health(coverage, state):
    assert health_of(coverage).state == state


def test_looking_comes_in_time_and_takes_a_small_part_of_it():
    assert rescan_s(ACTIVE, 2.0, 30.0, 0.1) == 300.0
    assert rescan_s(ACTIVE, 2.0, 30.0, 60.0) == 1200.0
    for state in (POLLING, DEGRADED):
        assert rescan_s(state, 2.0, 30.0, 0.1) == 4.0
        # The look itself begins a quiet period later: what was on disk for max_wait_s is saved.
        assert rescan_s(state, 2.0, 30.0, 60.0) == 28.0
        assert rescan_s(state, 2.0, 1.0, 0.0) == 2.0


def test_pauses_grow_up_to_a_limit():
    assert [pause_s(number) for number in (1, 2, 3, 50)] == [1.0, 2.0, 4.0, 60.0]
