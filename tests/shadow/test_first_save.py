"""A first save that takes long: it is heard of, can be called off anywhere, and is gone on with after a kill."""

import os
import signal

import pytest

from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import CHUNK_BYTES
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.scan.reading import STREAM_ABOVE_BYTES
from support.tiny_disk import tiny_disk
from support.worktrees import Desk, git_tree, in_child, opened_files

pytestmark = pytest.mark.core

FILES = 40
KEPT = 10


@pytest.fixture
def many(desk: Desk) -> Desk:
    for number in range(FILES):
        desk.write(b"%d/%d/f%02d" % (number % 3, number % 5, number), b"content %d\n" % number)
    desk.configure(keep_after=(KEPT, 1 << 30))
    desk.settle()
    return desk


def names_read(opened: list[bytes]) -> list[bytes]:
    return sorted(path for path in opened if os.path.basename(path) == path and path.startswith(b"f"))


def die_at(step: str, count: int) -> None:
    left = count

    def listener(name: str, _path: bytes) -> None:
        nonlocal left
        left -= name == step
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    listen(listener)


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_a_killed_first_save_is_gone_on_with_from_what_was_kept(many: Desk, kept: int):
    def killed() -> None:
        # The first one is written when there is nothing yet.
        die_at("pack-written", kept + 1)
        many.save("first")

    many.open()
    many.close()
    assert in_child(killed) == signal.SIGKILL
    many.reopen()
    with opened_files() as opened:
        saved = many.save("first")
    assert len(names_read(opened)) == FILES - kept * KEPT
    assert saved.files == FILES
    assert many.tree_of(saved.id) == git_tree(many.root)
    with opened_files() as opened:
        assert not many.save("again").created
    assert names_read(opened) == []


def test_what_is_kept_on_the_way_is_counted(many: Desk):
    stats = many.save("first").stats
    assert stats.packs_written == FILES // KEPT
    assert stats.objects_written == FILES + 1 + 3 + 15 + 1
    assert stats.files_opened == FILES


def test_bytes_are_a_reason_to_keep_too(desk: Desk):
    for number in range(5):
        desk.write(b"f%d" % number, bytes([number]) * 1000)
    desk.configure(keep_after=(1000, 2000))
    assert desk.save("first").stats.packs_written == 3


class Listener(Caller):
    """Counts what it is told, and calls off at the ``stop``th time that it is asked."""

    def __init__(self, stop: int = 1 << 30) -> None:
        super().__init__("test", progress=self._hear)
        self.heard: list[tuple[str, int, int]] = []
        self.asked = 0
        self._stop = stop
        self.cancelled = self

    def is_set(self) -> bool:
        self.asked += 1
        return self.asked > self._stop

    def _hear(self, phase: str, done: int, _total: int, done_bytes: int) -> None:
        self.heard.append((phase, done, done_bytes))


def test_inside_a_huge_file_it_is_asked_at_every_piece(desk: Desk):
    size = STREAM_ABOVE_BYTES + 4 * CHUNK_BYTES
    desk.write(b"huge", b"x" * size)
    desk.settle()
    caller = Listener()
    desk.save("first", caller=caller)
    assert caller.asked > size // CHUNK_BYTES
    assert ("hash", 1, 0) in caller.heard


def test_a_save_called_off_inside_a_huge_file_leaves_nothing_of_it(desk: Desk):
    desk.write(b"a/small", b"1")
    desk.write(b"huge", b"x" * (STREAM_ABOVE_BYTES + CHUNK_BYTES))
    desk.write(b"z/small", b"2")
    desk.settle()
    with pytest.raises(DomainError, match="cancelled"):
        desk.save("first", caller=Listener(stop=6))
    saved = desk.save("first")
    assert saved.files == 3
    assert desk.tree_of(saved.id) == git_tree(desk.root)


def test_a_long_save_leaves_others_the_last_of_a_disk(many: Desk):
    with tiny_disk(many.checkpoint_dir, 8192):
        with opened_files() as opened, pytest.raises(DomainError, match=r"no_space: .* are left") as caught:
            many.save("first")
        assert caught.value.paths == (many.folder,)
        assert many.list().checkpoints == []
        assert len(names_read(opened)) == KEPT
        # There is room enough for the little that this is; and what was read is known.
        many.configure(keep_after=(1000, 1 << 30))
        with opened_files() as opened:
            assert many.save("first").files == FILES
        assert len(names_read(opened)) == FILES - KEPT
        many.close()
