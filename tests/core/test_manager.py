"""The manager: one actor a worktree, opening and racing, unused ones, deletion, restores that overlap, the end."""

import asyncio
import threading

import anyio
import pytest

from ckpt_protocol.structs import from_wire, to_wire
from ckptd.core.bus import Bus
from ckptd.core.event import OpDone
from ckptd.core.manager import Manager
from ckptd.core.ports import Caller
from ckptd.core.subscription import Wanted
from ckptd.errors import DomainError
from support.faulty_stores import (
    SHORT,
    FailsOnceCatalog,
    FailsOnceStore,
    Gate,
    HangingOpenCatalog,
    MemoryCatalog,
    SlowDeleteCatalog,
    SlowStore,
    place,
)
from support.managed import DIR, OTHER_DIR, A, B, claim, head, kind_of, running, save, write
from support.poll import eventually

pytestmark = pytest.mark.core


async def test_write_and_read():
    catalog = MemoryCatalog()
    async with running(catalog) as manager:
        assert (await write(manager)).seq == 1
        assert await manager.read(DIR, place(A), head) == f"{1:040x}"
        await eventually(lambda: manager.state_of(DIR, place(A)) == ("IDLE", None))
    assert len(catalog.opened) == 1


async def test_what_happens_is_published_after_it_is_true():
    bus, catalog = Bus(), MemoryCatalog()
    heard = bus.subscribe(Wanted(), 10)
    async with running(catalog, bus=bus) as manager:
        await write(manager)
        await manager.read(DIR, place(A), head)
        await manager.forget(DIR, place(A), Caller("test"))
    assert bus.seq == 2
    first, second = await heard.next(), await heard.next()
    assert (first.kind, first.checkpoint_dir, first.worktree) == ("checkpoint.created", "/data", to_wire(A))
    assert first.data == {"id": f"{1:040x}", "seq": 1, "complete": True, "automatic": False}
    assert (second.kind, second.worktree, second.data) == ("store.pruned", to_wire(A), {"checkpoints": 1})


async def test_a_request_that_waits_for_the_data_lock_can_be_called_off_and_the_lock_is_taken_all_the_same():
    gate, taken, caller = Gate(), [], Caller("test")

    def slow(checkpoint_dir, _make):
        gate.wait()
        taken.append(checkpoint_dir)
        return True

    async with running(MemoryCatalog(), slow) as manager:
        asked = [
            asyncio.ensure_future(manager.write(DIR, place(A), save, caller, create=True)),
            asyncio.ensure_future(manager.read(DIR, place(A), head, caller)),
            asyncio.ensure_future(manager.list(DIR, caller)),
        ]
        await eventually(gate.reached.is_set)
        caller.call_off()
        assert [await kind_of(one) for one in asked] == ["cancelled"] * 3
        assert manager.stores() == []
        gate.open()
        await write(manager)
    assert taken == [DIR] * 4


async def test_the_same_path_in_two_checkpoint_directories_is_two_stores():
    catalog = MemoryCatalog()
    async with running(catalog) as manager:
        await asyncio.gather(write(manager), write(manager, directory=OTHER_DIR))
        assert [store.store for store in manager.stores()] == ["/data_home_u_a", "/elsewhere_home_u_a"]


async def test_untracked_worktree_is_told_so_and_leaves_nothing_behind():
    catalog = MemoryCatalog()
    async with running(catalog) as manager:
        assert await kind_of(write(manager, create=False)) == "not_tracked"
        assert await kind_of(manager.read(DIR, place(A), head)) == "not_tracked"
        assert manager.stores() == []
        assert manager.state_of(DIR, place(A)) == ("CLOSED", None)
        assert (await write(manager)).seq == 1


async def test_racing_first_requests_get_each_their_own_answer():
    catalog = HangingOpenCatalog()
    async with running(catalog) as manager:
        reading = asyncio.ensure_future(manager.read(DIR, place(A), head))
        await eventually(catalog.gate.reached.is_set)
        saving = write(manager)
        await eventually(lambda: manager.stores()[0].queued == 2)
        assert manager.stores()[0].store == "/data"
        catalog.gate.open()
        assert await kind_of(reading) == "not_tracked"
        assert (await saving).seq == 1
    assert [create for _, create, _ in catalog.opened] == [False, True]


async def test_worktree_that_hangs_holds_up_no_other():
    catalog = HangingOpenCatalog()
    catalog.keep(DIR, B)
    async with running(catalog) as manager:
        hanging = write(manager)
        await eventually(catalog.gate.reached.is_set)
        listed = await manager.list(DIR)
        assert [entry.path for entry in listed.workspaces] == ["/home/u/b"]
        assert [store.state for store in manager.stores()] == ["OPENING"]
        catalog.gate.open()
        await hanging


async def test_force_reaches_the_opening_only_with_create():
    catalog = MemoryCatalog()
    path = b"/protected"
    async with running(catalog) as manager:
        assert await kind_of(write(manager, path=path)) == "protected_place"
        assert await kind_of(write(manager, path=path, create=False, force=True)) == "not_tracked"
        assert (await write(manager, path=path, force=True)).seq == 1
        assert (await write(manager, path=path)).seq == 2
    assert [flags[1:] for flags in catalog.opened] == [(True, False), (False, False), (True, True)]


async def test_failed_opening_is_tried_again_by_the_next_request():
    catalog = FailsOnceCatalog()
    async with running(catalog) as manager:
        assert await kind_of(write(manager)) == "too_many_files"
        assert (await write(manager)).seq == 1


async def test_wrong_view_of_a_worktree_is_refused_open_or_not():
    catalog = MemoryCatalog()
    async with running(catalog) as manager:
        assert await kind_of(write(manager, ino=2)) == "identity_mismatch"
        await write(manager)
        assert await kind_of(write(manager, ino=2)) == "identity_mismatch"
        assert await kind_of(manager.forget(DIR, place(A, ino=2), Caller("test"))) == "identity_mismatch"
        assert await kind_of(manager.open(DIR, place(A, ino=2), force=False)) == "identity_mismatch"
    assert len(catalog.kept[DIR, A].saves) == 1


async def test_open_tells_store_head_and_who_made_it():
    catalog = MemoryCatalog()
    async with running(catalog) as manager:
        first = await manager.open(DIR, place(A), force=False)
        assert (first.store, first.created, first.head) == ("/data_home_u_a", True, None)
        await write(manager)
        second = await manager.open(DIR, place(A), force=False)
        assert (second.created, second.head) == (False, f"{1:040x}")
        await write(manager, path=B)
        assert not (await manager.open(DIR, place(B), force=False)).created


async def test_claim_is_asked_before_each_request_and_its_error_is_the_answer():
    catalog, asked, owned = MemoryCatalog(), [], []

    def take(checkpoint_dir, make):
        asked.append((checkpoint_dir, make))
        if not owned:
            raise DomainError("owned_elsewhere", "another daemon")
        return True

    async with running(catalog, take) as manager:
        requests = [
            lambda: write(manager),
            lambda: manager.read(DIR, place(A), head),
            lambda: manager.open(DIR, place(A), force=False),
            lambda: manager.list(DIR),
            lambda: manager.prune(DIR, Caller("test"), dry_run=False),
            lambda: manager.forget(DIR, place(A), Caller("test")),
        ]
        assert [await kind_of(request()) for request in requests] == ["owned_elsewhere"] * 6
        # Only what may make a store may make the directory for it.
        assert asked == [(DIR, make) for make in (True, False, True, False, False, False)]
        owned.append(True)
        await write(manager)
    assert catalog.opened == [(A, True, False)]


async def test_stores_of_a_directory_whose_lock_was_lost_are_closed_and_opened_anew():
    catalog, kept = MemoryCatalog(), [True]
    async with running(catalog, lambda directory, _make: kept[0] or directory != DIR) as manager:
        await asyncio.gather(write(manager), write(manager, path=B), write(manager, directory=OTHER_DIR))
        kept[0] = False
        await manager.list(DIR)
        kept[0] = True
        await eventually(lambda: [store.store for store in manager.stores()] == ["/elsewhere_home_u_a"])
        assert (await write(manager)).seq == 2
    opened = [path for path, _, _ in catalog.opened]
    # The first three open side by side, in any order.
    assert (sorted(opened[:3]), opened[3:]) == ([A, A, B], [A])


async def test_a_lock_lost_to_another_daemon_closes_the_stores_and_refuses_what_waits():
    catalog, lost = MemoryCatalog(SlowStore), []

    def take(_checkpoint_dir, _make):
        if lost:
            raise DomainError("owned_elsewhere", "another daemon")
        return True

    slow = catalog.keep(DIR, A)
    async with running(catalog, take) as manager:
        runs = write(manager)
        await eventually(slow.gate.reached.is_set)
        waits = write(manager)
        await eventually(lambda: manager.stores()[0].queued == 1)
        lost.append(True)
        assert await kind_of(manager.list(DIR)) == "owned_elsewhere"
        slow.gate.open()
        # What runs cannot be taken back; what waits must not begin.
        assert (await runs).seq == 1
        assert await kind_of(waits) == "owned_elsewhere"
        await eventually(lambda: manager.stores() == [])
    assert len(slow.saves) == 1


async def test_hanging_claim_holds_up_only_its_own_directory():
    catalog, gate = MemoryCatalog(), Gate()

    def take(checkpoint_dir, _make):
        if checkpoint_dir == OTHER_DIR:
            gate.wait()
        return True

    async with running(catalog, take) as manager:
        hanging = write(manager, directory=OTHER_DIR)
        await eventually(gate.reached.is_set)
        await write(manager)
        assert not hanging.done()
        gate.open()
        await hanging


async def test_a_list_comes_in_between_the_steps_of_a_look_at_all_stores():
    catalog = MemoryCatalog()
    catalog.measures_long = True
    async with running(catalog) as manager:
        looks = [asyncio.ensure_future(manager.usage(DIR, None, Caller("test"))) for _ in range(2)]
        await eventually(lambda: len(catalog.measuring) == 2 and catalog.measuring[1].steps > 2)
        for _ in range(5):
            assert (await manager.list(DIR)).workspaces == []
        assert not any(one.done() for one in looks)
        for run in catalog.measuring:
            run.enough.set()
        assert [(await one).stores for one in looks] == [[], []]


async def test_a_look_at_all_stores_that_is_called_off_ends():
    catalog, caller = MemoryCatalog(), Caller("test")
    catalog.measures_long = True
    async with running(catalog) as manager:
        look = asyncio.ensure_future(manager.usage(DIR, None, caller))
        await eventually(lambda: catalog.measuring and catalog.measuring[0].steps > 2)
        caller.call_off()
        assert await kind_of(look) == "cancelled"
        await eventually(lambda: catalog.measuring[0].closes == 1)


async def test_asking_for_ever_new_directories_does_not_gather_threads():
    async with running(MemoryCatalog()) as manager:
        for number in range(200):
            await manager.list(b"/data/%d" % number)
        alive = [thread for thread in threading.enumerate() if thread.name.startswith("ckptd-")]
        assert len(alive) < 60
        # One that was let go is served as before.
        await manager.list(b"/data/0")


async def test_without_threads_a_request_is_refused_and_a_later_one_is_done():
    catalog = MemoryCatalog()
    async with running(catalog) as manager:
        await manager.list(DIR)
        before = threading.stack_size(1 << 46)
        try:
            with pytest.raises(DomainError, match="no more threads"):
                await manager.write(DIR, place(A), save, Caller("test"), create=True)
        finally:
            threading.stack_size(before)
        assert (await manager.write(DIR, place(A), save, Caller("test"), create=True)).created


async def test_full_mailbox():
    catalog = MemoryCatalog(SlowStore)
    async with running(catalog, mailbox_limit=2) as manager:
        accepted = [write(manager)]
        gate = catalog.keep(DIR, A).gate
        await eventually(gate.reached.is_set)
        accepted += [write(manager), write(manager)]
        await eventually(lambda: manager.stores()[0].queued == 2)
        assert await kind_of(write(manager)) == "worktree_busy"
        gate.open()
        assert [(await each).seq for each in accepted] == [1, 2, 3]


async def test_longest_unused_store_is_closed_and_opens_again():
    catalog = MemoryCatalog()
    paths = [b"/w/%d" % number for number in range(4)]
    async with running(catalog, cache_size=2) as manager:
        for path in paths[:2]:
            await write(manager, path=path)
        await manager.read(DIR, place(paths[0]), head)
        await write(manager, path=paths[2])
        await eventually(lambda: [store.worktree for store in manager.stores()] == ["/w/0", "/w/2"])
        assert (await write(manager, path=paths[1])).seq == 2
        await eventually(lambda: [store.worktree for store in manager.stores()] == ["/w/1", "/w/2"])
    assert [flags[0] for flags in catalog.opened] == [b"/w/0", b"/w/1", b"/w/2", b"/w/1"]


async def test_requests_never_fail_for_a_store_that_is_being_closed():
    catalog = MemoryCatalog()
    async with running(catalog, cache_size=1) as manager:
        paths = [b"/w/%d" % (number % 5) for number in range(200)]
        await asyncio.gather(*(write(manager, path=path) for path in paths))
    assert sum(len(store.saves) for store in catalog.kept.values()) == 200


async def test_halt_is_remembered_when_the_store_is_closed():
    catalog = MemoryCatalog(lambda: FailsOnceStore(kind="worktree_missing"))
    async with running(catalog, cache_size=0) as manager:
        assert await kind_of(write(manager)) == "worktree_missing"
        await eventually(lambda: manager.stores() == [])
        assert manager.state_of(DIR, place(A)) == ("HALTED", "worktree_missing")
        assert await write(manager, lambda _writer: "restored") == "restored"
        await eventually(lambda: manager.stores() == [])
        assert manager.state_of(DIR, place(A)) == ("HALTED", "worktree_missing")
        await write(manager)
        await eventually(lambda: manager.state_of(DIR, place(A)) == ("CLOSED", None))


async def test_crashed_actor_is_replaced_by_the_next_request(caplog):
    catalog = MemoryCatalog(SlowStore)
    async with running(catalog) as manager:
        waiting = [write(manager), write(manager)]
        gate = catalog.keep(DIR, A).gate
        await eventually(gate.reached.is_set)
        manager._actors[DIR, A].post(OpDone(99))
        assert [await kind_of(each) for each in waiting] == ["internal", "internal"]
        again = write(manager)
        # A later request that has nothing to wait for is answered, so this one has had its turn.
        catalog.keep(DIR, B).gate.open()
        await write(manager, path=B)
        assert [path for path, _, _ in catalog.opened] == [A, B], "a second owner while the first still writes"
        gate.open()
        assert (await again).seq == 2
    assert [path for path, _, _ in catalog.opened] == [A, B, A]


async def test_forget_finishes_what_runs_then_deletes():
    catalog = MemoryCatalog(SlowStore)
    async with running(catalog) as manager:
        saving = write(manager)
        gate = catalog.keep(DIR, A).gate
        await eventually(gate.reached.is_set)
        forgetting = asyncio.ensure_future(manager.forget(DIR, place(A), Caller("test")))
        gate.open()
        assert (await saving).seq == 1
        forgotten = await forgetting
        assert (forgotten.store, forgotten.checkpoints) == ("/data_home_u_a", 1)
        assert await kind_of(manager.forget(DIR, place(A), Caller("test"))) == "not_tracked"
        assert manager.stores() == []


async def test_requests_during_a_deletion_are_answered_as_if_after_it():
    catalog = SlowDeleteCatalog()
    async with running(catalog) as manager:
        await asyncio.gather(write(manager), write(manager, path=B))
        forgetting = asyncio.ensure_future(manager.forget(DIR, place(A), Caller("test")))
        await eventually(catalog.gate.reached.is_set)
        reading = asyncio.ensure_future(manager.read(DIR, place(A), head))
        saving = write(manager)
        second = asyncio.ensure_future(manager.forget(DIR, place(A), Caller("test")))
        assert (await write(manager, path=B)).seq == 2
        assert not any(each.done() for each in (reading, saving, second, forgetting))
        catalog.gate.open()
        await forgetting
        assert (await saving).seq == 1
        # The read and the second deletion race with the save that makes a new store: either order is right.
        await asyncio.wait([reading, second])
        assert reading.exception() is None or reading.exception().kind in ("not_tracked", "no_checkpoint")
        assert second.exception() is None or second.exception().kind == "not_tracked"


async def test_vanished_client_does_not_let_others_into_a_deletion():
    catalog = SlowDeleteCatalog()
    async with running(catalog) as manager:
        await write(manager)
        forgetting = asyncio.ensure_future(manager.forget(DIR, place(A), Caller("test")))
        await eventually(catalog.gate.reached.is_set)
        forgetting.cancel()
        saving = write(manager)
        # A later request that has nothing to wait for is answered, so this one has had its turn.
        await write(manager, path=B)
        assert [path for path, _, _ in catalog.opened] == [A, B]
        catalog.gate.open()
        assert (await saving).seq == 1
    assert catalog.deleted == [b"/data_home_u_a"]


async def test_store_that_does_not_open_can_be_forgotten():
    catalog = FailsOnceCatalog()
    catalog.keep(DIR, A)
    async with running(catalog) as manager:
        assert (await manager.forget(DIR, place(A), Caller("test"))).store == "/data_home_u_a"


async def test_a_worktree_that_was_moved_is_adopted_by_the_first_request():
    catalog = MemoryCatalog()
    async with running(catalog) as manager:
        await write(manager)
        kept = catalog.keep(DIR, A)
        catalog.moved[B] = A
        # The store is still open under its old path.
        assert [one.worktree for one in manager.stores()] == ["/home/u/a"]
        heads = await asyncio.gather(*(manager.read(DIR, place(B), head) for _ in range(3)))
        assert len(set(heads)) == 1
        assert catalog.kept == {(DIR, B): kept}
        assert [one.worktree for one in manager.stores()] == ["/home/u/b"]


async def test_adopting_waits_for_what_runs_at_the_old_path():
    catalog = MemoryCatalog(SlowStore)
    async with running(catalog) as manager:
        saving = write(manager)
        gate = catalog.keep(DIR, A).gate
        await eventually(gate.reached.is_set)
        planned = await manager.adopt(DIR, place(B), A, Caller("test"), dry_run=True)
        assert (planned.dry_run, list(catalog.kept)) == (True, [(DIR, A)])
        adopting = asyncio.ensure_future(manager.adopt(DIR, place(B), A, Caller("test")))
        await eventually(lambda: manager.stores()[0].state == "CLOSING")
        assert not adopting.done()
        gate.open()
        await saving
        assert ((await adopting).old, list(catalog.kept)) == (to_wire(A), [(DIR, B)])


async def test_prune_deletes_the_dead_and_only_those():
    catalog = MemoryCatalog()
    async with running(catalog) as manager:
        await asyncio.gather(write(manager), write(manager, path=B))
        catalog.gone.add(A)
        planned = await manager.prune(DIR, Caller("test"), dry_run=True)
        assert (planned.dry_run, [entry.path for entry in planned.pruned]) == (True, ["/home/u/a"])
        assert catalog.deleted == []
        done = await manager.prune(DIR, Caller("test"), dry_run=False)
        assert (done.dry_run, done.pruned) == (False, planned.pruned)
        assert [store.worktree for store in manager.stores()] == ["/home/u/b"]
    assert catalog.deleted == [b"/data_home_u_a"]


async def test_prune_spares_a_worktree_that_came_back_meanwhile():
    catalog = MemoryCatalog(SlowStore)
    async with running(catalog) as manager:
        saving = write(manager)
        gate = catalog.keep(DIR, A).gate
        await eventually(gate.reached.is_set)
        catalog.gone.add(A)
        pruning = asyncio.ensure_future(manager.prune(DIR, Caller("test"), dry_run=False))
        await eventually(lambda: manager.stores()[0].state == "CLOSING")
        catalog.gone.clear()
        gate.open()
        await saving
        assert (await pruning).pruned == []
    assert catalog.deleted == []


async def test_prune_deletes_nothing_that_it_did_not_close_first():
    catalog = MemoryCatalog(SlowStore)
    async with running(catalog) as manager:
        await manager.open(DIR, place(B), force=False)
        saving = write(manager)
        gate = catalog.keep(DIR, A).gate
        await eventually(gate.reached.is_set)
        catalog.gone.add(A)
        pruning = asyncio.ensure_future(manager.prune(DIR, Caller("test"), dry_run=False))
        await eventually(lambda: manager.stores()[0].state == "CLOSING")
        catalog.gone.add(B)
        gate.open()
        await saving
        assert [entry.path for entry in (await pruning).pruned] == ["/home/u/a"]


@pytest.mark.parametrize("other", [b"/home/u/a/sub/deep", b"/home/u", A])
async def test_restores_that_overlap_take_turns_across_checkpoint_directories(other):
    catalog, gate, order = MemoryCatalog(), Gate(), []

    def first(_writer):
        gate.wait()
        order.append("first")

    async with running(catalog) as manager:
        one = write(manager, first, exclusive=True)
        await eventually(gate.reached.is_set)
        two = write(manager, lambda _writer: order.append("second"), path=other, directory=OTHER_DIR, exclusive=True)
        await eventually(lambda: manager.state_of(OTHER_DIR, place(other))[0] == "BUSY")
        # Neither unrelated restores nor ordinary work nor reads inside wait.
        await write(manager, path=b"/home/v", exclusive=True)
        await write(manager, path=other + b"/more")
        await manager.read(DIR, place(A), lambda _reader: None)
        assert order == []
        gate.open()
        await asyncio.gather(one, two)
    assert order == ["first", "second"]


async def test_many_restores_in_a_nest_of_worktrees_do_not_deadlock():
    catalog, inside, most = MemoryCatalog(), [], []
    paths = [b"/n", b"/n/a", b"/n/a/x", b"/n/b", b"/n/b/y", b"/m"]

    def restore(path):
        def job(_writer):
            inside.append(path + b"/")
            most.append([one for one in list(inside) if one.startswith(b"/n/")])
            inside.remove(path + b"/")

        return job

    async with running(catalog) as manager:
        await asyncio.gather(*(write(manager, restore(path), path=path, exclusive=True) for path in paths * 20))
    assert len(most) == 120
    for together in most:
        clashes = [(a, b) for a in together for b in together if a != b and a.startswith(b)]
        assert not clashes


async def test_drain_finishes_what_runs_and_refuses_the_rest():
    catalog = MemoryCatalog(SlowStore)
    async with running(catalog) as manager:
        running_one = write(manager)
        gate = catalog.keep(DIR, A).gate
        await eventually(gate.reached.is_set)
        queued = write(manager)
        await eventually(lambda: manager.stores()[0].queued == 1)
        draining = [asyncio.ensure_future(manager.drain()) for _ in range(2)]
        assert await kind_of(queued) == "stopping"
        late = [
            write(manager),
            write(manager, path=B),
            manager.list(DIR),
            manager.forget(DIR, place(A), Caller("test")),
        ]
        assert [await kind_of(each) for each in late] == ["stopping"] * 4
        assert not draining[0].done()
        assert [store.state for store in manager.stores()] == ["CLOSING"]
        gate.open()
        assert (await running_one).seq == 1
        await asyncio.gather(*draining)
    assert catalog.kept[DIR, A].closes == 2


async def test_drain_lets_a_deletion_end():
    catalog = SlowDeleteCatalog()
    async with running(catalog) as manager:
        await write(manager)
        forgetting = asyncio.ensure_future(manager.forget(DIR, place(A), Caller("test")))
        await eventually(catalog.gate.reached.is_set)
        saving = write(manager)

        async def deleted_when_drained():
            await manager.drain()
            return list(catalog.deleted)

        draining = asyncio.ensure_future(deleted_when_drained())
        # Draining has begun as soon as a new request is refused.
        await asyncio.sleep(0)
        assert await kind_of(write(manager, path=B)) == "stopping"
        catalog.gate.open()
        assert (await forgetting).store == to_wire(b"/data_home_u_a")
        assert await kind_of(saving) == "stopping"
        assert await draining == [b"/data_home_u_a"]


async def test_cancelled_manager_still_closes_every_store():
    catalog = MemoryCatalog(SlowStore)
    manager = Manager(catalog, claim)
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: manager.run(task_status=task_status))
        saving, queued = write(manager), write(manager)
        gate = catalog.keep(DIR, A).gate
        await eventually(gate.reached.is_set)
        tasks.cancel_scope.cancel()
        threading.Timer(0.05, gate.open).start()
    assert [await kind_of(saving), await kind_of(queued)] == ["stopping", "stopping"]
    assert len(catalog.kept[DIR, A].saves) == 1
    catalog.check()
    await manager.drain()


async def test_drain_before_run_ends_it_at_once():
    manager = Manager(MemoryCatalog(), claim)
    await manager.drain()
    await manager.run()
    assert await kind_of(write(manager)) == "stopping"


def anywhere(_checkpoint_dir, _make):
    return True


async def test_what_was_watched_goes_on_with_the_first_request_of_the_directory():
    catalog = MemoryCatalog()
    for path in (b"/w/watched", b"/w/other"):
        catalog.keep(DIR, path)
    catalog.kept[DIR, b"/w/watched"].options = SHORT._replace(on=True)
    async with running(catalog, anywhere) as manager:
        await manager.list(DIR)
        await eventually(lambda: catalog.kept[DIR, b"/w/watched"].saves)
        assert [from_wire(store.worktree) for store in manager.stores()] == [b"/w/watched"]
        assert (manager.watching, manager.stores()[0].watcher) == (True, "polling")
        found = await manager.watch(DIR, place(b"/w/watched"), Caller("test"), False)
        assert (found.watcher.state, manager.watching) == ("off", False)
        assert found.scans.full == len(catalog.kept[DIR, b"/w/watched"].saves)
        assert not catalog.kept[DIR, b"/w/watched"].options.on


async def test_turning_it_on_makes_the_store_and_twice_is_once():
    catalog = MemoryCatalog()
    async with running(catalog, anywhere) as manager:
        for _ in range(2):
            assert (await manager.watch(DIR, place(b"/w"), Caller("test"), True)).watcher.state != "off"
        assert manager.watching
        with pytest.raises(DomainError, match="not_tracked"):
            await manager.watch(DIR, place(b"/other"), Caller("test"), None)
        await manager.forget(DIR, place(b"/w"), Caller("test"))
        assert not manager.watching


async def test_watched_stores_stay_open_however_many_are_unused():
    catalog = MemoryCatalog()
    async with running(catalog, anywhere, cache_size=1) as manager:
        for path in (b"/w/1", b"/w/2", b"/w/3"):
            await manager.watch(DIR, place(path), Caller("test"), True)
        await write(manager, path=b"/w/4")
        await write(manager, path=b"/w/5")
        await eventually(lambda: len(manager.stores()) == 4)
        assert [from_wire(store.worktree) for store in manager.stores()][:3] == [b"/w/1", b"/w/2", b"/w/3"]


async def test_an_autosave_never_works_on_a_directory_that_is_another_by_now():
    catalog, kept = MemoryCatalog(), [True]

    def claim(_directory, _make):
        answer, kept[0] = kept[0], True
        return answer

    async with running(catalog, claim) as manager:
        await manager.watch(DIR, place(b"/w"), Caller("test"), True)
        await eventually(lambda: catalog.kept[DIR, b"/w"].saves)
        opened = len(catalog.opened)
        kept[0] = False
        # Looked for without a request: the store is closed, and the one that is there now is opened.
        await eventually(lambda: len(catalog.opened) > opened)
        await eventually(lambda: manager.watching)


async def test_an_autosave_ends_where_another_daemon_owns_the_directory():
    catalog, taken = MemoryCatalog(), []

    def claim(directory, _make):
        if taken:
            raise DomainError("owned_elsewhere", "by another")
        return True

    async with running(catalog, claim) as manager:
        await manager.watch(DIR, place(b"/w"), Caller("test"), True)
        await eventually(lambda: catalog.kept[DIR, b"/w"].saves)
        taken.append(True)
        await eventually(lambda: not manager.watching)
        await eventually(lambda: not manager.stores())
