"""Orders of events that leave a directory unwatched or a path not looked at, had they been overlooked."""

import ctypes
import os
import shutil
import subprocess
import sys

import pytest

from ckptd.exact.watcher import ExactWatcher
from ckptd.shadow.objects.pack import HashOnly
from support.poll import until
from support.tiny_disk import tiny_disk
from support.worktrees import Desk, somebody

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


def exchange(one: bytes, other: bytes) -> None:
    """Let two paths change their places at once; skips where the system can't."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE) != 0:
        pytest.skip(f"no exchange here: {os.strerror(ctypes.get_errno())}")


def told(scan):
    return (scan.root.key, scan.root.perm, scan.root.files_below, scan.skipped, scan.excluded, scan.linked)


class Watched:
    def __init__(self, desk: Desk, **options: object) -> None:
        self.desk = desk
        desk.configure(witness_maker=ExactWatcher, scan_budget_ms=0, **options)

    def settle(self) -> None:
        self.desk.save()
        self.witness.wait_until_ready(60)
        self.desk.save()
        self.desk.save()

    @property
    def witness(self) -> ExactWatcher:
        found = self.desk.repo.watched._witness
        assert isinstance(found, ExactWatcher)
        return found

    def check(self) -> bool:
        found = self.desk.repo.scan(HashOnly())
        self.desk.save()
        whole = self.desk.repo.scan(HashOnly(), full=True)
        assert self.desk.repo.model.key == whole.root.key
        assert told(found) == told(whole)
        return found.partial


@pytest.fixture
def watched(desk: Desk):
    return Watched(desk)


def test_two_directories_that_change_places(watched):
    desk = watched.desk
    for path in (b"a/x/f", b"b/y/f"):
        desk.write(path, b"1")
    watched.settle()
    exchange(desk.path(b"a"), desk.path(b"b"))
    assert watched.check()
    for path in (b"a/y/f", b"b/x/f", b"a/n", b"b/n"):
        desk.write(path, b"2")
        assert watched.check()
    exchange(desk.path(b"a/y"), desk.path(b"b/n"))
    assert watched.check()
    desk.write(b"b/n/f", b"3")
    assert watched.check()


def test_directories_moved_in_with_rules_that_bring_back_what_others_leave_out(watched):
    desk = watched.desk
    desk.write(b".gitignore", b"build/\n")
    desk.write(b"f", b"1")
    watched.settle()
    away = desk.base + b"/away"
    os.makedirs(away + b"/build/deep")
    for name, data in ((b".gitignore", b"!build/\n"), (b"build/deep/f", b"1")):
        with open(os.path.join(away, name), "wb") as file:
            file.write(data)
    os.rename(away, desk.path(b"d"))
    watched.check()
    desk.write(b"d/build/deep/f", b"2")
    watched.check()
    desk.write(b"d/build/deep/f", b"3")
    assert watched.check()


def test_a_repository_moved_in_that_tracks_what_outer_rules_leave_out(watched):
    desk = watched.desk
    desk.write(b".gitignore", b"build/\n")
    desk.write(b"f", b"1")
    watched.settle()
    away = desk.base + b"/away"
    os.makedirs(away + b"/build")
    with open(away + b"/build/f", "wb") as file:
        file.write(b"1")
    git = ["git", "-c", "safe.directory=*", "-C", away]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-f", "build/f"], check=True)
    os.rename(away, desk.path(b"d"))
    watched.check()
    desk.write(b"d/build/f", b"2")
    watched.check()
    desk.write(b"d/build/f", b"3")
    assert watched.check()


def test_a_hard_link_made_within_the_worktree(watched):
    desk = watched.desk
    desk.write(b"d/f", b"1")
    watched.settle()
    os.link(desk.path(b"d/f"), desk.path(b"g"))
    with open(desk.path(b"g"), "wb") as file:
        file.write(b"2")
    watched.check()
    with open(desk.path(b"g"), "wb") as file:
        file.write(b"3")
    assert watched.check()


def test_a_store_that_is_one_no_more(watched):
    desk = watched.desk
    for path in (b"s/.lock", b"s/k/ckpt/metadata.json", b"s/f"):
        desk.write(path, b"1")
    watched.settle()
    assert [item.path for item in desk.repo.scan(HashOnly()).excluded] == [b"s"]
    os.unlink(desk.path(b"s/.lock"))
    assert watched.check()


@pytest.mark.parametrize("rules", [b"", b".lock\nHEAD\n"])
def test_a_directory_that_becomes_a_store_by_what_lies_deeper(watched, rules):
    desk = watched.desk
    desk.write(b".gitignore", rules)
    for path in (b"s/HEAD", b"s/objects/f", b"s/ckpt/f", b"t/.lock", b"t/k/ckpt/f"):
        desk.write(path, b"1")
    watched.settle()
    desk.write(b"s/ckpt/metadata.json", b"1")
    assert watched.check()
    desk.write(b"t/k/ckpt/metadata.json", b"1")
    assert watched.check()
    assert {item.path for item in desk.repo.scan(HashOnly()).excluded} == {b"s", b"t"}


@pytest.mark.parametrize("one_file_system", [True, False])
def test_what_is_mounted_and_taken_away_again(desk, one_file_system):
    watched = Watched(desk, one_file_system=one_file_system)
    for path in (b"d/x/f", b"f"):
        desk.write(path, b"1")
    watched.settle()
    with tiny_disk(desk.path(b"d")):
        watched.check()
        for number in (b"1", b"2", b"3"):
            desk.write(b"d/x/f", number)
            watched.check()
            desk.write(b"d/x/" + number + b"/f", number)
            watched.check()
        # What is mounted in it may be another machine's.
        assert (desk.repo.watched._witness is not None) == one_file_system
    watched.check()
    watched.settle()
    desk.write(b"d/x/f", b"4")
    assert watched.check()


def test_it_ends_with_a_full_disk_too(watched):
    watched.desk.write(b"f", b"1")
    watched.settle()
    witness = watched.witness
    witness._cookie = lambda: None
    witness.close()
    assert not witness._thread.is_alive()


def test_a_way_to_the_worktree_that_is_lost_for_a_while(watched):
    """A directory made meanwhile cannot be watched by its path."""
    desk = watched.desk
    desk.write(b"d/f", b"1")
    watched.settle()
    witness = watched.witness
    os.rename(desk.base, desk.base + b".away")
    try:
        os.mkdir(desk.root.replace(desk.base, desk.base + b".away") + b"/d/new")
        until(lambda: witness.broken is not None)
    finally:
        os.rename(desk.base + b".away", desk.base)
    desk.write(b"d/new/f", b"1")
    assert not watched.check()
    assert "replaced" in [one.kind for one in desk.status().scans.fall_backs]
    desk.write(b"d/new/f", b"2")
    watched.check()


def test_what_nobody_foresaw_in_its_thread_means_scans(watched):
    desk = watched.desk
    desk.write(b"d/f", b"1")
    watched.settle()
    witness = watched.witness
    # As a rule that cannot be decided would.
    witness._is_ignored = None
    desk.write(b"d/f", b"2")
    desk.write(b"new/f", b"2")
    assert not watched.check()
    assert (witness.broken.kind, "NoneType" in witness.broken.text) == ("error", True)
    watched.settle()
    desk.write(b"d/f", b"3")
    assert watched.check()


def test_a_file_of_somebody_else_among_the_cookies_says_nothing(watched):
    desk = watched.desk
    desk.write(b"d/f", b"1")
    watched.settle()
    for name in (b"odd", b"999999999"):
        with open(os.path.join(desk.folder, b"ckpt/cookies", name), "wb"):
            pass
    desk.write(b"d/f", b"2")
    assert watched.check()
    assert watched.witness._cookie_seen < 1000


def test_a_directory_for_cookies_that_is_deleted(watched):
    desk = watched.desk
    desk.write(b"d/f", b"1")
    watched.settle()
    shutil.rmtree(os.path.join(desk.folder, b"ckpt/cookies"))
    desk.write(b"d/f", b"2")
    watched.check()
    watched.settle()
    desk.write(b"d/f", b"3")
    assert watched.check()


def test_directories_that_may_not_be_entered_for_a_while(watched):
    """Names that can be listed and not looked at, and a directory that can't even be listed."""
    desk = watched.desk
    for path in (b"p/x/f", b"p/f", b"p/large"):
        desk.write(path, b"1")
    desk.write(b"q/f", b"1")
    subprocess.run(["chown", "-R", "65534:65534", desk.base], check=os.geteuid() == 0)
    with somebody():
        watched.settle()
        for perm in (0o600, 0o700, 0o000, 0o300, 0o755, 0o400, 0o755):
            os.chmod(desk.path(b"p"), perm)
            assert watched.check()
            desk.write(b"q/f", b"%d" % perm)
            assert watched.check()
        desk.write(b"p/x/f", b"2")
        assert watched.check()
        desk.close()
