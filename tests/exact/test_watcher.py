"""The exact watcher on the real system: saves by its word have the tree that a scan of everything gives."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ckpt_protocol.worktree import Scans
from ckptd.doubt import Doubt
from ckptd.exact import watcher
from ckptd.exact.watcher import ExactWatcher
from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.objects.pack import HashOnly
from ckptd.shadow.scan.model import without_lost
from support.effort import examples
from support.poll import until
from support.worktrees import Desk

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")


class Watched:
    """A desk whose worktree is watched from the second save on."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.saves = self.by_watch = 0
        desk.configure(witness_maker=ExactWatcher, scan_budget_ms=0)

    @property
    def witness(self) -> ExactWatcher:
        found = self.desk.repo.watched._witness
        assert isinstance(found, ExactWatcher)
        return found

    def settle(self) -> None:
        """Save until a save goes by the watcher's word."""
        self.desk.save()
        assert self.witness.wait_until_ready(60)
        self.desk.save()

    def check(self) -> bool:
        """Save, and compare with a scan of everything; True where the save went by the watcher's word."""
        saved = self.desk.save("x")
        scan = self.desk.show(saved.id)
        by_watch = self.desk.repo.lookup.load(saved.id).facts.scan == "watched"
        whole = self.desk.repo.scan(HashOnly(), full=True)
        assert self.desk.repo.lookup.load(saved.id).tree == whole.root.tree, scan
        self.saves += 1
        self.by_watch += by_watch and saved.created
        return by_watch


@pytest.fixture
def watched(desk: Desk):
    return Watched(desk)


def counts(desk: Desk) -> dict[str, int]:
    """How often everything was looked at although somebody watched, by the reason."""
    return {one.kind: one.count for one in desk.writer.scans().fall_backs}


def partial(watched: Watched) -> bool:
    found = watched.desk.repo.scan(HashOnly())
    return found.partial


def test_a_save_by_its_word_looks_at_what_changed(watched):
    desk = watched.desk
    for number in range(50):
        desk.write(b"d%d/f" % number, b"1")
    watched.settle()
    desk.write(b"d7/f", b"2")
    desk.write(b"d8/new/g", b"2")
    found = desk.repo.scan(HashOnly())
    assert found.partial
    assert found.read_count == 2
    assert watched.check()
    assert not desk.save().created


def test_nobody_begins_to_watch_in_the_middle_of_a_restore(desk: Desk):
    desk.write(b"a", b"1")
    desk.save()
    desk.write(b"a", b"2")
    desk.configure(witness_maker=ExactWatcher, scan_budget_ms=0)
    begun: dict[str, bool] = {}
    scans = desk.repo.watched
    end = listen(lambda point, _path: begun.update({point: scans._witness is not None}))
    desk.reset("#1")
    end()
    assert {"scanned", "planned", "worktree-exchanged", "concluded"} <= begun.keys()
    assert not any(begun.values())
    assert desk.repo.watched._witness is not None
    desk.save()
    assert scans._witness.wait_until_ready(60)
    desk.save()
    desk.write(b"a", b"3")
    assert desk.repo.lookup.load(desk.save().id).facts.scan == "watched"


def test_what_a_restore_does_with_files_in_the_making_is_not_noted(watched):
    desk = watched.desk
    for name in (b"a", b"b", b"d/c"):
        desk.write(name, b"1")
    desk.save()
    watched.settle()
    desk.write(b"a", b"2")
    desk.remove(b"b")
    desk.remove(b"d/c")
    desk.write(b"new", b"2")
    desk.reset("#1")
    names = watched.witness.look()
    assert names is not None
    assert {folder + b"/" + name for folder, some in names.items() for name in some} == {b"/a", b"/b", b"d/c", b"/new"}
    desk.write(b"a", b"3")
    assert watched.check()


def test_events_gather_but_whoever_asks_does_not_wait(watched, monkeypatch):
    desk = watched.desk
    monkeypatch.setattr(watcher, "_GATHERED_S", 600.0)
    watched.settle()
    reads: list[int] = []
    real = os.read
    thread = watched.witness._thread

    def counted(fd: int, most: int) -> bytes:
        if threading.current_thread() is thread:
            reads.append(fd)
        return real(fd, most)

    monkeypatch.setattr(os, "read", counted)
    for number in range(200):
        desk.write(b"f%d" % number, b"1")
        if number % 20 == 0:
            assert watched.witness.look() is not None
    # At most one that was under way, one for each that asked, and one that found nobody asking after each of those.
    assert len(reads) <= 1 + 2 * 10
    assert watched.check()
    assert "cookie" not in counts(desk)


def test_a_long_queue_is_read_to_its_end_at_once(watched, monkeypatch):
    monkeypatch.setattr(watcher, "_GATHERED_S", 600.0)
    monkeypatch.setattr(watcher, "_READ_BYTES", 4096)
    watched.settle()
    for number in range(1000):
        watched.desk.write(b"f%d" % number, b"1")
    # The cookie is behind all of them.
    assert watched.check()
    assert "cookie" not in counts(watched.desk)


def test_full_scans_where_it_is_asked_for(watched):
    watched.desk.write(b"a", b"1")
    watched.settle()
    watched.desk.write(b"a", b"2")
    saved = watched.desk.save(full=True)
    assert watched.desk.repo.lookup.load(saved.id).facts.scan == "full"


def test_it_is_counted_how_saves_found_what_had_changed(watched):
    desk = watched.desk
    desk.write(b"a", b"1")
    watched.settle()
    before = desk.writer.scans()
    assert before.watching
    assert {one.kind for one in before.fall_backs} <= {"starting"}
    for number in range(3):
        desk.write(b"a", b"%d" % (number + 2))
        desk.save()
    desk.save(full=True)
    for _ in range(2):
        watched.witness.doubt(Doubt("overflow", "too many events at once"))
        desk.save()
    watched.witness.doubt(Doubt("missed", "it has missed changes"))
    # A look that is no save: only why it went over everything is counted.
    found = desk.status().scans
    assert (found.watched - before.watched, found.full - before.full) == (3, 3)
    assert [(one.kind, one.count, one.reason) for one in found.fall_backs if one.kind != "starting"] == [
        ("overflow", 2, "too many events at once"),
        ("missed", 1, "it has missed changes"),
    ]
    desk.reopen()
    assert desk.writer.scans() == Scans(watching=False, watched=0, full=0, missed=0, fall_backs=[])


def test_what_lies_with_the_last_scan_is_counted_too(watched):
    desk = watched.desk
    desk.write(b"a", b"1")
    desk.write(b"b", b"2")
    watched.settle()
    # Something of the model has left the store: the next save looks at what it was.
    desk.repo.model = without_lost(desk.repo.model, hash_object(b"blob", b"1").__ne__)
    desk.save()
    assert counts(desk)["unsaved"] == 1
    os.link(desk.path(b"a"), desk.path(b"second"))
    os.unlink(desk.path(b"b"))
    desk.save()
    os.mkdir(desk.path(b".git"))
    desk.save()
    assert set(counts(desk)) <= {"starting", "unsaved", "rules"}


def test_directories_that_come_go_and_move(watched):
    desk = watched.desk
    for path in (b"a/b/c/f", b"x/y/f", b"z/f"):
        desk.write(path, b"1")
    watched.settle()
    os.rename(desk.path(b"a/b"), desk.path(b"x/b"))
    assert watched.check()
    desk.write(b"x/b/c/f", b"2")
    assert watched.check()
    os.rename(desk.path(b"x"), desk.path(b"moved"))
    desk.write(b"moved/b/c/f", b"3")
    assert watched.check()
    desk.write(b"moved/b/c/f", b"4")
    assert watched.check()
    os.rename(desk.path(b"moved"), desk.base + b"/gone")
    assert watched.check()
    os.rename(desk.base + b"/gone", desk.path(b"back"))
    assert watched.check()
    desk.write(b"back/y/f", b"5")
    assert watched.check()
    # One directory in the place of another, both known.
    os.rename(desk.path(b"z"), desk.path(b"t"))
    os.rename(desk.path(b"back"), desk.path(b"z"))
    os.rename(desk.path(b"t"), desk.path(b"back"))
    desk.write(b"back/f", b"6")
    assert watched.check()
    desk.write(b"z/b/c/f", b"7")
    assert watched.check()
    shutil.rmtree(desk.path(b"z"))
    assert watched.check()


def test_a_hard_link_to_outside_that_is_known(watched):
    desk = watched.desk
    desk.write(b"d/f", b"1")
    os.link(desk.path(b"d/f"), desk.base + b"/outside")
    watched.settle()
    with open(desk.base + b"/outside", "wb") as file:
        file.write(b"2")
    assert watched.check()


def test_permission_bits_of_directories(watched):
    desk = watched.desk
    desk.write(b"d/e/f", b"1")
    watched.settle()
    for path in (b"d", b"d/e", b""):
        os.chmod(desk.path(path) if path else desk.root, 0o700)
        found = desk.repo.scan(HashOnly())
        whole = desk.repo.scan(HashOnly(), full=True)
        assert (found.root.key, found.root.perm) == (whole.root.key, whole.root.perm)
        assert watched.check()


def test_rules_that_change_bring_directories_that_were_not_watched(watched):
    desk = watched.desk
    desk.write(b".gitignore", b"out/\n")
    desk.write(b"out/deep/f", b"1")
    desk.write(b"a", b"1")
    watched.settle()
    assert not watched.witness._tree.is_watched(b"out")
    desk.write(b"out/deep/f", b"2")
    assert partial(watched)
    desk.write(b".gitignore", b"\n")
    watched.check()
    desk.write(b"out/deep/f", b"3")
    watched.check()
    assert watched.witness._tree.is_watched(b"out/deep")
    desk.write(b"out/deep/f", b"4")
    assert watched.check()


def test_the_users_git_is_noticed_without_being_watched(watched):
    desk = watched.desk
    desk.write(b"a.log", b"1")
    desk.write(b".gitignore", b"*.log\n")
    git = ["git", "-c", "safe.directory=*", "-C", desk.root]
    subprocess.run([*git, "init", "-q"], check=True)
    watched.settle()
    subprocess.run([*git, "add", "-f", "a.log"], check=True)
    watched.check()
    assert b"a.log" in desk.paths_of(desk.head())


def test_a_burst_that_overflows_is_noticed_and_healed(watched):
    """The watcher is stopped while more happens than the system keeps for it."""
    desk = watched.desk
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 20_000:
        pytest.skip(f"the system keeps {limit} events")
    desk.write(b"a/f", b"1")
    watched.settle()
    witness = watched.witness
    with witness._lock:
        # Its thread waits for the lock with the first name, and the queue fills up meanwhile.
        for number in range(limit + 1000):
            os.close(os.open(desk.path(b"a/%d" % (number % 5000)), os.O_CREAT | os.O_WRONLY))
            os.utime(desk.path(b"a/%d" % (number % 5000)))
        os.mkdir(desk.path(b"late"))
        desk.write(b"late/f", b"1")
    assert not watched.check()
    assert counts(desk).keys() & {"overflow", "cookie"}
    # A busy machine may answer too late, and then everything is looked at once more.
    numbers = iter(range(2, 1000))
    for name in (b"late/f", b"a/3"):
        until(lambda name=name: (desk.write(name, b"%d" % next(numbers)), watched.check())[1])


def test_a_root_that_is_replaced_ends_it(watched):
    desk = watched.desk
    desk.write(b"f", b"1")
    watched.settle()
    os.rename(desk.root, desk.root + b".old")
    os.mkdir(desk.root)
    desk.write(b"f", b"2")
    desk.write(b"g", b"2")
    found = desk.repo.scan(HashOnly())
    assert not found.partial
    assert found.root.files_below == 2
    assert counts(desk)["replaced"] == 1


def test_a_watch_that_cannot_be_had_means_scans(watched, monkeypatch):
    """As at the system's limit: here one path is too long to be watched."""
    desk = watched.desk
    desk.write(b"f", b"1")
    deep = desk.root
    fd = os.open(desk.root, os.O_RDONLY)
    for _ in range(20):
        os.mkdir(b"n" * 250, dir_fd=fd)
        fd, before = os.open(b"n" * 250, os.O_RDONLY, dir_fd=fd), fd
        os.close(before)
    os.close(fd)
    assert deep
    desk.save()
    first = watched.desk.repo.watched._witness
    assert first is None or not first.wait_until_ready(60)
    desk.write(b"f", b"2")
    assert not watched.check()
    shutil.rmtree(desk.path(b"n" * 250))


def test_it_ends_with_the_store(watched):
    watched.desk.write(b"f", b"1")
    watched.settle()
    witness = watched.witness
    watched.desk.close()
    until(lambda: not witness._thread.is_alive())
    assert os.listdir(os.path.join(watched.desk.folder, b"ckpt", b"cookies")) == []


def run_check(watched: Watched) -> None:
    for _ in watched.desk.repo.watched.check():
        pass


def test_its_word_is_held_against_the_disk(watched):
    """What it has told is no miss, whether saved by now or not; what it has not told means a scan of everything."""
    desk = watched.desk
    desk.write(b".gitignore", b"*.o\n")
    for path in (b"a/f", b"a/g", b"a/x.o", b"b/c/f", b"b/c/g"):
        desk.write(path, b"1")
    os.mkfifo(desk.path(b"fifo"))
    desk.settle()
    watched.settle()
    run_check(watched)
    desk.write(b"a/f", b"2")
    desk.write(b"b/new/f", b"2")
    os.unlink(desk.path(b"b/c/g"))
    run_check(watched)
    assert desk.status().scans.missed == 0
    desk.write(b"b/c/f", b"3")
    assert watched.check()
    desk.settle()
    watched.settle()
    # The watcher is made to forget what it has heard.
    desk.write(b"a/g", b"unheard")
    assert watched.witness.look() == {b"a": {b"g"}}
    watched.witness.adopted(tuple, whole=False)
    run_check(watched)
    assert desk.writer.scans().missed == 1
    saved = desk.save()
    assert "missed 1 paths, such as a/g" in " ".join(saved.notes)
    assert counts(desk)["missed"] == 1
    assert desk.cat(saved.id, b"a/g") == b"unheard"


def test_the_check_comes_round_in_idle_time(watched):
    desk = watched.desk
    desk.write(b"a", b"1")
    watched.settle()
    scans = desk.repo.watched
    desk.write(b"a", b"2")
    desk.save()
    assert not scans.is_check_due()
    scans._checked_s -= 3600
    assert scans.is_check_due()
    while desk.writer.tend():
        pass
    assert not scans.is_check_due()


EDITOR = """
import os, random, shutil, sys
root, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
choose = random.Random(seed)
os.chdir(root)
def some():
    found = [top for top, _, _ in os.walk(".") if "/.git" not in top]
    return choose.choice(found)
for number in range(count):
    try:
        act, top = choose.randrange(14), some()
        name = os.path.join(top, "n%d" % choose.randrange(6))
        if act < 6:
            with open(name, choose.choice(("w", "a"))) as file:
                file.write(str(number))
        elif act == 6:
            os.makedirs(os.path.join(name, "sub", "sub"))
        elif act == 7:
            (shutil.rmtree if os.path.isdir(name) and top != "." else os.unlink)(name)
        elif act == 8:
            os.rename(name, os.path.join(some(), "n%d" % choose.randrange(6)))
        elif act == 9:
            os.symlink(choose.choice(("n1", "/nowhere", ".")), name)
        elif act == 10:
            os.chmod(name, choose.choice((0o600, 0o644, 0o755)))
        elif act == 11:
            os.replace(name, os.path.join(top, "n%d" % choose.randrange(6)))
        elif act == 12:
            os.rename(top, os.path.join(some(), "m%d" % choose.randrange(9)))
        else:
            with open(name, "r+") as file:
                file.truncate(choose.randrange(3))
    except OSError:
        pass
"""


@pytest.mark.parametrize("seed", range(examples(2, 60)))
def test_random_edits_by_other_processes(watched, seed):
    """Each round: some edits by another process, then a save by the watcher's word whose tree is a full scan's."""
    desk = watched.desk
    choose = random.Random(seed)
    for number in range(30):
        desk.write(b"n%d/n%d/n%d" % (number % 3, number % 5, number), b"1")
    watched.settle()
    for number in range(15):
        script = [sys.executable, "-c", EDITOR, os.fsdecode(desk.root), f"{seed * 1000 + number}"]
        subprocess.run([*script, f"{choose.choice((1, 5, 40))}"], check=True)
        watched.check()
    assert watched.by_watch > 5


def test_edits_that_go_on_while_saves_run(watched):
    """What such a save holds of a file that is being written is anybody's guess; the one after the last edit is not."""
    desk = watched.desk
    for number in range(30):
        desk.write(b"n%d/n%d" % (number % 3, number), b"1")
    watched.settle()
    script = [sys.executable, "-c", EDITOR, os.fsdecode(desk.root), "7", "1500"]
    with subprocess.Popen(script) as editor:
        while editor.poll() is None:
            desk.save()
            # Stopped in the middle of something, as an editor under load is.
            editor.send_signal(signal.SIGSTOP)
            time.sleep(0)
            editor.send_signal(signal.SIGCONT)
        assert editor.wait() == 0
    watched.check()
    desk.write(b"last", b"1")
    assert watched.check()
