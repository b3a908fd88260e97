"""A collection removes what nothing needs, and nothing else, whenever it dies and whoever else is at work."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Collection
from functools import partial

import pytest

from ckpt_protocol.checkpoint import DropParams
from ckpt_protocol.store import GcParams, GcResult
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects import surveying
from ckptd.shadow.objects.deltas import WORTH_BYTES, Candidates, delta_candidates
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.objects.pieces import drained
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.objects.surveying import PackFacts, slices
from ckptd.shadow.objects.users import can_tell
from support.cli_run import ROOT
from support.worktrees import Desk, in_child, run_git, verify

pytestmark = pytest.mark.core

SECRET = b"the key is 7f3a-9b1c\n"


def begin(desk: Desk, caller: Caller | None = None, **fields):
    params = GcParams(**desk.common(), token=desk.token(), **fields)
    return desk.writer.gc(params, caller or Caller("test"))


def finish(run) -> GcResult:
    while (result := run.step()) is None:
        if run.is_waiting:
            time.sleep(0.01)
    return result


def gc(desk: Desk, **fields) -> GcResult:
    return finish(begin(desk, **fields))


def drop(desk: Desk, *ids: str) -> None:
    desk.writer.drop(DropParams(**desk.common(), token=desk.token(), ids=list(ids), force=True), Caller("test"))


def pack_folder(desk: Desk) -> bytes:
    return os.path.join(desk.folder, b"objects", b"pack")


def packs(desk: Desk) -> list[bytes]:
    return sorted(name for name in os.listdir(pack_folder(desk)) if name.endswith(b".pack"))


def contents(desk: Desk) -> set[bytes]:
    """All objects that git can give, inflated, whether or not anything refers to them."""
    listed = run_git(b"--git-dir=" + desk.folder, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return {run_git(b"--git-dir=" + desk.folder, "cat-file", "-p", oid) for oid in listed.split()}


def begins_stream(data: bytes, at: int) -> bool:
    """Tell whether two bytes may be the head of a zlib stream (RFC 1950)."""
    return data[at] & 0x8F == 8 and (data[at] << 8 | data[at + 1]) % 31 == 0


def raw_files(desk: Desk) -> bytes:
    """Every byte of the store, with whatever of it can be inflated."""
    pieces = []
    for path, _, names in os.walk(desk.folder):
        for name in names:
            with open(os.path.join(path, name), "rb") as file:
                data = file.read()
            pieces.append(data)
            for at in filter(partial(begins_stream, data), range(len(data) - 1)):
                with contextlib.suppress(zlib.error):
                    pieces.append(zlib.decompressobj().decompress(data[at:]))
    return b"".join(pieces)


@pytest.fixture
def history(desk: Desk) -> Desk:
    """Twelve checkpoints; a secret is in the fifth and sixth."""
    desk.settle()
    for number in range(1, 13):
        desk.write(b"file", b"content %d\n" % number * 50)
        desk.write(b"dir/sub/own%d" % number, b"own %d\n" % number)
        if number == 5:
            desk.write(b".env", SECRET)
        if number == 7:
            desk.remove(b".env")
        desk.save(f"number {number}")
    return desk


def everything(desk: Desk) -> dict[int, dict[bytes, bytes]]:
    """The content of each checkpoint."""
    found = {}
    for one in desk.list(limit=1000).checkpoints:
        files = [path for path, (mode, _) in desk.paths_of(one.id).items() if mode != b"040000"]
        found[one.seq] = {path: desk.cat(one.id, path) for path in files}
    return found


def test_many_packs_become_one_and_nothing_is_lost(history):
    before = everything(history)
    assert len(packs(history)) == 12
    result = gc(history)
    assert (result.packs_before, result.packs_after, result.objects_removed) == (12, 1, 0)
    assert result.bytes_after < result.bytes_before
    assert not result.all_kept
    assert result.notes == []
    assert len(packs(history)) == 1
    assert everything(history) == before
    verify(history.folder)
    history.reopen()
    assert everything(history) == before
    assert history.save().created is False


def test_a_secret_is_gone_for_good(history):
    assert SECRET in raw_files(history)
    drop(history, "#5", "#6")
    kept = everything(history)
    planned = gc(history, dry_run=True)
    assert planned.objects_removed > 0
    assert SECRET in raw_files(history)
    result = gc(history)
    assert result.objects_removed == planned.objects_removed
    assert not any(SECRET in one for one in contents(history))
    assert SECRET not in raw_files(history)
    assert everything(history) == kept
    assert gc(history).objects_removed == 0


def test_a_secret_that_is_still_on_disk_leaves_the_model_with_its_object(history):
    history.write(b".env", SECRET)
    history.save("with the secret again")
    drop(history, "#5", "#6", "#13")
    gc(history)
    assert SECRET not in raw_files(history)
    history.settle()
    saved = history.save("and again")
    assert history.cat(saved.id, b".env") == SECRET
    verify(history.folder)


def test_a_dry_run_changes_nothing(history):
    drop(history, "#5", "#6")

    def look() -> dict[bytes, int]:
        return {
            os.path.join(path, name): os.lstat(os.path.join(path, name)).st_mtime_ns
            for path, _, names in os.walk(history.folder)
            for name in names
        }

    before = look()
    assert gc(history, dry_run=True).dry_run
    assert look() == before


def test_tags_safety_checkpoints_infos_and_other_refs_keep_what_they_need(history):
    history.write(b"edited", b"before the reset\n", perm=0o600)
    safety = history.reset("#3").safety
    foreign = history.git("hash-object", "-w", "--stdin", data=b"somebody else's\n").decode().strip()
    history.git(
        "update-ref", "refs/heads/mine", history.git("commit-tree", history.tree_of(history.head()), data=b"m").strip()
    )
    history.git("tag", "-a", "-m", "annotated", "noted", foreign)
    dangling = history.git("hash-object", "-w", "--stdin", data=b"nobody's\n").decode().strip()
    kept = everything(history)
    result = gc(history)
    assert result.objects_removed == 1
    assert everything(history) == kept
    assert history.git("cat-file", "-p", foreign) == b"somebody else's\n"
    assert subprocess.run(["git", b"--git-dir=" + history.folder, "cat-file", "-e", dangling], check=False).returncode
    history.undo()
    assert history.cat(safety, b"edited") == b"before the reset\n"
    verify(history.folder)


GIT = {
    "gc": ["gc", "--quiet"],
    "prune now": ["gc", "--prune=now", "--quiet"],
    "repack": ["repack", "-adq"],
    "small deltas": ["repack", "-dq", "--depth=50", "--window=50"],
    "cruft": ["repack", "--cruft", "-dq"],
    "maintenance": ["maintenance", "run", "--task=gc", "--task=commit-graph", "--task=incremental-repack"],
    "pack-refs": ["pack-refs", "--all"],
    "multi": ["multi-pack-index", "write"],
    "bitmaps": ["repack", "-adbq", "--write-midx"],
    "graph": ["commit-graph", "write", "--reachable"],
    "unpacked": None,
}


@pytest.mark.parametrize("what", GIT)
def test_what_git_did_to_a_store_is_merged_safely(history, what):
    drop(history, "#5", "#6")
    kept = everything(history)
    history.close()
    if what == "unpacked":
        elsewhere = os.path.join(history.base, b"packs")
        os.rename(pack_folder(history), elsewhere)
        os.mkdir(pack_folder(history))
        for name in os.listdir(elsewhere):
            if name.endswith(b".pack"):
                with open(os.path.join(elsewhere, name), "rb") as file:
                    history.git("unpack-objects", "-q", data=file.read())
        shutil.rmtree(elsewhere)
    else:
        history.git(*GIT[what])
    assert everything(history) == kept
    history.write(b"after", b"git was here\n")
    history.save("after git")
    kept = everything(history)
    result = gc(history)
    assert result.notes == []
    assert everything(history) == kept
    assert SECRET not in raw_files(history)
    assert len(packs(history)) == 1
    names = os.listdir(pack_folder(history)) + os.listdir(os.path.join(history.folder, b"objects", b"info"))
    assert [name for name in names if b"multi" in name or b"graph" in name or name.endswith(b".bitmap")] == []
    assert [name for name in os.listdir(os.path.join(history.folder, b"objects")) if len(name) == 2] == []
    history.reopen()
    assert everything(history) == kept


def test_a_delta_whose_base_is_not_needed_is_made_whole(desk):
    desk.settle()
    lines = b"".join(b"line %d of many\n" % number for number in range(400))
    desk.write(b"f", lines + SECRET)
    desk.save("with")
    desk.write(b"f", lines)
    desk.save("without")
    desk.close()
    desk.git("repack", "-adq", "--depth=50", "--window=50")
    desk.open(create=False)
    drop(desk, "#1")
    gc(desk)
    assert SECRET not in raw_files(desk)
    assert not any(SECRET in one for one in contents(desk))
    assert desk.cat("#2", b"f") == lines
    verify(desk.folder)


def test_deltas_that_stay_are_copied_as_deltas(desk):
    desk.settle()
    lines = b"".join(b"line %d %d\n" % (number, number**7) for number in range(4000))
    for number in range(6):
        desk.write(b"f", lines + b"%d" % number)
        desk.write(b"g%d" % number, b"own %d" % number)
        desk.save()
    desk.close()
    desk.git("repack", "-adq", "--depth=50", "--window=50")
    size = sum(os.path.getsize(os.path.join(pack_folder(desk), name)) for name in packs(desk))
    desk.open(create=False)
    drop(desk, "#6")
    desk.write(b"new", b"one more pack\n")
    desk.save()
    kept = everything(desk)
    assert gc(desk).objects_removed > 0
    assert len(packs(desk)) == 1
    assert everything(desk) == kept
    assert sum(os.path.getsize(os.path.join(pack_folder(desk), name)) for name in packs(desk)) < size * 4
    verify(desk.folder)


def test_old_history_gets_deltas_in_a_process_of_its_own(desk):
    desk.settle()
    lines = b"".join(b"line %d %d\n" % (number, number**9) for number in range(6000))
    for number in range(30):
        desk.write(b"f", lines + b"%d" % number)
        desk.write(b"link%d" % number, b"own %d" % number, perm=0o600)
        desk.save()
    kept = everything(desk)
    result = gc(desk)
    assert result.notes == []
    assert result.bytes_after * 5 < result.bytes_before
    assert len(packs(desk)) == 1
    assert everything(desk) == kept
    assert os.listdir(os.path.join(desk.folder, b"ckpt")).count(b"deltas") == 0
    verify(desk.folder)
    desk.write(b"f", b"new")
    desk.save()
    assert gc(desk).packs_after == 1
    desk.reopen()
    assert everything(desk).items() >= kept.items()


def test_the_process_for_deltas_ends_with_its_input(tmp_path):
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "from ckptd.shadow.objects.deltachild import end_with_input\n"
        "end_with_input()\nprint('ready', flush=True)\nwhile True: pass\n"
    )
    child = subprocess.Popen([sys.executable, "-I", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"ready\n"
        child.stdin.close()
        assert child.wait(30) == -signal.SIGIO
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_deltas_are_made_wherever_the_code_was_found_from(tmp_path):
    """Also where the daemon was started with paths that are relative to its directory: the process has another."""
    folder = os.fsencode(tmp_path) + b"/store.git"
    run_git("init", "-q", "--bare", folder)
    code = (
        "import sys, time; sys.path[:0] = ['protocol', 'daemon']\n"
        "from contextlib import nullcontext\n"
        "from ckptd.shadow.objects.deltas import Candidates, DeltaRun\n"
        "from ckptd.shadow.objects.pieces import drained\n"
        "from ckptd.shadow.objects.store import ObjectStore\n"
        f"store = ObjectStore({folder!r}); writer = store.writer()\n"
        "oids = sorted(writer.add(b'blob', b'line\\n' * number) for number in range(900, 910))\n"
        "run = DeltaRun(" + repr(folder) + ", Candidates([store.pack_dir + b'/' + writer.finish()], oids))\n"
        "while not run.is_done(): time.sleep(0.01)\n"
        "made = drained(run.taking(store.pack_dir, nullcontext))\n"
        "print(made is not None, run.failure); run.close()\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=ROOT, env={}, capture_output=True, check=False)
    assert done.stdout == b"True \n", (done.stdout, done.stderr)
    verify(folder)


def test_a_kept_pack_stays(history):
    path = os.path.join(pack_folder(history), packs(history)[0])
    open(path[:-5] + b".keep", "w").close()
    kept = everything(history)
    result = gc(history)
    assert any(".keep" in note for note in result.notes)
    assert os.path.exists(path)
    assert everything(history) == kept
    assert len(packs(history)) == 2


def test_nothing_is_removed_while_something_is_damaged(history):
    history.damaged = True
    drop(history, "#5")
    removable = gc(history, dry_run=True).objects_removed
    assert removable > 0
    tree = history.tree_of(history.list(limit=20).checkpoints[-2].id)
    index = next(one for one in history.repo.objects._indexes.values() if one.find(bytes.fromhex(tree)) is not None)
    os.chmod(index.pack_path, 0o600)
    with open(index.pack_path, "r+b") as file:
        file.seek(index.find(bytes.fromhex(tree)) + 4)
        file.write(b"\xff\xff")
    result = gc(history)
    assert result.all_kept
    assert result.objects_removed == 0
    assert any("ckpt verify" in note for note in result.notes)
    assert os.path.exists(index.pack_path)
    assert history.cat("#12", b"file") == b"content 12\n" * 50


def test_an_unreadable_ref_keeps_everything(history):
    history.damaged = True
    os.makedirs(os.path.join(history.folder, b"refs/heads"), exist_ok=True)
    # A checkpoint's own would be made anew.
    with open(os.path.join(history.folder, b"refs/heads/somebodys"), "wb"):
        pass
    result = gc(history)
    assert result.all_kept
    assert result.objects_removed == 0


@pytest.mark.skipif(not can_tell(), reason="this system does not tell what its processes do")
def test_what_git_has_begun_goes_once_nobody_is_at_work(history):
    begun = [b"objects/pack/tmp_pack_x", b"objects/tmp_obj_x", b"objects/ab/tmp_obj_y", b"gc.pid"]
    begun += [b"gc.pid.lock", b"index.lock", b"HEAD.lock", b"refs/checkpoints/0000000099.lock"]
    for name in begun:
        path = os.path.join(history.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"begun")
    with subprocess.Popen(["sleep", "600"], cwd=history.folder) as user:
        try:
            gc(history)
            assert all(os.path.exists(os.path.join(history.folder, name)) for name in begun)
        finally:
            user.kill()
    gc(history)
    assert [name for name in begun if os.path.exists(os.path.join(history.folder, name))] == []


@pytest.mark.parametrize("lost", [False, True])
def test_left_overs_go_but_a_pack_that_may_hold_what_is_missing_stays(history, lost):
    history.damaged = lost
    folder = pack_folder(history)
    for name in (b"tmp_ckpt_00.pack", b"tmp_pack_x", b"pack-%s.idx" % (b"0" * 40), b"pack-%s.rev" % (b"1" * 40)):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(b"left over")
        os.utime(os.path.join(folder, name), (1, 1))
    with open(os.path.join(history.folder, b"gc.pid"), "w") as file:
        file.write("1 host")
    os.utime(os.path.join(history.folder, b"gc.pid"), (1, 1))
    victim = os.path.join(folder, packs(history)[0])
    if lost:
        os.unlink(victim[:-5] + b".idx")
    else:
        shutil.copy(victim, os.path.join(folder, b"pack-%s.pack" % (b"2" * 40)))
    gc(history)
    assert not os.path.exists(os.path.join(history.folder, b"gc.pid"))
    left = [name for name in os.listdir(folder) if b"tmp_" in name or name.endswith(b".rev")]
    assert left == []
    assert os.path.exists(victim) == lost
    assert b"pack-%s.pack" % (b"2" * 40) not in os.listdir(folder)


def test_readers_and_saves_come_in_between(history):
    drop(history, "#5", "#6")
    kept = everything(history)
    errors: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                for seq in kept:
                    assert history.reader.cat is not None
                    assert history.cat(f"#{seq}", b"file") == kept[seq][b"file"]
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for round_ in range(8):
            run = begin(history)
            saved = 0
            while run.step() is None:
                history.write(b"between", b"%d %d\n" % (round_, saved))
                history.write(b"again", SECRET + b"no longer" if saved % 2 else b"content 5\n" * 50)
                history.save()
                saved += 1
    finally:
        stop.set()
        thread.join()
    assert errors == []
    assert {seq: everything(history)[seq] for seq in kept} == kept
    verify(history.folder)


def test_a_save_may_take_up_again_what_was_about_to_go(history):
    """Garbage that a save finds in the store is not written again, so it must not go from under it."""
    drop(history, "#5", "#6")
    run = begin(history)
    for _ in range(400):
        next(run._run)
        if run._rewrite is not None:
            break
    history.settle()
    history.write(b".env", SECRET)
    saved = history.save("the secret is back")
    assert finish(run).objects_removed >= 0
    assert history.cat(saved.id, b".env") == SECRET
    verify(history.folder)


STEPS = [
    *("pack-written", "pack-synced", "index-synced", "pack-named", "index-named", "pack-durable", "merged"),
    *("pack-hidden", "packs-gone", "refs-packed", "ref-deleted", "file-written", "file-named"),
]


@pytest.mark.parametrize("step", STEPS)
def test_a_death_at_any_step_loses_nothing_and_the_next_one_cleans_up(history, step):
    drop(history, "#5", "#6")
    kept = everything(history)
    history.close()
    for _ in range(2):

        def die() -> None:
            history.open()
            listen(lambda name, _path: os._exit(9) if name == step else None)
            gc(history)

        in_child(die)
        assert everything(history) == kept
        verify(history.folder)
        history.close()
    result = gc(history)
    assert result.notes == []
    assert everything(history) == kept
    assert SECRET not in raw_files(history)
    assert len(packs(history)) == 1
    found = os.listdir(pack_folder(history))
    assert sorted(name[-4:] for name in found) == [b".idx", b"pack"]


def test_the_folder_of_deltas_that_a_death_left_goes(history):
    history.close()
    os.makedirs(os.path.join(history.folder, b"ckpt", b"deltas", b"pack"))
    gc(history)
    assert not os.path.exists(os.path.join(history.folder, b"ckpt", b"deltas"))


def test_it_can_be_called_off(history):
    caller = Caller("test")
    run = begin(history, caller)
    caller.cancelled.set()
    with pytest.raises(DomainError, match="called off"):
        finish(run)
    assert not history.repo.collecting
    with pytest.raises(DomainError, match="cut off"):
        run.step()
    assert gc(history).packs_after == 1


@pytest.mark.parametrize("damaged", [False, True])
def test_what_is_in_two_large_packs_is_in_one_afterwards(desk, monkeypatch, damaged):
    monkeypatch.setattr(surveying, "SMALL_BYTES", 1000)
    content = {b"f%d" % number: os.urandom(1000) for number in range(40)}
    for path, data in content.items():
        desk.write(path, data)
    desk.save()
    (first,) = desk.repo.objects.pack_sizes
    # Two that are in one together.
    desk.store_again([b"f%d" % number for number in range(20)])
    desk.store_again([b"f%d" % number for number in range(20, 40)])
    assert desk.repo.objects.packed_bytes() > 80_000
    if damaged:
        # Then the others are what is left of it.
        os.chmod(first + b".pack", 0o600)
        with open(first + b".pack", "r+b") as file:
            file.seek(20_000)
            file.write(bytes(2000))
        desk.damaged = True
    gc(desk)
    if not damaged:
        assert desk.repo.objects.packed_bytes() < 45_000
        assert desk.repo.objects.pack_count == 1
        verify(desk.folder)
    for path, data in content.items():
        assert desk.cat("#1", path) == data


def test_packs_that_only_share_something_stay_as_they_are(desk, monkeypatch):
    monkeypatch.setattr(surveying, "SMALL_BYTES", 1000)
    for number in range(40):
        desk.write(b"f%d" % number, os.urandom(1000))
    desk.save()
    desk.write(b"own", os.urandom(5000))
    desk.save()
    before = set(desk.repo.objects.pack_sizes)
    gc(desk)
    assert set(desk.repo.objects.pack_sizes) == before
    # All of it is somewhere else, in one or the other.
    desk.store_again([b"f1", b"f2", b"own"])
    assert desk.repo.objects.packed_bytes() > 54_000
    gc(desk)
    assert desk.repo.objects.packed_bytes() < 50_000
    verify(desk.folder)


def test_another_one_takes_over_and_closing_ends_it(history):
    first = begin(history)
    first.step()
    second = begin(history)
    with pytest.raises(DomainError, match="cut off"):
        finish(first)
    second.step()
    history.reopen()
    with pytest.raises(DomainError, match="cut off"):
        finish(second)


def test_refs_are_packed_on_the_way(history):
    assert gc(history).refs_packed == 12
    assert os.listdir(os.path.join(history.folder, b"refs/checkpoints")) == []
    assert set(Refs(history.folder).checkpoints()) == set(range(1, 13))


def facts(name: bytes, size: int, live: int, dead: int = 1, why: str | None = None) -> PackFacts:
    return PackFacts(name, size, live, dead, size - live, why)


MIB = 1024 * 1024


def test_groups_fit_into_what_is_free():
    packs = [facts(b"a", 100 * MIB, 90 * MIB), facts(b"b", 50 * MIB, 40 * MIB), facts(b"c", 30 * MIB, 0)]
    large = 1000 * MIB
    # What needs no copy goes first, then what frees the most for what is copied.
    assert slices(packs, 1000 * MIB, large).groups == [[b"c"], [b"b", b"a"]]
    assert slices(packs, 76 * MIB, large).groups == [[b"c"], [b"b"], [b"a"]]
    assert slices(packs, 30 * MIB, large) == ([[b"c"], [b"b"]], [b"a"])
    assert slices(packs, 0, large) == ([[b"c"]], [b"b", b"a"])
    assert slices(packs[:2], 0, large) == ([], [b"b", b"a"])


def test_what_finds_no_room_at_first_does_when_others_have_gone():
    packs = [facts(b"a", 300 * MIB, 60 * MIB), facts(b"b", 80 * MIB, 40 * MIB)]
    assert slices(packs, 66 * MIB, 100 * MIB).groups == [[b"b"], [b"a"]]
    assert slices(packs, 76 * MIB, 100 * MIB).groups == [[b"a"], [b"b"]]


def test_no_more_is_copied_at_once_than_may_stand_beside():
    packs = [facts(b"%d" % number, 20 * MIB, 10 * MIB) for number in range(5)]
    packs.append(facts(b"large", 100 * MIB, 70 * MIB))
    groups = slices(packs, 1 << 40, 32 * MIB).groups
    assert groups == [[b"0", b"1", b"2"], [b"3", b"4"], [b"large"]]


def test_by_itself_only_as_much_is_copied_as_is_worth_it_or_has_to_go():
    packs = [
        facts(b"little", 100 * MIB, 99 * MIB),
        facts(b"nothing", 100 * MIB, 0, dead=9),
        facts(b"quarter", 100 * MIB, 75 * MIB),
        facts(b"tenth", 100 * MIB, 90 * MIB),
        facts(b"whole", 100 * MIB, 100 * MIB, dead=0),
    ]

    def chosen(spare: int | None) -> set[bytes]:
        return {one for group in slices(packs, 1 << 40, 1000 * MIB, spare).groups for one in group}

    assert chosen(0) == {b"nothing", b"quarter"}
    assert chosen(125 * MIB) == {b"nothing", b"quarter"}
    assert chosen(126 * MIB) == {b"nothing", b"quarter", b"tenth"}
    # By request all of it goes: it may be a secret.
    assert chosen(None) == {b"little", b"nothing", b"quarter", b"tenth"}


def test_what_is_fine_as_it_is_stays():
    def groups(*packs: PackFacts, slice_bytes: int = 1 << 40) -> list[list[bytes]]:
        return slices(packs, 1 << 40, slice_bytes).groups

    assert groups(facts(b"a", 1, 1, dead=0)) == []
    assert groups(facts(b"a", 100 * MIB, 100 * MIB, dead=0), facts(b"b", 1, 1, dead=0)) == []
    assert groups(facts(b"a", 9, 9, why="kept"), facts(b"b", 1, 1, dead=0)) == []
    assert groups(facts(b"a", 9, 9, dead=0), facts(b"b", 1, 1, dead=0)) == [[b"b", b"a"]]
    # Merged they would be too large to be small any more, and one alone would be what it is.
    assert groups(facts(b"a", 9, 9, dead=0), facts(b"b", 8, 8, dead=0), slice_bytes=16) == []
    assert groups(*[facts(b"%d" % n, 5, 5, dead=0) for n in range(4)], slice_bytes=16) == [[b"0", b"1", b"2"]]


def candidates(folder: bytes, free: int, most: int, but: Collection[bytes] = ()) -> Candidates | None:
    return drained(delta_candidates(folder, free, {}, most, but))


def test_deltas_are_made_of_so_much_at_once(desk):
    desk.settle()
    chance = random.Random(1)
    for number in range(4):
        # Each is worth it by itself.
        desk.write(b"f%d" % number, chance.randbytes(WORTH_BYTES + 1000))
        desk.save()
    folder = pack_folder(desk)
    assert len(candidates(folder, 1 << 40, 1 << 40).stems) == 4
    some = candidates(folder, 1 << 40, 2 * WORTH_BYTES + 99_000)
    assert len(some.stems) == 2
    rest = candidates(folder, 1 << 40, 1 << 40, some.stems)
    assert len(rest.stems) == 2
    assert set(some.stems).isdisjoint(rest.stems)
    assert candidates(folder, 1 << 40, WORTH_BYTES) is None
    assert candidates(folder, 2 * WORTH_BYTES, 1 << 40) is None
