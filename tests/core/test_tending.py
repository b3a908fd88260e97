"""Housekeeping comes when nothing else is asked for, goes on in moments, and never stands in the way."""

import time

import anyio
import pytest

from ckptd.core.actor import Actor, Terms
from ckptd.core.event import Halt, Stop
from ckptd.core.machine import Phase
from ckptd.core.ports import Caller
from ckptd.core.restore_lock import RestoreLocks
from ckptd.core.tending import MOMENT_S
from support.faulty_stores import Gate, MemoryCatalog, MemoryStore, place
from support.poll import eventually

pytestmark = pytest.mark.core

DIR, PATH = b"/data", b"/home/u/w"
CREATE = Terms(place(PATH), create=True)


class TendingStore(MemoryStore):
    """Housekeeping that waits for a gate, if there is one."""

    gate: Gate | None = None
    breaks = False
    lasts = False
    lasting = False
    wanted = 0

    def tend(self, is_wanted, at_most_s) -> bool:
        if self.gate is not None:
            self.gate.wait()
        if self.breaks:
            raise ValueError("a bug")
        end = time.monotonic() + 60
        while self.lasts and not is_wanted() and time.monotonic() < end:
            self.lasting = True
            time.sleep(0.001)
        self.wanted += is_wanted()
        return super().tend(is_wanted, at_most_s)


async def with_actor(test, *, after_s=0.0, left=1, gate=None):
    stores: list[TendingStore] = []

    def make() -> TendingStore:
        store = TendingStore()
        store.tends_left = left
        store.gate = gate
        stores.append(store)
        return store

    actor = Actor(MemoryCatalog(make), DIR, PATH, RestoreLocks(), tend_after_s=after_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(actor.run)
        await actor.write(CREATE, lambda writer: writer.check_place(place(PATH)), Caller("test"))
        try:
            await test(actor, stores[0])
        finally:
            actor.post(Stop())
    assert stores[0].faults == []


async def test_it_goes_on_until_nothing_is_left_and_then_rests():
    async def test(actor, store):
        await eventually(lambda: store.tends == 3)
        assert store.tends_left == 0
        await actor.write(CREATE, lambda _writer: None, Caller("test"))
        await eventually(lambda: store.tends == 4)

    await with_actor(test, left=3)


async def test_a_reader_closes_what_may_be_gone_once_it_is_over():
    async def test(actor, store):
        await eventually(lambda: store.tends == 2)
        assert store.let_gos == 0
        await actor.read(CREATE, lambda _reader: None, Caller("test"))
        await actor.write(CREATE, lambda _writer: None, Caller("test"))
        await eventually(lambda: store.tends == 3)
        # Twice, where the thread for reads was there before it was heard that the second moment had ended.
        await eventually(lambda: store.let_gos >= 1)

    await with_actor(test, left=2)


async def test_not_while_requests_keep_coming():
    async def test(actor, store):
        for _ in range(5):
            await actor.write(CREATE, lambda _writer: None, Caller("test"))
        assert store.tends == 0

    await with_actor(test, after_s=3600.0)


async def test_where_requests_leave_no_long_rest_it_comes_in_short_ones_in_the_end():
    async def test(actor, store):
        with anyio.fail_after(60):
            while store.tends < 3:
                await actor.write(CREATE, lambda _writer: None, Caller("test"))
                # Never as long as it would like to wait.
                await anyio.sleep(0.13)

    await with_actor(test, after_s=0.16, left=10)


@pytest.mark.parametrize("pressure", [0.5, 4.0])
async def test_what_is_pressing_comes_between_requests_that_wait_already(pressure):
    """Where the queue never ends there is no rest; a moment has so many times as long as the request before it had."""

    async def test(actor, store):
        store.pressure = pressure
        first = len(store.moments)
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(actor.write, CREATE, lambda _writer: time.sleep(0.02), Caller("test"))
        await eventually(lambda: len(store.moments) >= first + 20)
        between = [one for one in store.moments[first:] if one != MOMENT_S]
        assert len(between) >= 19
        assert all(one <= 0.5 for one in between)
        assert sorted(between)[10] >= 0.02 * pressure

    await with_actor(test, after_s=3600.0, left=1000)


async def test_what_is_pressing_waits_for_no_rest_and_follows_at_once():
    async def test(actor, store):
        store.pressure = 0.5
        await actor.write(CREATE, lambda _writer: None, Caller("test"))
        await eventually(lambda: store.tends_left == 0)
        # Whatever the writer has taken away is closed each time, and not only in the end.
        await actor.read(CREATE, lambda _reader: None, Caller("test"))
        store.tends_left = 50
        await actor.write(CREATE, lambda _writer: None, Caller("test"))
        await eventually(lambda: store.tends_left == 0)
        await eventually(lambda: store.let_gos >= 50)

    await with_actor(test, after_s=3600.0, left=30)


async def test_nothing_presses_a_worktree_that_is_halted():
    async def test(actor, store):
        actor.post(Halt("worktree_missing"))
        await actor.write(CREATE, lambda _writer: None, Caller("test"))
        tends = store.tends
        store.pressure = 0.5
        for _ in range(3):
            await actor.write(CREATE, lambda _writer: None, Caller("test"))
        assert store.tends == tends

    await with_actor(test, left=30)


async def test_a_request_waits_for_the_moment_that_has_begun_and_is_served():
    async def test(actor, store):
        await eventually(store.gate.reached.is_set)
        done = []

        async def ask() -> None:
            done.append(await actor.write(CREATE, lambda _writer: "served", Caller("test")))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await eventually(lambda: actor.state.phase is Phase.BUSY)
            assert done == []
            store.gate.open()
        assert done == ["served"]

    await with_actor(test, left=100, gate=Gate())


async def test_a_moment_hears_that_a_request_waits_for_its_end():
    async def test(actor, store):
        await eventually(lambda: store.tends == 1)
        store.tends_left, store.lasts = 2, True
        assert await actor.write(CREATE, lambda _writer: "first", Caller("test")) == "first"
        await eventually(lambda: store.lasting)
        assert await actor.write(CREATE, lambda _writer: "served", Caller("test")) == "served"
        assert store.wanted == 1
        store.lasts = False

    await with_actor(test)


async def test_where_requests_leave_no_rest_at_all_it_comes_between_them_in_the_end():
    async def test(actor, store):
        with anyio.fail_after(60):
            while store.tends < 3:
                await actor.write(CREATE, lambda _writer: None, Caller("test"))
                await anyio.lowlevel.checkpoint()

    await with_actor(test, after_s=0.02, left=10)


async def test_not_while_halted():
    async def test(actor, store):
        await eventually(lambda: store.tends == 1)
        actor.post(Halt("worktree_missing"))
        await actor.write(CREATE, lambda _writer: None, Caller("test"))
        assert actor.state.phase is Phase.HALTED
        await anyio.lowlevel.checkpoint()
        assert store.tends == 1

    await with_actor(test)


async def test_a_bug_in_it_is_logged_and_ends_nothing(caplog):
    async def test(actor, store):
        store.breaks = True
        await actor.write(CREATE, lambda _writer: None, Caller("test"))
        await eventually(lambda: "housekeeping broke" in caplog.text)
        assert await actor.write(CREATE, lambda _writer: 1, Caller("test")) == 1

    await with_actor(test)
