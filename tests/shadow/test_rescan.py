"""A scan of what is said to have changed, and a review of everything, see what a scan of everything sees."""

import os
import random
import shutil
import subprocess
import tempfile
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptd.shadow.ignore.chain import IgnoreChain
from ckptd.shadow.objects.pack import HashOnly
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.scan import scanner
from ckptd.shadow.scan.basis import BasisMaker
from ckptd.shadow.scan.look import look_at
from ckptd.shadow.scan.model import iter_nodes
from ckptd.shadow.scan.scanner import ScanLimits, Scanner, ScanResult
from support.effort import examples
from support.worktrees import opened_files

pytestmark = pytest.mark.core

DIRS = (b"", b"a", b"b", b"a/c", b"a/c/d", b"ig", b"ig/e", b"b/repo")
NAMES = (b"x", b"y", b"z.log", b"a", b"b", b"c", b"d", b"ig", b"e", b"repo", b"HEAD", b".lock", b"\xff")
RULES = (b"*.log\n", b"ig/\n", b"!x\n*.log\n", b"c/\n", b"")


class Place:
    """A worktree, a scanner that goes on from its last result, and what has been touched since."""

    def __init__(self, base: bytes, offset_s: int = 0) -> None:
        self.offset_s = offset_s
        self.root = os.path.join(base, b"ws")
        self.outside = os.path.join(base, b"outside")
        store = os.path.join(base, b"store")
        for path in (self.root, self.outside, os.path.join(store, b"objects/pack")):
            os.makedirs(path)
        self.objects = ObjectStore(store)
        self.touched: dict[bytes, set[bytes]] = {}
        self.scanner = self.new_scanner()
        self.result: ScanResult | None = None
        self.partial = 0

    def new_scanner(self) -> Scanner:
        chain = IgnoreChain.root(options=(b"/never",), global_excludes=None)
        return Scanner(
            self.root,
            BasisMaker(self.root, chain, self.objects),
            ScanLimits(max_file_bytes=1000),
            clock_ns=lambda: time.time_ns() + self.offset_s * 1_000_000_000,
        )

    def touch(self, path: bytes) -> None:
        """Say what a watcher would: the directory that a path really leads to, and the file at the end of links."""
        full = os.path.join(self.root, path)
        for one in (
            os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full)),
            os.path.realpath(full),
        ):
            relative = os.path.relpath(one, self.root)
            if not relative.startswith(b".."):
                folder, _, name = relative.rpartition(b"/")
                self.touched.setdefault(folder, set()).add(name)

    def check(self) -> None:
        """Go on from the last result; what comes of it is what a new scanner sees."""
        found = None
        if self.result is not None:
            found = self.scanner.rescan(self.result, look_at(self.touched), HashOnly())
        if found is None:
            found = self.scanner.scan(self.result.root if self.result is not None else None, HashOnly())
        else:
            self.partial += 1
        self.touched = {}
        self.adopt(found)

    def review(self) -> None:
        """As check(), but nobody says what has been touched."""
        found = self.scanner.review(self.result, HashOnly()) if self.result is not None else None
        if found is None:
            found = self.scanner.scan(self.result.root if self.result is not None else None, HashOnly())
        assert not found.partial
        self.adopt(found)

    def adopt(self, found: ScanResult) -> None:
        self.result = found
        full = self.new_scanner().scan(None, HashOnly())
        assert told(found) == told(full)

    def tick(self) -> None:
        """Wait until a change would get another time than any before it."""
        path = os.path.join(self.outside, b"clock")
        with open(path, "wb"):
            before = ctime_of(path)
        while ctime_of(path) == before:
            os.utime(path)

    def close(self) -> None:
        self.objects.close()


def ctime_of(path: bytes) -> int:
    return os.stat(path).st_ctime_ns


def told(result: ScanResult) -> tuple:
    return (
        result.root.key, result.root.perm, result.root.files_below, result.skipped, result.excluded, result.problems,
        result.unknown_rules, result.linked, ignored(result),
    )  # fmt: skip


def ignored(result: ScanResult) -> set[bytes]:
    found, stack = set(), [(b"", result.root)]
    while stack:
        path, node = stack.pop()
        found |= {path + b"/" + name for name in node.ignored}
        stack += [(path + b"/" + name, child) for name, child in node.children.items()]
    return found


def act(place: Place, choose: random.Random) -> None:
    """Do something that a program may do, and touch what an exact watcher would say."""
    folder = choose.choice(DIRS)
    name = choose.choice(NAMES)
    path = os.path.join(folder, name) if folder else name
    full = os.path.join(place.root, path)
    kind = choose.choice(ACTIONS)
    try:
        kind(place, path, full, choose)
    except OSError:
        return


def write(place, path, full, choose):
    # Not to wait for the reader of a FIFO.
    with open(os.open(full, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o644), "wb") as file:
        file.write(b"%d" % choose.randrange(10**6))
    place.touch(path)


def write_large(place, path, full, choose):
    with open(os.open(full, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o644), "wb") as file:
        file.write(b"x" * choose.choice((999, 1001)))
    place.touch(path)


def write_rules(place, path, full, choose):
    folder = path.rpartition(b"/")[0]
    name = choose.choice((b".gitignore", b".ckptignore"))
    rules = os.path.join(folder, name) if folder else name
    with open(os.path.join(place.root, rules), "wb") as file:
        file.write(choose.choice(RULES))
    place.touch(rules)


def remove(place, path, full, choose):
    if os.path.isdir(full) and not os.path.islink(full):
        shutil.rmtree(full)
    else:
        os.unlink(full)
    place.touch(path)


def make_dirs(place, path, full, choose):
    made = []
    part = path
    while part and not os.path.lexists(os.path.join(place.root, part)):
        made.append(part)
        part = part.rpartition(b"/")[0]
    os.makedirs(full)
    for one in made:
        place.touch(one)


def chmod(place, path, full, choose):
    bits = choose.choice((0o600, 0o644, 0o755, 0o700))
    if not os.path.islink(full):
        os.chmod(full, bits)
        place.touch(path)


def link(place, path, full, choose):
    os.symlink(choose.choice((b"x", b"nowhere", b"../b")), full)
    place.touch(path)


def fifo(place, path, full, choose):
    os.mkfifo(full)
    place.touch(path)


def move(place, path, full, choose):
    other = os.path.join(choose.choice(DIRS), choose.choice(NAMES)).lstrip(b"/")
    os.rename(full, os.path.join(place.root, other))
    place.touch(path)
    place.touch(other)


def move_away(place, path, full, choose):
    os.rename(full, os.path.join(place.outside, b"%d" % choose.randrange(10**9)))
    place.touch(path)


def link_outside(place, path, full, choose):
    os.link(full, os.path.join(place.outside, b"link%d" % choose.randrange(10**9)))
    place.touch(path)


def write_outside(place, path, full, choose):
    """Through the other name of a file: no watcher of the worktree hears of it."""
    names = sorted(name for name in os.listdir(place.outside) if name.startswith(b"link"))
    with open(os.path.join(place.outside, choose.choice(names or [b"none"])), "r+b") as file:
        file.write(b"%d" % choose.randrange(10**6))


def init(place, path, full, choose):
    top = os.path.join(place.root, b"b/repo")
    subprocess.run(["git", "init", "-q", top], check=False, capture_output=True, env=GIT)
    for path in (b"b/repo/.git", b"b/repo", b"b"):
        place.touch(path)


def add(place, path, full, choose):
    """Below ``.git`` nobody watches."""
    top = os.path.join(place.root, b"b/repo")
    if os.path.isdir(os.path.join(top, b".git")):
        subprocess.run(["git", "-C", top, "add", "-A", "-f"], check=False, capture_output=True, env=GIT)


def exclude(place, path, full, choose):
    with open(os.path.join(place.root, b"b/repo/.git/info/exclude"), "ab") as file:
        file.write(choose.choice(RULES))


GIT = {"PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
ACTIONS = (
    *(write,) * 8, write_large, write_rules, *(remove,) * 3, *(make_dirs,) * 6, chmod, chmod, link, fifo, move, move,
    move_away, link_outside, write_outside, write_outside, init, add, exclude,
)  # fmt: skip


@given(st.integers(0, 2**32), st.integers(1, 30))
@settings(max_examples=examples(60), deadline=None)
def test_it_sees_what_a_whole_scan_sees(seed: int, rounds: int):
    choose = random.Random(seed)
    with tempfile.TemporaryDirectory() as base:
        place = Place(os.fsencode(base))
        try:
            for folder in DIRS[1:]:
                os.makedirs(os.path.join(place.root, folder), exist_ok=True)
            place.check()
            for _ in range(rounds):
                for _ in range(choose.randrange(1, 6)):
                    act(place, choose)
                place.check()
        finally:
            place.close()


@given(st.integers(0, 2**32), st.integers(1, 30))
@settings(max_examples=examples(24), deadline=None)
def test_a_review_sees_what_a_whole_scan_sees(seed: int, rounds: int):
    """With a clock that is ahead, nothing is too young, so each directory and file is believed as early as can be."""
    choose = random.Random(seed)
    with tempfile.TemporaryDirectory() as base:
        place = Place(os.fsencode(base), offset_s=10 if seed % 4 else 0)
        try:
            for folder in DIRS[1:]:
                os.makedirs(os.path.join(place.root, folder), exist_ok=True)
            for _ in range(rounds):
                place.review()
                place.tick()
                for _ in range(choose.randrange(6)):
                    act(place, choose)
            place.review()
        finally:
            place.close()


@pytest.fixture
def place(tmp_path):
    made = Place(os.fsencode(tmp_path))
    yield made
    made.close()


def plant(place: Place, paths: list[bytes]) -> None:
    for path in paths:
        full = os.path.join(place.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(path)


def test_it_opens_only_what_it_is_told(place):
    plant(place, [b"a/%d/%d" % (one, two) for one in range(10) for two in range(10)])
    place.check()
    plant(place, [b"a/3/new"])
    place.touch(b"a/3/new")
    with opened_files() as opened:
        found = place.scanner.rescan(place.result, look_at(place.touched), HashOnly())
    assert found.partial
    assert found.read_count == 1
    assert [path for path in opened if not path.startswith(b"/proc")] == [b"new"]
    assert found.root.files_below == 101


def test_the_directories_that_were_listed_are_told_where_that_is_not_all_of_them(place):
    plant(place, [b"a/x", b"b/x"])
    place.check()
    assert (place.result.partial, place.result.entered) == (False, ())
    plant(place, [b"a/new/far/x"])
    place.touch(b"a/new")
    found = place.scanner.rescan(place.result, look_at(place.touched), HashOnly())
    assert (found.partial, found.entered) == (True, (b"a/new", b"a/new/far"))


def test_a_mount_or_another_root_means_everything(place):
    plant(place, [b"a/x"])
    place.check()
    assert place.scanner.rescan(place.result._replace(mounts=frozenset({b"a"})), look_at({}), HashOnly()) is None
    os.rename(place.root, place.root + b".old")
    plant(place, [b"a/x"])
    assert place.scanner.rescan(place.result, look_at({}), HashOnly()) is None


def test_rules_that_could_not_be_read_mean_everything(place):
    plant(place, [b"x"])
    place.check()
    assert place.scanner.rescan(place.result._replace(unknown_rules=[b".gitignore"]), look_at({}), HashOnly()) is None
    assert place.scanner.rescan(place.result._replace(problems=["cannot"]), look_at({}), HashOnly()) is None


def test_what_happens_in_an_ignored_directory_is_not_looked_at(place):
    plant(place, [b"ig/e/x", b"y"])
    with open(os.path.join(place.root, b".gitignore"), "wb") as file:
        file.write(b"ig/\n")
    place.check()
    plant(place, [b"ig/e/z"])
    before = place.result
    found = place.scanner.rescan(before, look_at({b"ig/e": {b"z"}, b"ig": {b"e"}}), HashOnly())
    assert found.root is before.root
    place.touch(b"ig/e/z")
    place.check()


class Listings:
    """Counts the directories that are listed."""

    def __init__(self, monkeypatch) -> None:
        self.count = 0
        self._scandir = os.scandir
        monkeypatch.setattr(os, "scandir", self._counted)

    def _counted(self, path):
        self.count += 1
        return self._scandir(path)


@pytest.fixture
def settled(tmp_path):
    made = Place(os.fsencode(tmp_path), offset_s=10)
    plant(made, [b"a/%d/%d" % (one, two) for one in range(10) for two in range(10)])
    made.review()
    made.review()
    yield made
    made.close()


def test_a_review_lists_no_directory_that_has_not_changed(settled, monkeypatch):
    before = settled.result
    settled.tick()
    plant(settled, [b"a/3/new"])
    listings = Listings(monkeypatch)
    with opened_files() as opened:
        found = settled.scanner.review(before, HashOnly())
    assert listings.count == 1
    assert found.read_count == 1
    assert [path for path in opened if not path.startswith(b"/proc")] == [b"new"]
    assert found.root.files_below == 101
    assert found.root.children[b"a"].children[b"2"] is before.root.children[b"a"].children[b"2"]


def test_a_review_gives_the_same_model_where_nothing_has_changed(settled, monkeypatch):
    listings = Listings(monkeypatch)
    assert settled.scanner.review(settled.result, HashOnly()).root is settled.result.root
    assert listings.count == 0


def test_a_review_lists_a_directory_that_has_changed_just_now(tmp_path, monkeypatch):
    place = Place(os.fsencode(tmp_path))
    plant(place, [b"a/x"])
    place.review()
    place.review()
    listings = Listings(monkeypatch)
    place.scanner.review(place.result, HashOnly())
    assert listings.count == 2
    place.close()


def test_a_review_believes_no_directory_of_a_file_system_that_is_not_known(settled, monkeypatch):
    monkeypatch.setattr(scanner, "is_local", lambda _device: False)
    settled.result = settled.scanner.scan(settled.result.root, HashOnly())
    for _, node in iter_nodes(settled.result.root):
        node.sign = node.sign[:16]
    listings = Listings(monkeypatch)
    for _ in range(2):
        settled.scanner.review(settled.result, HashOnly())
    assert listings.count == 24


def test_a_review_sees_a_directory_of_the_same_names_in_the_place_of_another(settled):
    path = os.path.join(settled.root, b"a/3")
    shutil.copytree(path, path + b".new")
    os.rename(path, path + b".old")
    os.rename(path + b".new", path)
    settled.review()
    assert settled.result.read_count > 0


def test_a_review_sees_rules_that_ignore_themselves(settled):
    plant(settled, [b"a/4/.gitignore"])
    rules = os.path.join(settled.root, b"a/4/.gitignore")
    with open(rules, "wb") as file:
        file.write(b".gitignore\n1\n")
    settled.review()
    settled.review()
    settled.tick()
    with open(rules, "wb") as file:
        file.write(b".gitignore\n2\n")
    settled.review()
    assert ignored(settled.result) == {b"/a/4/2", b"/a/4/.gitignore"}


def test_a_review_sees_a_large_file_that_has_shrunk(settled):
    path = os.path.join(settled.root, b"a/5/large")
    with open(path, "wb") as file:
        file.truncate(2000)
    settled.review()
    settled.review()
    assert [item.path for item in settled.result.excluded] == [b"a/5/large"]
    settled.tick()
    os.truncate(path, 20)
    settled.review()
    assert settled.result.excluded == []


def test_a_review_takes_a_second_name_of_a_file_in(settled):
    settled.tick()
    os.link(os.path.join(settled.root, b"a/6/6"), os.path.join(settled.root, b"a/7/link"))
    settled.review()
    assert settled.result.linked == {b"a/6/6", b"a/7/link"}


def test_a_review_finds_a_directory_that_has_become_a_store(settled):
    plant(settled, [b"a/8/HEAD", b"a/8/objects/x", b"a/8/ckpt/y"])
    settled.review()
    settled.review()
    settled.tick()
    plant(settled, [b"a/8/ckpt/metadata.json"])
    settled.review()
    assert [item.path for item in settled.result.excluded] == [b"a/8"]


@pytest.mark.parametrize("year_s", [-(70 * 365 * 86400), 330 * 365 * 86400])
def test_files_and_directories_of_another_century(settled, year_s):
    for name in (b"a/3/3", b"a/4"):
        os.utime(os.path.join(settled.root, name), (year_s, year_s))
    for _ in range(3):
        settled.review()
    assert settled.result.skipped == []
    assert settled.result.read_count == 0
