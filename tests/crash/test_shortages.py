"""Disks that are full, that turn read-only, that one may not write to; too few descriptors; signals in the middle."""

import ctypes
import os
import resource
import signal
import traceback
from collections.abc import Callable, Iterator

import pytest

from ckpt_protocol.checkpoint import DropParams
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.restore.space import missing_bytes
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.tree import REGULAR
from support.plainworld import World, look
from support.tiny_disk import fill, tiny_disk
from support.worktrees import Desk, in_child, somebody, verify

pytestmark = pytest.mark.core

KIB = 1024
_REMOUNT, _READ_ONLY = 32, 1
_libc = ctypes.CDLL(None, use_errno=True)


def plain(world: World) -> dict[bytes, tuple[str, bytes]]:
    return {path: (node.kind, node.data) for path, node in world.items()}


def now(desk: Desk) -> dict[bytes, tuple[str, bytes]]:
    found = plain(look(desk.root))
    found.pop(b"filler", None)
    return found


def check_clean(desk: Desk) -> None:
    verify(desk.folder)
    for top in (desk.root, desk.checkpoint_dir):
        for _, folders, names in os.walk(top):
            assert [name for name in folders + names if name.startswith((b".tmp-", b"tmp_", b".ckpt-"))] == []


def two_states(desk: Desk, kibibytes: int = 4) -> tuple[str, dict[bytes, tuple[str, bytes]]]:
    """Save a tree with some large files, then go on with small ones; give the id and what it holds."""
    for number in range(6):
        desk.write(b"d%d/large" % number, os.urandom(kibibytes * KIB))
        desk.write(b"d%d/deleted" % number, b"deleted later")
    first = desk.save("first").id
    held = now(desk)
    for number in range(6):
        desk.write(b"d%d/large" % number, b"small")
        desk.write(b"d%d/new" % number, b"new")
        desk.remove(b"d%d/deleted" % number)
    return first, held


@pytest.mark.parametrize("leave", [0, 4, 8, 12, 16, 24, 32])
def test_a_full_store(desk: Desk, leave: int):
    """A save and a reset are done, or refused with nothing changed; what is there can be read meanwhile."""
    with tiny_disk(desk.checkpoint_dir, 512):
        first, held = two_states(desk)
        mine = now(desk)
        filler = fill(desk.checkpoint_dir, leave_bytes=leave * KIB)
        desk.write(b"d0/more", os.urandom(30 * KIB))
        mine[b"d0/more"] = look(desk.root)[b"d0/more"][:2]
        for ask in (lambda: desk.save("second"), lambda: desk.reset(first)):
            with pytest.raises(DomainError, match="no_space") as caught:
                ask()
            assert caught.value.hint
            assert now(desk) == mine
        assert [one.id for one in desk.list().checkpoints] == [first]
        os.unlink(filler)
        saved = desk.save("second")
        assert saved.created
        desk.reset(first)
        assert now(desk) == held
        desk.undo()
        assert now(desk) == mine
        check_clean(desk)
        desk.close()


@pytest.mark.parametrize("number", [0, 1])
def test_history_can_be_deleted_on_a_full_disk(desk: Desk, number: int):
    with tiny_disk(desk.checkpoint_dir, 512):
        desk.write(b"file", os.urandom(9000))
        ids = [desk.save("first").id]
        desk.write(b"file", os.urandom(9000))
        ids.append(desk.save("second").id)
        filler = fill(desk.checkpoint_dir)
        params = DropParams(**desk.common(), token=desk.token(), ids=[ids[number]])
        assert [one.id for one in desk.writer.drop(params, Caller("test")).dropped] == [ids[number]]
        for _ in range(2):
            assert [one.id for one in desk.list().checkpoints] == [ids[1 - number]]
            assert desk.head() == ids[1 - number]
            desk.reopen()
        os.unlink(filler)
        desk.write(b"file", b"third")
        assert desk.save("third").seq == 3
        check_clean(desk)
        desk.close()


@pytest.mark.parametrize("leave", [0, 4, 8, 16, 24, 40])
def test_a_full_worktree(desk: Desk, leave: int):
    """A restore that would not fit is refused before its first write, and done when there is room."""
    with tiny_disk(desk.root, 512):
        first, held = two_states(desk, kibibytes=10)
        mine = now(desk)
        before = {path: os.lstat(desk.path(path)).st_ino for path in mine}
        filler = fill(desk.root, leave_bytes=leave * KIB)
        desk.configure(exclude=(b"filler",))
        with pytest.raises(DomainError, match="no_space") as caught:
            desk.reset(first)
        assert caught.value.paths == (desk.root,)
        assert {path: os.lstat(desk.path(path)).st_ino for path in mine} == before
        assert now(desk) == mine
        assert desk.status().interrupted is None
        os.truncate(filler, os.path.getsize(filler) // 2)
        assert desk.reset(first).conflicts == []
        assert now(desk) == held
        check_clean(desk)
        desk.close()


def test_the_room_of_a_restore_is_reckoned_in_its_order():
    sizes = {b"new": 8192, b"old": 8192}
    old, new = State(REGULAR, b"old"), State(REGULAR, b"new")
    steps = [Step(b"a/gone", old, None), Step(b"a/new", None, new), Step(b"b/f", old, new)]

    def missing(free: int, together: int = 256) -> int:
        return missing_bytes(steps, free, lambda _path: 8192, lambda oid: sizes[oid], together)

    # What goes makes room for the new one; the one that changes stands there twice for a moment.
    assert missing(8192) == 0
    assert missing(0) == 8192
    assert missing(4096) == 4096


def test_a_disk_that_turns_read_only_in_the_middle(desk: Desk):
    with tiny_disk(desk.root, 1024):
        first, held = two_states(desk)
        mine = now(desk)
        seen = []

        def turn(name: str, _path: bytes) -> None:
            seen.append(name)
            if name == "worktree-verified" and seen.count(name) == 3:
                remount(desk.root, read_only=True)

        end = listen(turn)
        try:
            result = desk.reset(first)
        finally:
            end()
            remount(desk.root, read_only=False)
        assert {item.reason for item in result.conflicts} == {"read_only"}
        for path, node in now(desk).items():
            name = path.rpartition(b"/")[2]
            assert node in (mine.get(path), held.get(path)) or name.startswith(b".ckpt-") or b"rescued" in name
        desk.reopen()
        desk.reset(first)
        assert now(desk) == held
        check_clean(desk)
        desk.close()


def remount(place: bytes, *, read_only: bool) -> None:
    flags = _REMOUNT | (_READ_ONLY if read_only else 0)
    assert _libc.mount(b"none", place, None, flags, None) == 0, os.strerror(ctypes.get_errno())


@pytest.fixture
def nobodys(desk: Desk) -> Iterator[Desk]:
    """A desk of somebody for whom permissions count."""
    with somebody():
        yield desk
        desk.close()


@pytest.mark.parametrize("moment", ["before", "scanned", "begun"])
@pytest.mark.parametrize("folder", range(0, 6, 2))
def test_a_directory_that_may_not_be_written_to(nobodys: Desk, folder: int, moment: str):
    """Whether it was so before the plan or came after it: its paths stay, the others are done, and another try is."""
    desk = nobodys
    first, held = two_states(desk)
    mine = now(desk)
    place = b"d%d" % folder

    def forbid(name: str, _path: bytes) -> None:
        if name == moment:
            os.chmod(desk.path(place), 0o555)

    forbid("before", b"")
    end = listen(forbid)
    result = desk.rollback(first, place + b"/large", place + b"/deleted", b"d1")
    end()
    assert {item.reason for item in result.conflicts} == {"permission_denied"}
    assert all(str(item.path).startswith(place.decode()) for item in result.conflicts)
    after = now(desk)
    for path in mine.keys() | held.keys():
        inside = path.startswith(place + b"/")
        assert after.get(path) == (mine if inside or not path.startswith(b"d1") else held).get(path)
    os.chmod(desk.path(place), 0o755)
    desk.reset(first)
    assert now(desk) == held
    check_clean(desk)


def test_an_undo_that_could_not_change_all_is_gone_on_with(nobodys: Desk):
    desk = nobodys
    first, held = two_states(desk)
    desk.rollback(first, b"d0")
    between = now(desk)
    desk.rollback(first, b"d1", b"d2")
    os.chmod(desk.path(b"d1"), 0o555)
    result = desk.undo()
    assert {item.reason for item in result.conflicts} == {"permission_denied"}
    os.chmod(desk.path(b"d1"), 0o755)
    # Not the restore before it is undone, but the rest of this one.
    again = desk.undo()
    assert again.conflicts == []
    assert again.safety == result.safety
    assert now(desk) == between
    desk.redo()
    assert {path: node for path, node in now(desk).items() if path < b"d3"} == {
        path: node for path, node in held.items() if path < b"d3"
    }


def test_a_ref_that_cannot_be_read_for_a_while_is_there(nobodys: Desk):
    """It says that a restore had begun: nobody may write that restore off because of a moment's trouble."""
    desk = nobodys
    first, held = two_states(desk)
    mine = now(desk)
    desk.close()

    def dying() -> None:
        listen(lambda name, path: os._exit(9) if (name, path) == ("worktree-exchanged", b"d1/large") else None)
        desk.reset(first)

    assert in_child(dying) != 0
    ref = os.path.join(desk.folder, b"refs", b"checkpoints", b"%010d" % 2)
    os.chmod(ref, 0)
    desk.open(create=False)
    desk.close()
    os.chmod(ref, 0o600)
    desk.open(create=False)
    assert desk.status().interrupted is not None
    desk.undo()
    assert now(desk) == mine
    desk.reset(first)
    assert now(desk) == held
    check_clean(desk)


def in_a_child(work: Callable[[], None]) -> None:
    def told() -> None:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            raise

    assert in_child(told) == 0


def outcome_of(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except DomainError as error:
        return error


@pytest.mark.parametrize("spare", range(1, 16))
def test_too_few_descriptors(desk: Desk, spare: int):
    first, held = two_states(desk)
    mine = now(desk)
    desk.close()

    def work() -> None:
        desk.open(create=False)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for ask in (lambda: desk.save("second"), lambda: desk.reset(first)):
            highest = max(map(int, os.listdir("/proc/self/fd")))
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + spare, hard))
            try:
                result = outcome_of(ask)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            if isinstance(result, DomainError):
                assert result.kind == "too_many_files"
                assert now(desk) == mine
                continue
            conflicts = getattr(result, "conflicts", [])
            assert {item.reason for item in conflicts} <= {"too_many_files"}
            assert not conflicts or set(now(desk).items()) <= set(mine.items()) | set(held.items())
        desk.reset(first)
        assert now(desk) == held
        desk.close()

    in_a_child(work)
    desk.open(create=False)
    assert first in [one.id for one in desk.list().checkpoints]
    assert desk.save("third")
    check_clean(desk)


def test_signals_all_the_time(desk: Desk):
    """A call that a signal interrupts is made again."""
    first, held = two_states(desk, kibibytes=300)

    def work() -> None:
        count = []
        signal.signal(signal.SIGALRM, lambda *_: count.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        assert desk.save("second").complete
        assert desk.reset(first).conflicts == []
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert count
        assert now(desk) == held
        desk.close()

    desk.close()
    in_a_child(work)
    desk.open(create=False)
    check_clean(desk)
