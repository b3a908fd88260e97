"""A worktree that changes under the scan: every swap is seen or listed, and none fails it or leads it elsewhere."""

import contextlib
import mmap
import os
import shutil
from collections.abc import Callable

import pytest

from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.pack import HashOnly
from ckptd.shadow.scan.frames import _MAX_OPEN
from ckptd.shadow.scan.reading import read_file
from ckptd.shadow.scan.scanner import ScanResult
from support.worktrees import Desk

pytestmark = pytest.mark.core

TRIGGER = b"the content whose reading sets it off"


class Acting(HashOnly):
    """Does something the first time (or each time) that a certain content is taken."""

    def __init__(self, content: bytes, act: Callable[[], object], times: int = 1) -> None:
        super().__init__()
        self._content = content
        self._act = act
        self._left = times

    def add(self, kind: bytes, data: bytes) -> bytes:
        if data == self._content and self._left:
            self._left -= 1
            self._act()
        return super().add(kind, data)

    def add_stream(self, size, chunks):
        chunks = iter(chunks)
        first = next(chunks, b"")
        if first.startswith(self._content) and self._left:
            self._left -= 1
            self._act()
        return super().add_stream(size, (piece for part in ([first], chunks) for piece in part))


def _look(desk: Desk, act: Callable[[], object], content: bytes = TRIGGER, times: int = 1) -> ScanResult:
    sink = Acting(content, act, times)
    found = desk.repo.scan(sink)
    assert sink._left == 0 or times > 5, "the trigger was never read"
    return found


def _look_and_swap(desk: Desk, act: Callable[[], object]) -> ScanResult:
    """Act between the look at the one file there is and its opening."""
    asked = []

    def cancelled() -> bool:
        # asked once for the directory, then before each file
        asked.append(True)
        if len(asked) == 2:
            act()
        return False

    found = desk.repo.scan(HashOnly(), cancelled=cancelled)
    assert len(asked) >= 2
    return found


def _directory_before_trigger(desk: Desk) -> bytes:
    """Make a directory and, later in the listing, the file whose reading sets it off; give the directory's name."""
    names = [b"p", b"q"]
    for name in names:
        desk.mkdir(name)
    first, second = (name for name in os.listdir(desk.root) if name in names)
    os.rmdir(desk.path(second))
    desk.write(second, TRIGGER)
    assert [name for name in os.listdir(desk.root) if name in names] == [first, second]
    desk.write(first + b"/f", b"1")
    return first


def _replace(desk: Desk, name: bytes, kind: str) -> None:
    path = desk.path(name)
    if os.path.isdir(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        os.mkdir(path)
        desk.write(name + b"/inside", b"1")
    elif kind == "link":
        os.symlink(b"/etc/passwd", path)
    elif kind == "link to directory":
        os.symlink(b"/etc", path)
    elif kind == "file":
        desk.write(name, b"other")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("kind", "skipped", "excluded"),
    [
        ("nothing", [], []),
        ("fifo", [], ["special"]),
        ("directory", ["unstable"], []),
        ("link", ["unstable"], []),
    ],
)
def test_a_file_is_swapped_between_listing_and_reading(desk: Desk, kind: str, skipped: list, excluded: list):
    desk.write(b"f", b"1")
    found = _look_and_swap(desk, lambda: _replace(desk, b"f", kind))
    assert [(item.path, item.reason) for item in found.skipped] == [(b"f", reason) for reason in skipped]
    assert [(item.path, item.reason) for item in found.excluded] == [(b"f", reason) for reason in excluded]
    assert found.root.entries == {}


def test_a_file_replaced_by_another_file_is_read_as_it_is_now(desk: Desk):
    desk.write(b"f", b"1")
    found = _look_and_swap(desk, lambda: _replace(desk, b"f", "file"))
    assert found.skipped == []
    assert found.root.entries[b"f"][:20] == hash_object(b"blob", b"other")


def test_a_link_is_swapped(desk: Desk):
    desk.link(b"f", b"target")
    found = _look_and_swap(desk, lambda: _replace(desk, b"f", "file"))
    assert [(item.path, item.reason) for item in found.skipped] == [(b"f", "unstable")]
    assert found.root.entries == {}


@pytest.mark.parametrize("kind", ["nothing", "file", "link to directory", "fifo"])
def test_a_directory_is_swapped_before_it_is_entered(desk: Desk, kind: str):
    name = _directory_before_trigger(desk)
    found = _look(desk, lambda: _replace(desk, name, kind))
    assert found.root.children == {}
    assert [item.path for item in found.skipped] == ([] if kind == "nothing" else [name])


def test_a_directory_that_is_moved_away_while_it_is_read_leads_nowhere_else(desk: Desk):
    desk.write(b"d/a", TRIGGER)
    desk.write(b"d/sub/f", b"1")

    def act() -> None:
        os.rename(desk.path(b"d"), desk.base + b"/moved")
        os.symlink(b"/etc", desk.path(b"d"))

    found = _look(desk, act)
    assert set(found.root.children[b"d"].children) == {b"sub"}
    assert set(found.root.children[b"d"].entries) == {b"a"}


def test_a_directory_above_an_open_one_is_moved_while_it_is_closed(desk: Desk):
    """So deep that those above are closed meanwhile; "..", then, is another directory."""
    depth = _MAX_OPEN + 10
    path = b"/".join([b"d"] * depth)
    desk.write(path + b"/f", TRIGGER)
    # the directories to walk are taken from the end of the listing, and which one that is cannot be chosen
    middle = b"/".join([b"d"] * 5)
    for name in (b"aside1", b"aside2", b"aside3", b"aside4"):
        desk.write(middle + b"/" + name + b"/f", b"1")
    other = desk.mkdir(b"other")

    def act() -> None:
        os.rename(desk.path(middle + b"/d"), os.path.join(other, b"d"))

    found = _look(desk, act)
    assert found.skipped == []
    node = found.root
    for _ in range(5):
        node = node.children[b"d"]
    assert set(node.children) == {b"aside1", b"aside2", b"aside3", b"aside4", b"d"}


def test_a_directory_that_cannot_be_found_again_is_listed(desk: Desk):
    depth = _MAX_OPEN + 10
    path = b"/".join([b"d"] * depth)
    desk.write(path + b"/f", TRIGGER)
    for number in range(4):
        desk.write(b"d/d/aside%d/f" % number, b"1")

    def act() -> None:
        os.rename(desk.path(b"d/d/d"), desk.base + b"/lower")
        os.rename(desk.path(b"d/d"), desk.base + b"/upper")

    found = _look(desk, act)
    node = found.root.children[b"d"].children[b"d"]
    # those that were walked before the deep one are there; how many that is, is the file system's choice
    skipped = [item.path for item in found.skipped]
    assert {b"d/d/" + name for name in node.children} | set(skipped) == {
        *(b"d/d/aside%d" % number for number in range(4)),
        b"d/d/d",
    }
    assert {item.reason for item in found.skipped} <= {"unstable"}


def test_a_file_that_grows_once_is_read_again(desk: Desk):
    desk.write(b"log", TRIGGER)
    found = _look(desk, lambda: desk.write(b"log", TRIGGER + b"more"))
    assert found.skipped == []
    assert found.root.entries[b"log"][:20] == hash_object(b"blob", TRIGGER + b"more")


def test_a_file_that_never_stops_changing_is_kept_as_last_read_and_listed(desk: Desk):
    path = desk.write(b"log", TRIGGER)
    desk.settle()
    found = _look(desk, lambda: os.utime(path), times=1000)
    assert [(item.path, item.reason) for item in found.skipped] == [(b"log", "unstable")]
    assert found.root.entries[b"log"][:20] == hash_object(b"blob", TRIGGER)
    # and it is read again however old it is
    assert desk.repo.scan(HashOnly()).read_count == 1


@pytest.mark.parametrize("change", ["grow", "shrink"])
def test_a_streamed_file_changes_its_size(desk: Desk, change: str):
    path = desk.write(b"big", TRIGGER + bytes(9 << 20))
    size = os.path.getsize(path) + (1000 if change == "grow" else -1000)
    found = _look(desk, lambda: os.truncate(path, size))
    assert found.skipped == []
    with open(path, "rb") as file:
        assert found.root.entries[b"big"][:20] == hash_object(b"blob", file.read())


def test_a_streamed_file_that_keeps_shrinking_is_listed(desk: Desk):
    path = desk.write(b"big", TRIGGER + bytes(9 << 20))
    found = _look(desk, lambda: os.truncate(path, os.path.getsize(path) - 1), times=1000)
    assert [(item.path, item.reason) for item in found.skipped] == [(b"big", "unstable")]


def test_saves_go_on_around_all_of_it(desk: Desk):
    """The same with a real pack: what was read and thrown away does not spoil it."""
    path = desk.write(b"big", TRIGGER + bytes(9 << 20))
    desk.write(b"small", b"1")
    pack = desk.repo.objects.writer()
    real = pack.add_stream

    def shrinking(size, chunks):
        os.truncate(path, os.path.getsize(path) - 1)
        return real(size, chunks)

    pack.add_stream = shrinking
    with contextlib.ExitStack() as stack:
        stack.callback(pack.abort)
        found = desk.repo.scan(pack)
        assert [item.reason for item in found.skipped] == ["unstable"]
        desk.repo.seal(pack)
    for name, entry in found.root.entries.items():
        if name == b"small":
            assert desk.git("cat-file", "blob", entry[:20].hex()) == b"1"
    desk.git("fsck", "--strict", "--full")


class TornSink(HashOnly):
    """Lets a program go on with a write, which leaves no trace in the stat data, while the content is being taken."""

    def __init__(self, mapped: mmap.mmap, rounds: int) -> None:
        super().__init__()
        self.mapped = mapped
        self.rounds = rounds

    def add_stream(self, size, chunks):
        def overwritten():
            for number, chunk in enumerate(chunks):
                yield chunk
                if number == 0 and self.rounds:
                    self.rounds -= 1
                    self.mapped[:4096] = os.urandom(4096)

        return super().add_stream(size, overwritten())


@pytest.mark.parametrize(("rounds", "problem"), [(1, None), (3, "unstable")])
def test_a_large_file_that_is_overwritten_while_it_is_read_is_not_taken_for_whole(desk: Desk, rounds, problem):
    path = desk.write(b"large", os.urandom(9 << 20))
    fd = os.open(os.path.dirname(path), os.O_RDONLY)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        # Only the first write to a page sets the file's times.
        mapped[:4096] = os.urandom(4096)
        result = read_file(fd, b"large", TornSink(mapped, rounds))
        assert result.problem == problem
        assert (result.oid == hash_object(b"blob", mapped[:])) is (problem is None)
    os.close(fd)
