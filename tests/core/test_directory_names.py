"""Names of checkpoint directories, as clients give them: links, turned links, and names that do not answer."""

import asyncio
import os

import pytest

from ckpt_protocol.structs import to_wire
from ckpt_protocol.worktree import StatusParams
from ckptd.core import desk, desks
from ckptd.core.ports import Caller
from support.faulty_stores import Gate, MemoryCatalog, NamesOnDeadMounts, SlowStore, place
from support.managed import DIR, OTHER_DIR, A, B, head, kind_of, running, write
from support.poll import eventually

pytestmark = pytest.mark.core

DEAD = b"/dead/mount"


def of_directory(catalog):
    return [directory for directory, _ in catalog.kept]


async def test_a_name_and_a_link_to_it_are_one_directory(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real, link = os.fsencode(tmp_path / "real"), os.fsencode(tmp_path / "link")
    catalog = MemoryCatalog()
    async with running(catalog) as manager:
        numbers = [(await write(manager, directory=name)).seq for name in (real, link, link + b"/../real/.")]
        assert numbers == [1, 2, 3]
        assert of_directory(catalog) == [real]
        assert await manager.real_path(link, Caller("test")) == real


async def test_a_request_by_the_own_name_goes_to_one_thread_once_before_its_turn():
    catalog, names, claims = MemoryCatalog(), NamesOnDeadMounts(), []
    async with running(catalog, lambda name, _make: claims.append(name) or True, real_path=names) as manager:
        await write(manager)
        names.asked.clear()
        claims.clear()
        await write(manager)
        assert names.asked == [(DIR, "ckptd-claim /data")]
        assert claims == [DIR]


async def test_a_turned_link_is_followed_by_the_next_request():
    catalog, names = MemoryCatalog(), NamesOnDeadMounts()
    async with running(catalog, real_path=names) as manager:
        for lead, seq in ((DIR, 1), (OTHER_DIR, 1), (DIR, 2)):
            names.leads[b"/link"] = lead
            assert (await write(manager, directory=b"/link")).seq == seq
            assert await manager.read(b"/link", place(A), head) == f"{seq:040x}"
            params = StatusParams(checkpoint_dir="/link", worktree=place(A))
            assert (await manager.status(params, Caller("test"))).state == "IDLE"
            watched = await manager.watch(b"/link", place(A), Caller("test"), None)
            assert (watched.checkpoint_dir, watched.state) == (lead, "IDLE")
    assert of_directory(catalog) == [DIR, OTHER_DIR]


async def test_what_works_under_a_name_ends_before_anything_begins_where_it_leads_now():
    """As after ``mv d e; ln -s e d``: the same stores have another name."""
    catalog, names, released = MemoryCatalog(SlowStore), NamesOnDeadMounts(), []
    gate = catalog.keep(DIR, A).gate

    def release(name):
        released.append((name, catalog.kept[DIR, A].closes))

    async with running(catalog, real_path=names, release=release) as manager:
        saving = write(manager)
        await eventually(gate.reached.is_set)
        names.leads[DIR] = OTHER_DIR
        catalog.keep(OTHER_DIR, A).gate.open()
        late = write(manager)
        await eventually(lambda: [store.state for store in manager.stores()] == ["CLOSING"])
        assert len(catalog.opened) == 1
        gate.open()
        assert ((await saving).seq, (await late).seq) == (1, 1)
        assert [store.store for store in manager.stores()] == ["/elsewhere_home_u_a"]
        assert released == [(DIR, 2)]
        # From now on it is a link like any other.
        await write(manager)
        assert len(released) == 1


async def test_what_was_begun_in_a_directory_is_not_gone_on_with_in_another():
    catalog, names = MemoryCatalog(SlowStore), NamesOnDeadMounts()
    gate = catalog.keep(DIR, A).gate
    catalog.keep(OTHER_DIR, A)
    async with running(catalog, real_path=names) as manager:
        saving = write(manager)
        await eventually(gate.reached.is_set)
        forgetting = asyncio.ensure_future(manager.forget(DIR, place(A), Caller("test")))
        await eventually(lambda: manager.stores()[0].queued == 1)
        names.leads[DIR] = OTHER_DIR
        gate.open()
        await saving
        assert await kind_of(forgetting) == "stopping"
    assert catalog.deleted == []


async def test_a_name_that_leads_elsewhere_each_time_is_refused():
    turned = []

    def real_path(_name):
        turned.append(None)
        return b"/turned/%d" % len(turned)

    async with running(MemoryCatalog(), real_path=real_path) as manager:
        assert await kind_of(write(manager)) == "bad_path"


async def test_others_are_served_while_a_name_does_not_answer():
    catalog, names = MemoryCatalog(), NamesOnDeadMounts(DEAD, b"/dead/link")
    names.leads[b"/dead/link"] = DIR
    async with running(catalog, real_path=names) as manager:
        stuck = [write(manager, directory=name) for name in (DEAD, b"/dead/link")]
        await eventually(lambda: all(gate.reached.is_set() for gate in names.dead.values()))
        # Also the directory that the link leads to.
        assert [(await write(manager)).seq, (await write(manager, path=B)).seq] == [1, 1]
        assert await manager.real_path(DIR, Caller("test")) == DIR
        assert not any(one.done() for one in stuck)
        names.revive()
        assert [(await one).seq for one in stuck] == [1, 2]


async def test_threads_that_hang_have_a_limit_and_known_directories_are_served(monkeypatch):
    monkeypatch.setattr(desks, "MAX_BUSY", 2)
    catalog, names = MemoryCatalog(), NamesOnDeadMounts(b"/dead/0", b"/dead/1")
    async with running(catalog, real_path=names) as manager:
        await write(manager)
        stuck = [write(manager, directory=name) for name in names.dead]
        await eventually(lambda: all(gate.reached.is_set() for gate in names.dead.values()))
        assert await kind_of(write(manager, directory=b"/third")) == "too_many_requests"
        assert (await write(manager)).seq == 2
        names.revive()
        await asyncio.gather(*stuck)
        assert (await write(manager, directory=b"/third")).seq == 1


async def test_so_many_wait_for_one_name_and_what_is_open_stays_open(monkeypatch):
    monkeypatch.setattr(desk, "MAX_WAITING", 4)
    catalog, names = MemoryCatalog(), NamesOnDeadMounts()
    async with running(catalog, real_path=names) as manager:
        await write(manager)
        names.dead[DIR] = Gate()
        stuck = [write(manager) for _ in range(4)]
        await eventually(names.dead[DIR].reached.is_set)
        assert await kind_of(write(manager)) == "too_many_requests"
        assert [store.state for store in manager.stores()] == ["IDLE"]
        names.revive()
        assert sorted([(await one).seq for one in stuck]) == [2, 3, 4, 5]
    assert len(catalog.opened) == 1


async def test_who_asks_for_what_takes_no_turn_can_be_called_off():
    names = NamesOnDeadMounts(DEAD)
    async with running(MemoryCatalog(), real_path=names) as manager:
        caller = Caller("test")
        asked = [
            asyncio.ensure_future(one)
            for one in (
                manager.prune(DEAD, caller, dry_run=True),
                manager.prune(DEAD, caller, dry_run=False),
                manager.forget(DEAD, place(A), caller),
                manager.adopt(DEAD, place(A), B, caller),
                manager.usage(DEAD, None, caller),
                manager.real_path(DEAD, caller),
            )
        ]
        await eventually(names.dead[DEAD].reached.is_set)
        caller.call_off()
        assert [await kind_of(one) for one in asked] == ["cancelled"] * len(asked)
        names.revive()


async def test_status_tells_how_the_actor_is():
    catalog = MemoryCatalog()
    async with running(catalog) as manager:
        params = StatusParams(checkpoint_dir=to_wire(DIR), worktree=place(A))
        assert await kind_of(manager.status(params, Caller("test"))) == "not_tracked"
        await manager.watch(DIR, place(A), Caller("test"), True)
        found = await manager.status(params, Caller("test"))
        assert found.state in ("IDLE", "DIRTY", "BUSY")
        assert (found.halted, found.watcher.state) == (None, "polling")
