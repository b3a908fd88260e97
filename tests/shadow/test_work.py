"""What an operation costs, counted: the change and not the tree."""

import os
from collections import Counter
from collections.abc import Callable

import pytest

from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.deflate import deflate, wrap
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.thinning import Keep
from ckptd.shadow.restore import exchange, handle, sync
from ckptd.shadow.restore.space import has_plenty
from ckptd.shadow.store import carrying, preparing
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.tree import REGULAR
from support.worktrees import Desk, opened_files

pytestmark = pytest.mark.core

FILES = 1000
FSYNCS_OF_A_RESET = 7


@pytest.fixture
def saved(desk: Desk) -> Desk:
    """A thousand files in ninety directories, saved, and old enough to be trusted."""
    for number in range(FILES):
        desk.write(b"%d/%d/f%d" % (number % 9, number % 81, number), b"content %d\n" % number)
    desk.settle()
    desk.save("first")
    return desk


def own(desk: Desk, opened: list[bytes]) -> list[bytes]:
    """Those of the worktree: the scan names them relative to their directory."""
    return [path for path in opened if not os.path.isabs(path)]


def test_a_first_save_reads_everything_once(desk: Desk):
    for number in range(20):
        desk.write(b"d/f%d" % number, b"%02d" % number)
    with opened_files() as opened:
        stats = desk.save("first").stats
    assert len(own(desk, opened)) == stats.files_opened == 20
    assert stats.bytes_hashed == 40
    assert stats.directories_listed == 2
    assert (stats.objects_written, stats.packs_written) == (20 + 2 + 1, 1)
    assert stats.files_written == 0


def test_a_second_save_after_a_restart_opens_nothing(saved: Desk):
    saved.reopen()
    with opened_files() as opened:
        result = saved.save("second")
    assert own(saved, opened) == []
    assert not result.created
    assert result.stats.files_opened == result.stats.bytes_hashed == result.stats.objects_written == 0
    assert result.stats.packs_written == 0


def test_one_edit_costs_one_file_and_the_trees_above_it(saved: Desk):
    saved.write(b"1/10/f10", b"edited")
    with opened_files() as opened:
        result = saved.save("second")
    assert own(saved, opened) == [b"f10"]
    stats = result.stats
    assert (stats.files_opened, stats.bytes_hashed) == (1, len(b"edited"))
    # A blob, three trees, the commit; no info here.
    assert (stats.objects_written, stats.packs_written) == (1 + 3 + 1, 1)


def test_with_something_to_tell_it_costs_an_info_commit_more(saved: Desk):
    saved.write(b"1/10/f10", b"edited")
    os.mkfifo(saved.path(b"1/pipe"))
    # Besides those: the info commit, its tree, and the list of what was left out.
    assert saved.save("second").stats.objects_written == 5 + 3


def test_a_reset_writes_what_differs(saved: Desk):
    saved.write(b"1/10/f10", b"edited")
    saved.save("second")
    result = saved.reset("#1")
    assert result.written == ["1/10/f10"]
    assert result.stats.files_written == 1
    assert result.stats.files_opened == 0
    nothing = saved.reset("#1").stats
    assert (nothing.files_written, nothing.objects_written) == (0, 0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a restore calls the system; what is relative to a handle is in the worktree."""
    counts: Counter[str] = Counter()

    def counted(owner: object, name: str, told: Callable[..., str]) -> None:
        real = getattr(owner, name)

        def call(*given, **options):
            counts[told(*given, **options)] += 1
            return real(*given, **options)

        monkeypatch.setattr(owner, name, call)

    counted(os, "open", lambda _path, flags, *_, dir_fd=None: "create" if dir_fd and flags & os.O_CREAT else "")
    counted(os, "rename", lambda *_, src_dir_fd=None, **__: "rename" if src_dir_fd else "")
    counted(os, "unlink", lambda _path, dir_fd=None: "unlink" if dir_fd else "")
    counted(os, "fsync", lambda _fd: "fsync")
    counted(exchange, "_RENAMEAT2", lambda *given: "exchange" if given[4] == exchange.EXCHANGE else "place")
    counted(sync._LIBC, "syncfs", lambda _fd: "syncfs")
    counted(handle, "_open_at_once", lambda _fd, path: f"walk to {os.fsdecode(path)}")
    return counts


def test_a_reset_calls_the_system_as_often_as_it_has_to(saved: Desk, calls: Counter[str]):
    changed, deleted, added = (b"0/0/f0", b"0/0/f81", b"1/1/f1"), (b"0/0/f162",), (b"0/0/new", b"1/1/new")
    for path in (*changed, *added):
        saved.write(path, b"edited " + path)
    saved.remove(*deleted)
    calls.clear()
    with opened_files() as opened:
        saved.reset("#1")
    # The scan reads what it does not know; what has left its place is read again, and what is new is made.
    here = Counter("temporary" if path.startswith(b".ckpt-") else os.fsdecode(path) for path in own(saved, opened))
    assert here == {"f0": 1, "f81": 1, "f1": 1, "new": 2, "temporary": 5 + 4}
    del calls[""]
    assert calls == {
        # A file that replaces another gets a second temporary name, for the other will have it.
        "create": 4,
        "rename": 3,
        "exchange": 3,
        # One file to its free place, two that go to the side.
        "place": 1 + 2,
        "unlink": 3 + 2,
        # To the plan's one look, and twice for all that is done in either directory.
        "walk to 0/0": 1 + 2,
        "walk to 1/1": 2,
        "syncfs": 1,
        "fsync": FSYNCS_OF_A_RESET,
    }


def test_a_reset_reads_what_it_writes_once_and_what_it_has_saved_not_at_all(
    saved: Desk, monkeypatch: pytest.MonkeyPatch
):
    paths = [b"%d/%d/f%d" % (number % 9, number % 81, number) for number in range(30)]
    for path in paths:
        saved.write(path, b"edited " + path)
    real, read = ObjectStore._read_packed, Counter[bytes]()

    def counted(self, index, offset, oid, kind, *rest):
        read[kind if kind != b"blob" else oid] += 1
        return real(self, index, offset, oid, kind, *rest)

    monkeypatch.setattr(ObjectStore, "_read_packed", counted)
    saved.reset("#1")
    blobs = {oid: count for oid, count in read.items() if len(oid) == 20}
    assert blobs == {hash_object(b"blob", b"content %d\n" % number): 1 for number in range(30)}
    # Those of the checkpoint that is restored.
    assert read[b"tree"] == len({folder for path in paths for folder in (b"", path[:1], path.rpartition(b"/")[0])})


@pytest.mark.parametrize(
    ("room", "cap", "form"), [(0, 1 << 30, wrap), (1 << 60, 1 << 30, deflate), (0, 1 << 23, deflate)]
)
def test_what_a_reset_saves_is_not_deflated_while_there_is_room(
    saved: Desk, monkeypatch: pytest.MonkeyPatch, room: int, cap: int, form: Callable[[bytes], bytes]
):
    """Where the store is near its cap history would go for it."""
    saved.configure(keep=Keep(max_bytes=cap))
    monkeypatch.setattr(carrying, "_MUCH_ROOM_BYTES", room)
    before = set(os.listdir(saved.repo.objects.pack_dir))
    saved.write(b"1/10/f10", b"edited " * 100)
    saved.reset("#1")
    (pack,) = (name for name in os.listdir(saved.repo.objects.pack_dir) if name[-5:] == b".pack" and name not in before)
    with open(os.path.join(saved.repo.objects.pack_dir, pack), "rb") as file:
        assert form(b"edited " * 100) in file.read()
    saved.undo()
    with open(saved.path(b"1/10/f10"), "rb") as edited:
        assert edited.read() == b"edited " * 100


def test_a_reset_larger_than_what_is_held_reads_the_rest_again(saved: Desk, monkeypatch: pytest.MonkeyPatch):
    contents = [b"%d\n" % number * 4000 for number in range(4)]
    for number, data in enumerate(contents):
        saved.write(b"big/%d" % number, data)
    second = saved.save("second").id
    saved.remove(b"big")
    monkeypatch.setattr(preparing, "HELD_BYTES", sum(map(len, contents[:2])))
    saved.reset(second)
    for number, data in enumerate(contents):
        with open(saved.path(b"big/%d" % number), "rb") as file:
            assert file.read() == data


def test_where_there_is_plenty_of_room_nobody_asks_what_would_be_freed(saved: Desk, monkeypatch: pytest.MonkeyPatch):
    asked: list[bytes] = []
    monkeypatch.setattr(carrying, "used_bytes", lambda path: asked.append(path) or 0)
    saved.write(b"0/0/f0", b"edited")
    saved.reset("#1")
    assert asked == []
    steps = [Step(b"f%d" % number, State(REGULAR, b"1"), State(REGULAR, b"2")) for number in range(300)]
    assert has_plenty(steps, 300 * 4096, None, lambda _oid: 4000)
    assert has_plenty(steps, 300 * 4096, 300, lambda _oid: 4000)
    assert not has_plenty(steps, 300 * 4096 - 1, None, lambda _oid: 4000)
    assert not has_plenty(steps, 300 * 4096, 299, lambda _oid: 4000)


def test_what_a_retried_request_took_is_told_again(saved: Desk):
    saved.write(b"1/10/f10", b"edited")
    token = saved.token()
    assert saved.save("second", token=token) == saved.save("second", token=token)
