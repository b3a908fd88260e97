"""The actor with real threads: replies, order, reads beside, clients that vanish, crashes, the end."""

import asyncio
import threading
from contextlib import asynccontextmanager

import anyio
import pytest

from ckpt_protocol.checkpoint import HeadParams, SaveParams
from ckptd.core.actor import TRANSITIONS, Actor, ActorClosedError, Terms
from ckptd.core.bus import Bus
from ckptd.core.event import EditsSeen, Halt, IdleElapsed, OpDone, Stop
from ckptd.core.machine import Limits, Phase, check
from ckptd.core.ports import Caller
from ckptd.core.restore_lock import RestoreLocks
from ckptd.core.subscription import Wanted
from ckptd.errors import DomainError
from support.faulty_stores import (
    BadCloseStore,
    BrokenCatalog,
    CrashingStore,
    FailsOnceStore,
    Gate,
    HangingOpenCatalog,
    MemoryCatalog,
    SlowStore,
    place,
)
from support.poll import eventually

pytestmark = pytest.mark.core

DIR, PATH = b"/data", b"/home/u/w"
PLAIN, CREATE = Terms(place(PATH)), Terms(place(PATH), create=True)


def save(writer):
    params = SaveParams(checkpoint_dir="/data", worktree=place(PATH), token="0" * 32)
    return writer.save(params, Caller("test"))


def head(reader):
    return reader.head(HeadParams(checkpoint_dir="/data", worktree=place(PATH))).id


@asynccontextmanager
async def living(catalog, **options):
    """An actor in a task group, stopped and checked at the end."""
    actor = Actor(catalog, DIR, PATH, options.pop("locks", None) or RestoreLocks(), **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(actor.run)
        try:
            yield actor
        finally:
            actor.post(Stop())
    check(actor.state)
    catalog.check()


def write(actor, job, terms=CREATE, **options):
    return asyncio.ensure_future(actor.write(terms, job, Caller("test"), **options))


async def kind_of(awaitable):
    with pytest.raises(DomainError) as caught:
        await awaitable
    return caught.value.kind


async def closes_when_ended(actor, catalog):
    """Wait until the actor has ended; give how often its store had been closed by then (2: both sides)."""
    await actor.ended()
    return catalog.kept[DIR, PATH].closes


async def test_write_opens_runs_and_answers():
    catalog = MemoryCatalog()
    async with living(catalog) as actor:
        assert (await write(actor, save)).seq == 1
        assert (await write(actor, save)).seq == 2
        assert actor.folder == catalog.folder(DIR, PATH)
        await eventually(lambda: actor.state.phase is Phase.IDLE)
    assert catalog.opened == [(PATH, True, False)]
    store = catalog.kept[DIR, PATH]
    assert store.writer_threads == {"ckptd-write /home/u/w"}
    assert store.closes == 2


async def test_operations_run_one_after_the_other_in_order():
    catalog, order = MemoryCatalog(), []
    async with living(catalog) as actor:
        await asyncio.gather(*(write(actor, lambda w, n=n: (save(w), order.append(n))) for n in range(100)))
    assert order == list(range(100))


async def test_reply_comes_only_after_the_job_has_ended():
    catalog = MemoryCatalog(SlowStore)
    async with living(catalog) as actor:
        saving = write(actor, save)
        gate = catalog.keep(DIR, PATH).gate
        await eventually(gate.reached.is_set)
        assert not saving.done()
        assert actor.state.phase is Phase.BUSY
        gate.open()
        assert (await saving).seq == 1


async def test_reads_run_beside_a_save_on_their_own_thread():
    catalog = MemoryCatalog(SlowStore)
    catalog.keep(DIR, PATH).saves.append(None)
    async with living(catalog) as actor:
        saving = write(actor, save)
        await eventually(catalog.keep(DIR, PATH).gate.reached.is_set)
        assert await actor.read(PLAIN, head) == f"{1:040x}"
        assert not saving.done()
        catalog.keep(DIR, PATH).gate.open()
        await saving
    assert catalog.kept[DIR, PATH].reader_threads == {"ckptd-read /home/u/w"}


async def test_reads_wait_for_the_opening():
    catalog = HangingOpenCatalog()
    catalog.keep(DIR, PATH).saves.append(None)
    async with living(catalog) as actor:
        reading = asyncio.ensure_future(actor.read(PLAIN, head))
        await eventually(catalog.gate.reached.is_set)
        assert actor.state.phase is Phase.OPENING
        assert not reading.done()
        catalog.gate.open()
        assert await reading == f"{1:040x}"


async def test_vanished_client_loses_only_its_reply():
    catalog = MemoryCatalog(SlowStore)
    async with living(catalog) as actor:
        running, queued = write(actor, save), write(actor, save)
        gate = catalog.keep(DIR, PATH).gate
        await eventually(gate.reached.is_set)
        for vanished in (running, queued):
            vanished.cancel()
            with pytest.raises(asyncio.CancelledError):
                await vanished
        gate.open()
        assert (await write(actor, save)).seq == 3


async def test_request_called_off_before_its_turn_does_not_begin():
    catalog, caller = MemoryCatalog(SlowStore), Caller("test")
    async with living(catalog) as actor:
        first = write(actor, save)
        await eventually(catalog.keep(DIR, PATH).gate.reached.is_set)
        second = asyncio.ensure_future(actor.write(CREATE, save, caller))
        await asyncio.sleep(0)
        caller.cancelled.set()
        catalog.keep(DIR, PATH).gate.open()
        await first
        assert await kind_of(second) == "cancelled"
    assert len(catalog.kept[DIR, PATH].saves) == 1


async def test_full_mailbox_is_told_at_once():
    catalog = MemoryCatalog(SlowStore)
    async with living(catalog, limits=Limits(mailbox=2)) as actor:
        accepted = [write(actor, save) for _ in range(2)]
        gate = catalog.keep(DIR, PATH).gate
        await eventually(gate.reached.is_set)
        accepted.append(write(actor, save))
        assert await kind_of(write(actor, save)) == "worktree_busy"
        assert not any(waiting.done() for waiting in accepted)
        gate.open()
        assert [(await waiting).seq for waiting in accepted] == [1, 2, 3]


async def test_place_is_checked_before_each_write():
    catalog = MemoryCatalog()
    async with living(catalog) as actor:
        await write(actor, save)
        other = Terms(place(PATH, ino=2), create=True)
        assert await kind_of(write(actor, save, other)) == "identity_mismatch"
        assert await kind_of(actor.open(other)) == "identity_mismatch"
    assert len(catalog.kept[DIR, PATH].saves) == 1


async def test_failed_opening_is_the_answer_and_the_end():
    catalog = MemoryCatalog()
    async with living(catalog) as actor:
        answers = [write(actor, save, PLAIN), asyncio.ensure_future(actor.read(PLAIN, head))]
        assert [await kind_of(answer) for answer in answers] == ["not_tracked", "not_tracked"]
        await actor.ended()
        with pytest.raises(ActorClosedError):
            await actor.read(PLAIN, head)


async def test_each_gets_the_answer_of_its_own_terms():
    """A wrong view, a read, a plain save and a forced save race to open a protected place."""
    catalog, path = HangingOpenCatalog(), b"/protected"
    actor = Actor(catalog, DIR, path, RestoreLocks())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(actor.run)
        wrong = write(actor, save, Terms(place(path, ino=2), create=True))
        reading = asyncio.ensure_future(actor.read(Terms(place(path)), head))
        plain = write(actor, save, Terms(place(path), create=True))
        forced = write(actor, save, Terms(place(path), create=True, force=True))
        late = asyncio.ensure_future(actor.read(Terms(place(path)), head))
        catalog.gate.open()
        assert await kind_of(wrong) == "identity_mismatch"
        assert await kind_of(reading) == "not_tracked"
        assert await kind_of(plain) == "protected_place"
        assert await kind_of(late) == "not_tracked"
        assert (await forced).seq == 1
        actor.post(Stop())
    catalog.check()


async def test_bug_in_opening_reaches_the_waiter():
    catalog = BrokenCatalog()
    async with living(catalog) as actor:
        with pytest.raises(ZeroDivisionError):
            await write(actor, save)


async def test_created_is_told_to_the_request_that_made_the_store():
    catalog = MemoryCatalog()
    async with living(catalog) as actor:
        opened = await asyncio.gather(*(actor.open(CREATE) for _ in range(3)))
    folder = catalog.folder(DIR, PATH)
    assert opened == [(folder, True), (folder, False), (folder, False)]


async def test_stop_finishes_what_runs_and_sends_the_rest_away():
    catalog = MemoryCatalog(SlowStore)
    async with living(catalog) as actor:
        running, queued = write(actor, save), write(actor, save)
        gate = catalog.keep(DIR, PATH).gate
        await eventually(gate.reached.is_set)
        actor.post(Stop())
        with pytest.raises(ActorClosedError):
            await queued
        assert actor.leaving
        assert not running.done()
        gate.open()
        assert (await running).seq == 1
        await actor.ended()
    assert len(catalog.kept[DIR, PATH].saves) == 1


async def test_stop_while_opening_closes_what_was_opened():
    catalog = HangingOpenCatalog()
    async with living(catalog) as actor:
        waiting = write(actor, save)
        await eventually(catalog.gate.reached.is_set)
        actor.post(Stop())
        with pytest.raises(ActorClosedError):
            await waiting
        closes = asyncio.ensure_future(closes_when_ended(actor, catalog))
        # It begins to wait before the gate opens.
        await asyncio.sleep(0)
        catalog.gate.open()
        assert await closes == 2


async def test_request_behind_the_end_is_not_forgotten():
    catalog = MemoryCatalog()
    async with living(catalog) as actor:
        await write(actor, save)
        actor.post(IdleElapsed())
        with pytest.raises(ActorClosedError):
            await write(actor, save)


async def test_crash_of_the_actor_fails_every_waiter_and_closes_the_store(caplog):
    catalog = MemoryCatalog(SlowStore)
    async with living(catalog) as actor:
        waiting = [write(actor, save) for _ in range(3)]
        gate = catalog.keep(DIR, PATH).gate
        await eventually(gate.reached.is_set)
        # The end of an operation that never ran: only a bug could report it.
        actor.post(OpDone(99))
        assert [await kind_of(each) for each in waiting] == ["internal"] * 3
        assert actor.leaving
        with pytest.raises(ActorClosedError):
            await write(actor, save)
        closes = asyncio.ensure_future(closes_when_ended(actor, catalog))
        # It begins to wait before the gate opens.
        await asyncio.sleep(0)
        gate.open()
        assert await closes == 2
    assert "broke after" in caplog.text


async def test_job_that_wants_to_end_the_program_is_one_failed_job():
    catalog = MemoryCatalog(CrashingStore)
    async with living(catalog) as actor:
        with pytest.raises(RuntimeError, match="SystemExit"):
            await write(actor, save)
        assert await write(actor, lambda _writer: "alive") == "alive"


async def test_store_that_does_not_close_cleanly_is_logged_and_left(caplog):
    catalog = MemoryCatalog(BadCloseStore)
    async with living(catalog) as actor:
        await write(actor, save)
    assert "did not close cleanly" in caplog.text


async def test_cancelled_actor_waits_for_its_thread_and_closes_the_store():
    catalog = MemoryCatalog(SlowStore)
    actor = Actor(catalog, DIR, PATH, RestoreLocks())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(actor.run)
        saving = write(actor, save)
        gate = catalog.keep(DIR, PATH).gate
        await eventually(gate.reached.is_set)
        tasks.cancel_scope.cancel()
        threading.Timer(0.05, gate.open).start()
    assert await kind_of(saving) == "stopping"
    assert len(catalog.kept[DIR, PATH].saves) == 1
    catalog.check()


async def test_only_the_last_transitions_are_kept():
    catalog = MemoryCatalog()
    async with living(catalog) as actor:
        for _ in range(TRANSITIONS):
            await write(actor, save)
        assert len(actor.transitions) == TRANSITIONS
        assert {step.after for step in actor.transitions} == {Phase.BUSY, Phase.IDLE}


async def test_halted_worktree_still_serves_and_recovers_by_a_save():
    catalog = MemoryCatalog()
    async with living(catalog) as actor:
        await write(actor, save)
        actor.post(Halt("worktree_missing"))
        await eventually(lambda: actor.state.phase is Phase.HALTED)
        assert await actor.read(PLAIN, head) == f"{1:040x}"
        assert await write(actor, lambda _writer: "restored") == "restored"
        await eventually(lambda: actor.state.phase is Phase.HALTED)
        await write(actor, save)
        await eventually(lambda: actor.state.phase is Phase.IDLE)


async def test_edits_lead_to_an_autosave_after_the_quiet_period():
    catalog = MemoryCatalog()
    async with living(catalog, limits=Limits(quiet_s=0.05, max_wait_s=1.0)) as actor:
        await write(actor, save)
        actor.post(EditsSeen(asyncio.get_running_loop().time()))
        await eventually(lambda: actor.state.phase is Phase.DIRTY)
        await eventually(lambda: len(catalog.kept[DIR, PATH].saves) == 2)
        await eventually(lambda: actor.state.phase is Phase.IDLE)
    assert catalog.kept[DIR, PATH].saves[1].kind == "auto"


async def test_failing_autosaves_are_tried_again_and_the_failure_stays_until_one_succeeds():
    catalog = MemoryCatalog(lambda: FailsOnceStore(times=3))
    async with living(catalog, limits=Limits(quiet_s=0.001, max_wait_s=1.0)) as actor:
        await actor.open(CREATE)
        actor.post(EditsSeen(asyncio.get_running_loop().time()))
        await eventually(lambda: actor.state.failures == 2)
        assert (actor.state.halted, actor.failure.kind) == (None, "no_space")
        await eventually(lambda: catalog.kept[DIR, PATH].saves)
        await eventually(lambda: actor.state.phase is Phase.IDLE)
        assert (actor.state.failures, actor.failure) == (0, None)


async def test_exclusive_job_waits_for_the_overlapping_one_and_crash_gives_the_lock_back(caplog):
    locks, gate, began = RestoreLocks(), Gate(), threading.Event()
    outer, inner = MemoryCatalog(), MemoryCatalog()
    child = Actor(inner, DIR, PATH + b"/sub", locks)
    async with living(outer, locks=locks) as parent, anyio.create_task_group() as tasks:
        tasks.start_soon(child.run)
        first = write(parent, lambda _writer: gate.wait(), exclusive=True)
        await eventually(gate.reached.is_set)
        terms = Terms(place(PATH + b"/sub"), create=True)
        second = write(child, lambda _writer: began.set(), terms, exclusive=True)
        await eventually(lambda: child.state.phase is Phase.BUSY)
        parent.post(OpDone(99))
        assert await kind_of(first) == "internal"
        # Overlaps the first alone, so it tells whether that one's lock is still held.
        probe = locks.acquire(PATH + b"/beside")
        assert not probe.granted.done()
        assert not began.is_set()
        gate.open()
        await second
        await probe.granted
        locks.release(probe)
        child.post(Stop())
    inner.check()


async def test_crash_while_waiting_for_the_restore_lock_withdraws(caplog):
    locks, catalog = RestoreLocks(), MemoryCatalog()
    held = locks.acquire(b"/home/u")
    async with living(catalog, locks=locks) as actor:
        waiting = write(actor, lambda _writer: pytest.fail("it must not begin"), exclusive=True)
        await eventually(lambda: actor.state.phase is Phase.BUSY)
        actor.post(OpDone(99))
        assert await kind_of(waiting) == "internal"
        await actor.ended()
        locks.release(held)
        assert locks.acquire(PATH).granted.done()


def as_caller(actor, job, caller, **options):
    return asyncio.ensure_future(actor.write(CREATE, job, caller, **options))


async def test_a_queued_request_that_is_called_off_is_answered_at_once_and_never_begun():
    catalog, begun = MemoryCatalog(SlowStore), []
    async with living(catalog) as actor:
        saving = write(actor, save)
        gate = catalog.keep(DIR, PATH).gate
        await eventually(gate.reached.is_set)
        callers = [Caller("test"), Caller("test")]
        queued = [as_caller(actor, lambda _writer, n=n: begun.append(n), caller) for n, caller in enumerate(callers)]
        await eventually(lambda: len(actor.state.queue) == 2)
        callers[0].call_off()
        callers[0].call_off()
        assert await kind_of(queued[0]) == "cancelled"
        assert not saving.done()
        gate.open()
        await asyncio.gather(saving, queued[1])
    assert begun == [1]


async def test_a_running_operation_is_told_and_its_own_end_is_the_answer():
    catalog, gate = MemoryCatalog(), Gate()
    caller = Caller("test")

    def job(_writer):
        gate.wait()
        return caller.cancelled.is_set()

    async with living(catalog) as actor:
        running = as_caller(actor, job, caller)
        await eventually(gate.reached.is_set)
        caller.call_off()
        await eventually(lambda: not actor._mailbox.qsize())
        assert not running.done()
        gate.open()
        assert await running is True


async def test_a_read_that_is_called_off_is_answered_while_its_thread_goes_on():
    catalog, gate = MemoryCatalog(), Gate()
    callers = [Caller("test"), Caller("test")]
    begun = []

    def reading(number):
        def job(_reader):
            begun.append(number)
            gate.wait()

        return job

    async with living(catalog) as actor:
        await write(actor, save)
        reads = [asyncio.ensure_future(actor.read(PLAIN, reading(n), caller)) for n, caller in enumerate(callers)]
        await eventually(gate.reached.is_set)
        for caller in callers:
            caller.call_off()
        assert [await kind_of(read) for read in reads] == ["cancelled", "cancelled"]
        assert actor.state.reads == actor.state.unheard
        gate.open()
        await eventually(lambda: not actor.state.reads)
    assert begun == [0]


async def test_who_is_called_off_before_asking_asks_nothing():
    caller = Caller("test")
    caller.call_off("deadline_exceeded")
    async with living(MemoryCatalog()) as actor:
        assert await kind_of(as_caller(actor, save, caller)) == "cancelled"
        assert await kind_of(actor.read(PLAIN, head, caller)) == "cancelled"
        assert (caller.why, actor.transitions) == ("deadline_exceeded", actor.transitions)
        assert not actor.transitions


async def test_a_request_that_is_called_off_while_the_store_opens_leaves_an_open_store():
    catalog = HangingOpenCatalog()
    caller = Caller("test")
    async with living(catalog) as actor:
        first = as_caller(actor, save, caller)
        await eventually(catalog.gate.reached.is_set)
        caller.call_off()
        assert await kind_of(first) == "cancelled"
        second = write(actor, save)
        catalog.gate.open()
        assert (await second).seq == 1
    assert len(catalog.opened) == 1


async def test_a_restore_that_waits_for_another_one_can_be_called_off():
    locks, gate = RestoreLocks(), Gate()
    ticket = locks.acquire(PATH)
    caller = Caller("test")
    async with living(MemoryCatalog(), locks=locks) as actor:
        waiting = as_caller(actor, save, caller, exclusive=True)
        await eventually(lambda: actor.state.phase is Phase.BUSY)
        caller.call_off()
        assert await kind_of(waiting) == "cancelled"
        assert not gate.reached.is_set()
        locks.release(ticket)
        assert (await write(actor, save, exclusive=True)).seq == 1


async def test_a_flood_of_one_owner_does_not_hold_up_another():
    catalog, order = MemoryCatalog(), []
    gate = Gate()

    def job(number):
        def work(_writer):
            gate.wait()
            order.append(number)

        return work

    async with living(catalog) as actor:
        flood = [as_caller(actor, job(n), Caller("test", owner="a")) for n in range(20)]
        await eventually(gate.reached.is_set)
        other = as_caller(actor, job("b"), Caller("test", owner="b"))
        await eventually(lambda: len(actor.state.queue) == 20)
        gate.open()
        await asyncio.gather(*flood, other)
    assert order == [0, "b", *range(1, 20)]


async def test_a_flood_of_reads_does_not_hold_up_another_owners_read_and_the_store_closes_last():
    catalog, order, gate = MemoryCatalog(), [], Gate()

    def job(number):
        def work(reader):
            gate.wait()
            order.append((number, reader.closes))

        return work

    async with living(catalog) as actor:
        await write(actor, save)
        flood = [asyncio.ensure_future(actor.read(PLAIN, job(n), Caller("test", owner="a"))) for n in range(10)]
        await eventually(gate.reached.is_set)
        other = asyncio.ensure_future(actor.read(PLAIN, job("b"), Caller("test", owner="b")))
        await eventually(lambda: len(actor.state.reads) == 11)
        actor.post(Stop())
        gate.open()
        await asyncio.gather(*flood, other)
    assert order == [(number, 0) for number in [0, 1, "b", *range(2, 10)]]


class InterruptedCatalog(MemoryCatalog):
    """Its stores have a restore that was cut off."""

    def open(self, checkpoint_dir, place, *, create, force):
        return super().open(checkpoint_dir, place, create=create, force=force)._replace(interrupted="5afe")


async def test_a_restore_that_was_cut_off_is_told_when_it_is_found_and_one_that_could_not_be_taken_back_too():
    bus = Bus()
    heard = bus.subscribe(Wanted(), 10)

    def halfway(_writer):
        raise DomainError("restore_incomplete", "not all was put back")

    async with living(InterruptedCatalog(), bus=bus) as actor:
        assert await kind_of(write(actor, halfway)) == "restore_incomplete"
    found, told = await heard.next(), await heard.next()
    assert (found.kind, found.data) == ("restore.interrupted", {"safety": "5afe"})
    assert (told.kind, told.data) == ("restore.interrupted", {"reason": "restore_incomplete: not all was put back"})
    assert bus.seq == 2
