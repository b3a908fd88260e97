"""Events: who hears which, in order, and what a slow listener is told."""

import anyio
import pytest

from ckptd.core.bus import Bus
from ckptd.core.subscription import Wanted

pytestmark = pytest.mark.core

DIR, W, V = b"/c", b"/w", b"/v"


async def all_of(subscription, count):
    with anyio.fail_after(60):
        return [await subscription.next() for _ in range(count)]


def silent(subscription) -> bool:
    return not subscription._waiting


async def test_events_come_in_order_with_number_time_and_data():
    bus = Bus(clock=lambda: 0.5)
    bus.publish("store.pruned", DIR)
    heard = bus.subscribe(Wanted(), 10)
    bus.publish("checkpoint.created", DIR, W, id="a", seq=1)
    bus.publish("worktree.changed", DIR, b"/\xff", written=3)
    first, second = await all_of(heard, 2)
    assert (first.seq, first.kind, first.worktree, first.data) == (2, "checkpoint.created", "/w", {"id": "a", "seq": 1})
    assert first.time == "1970-01-01T00:00:00.500000Z"
    assert (second.seq, second.worktree.b64, second.lost) == (3, "L/8=", False)
    assert {first.subscription, second.subscription} == {heard.number}


@pytest.mark.parametrize(
    ("wanted", "seqs"),
    [
        (Wanted(), [1, 2, 3, 4]),
        (Wanted(checkpoint_dir=DIR), [1, 2, 4]),
        (Wanted(worktree=W), [1, 3]),
        (Wanted(kinds=frozenset({"store.pruned"})), [4]),
        (Wanted(checkpoint_dir=DIR, worktree=W, kinds=frozenset({"worktree.changed"})), []),
    ],
)
async def test_a_listener_hears_what_it_wants_only(wanted, seqs):
    bus = Bus()
    heard = bus.subscribe(wanted, 10)
    bus.publish("checkpoint.created", DIR, W)
    bus.publish("worktree.changed", DIR, V)
    bus.publish("checkpoint.created", b"/other", W)
    bus.publish("store.pruned", DIR)
    assert [event.seq for event in await all_of(heard, len(seqs))] == seqs
    assert silent(heard)


async def test_a_slow_listener_loses_the_oldest_and_is_told_how_many():
    bus = Bus()
    slow, quick = bus.subscribe(Wanted(), 3), bus.subscribe(Wanted(), 100)
    for _ in range(8):
        bus.publish("checkpoint.created", DIR, W)
    heard = await all_of(slow, 3)
    assert [(event.seq, event.lost, event.missed) for event in heard] == [(6, True, 5), (7, False, 0), (8, False, 0)]
    assert [event.lost for event in await all_of(quick, 8)] == [False] * 8
    bus.publish("checkpoint.created", DIR, W)
    assert not (await slow.next()).lost


async def test_a_listener_that_waits_is_woken_and_one_that_left_hears_nothing():
    bus = Bus()
    heard, left = bus.subscribe(Wanted(), 10), bus.subscribe(Wanted(), 10)
    bus.unsubscribe(left)
    bus.unsubscribe(left)
    got = []

    async def listen():
        got.append(await heard.next())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
        bus.publish("autosave.failed", DIR, W, reason="no_space")
    assert got[0].data == {"reason": "no_space"}
    assert silent(left)
