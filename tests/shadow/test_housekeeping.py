"""What is done by itself, and when; and that it costs no more than it has to."""

import contextlib
import os
import time

import pytest

from ckpt_protocol.checkpoint import DropParams
from ckpt_protocol.store import GcParams, ThinParams
from ckptd.core.caller import Caller
from ckptd.shadow.objects import surveying
from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import format_checkpoint
from ckptd.shadow.record.message import Facts
from ckptd.shadow.record.thinning import Keep
from ckptd.shadow.store import cap
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.housekeeping import Chore, Situation, next_chore
from support.mapped import needs_maps, resident_bytes
from support.merged import wait_at_once
from support.worktrees import Desk, opened_files, to_the_end, verify

pytestmark = pytest.mark.core

MANY = 10_000


@pytest.mark.parametrize(
    ("situation", "chore"),
    [
        (Situation(loose_refs=0, packs=0), None),
        (Situation(loose_refs=1_000, packs=8, new=49, gone=199), None),
        (Situation(loose_refs=2_000, packs=90, new=50, model_due=True, is_strewn=True), Chore.REMEMBER),
        (Situation(loose_refs=2_000, packs=90, new=50, is_strewn=True), Chore.RELEASE),
        (Situation(loose_refs=1_001, packs=1), Chore.TIDY),
        (Situation(loose_refs=0, packs=9), Chore.MERGE),
        (Situation(loose_refs=0, packs=18, done_packs=10), None),
        (Situation(loose_refs=2_000, packs=40, done_packs=10), Chore.MERGE),
        (Situation(loose_refs=0, packs=1, loose_object_folders=17), Chore.TIDY),
        (Situation(loose_refs=2_000, packs=90, gone=200), Chore.COLLECT),
        (Situation(loose_refs=0, packs=1, gone=1, over_cap=True), Chore.COLLECT),
        (Situation(loose_refs=0, packs=1, gone=0, over_cap=True), None),
        (Situation(loose_refs=0, packs=1, over_cap=True, weighing_due=True), Chore.THIN),
        (Situation(loose_refs=0, packs=1, over_cap=True, wasteful=True), Chore.COLLECT),
        (Situation(loose_refs=0, packs=1, gone=1, over_cap=True, weighing_due=True, new=50), Chore.COLLECT),
        (Situation(loose_refs=2_000, packs=90, gone=200, new=50), Chore.THIN),
    ],
)
def test_what_comes_next(situation, chore):
    assert next_chore(situation) is chore


def tend(desk: Desk) -> int:
    times = 1
    while desk.writer.tend():
        times += 1
        time.sleep(0.005)
    return times


def test_few_packs_are_left_alone(desk):
    for number in range(5):
        desk.write(b"f", b"%d" % number)
        desk.save()
    assert tend(desk) == 1
    assert desk.repo.objects.pack_count == 5


def test_many_packs_become_one_without_losing_what_nothing_needs(desk):
    for number in range(30):
        desk.write(b"f", b"%d" % number)
        desk.save()
    writer = desk.repo.objects.writer()
    orphan = writer.add(b"blob", b"hashed by a save that was called off")
    writer.finish()
    model = desk.repo.model
    tend(desk)
    assert desk.repo.objects.pack_count == 1
    assert orphan in desk.repo.objects
    assert [desk.cat(f"#{number + 1}", b"f") for number in range(30)] == [b"%d" % number for number in range(30)]
    assert desk.repo.model.tree == model.tree
    verify(desk.folder)
    assert tend(desk) == 1
    assert not desk.repo.collecting


def model_file(desk: Desk) -> bytes:
    with open(os.path.join(desk.folder, b"ckpt", b"model"), "rb") as file:
        return file.read()


def test_the_model_is_written_when_nobody_waits(desk):
    desk.plant({b"d": {b"%d" % number: b"%d" % number for number in range(9)}})
    desk.settle()
    desk.save()
    first = model_file(desk)
    desk.write(b"d/3", b"changed")
    desk.save()
    assert (tend(desk), model_file(desk)) == (1, first)
    desk.clock.offset_s += 60
    assert tend(desk) > 1
    second = model_file(desk)
    assert second != first
    assert tend(desk) == 1
    # However long ago: no save waits for it, nor does the first one of another life.
    desk.reopen()
    third = model_file(desk)
    desk.clock.offset_s += 6_000
    desk.write(b"d/4", b"changed")
    desk.save()
    assert model_file(desk) == third
    tend(desk)
    assert model_file(desk) != third


def test_what_a_daemon_that_was_killed_had_not_written_down_is_read_again_and_nothing_else(desk):
    desk.plant({b"d": {b"%d" % number: b"%d" % number for number in range(30)}})
    desk.settle()
    desk.save()
    left = model_file(desk)
    for number in range(5):
        desk.write(b"d/%d" % number, b"changed")
        desk.settle()
        desk.save()
    desk.close()
    with open(os.path.join(desk.folder, b"ckpt", b"model"), "wb") as file:
        file.write(left)
    result = desk.save()
    assert (result.created, result.stats.files_opened) == (False, 5)
    assert desk.save().stats.files_opened == 0


def test_saves_among_many_leave_large_packs_alone(desk, monkeypatch):
    wait_at_once(monkeypatch)
    desk.write(b"large", os.urandom(300_000))
    large = desk.save().id
    before = packs(desk)
    for number in range(60):
        desk.write(b"f", b"%d" % number)
        desk.save()
    assert before < packs(desk)
    assert desk.repo.objects.pack_count < 40
    assert desk.cat(large, b"large") == desk.cat("#61", b"large")
    verify(desk.folder)


def packs(desk: Desk) -> set[str]:
    return {name for name in os.listdir(os.path.join(os.fsdecode(desk.folder), "objects/pack")) if ".pack" in name}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="nobody tells what is open")
def test_nobody_holds_open_what_is_gone(desk):
    """A file that is open takes its space, and what libgit2 has mapped is memory, whether or not it has a name."""
    for number in range(30):
        desk.write(b"f", b"%d" % number)
        desk.save()
        desk.cat("HEAD", b"f")
    index = desk.reader._objects
    index._header_by_libgit2(bytes.fromhex(desk.head()))
    tend(desk)
    assert gone_but_open(desk.folder)
    desk.reader.let_go()
    assert gone_but_open(desk.folder) == []
    assert desk.cat("#1", b"f") == b"0"


@needs_maps
def test_in_idle_time_large_indexes_take_no_memory(desk):
    writer = desk.repo.objects.writer()
    oids = [writer.add(b"blob", b"%d" % number) for number in range(12_000)]
    name = writer.finish()
    desk.write(b"f", b"1")
    desk.save()
    index = os.path.join(desk.folder, b"objects", b"pack", name + b".idx")
    assert all(oid in desk.repo.objects for oid in oids)
    assert resident_bytes(index) > 12_000 * 20
    desk.repo.is_strewn = True
    tend(desk)
    assert resident_bytes(index) == 0
    desk.reader._objects.refresh()
    assert all(oid in desk.reader._objects for oid in oids)
    assert resident_bytes(index) > 12_000 * 20
    desk.reader.let_go()
    assert resident_bytes(index) == 0


def gone_but_open(folder: bytes) -> list[bytes]:
    found = []
    for name in os.listdir(b"/proc/self/fd"):
        try:
            found.append(os.readlink(b"/proc/self/fd/" + name))
        except FileNotFoundError:
            continue
    with open("/proc/self/maps", "rb") as file:
        found += [line.split(b" ", 5)[-1].strip() for line in file]
    return [path for path in found if path.startswith(folder) and path.endswith(b"(deleted)")]


def test_a_store_above_its_cap_that_only_a_person_can_make_smaller_says_so(desk):
    desk.configure(keep=Keep(max_bytes=4096))
    desk.write(b"f", os.urandom(3000))
    desk.save()
    tend(desk)
    assert (desk.save().notes, desk.status().notes) == ([], [])
    desk.write(b"f", os.urandom(3000))
    # Nothing is weighed while somebody waits; an idle moment later it is known.
    desk.save()
    tend(desk)
    for notes in (desk.save().notes, desk.status().notes, desk.status().notes):
        assert [("max_store_bytes (4096)" in note, "ckpt drop" in note) for note in notes] == [(True, True)]
    assert [one.seq for one in desk.list().checkpoints] == [2, 1]
    desk.reopen()
    assert desk.status().notes == []
    tend(desk)
    assert len(desk.status().notes) == 1
    desk.writer.drop(DropParams(**desk.common(), token=desk.token(), ids=["#1"]), Caller("test"))
    tend(desk)
    assert (desk.save().notes, desk.status().notes) == ([], [])


def test_automatic_ones_go_first_and_then_nothing_is_said(desk):
    desk.configure(keep=Keep(max_bytes=4096))
    for number in range(3):
        desk.write(b"f", os.urandom(1500))
        desk.save(kind="auto" if number == 1 else "manual")
    tend(desk)
    assert [one.seq for one in desk.list().checkpoints] == [3, 1]
    assert desk.status().notes == []


def test_a_store_above_its_cap_is_not_weighed_again_and_again(desk):
    desk.configure(keep=Keep(max_bytes=1))
    desk.write(b"f", b"1")
    desk.save()
    tend(desk)
    assert not desk.repo.cap.is_weighing_due()
    assert tend(desk) == 1


def test_what_cannot_be_merged_is_not_tried_again_and_again(desk):
    for number in range(30):
        desk.write(b"f", b"%d" % number)
        desk.save()
    folder = desk.folder + b"/objects/pack/"
    for name in os.listdir(folder):
        if name.endswith(b".pack"):
            open(folder + name[:-5] + b".keep", "w").close()
    kept = packs(desk)
    tend(desk)
    assert packs(desk) == kept
    assert tend(desk) == 1


def test_a_store_that_is_closed_meanwhile_is_whole(desk):
    for number in range(30):
        desk.write(b"f", b"%d" % number)
        desk.save()
    assert desk.writer.tend() in (True, False)
    desk.reopen()
    assert len(desk.list(limit=100).checkpoints) == 30
    assert not [name for name in os.listdir(desk.folder + b"/objects/pack") if name.startswith(b"tmp_")]


def make(desk: Desk, number: int) -> dict[int, str]:
    """Make as many checkpoints with one tree, in one pack, and give their ids; nothing refers to them yet."""
    desk.write(b"f", b"1")
    tree = desk.tree_of(desk.save().id)
    writer = ObjectStore(desk.folder).writer()
    ids = {}
    for seq in range(2, number + 1):
        text = format_checkpoint(bytes.fromhex(tree), seq, f"number {seq}", Facts(seq=seq, kind="manual"))
        ids[seq] = writer.add(b"commit", text).hex()
    writer.finish()
    desk.close()
    return ids


def test_many_loose_refs_go_into_one_file(desk):
    for seq, one in make(desk, 1_100).items():
        with open(os.path.join(desk.folder, b"refs/checkpoints", b"%010d" % seq), "w") as file:
            file.write(one + "\n")
    before = Refs(desk.folder).checkpoints()
    tend(desk)
    assert os.listdir(os.path.join(desk.folder, b"refs/checkpoints")) == []
    assert Refs(desk.folder).checkpoints() == before
    assert len(before) == 1_100
    assert desk.git("for-each-ref", "--format=x", "refs/checkpoints").count(b"x") == 1_100
    assert desk.list(limit=1).checkpoints[0].seq == 1_100


def test_ten_thousand_checkpoints_are_nothing(desk):
    large = desk
    lines = [f"{one} refs/checkpoints/{seq:010}\n" for seq, one in make(desk, MANY).items()]
    with open(os.path.join(desk.folder, b"packed-refs"), "w") as file:
        file.writelines(["# pack-refs with: peeled fully-peeled sorted \n", *lines])
    with opened_files() as opened:
        large.open(create=False)
        page = large.list(limit=50)
    inside = [path for path in opened if path.startswith(large.folder)]
    assert len(inside) < 40, inside
    assert [one.seq for one in page.checkpoints] == list(range(MANY, MANY - 50, -1))
    assert page.more
    loaded = large.reader._lookup._cache
    assert len(loaded) == 50
    older = large.list(limit=50, before_seq=page.checkpoints[-1].seq)
    assert older.checkpoints[0].seq == MANY - 50
    assert len(loaded) == 100
    last = large.list(limit=50, before_seq=51)
    assert (len(last.checkpoints), last.more) == (50, False)
    large.write(b"f", b"2")
    with opened_files() as opened:
        assert large.save().seq == MANY + 1
    assert len([path for path in opened if path.startswith(large.folder)]) < 40
    assert large.git("for-each-ref", "--format=x", "refs/checkpoints").count(b"x") == MANY + 1


def test_automatic_checkpoints_are_thinned_by_themselves_and_their_space_comes_back(desk):
    desk.configure(keep=Keep(5, 0, 0, 0))
    for number in range(230):
        desk.write(b"f", b"%d\n" % number * 20)
        desk.save(kind="auto" if number else "manual")
    before = desk.repo.objects.packed_bytes()
    tend(desk)
    assert sorted(one.seq for one in desk.list(limit=500).checkpoints) == [1, 226, 227, 228, 229, 230]
    assert desk.repo.gone == 0
    assert desk.repo.objects.packed_bytes() * 5 < before
    assert desk.repo.objects.pack_count == 1
    assert tend(desk) == 1
    with opened_files() as opened:
        desk.settle()
        assert not desk.save(kind="auto").created
    assert not [path for path in opened if path.endswith(b"/f") and path.startswith(desk.root)]
    verify(desk.folder)


def test_saves_that_come_while_it_collects_leave_few_packs(desk, monkeypatch):
    wait_at_once(monkeypatch)
    desk.configure(keep=Keep(5, 0, 0, 0))
    for number in range(215):
        desk.write(b"f", b"%d\n" % number * 20)
        desk.save(kind="auto" if number else "manual")
    while not desk.repo.collecting:
        assert desk.writer.tend(lambda: True)
    # It goes on by a piece after each ten saves, wherever that comes: what both do to packs must not meet.
    for number in range(150):
        desk.write(b"g", b"%d\n" % number)
        desk.save()
        if not number % 10:
            desk.writer.tend(lambda: True)
        assert desk.repo.objects.pack_count < 80
    assert desk.repo.collecting
    tend(desk)
    assert not desk.repo.collecting
    newest = desk.list(limit=1).checkpoints[0].seq
    assert [desk.cat(f"#{newest - back}", b"g") for back in (0, 50, 149)] == [b"149\n", b"99\n", b"0\n"]
    assert desk.cat("#1", b"f") == b"0\n" * 20
    verify(desk.folder)


def test_what_a_save_that_came_to_nothing_has_hashed_stays_for_the_next_one(desk):
    desk.configure(keep=Keep(0, 0, 0, 0))
    desk.settle()
    for number in range(210):
        desk.write(b"f", b"%d\n" % number)
        desk.save(kind="auto")
    desk.write(b"new", b"hashed, and in no checkpoint\n")
    writer = desk.repo.objects.writer()
    scan = desk.repo.scan(writer)
    desk.repo.seal(writer)
    desk.repo.adopt(scan.root)
    tend(desk)
    assert len(desk.list(limit=500).checkpoints) == 1
    with opened_files() as opened:
        desk.save()
    assert not [path for path in opened if path.endswith(b"/new")]
    verify(desk.folder)


def test_over_the_cap_more_goes_and_at_once(desk):
    desk.configure(keep=Keep(max_bytes=20_000))
    for _ in range(55):
        desk.write(b"f", os.urandom(1_000))
        desk.save(kind="auto")
    tend(desk)
    assert desk.repo.objects.packed_bytes() < 25_000
    assert len(desk.list(limit=500).checkpoints) < 20
    verify(desk.folder)


def test_a_store_stays_near_its_cap_however_large_it_was_once(desk):
    cap = 40_000
    for _ in range(60):
        desk.write(b"f", os.urandom(4_000))
        desk.save(kind="auto")
    desk.configure(keep=Keep(max_bytes=cap))
    desk.save()
    tend(desk)
    assert desk.repo.objects.packed_bytes() < cap * 17 / 16
    for _ in range(12):
        desk.write(b"f", os.urandom(1_000))
        desk.save(kind="auto")
        tend(desk)
        assert desk.repo.objects.packed_bytes() < cap * 17 / 16


def test_what_was_removed_in_an_earlier_life_is_collected_over_the_cap(desk):
    """A daemon that was killed between the two knows of no removal: it sees what the store needs, and what it takes."""
    desk.configure(keep=Keep(last=5, hourly=0, daily=0, weekly=0, max_bytes=40_000))
    for _ in range(55):
        desk.write(b"f", os.urandom(1_000))
        desk.save(kind="auto")
    to_the_end(desk.writer.thin(ThinParams(**desk.common(), token=desk.token()), Caller("test")))
    desk.reopen()
    assert (desk.repo.gone, desk.repo.cap.is_over()) == (0, True)
    tend(desk)
    assert desk.repo.objects.packed_bytes() < 15_000
    assert tend(desk) == 1
    verify(desk.folder)


def test_a_collection_that_may_remove_nothing_is_no_loop(desk):
    desk.damaged = True
    desk.configure(keep=Keep(last=5, hourly=0, daily=0, weekly=0))
    for number in range(210):
        desk.write(b"f", b"%d" % number)
        desk.save(kind="auto")
    to_the_end(desk.writer.thin(ThinParams(**desk.common(), token=desk.token()), Caller("test")))
    with open(desk.folder + b"/refs/checkpoints/0000000001", "w") as file:
        file.write("no id at all\n")
    assert tend(desk) > 1
    assert desk.repo.gone > 200
    assert tend(desk) == 1


def test_damage_stops_it_and_is_no_loop(desk):
    desk.damaged = True
    desk.configure(keep=Keep(max_bytes=1))
    for number in range(55):
        desk.write(b"f", b"%d" % number)
        desk.save(kind="auto")
    tree = bytes.fromhex(desk.tree_of(desk.list(limit=60).checkpoints[-1].id))
    # Nothing has been read of it that is about to be merged.
    desk.reopen()
    desk.list()
    for index in [one for one in desk.repo.objects._indexes.values() if one.find(tree) is not None]:
        os.chmod(index.pack_path, 0o600)
        with open(index.pack_path, "r+b") as file:
            file.seek(index.find(tree) + 4)
            file.write(b"\xff\xff")
    tend(desk)
    assert len(desk.list(limit=60).checkpoints) == 55
    assert tend(desk) < 50


def disk_bytes(desk: Desk) -> int:
    """What all packs take, also those in the making."""
    total = 0
    for folder in (b"objects/pack", b"ckpt/deltas/pack"):
        place = os.path.join(desk.folder, folder)
        for name in os.listdir(place) if os.path.isdir(place) else []:
            with contextlib.suppress(FileNotFoundError):
                total += os.path.getsize(os.path.join(place, name)) if name.endswith(b".pack") else 0
    return total


CAP, FILE = 1_600_000, 40_000
SLICE = CAP // 16


@pytest.fixture
def capped(desk, monkeypatch):
    """A desk whose store may take 1.6 MB, of which a sixteenth is copied at once; ``peak()`` is the most it took."""
    monkeypatch.setattr(cap, "_LEAST_BYTES", 1)
    # What saves merge by the way is at most 8 MiB, which would be much of so small a store.
    monkeypatch.setattr(surveying, "_ALIKE_UP_TO_BYTES", (0, 0))
    desk.configure(keep=Keep(max_bytes=CAP))
    desk.save()
    sizes = [0]
    end = listen(lambda _name, _path: sizes.append(disk_bytes(desk)))
    desk.peak = lambda: max(sizes)
    yield desk
    end()


def edit(desk: Desk, number: int) -> None:
    """Change one of four large files, and one that stays long beside them."""
    desk.write(b"large%d" % (number % 4), os.urandom(FILE))
    desk.write(b"d%d/own" % number, os.urandom(300))


@pytest.mark.parametrize(("units", "most"), [(1000, CAP + CAP // 16 + SLICE + 2 * FILE), (64, CAP * 7 // 4)])
def test_a_store_stays_near_its_cap_while_edits_never_stop(capped, units, most):
    """After each save it is looked after for so many units of work and no longer, as where nobody ever rests.

    Where that is enough, a sixteenth comes until it is weighed, a slice stands beside what it replaces, and some is
    saved meanwhile. Where it is little, more is saved meanwhile, and there is an end to that as well.
    """
    for number in range(100):
        edit(capped, number)
        capped.save(kind="auto")
        for _ in range(units):
            if not capped.repo.pressure:
                break
            capped.writer.tend(at_most_s=0.0)
    assert len(capped.list(limit=500).checkpoints) > 20
    assert capped.peak() < most
    verify(capped.folder)


def test_without_it_the_store_grows(capped):
    """So that the test above is one."""
    for number in range(60):
        edit(capped, number)
        capped.save(kind="auto")
    assert capped.peak() > CAP * 5 // 4
    # The further above it is the more.
    assert 1.0 < capped.repo.pressure <= 4.0


def test_what_may_not_go_is_no_reason_to_press(capped):
    for number in range(50):
        edit(capped, number)
        capped.save()
    assert capped.repo.pressure
    tend(capped)
    assert not capped.repo.pressure
    edit(capped, 51)
    capped.save()
    # It has grown by less than a sixteenth since it was weighed.
    assert not capped.repo.pressure
    assert len(capped.list(limit=500).checkpoints) == 52


def test_what_a_killed_process_has_left_twice_goes_where_space_is_short(desk, monkeypatch):
    monkeypatch.setattr(surveying, "SMALL_BYTES", 1000)
    desk.configure(keep=Keep(max_bytes=60_000))
    files = [b"f%d" % number for number in range(40)]
    for path in files:
        desk.write(path, os.urandom(1000))
    desk.save()
    desk.store_again(files)
    desk.write(b"more", b"1")
    desk.save()
    assert desk.repo.objects.packed_bytes() > 80_000
    tend(desk)
    assert desk.repo.objects.packed_bytes() < 50_000
    verify(desk.folder)


def test_packs_are_made_new_in_slices(capped):
    """However much there is to copy: what stands beside what it replaces is a slice."""
    for number in range(30):
        # Of each pack one half will go.
        for what in (b"large", b"d%d/lasting" % number):
            capped.write(what, os.urandom(FILE))
        capped.save(kind="auto")
    before = disk_bytes(capped)
    thin = ThinParams(**capped.common(), token=capped.token())
    assert len(to_the_end(capped.writer.thin(thin, Caller("test"))).dropped) > 15
    tend(capped)
    assert disk_bytes(capped) < CAP < before - 5 * SLICE
    assert capped.peak() < before + SLICE + FILE
    verify(capped.folder)


def test_it_is_weighed_between_saves_and_drops(capped):
    """What has come or gone while a history is weighed counts all the same."""
    for number in range(60):
        edit(capped, number)
        capped.save(kind="auto")
    steps = capped.writer._thinner.thinning(capped.token(), Asker.of_the_daemon(), by_cap=True)
    for number, _ in enumerate(steps):
        if number % 20 == 10:
            edit(capped, 100 + number)
            capped.save(kind="auto")
        if number == 70:
            drop = DropParams(**capped.common(), token=capped.token(), ids=["#3", "#4", "#5"])
            capped.writer.drop(drop, Caller("test"))
    left = [one.seq for one in capped.list(limit=500).checkpoints]
    # The newest of those that came meanwhile is there, and as many old ones as have room.
    assert left[0] == capped.repo.next_seq - 1
    assert left == list(range(left[0], left[-1] - 1, -1)) or 1 in left
    run = capped.writer.gc(GcParams(**capped.common(), token=capped.token()), Caller("test"))
    while (result := run.step()) is None:
        continue
    assert CAP * 3 // 4 < capped.repo.objects.packed_bytes() <= CAP
    assert not result.all_kept
    verify(capped.folder)


def test_a_pack_that_is_lost_before_others_are_made_new_leaves_the_model(desk):
    desk.damaged = True
    desk.settle()
    for number in range(30):
        desk.write(b"f%d" % number, b"%d" % number)
        desk.save()
    found = next(one for one in desk.repo.objects._indexes.values() if one.find(hash_object(b"blob", b"7")) is not None)
    os.unlink(found.path)
    os.unlink(found.pack_path)
    tend(desk)
    saved = desk.save("heals it")
    assert desk.cat(saved.id, b"f7") == b"7"
