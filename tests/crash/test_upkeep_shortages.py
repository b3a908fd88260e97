"""Dropping and collecting on a disk that is full: history can be deleted, and nothing else gets lost."""

import os
import time

import pytest

from ckpt_protocol.checkpoint import DropParams
from ckpt_protocol.store import GcParams, GcResult
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.objects.pieces import drained
from ckptd.shadow.record.thinning import Keep
from support.ledger import left_behind
from support.tiny_disk import fill, tiny_disk
from support.worktrees import Desk, verify

pytestmark = pytest.mark.core


def drop(desk: Desk, *ids: str) -> None:
    desk.writer.drop(DropParams(**desk.common(), token=desk.token(), ids=list(ids)), Caller("test"))


def gc(desk: Desk) -> GcResult:
    run = desk.writer.gc(GcParams(**desk.common(), token=desk.token()), Caller("test"))
    while (result := run.step()) is None:
        time.sleep(0.001 if run.is_waiting else 0)
    return result


def contents(desk: Desk) -> dict[int, bytes]:
    return {one.seq: desk.cat(one.id, b"f") for one in desk.list().checkpoints}


def test_history_can_be_dropped_on_a_full_disk_and_collected_when_there_is_room(desk):
    with tiny_disk(desk.checkpoint_dir, 1024):
        for number in range(6):
            desk.write(b"f", os.urandom(20_000))
            desk.save(f"number {number}")
        kept = contents(desk)
        filler = fill(desk.checkpoint_dir)
        desk.write(b"f", os.urandom(20_000))
        with pytest.raises(DomainError) as caught:
            desk.save()
        assert caught.value.kind == "no_space"
        drop(desk, "#1", "#2", "#3")
        assert contents(desk) == {seq: kept[seq] for seq in (4, 5, 6)}
        try:
            told = gc(desk).notes
        except DomainError as error:
            told = [error.message]
        assert told
        assert contents(desk) == {seq: kept[seq] for seq in (4, 5, 6)}
        os.unlink(filler)
        desk.reopen()
        assert contents(desk) == {seq: kept[seq] for seq in (4, 5, 6)}
        # Packs with nothing that is needed go without a copy; the rest finds no room on so small a disk.
        result = gc(desk)
        assert result.bytes_after < result.bytes_before or result.objects_removed == 0
        assert contents(desk) == {seq: kept[seq] for seq in (4, 5, 6)}
        verify(desk.folder)
        desk.close()


MIB = 1024 * 1024


def fill_up(desk: Desk, saves: int, *, kind: str = "manual") -> None:
    """Have packs of which a quarter is needed once their checkpoints are gone, and between them some that are not."""
    for number in range(saves):
        desk.write(b"f", os.urandom(MIB * 3 // 2))
        if number % 4:
            desk.write(b"lasting%d" % number, os.urandom(MIB // 2))
        desk.save(f"number {number}", kind=kind)


def everything(desk: Desk) -> dict[int, dict[bytes, bytes]]:
    found = {}
    for one in desk.list(limit=1000).checkpoints:
        files = [path for path, (mode, _) in desk.paths_of(one.id).items() if mode != b"040000"]
        found[one.seq] = {path: desk.cat(one.id, path) for path in files}
    desk.reader.let_go()
    return found


def free_bytes(desk: Desk) -> int:
    found = os.statvfs(desk.checkpoint_dir)
    return found.f_bavail * found.f_frsize


def leave(desk: Desk, size: int) -> str:
    """Let somebody else take the disk, but for so many bytes; give the file that does."""
    return os.fsdecode(fill(desk.checkpoint_dir, leave_bytes=size))


def check_nothing_is_lost(desk: Desk, kept: dict[int, dict[bytes, bytes]]) -> None:
    assert everything(desk) == kept
    assert left_behind(desk.folder) == []
    assert not os.path.exists(os.path.join(desk.folder, b"ckpt/deltas"))
    verify(desk.folder)
    # What is gone and open takes its space.
    desk.reader.let_go()


def test_where_little_is_free_it_is_copied_in_slices_and_all_of_it_goes(desk):
    with tiny_disk(desk.checkpoint_dir, 64 * 1024):
        fill_up(desk, 20)
        drop(desk, *(f"#{seq}" for seq in range(1, 19)))
        kept = everything(desk)
        needed = sum(map(len, kept[20].values())) + len(kept[19][b"f"])
        # A margin of 16 MiB stays for others, so 4 can be copied at once: what is needed is nearly three times that.
        leave(desk, 20 * MIB)
        least = [free_bytes(desk)]
        end = listen(lambda _name, _path: least.append(free_bytes(desk)))
        result = gc(desk)
        end()
        assert result.notes == []
        assert result.removed_bytes > 25 * MIB
        assert desk.repo.objects.packed_bytes() < needed + 2 * MIB
        assert min(least) > 15 * MIB
        check_nothing_is_lost(desk, kept)
        desk.close()


def test_where_next_to_nothing_is_free_it_declines_and_what_needs_no_copy_goes(desk):
    with tiny_disk(desk.checkpoint_dir, 64 * 1024):
        fill_up(desk, 20)
        drop(desk, *(f"#{seq}" for seq in range(1, 19)))
        kept = everything(desk)
        filler = leave(desk, MIB)
        result = gc(desk)
        # Four packs have nothing that is needed; they make no room for another one.
        assert 4 * MIB < result.removed_bytes < 8 * MIB
        assert ["too large to be copied" in note for note in result.notes] == [True]
        check_nothing_is_lost(desk, kept)
        desk.reopen()
        check_nothing_is_lost(desk, kept)
        os.unlink(filler)
        assert gc(desk).removed_bytes > 15 * MIB
        check_nothing_is_lost(desk, kept)
        desk.close()


def outcome(desk: Desk) -> GcResult | DomainError:
    try:
        return gc(desk)
    except DomainError as error:
        return error


@pytest.mark.parametrize("step", ["refs-packed", "pack-written", "pack-named", "pack-durable", "merged", "pack-hidden"])
def test_a_disk_that_somebody_fills_up_meanwhile(desk, step):
    with tiny_disk(desk.checkpoint_dir, 48 * 1024):
        fill_up(desk, 8)
        drop(desk, *(f"#{seq}" for seq in range(1, 7)))
        kept = everything(desk)
        fillers: list[str] = []
        end = listen(lambda name, _path: fillers.append(leave(desk, 0)) if (name, fillers) == (step, []) else None)
        told = outcome(desk)
        end()
        assert isinstance(told, GcResult) or (told.kind == "no_space" and told.hint)
        check_nothing_is_lost(desk, kept)
        assert fillers
        os.unlink(fillers[0])
        result = gc(desk)
        assert (result.all_kept, result.notes) == (False, [])
        assert desk.repo.objects.packed_bytes() < 8 * MIB
        check_nothing_is_lost(desk, kept)
        desk.close()


def tend(desk: Desk) -> int:
    times = 1
    while desk.writer.tend():
        times += 1
        time.sleep(0.001)
    return times


@pytest.mark.parametrize("left", [0, 100 * 1024, MIB])
def test_housekeeping_on_a_full_disk_ends_and_goes_on_when_there_is_room(desk, left):
    """History is thinned all the same, and what needs no copy goes; the rest waits without trying again and again."""
    desk.configure(keep=Keep(last=2, hourly=0, daily=0, weekly=0, max_bytes=8 * MIB))
    with tiny_disk(desk.checkpoint_dir, 48 * 1024):
        fill_up(desk, 12, kind="auto")
        before = everything(desk)
        filler = leave(desk, left)
        tend(desk)
        assert tend(desk) == 1
        assert desk.repo.pressure == 0
        kept = {seq: before[seq] for seq in (11, 12)}
        check_nothing_is_lost(desk, kept)
        desk.reopen()
        check_nothing_is_lost(desk, kept)
        os.unlink(filler)
        tend(desk)
        check_nothing_is_lost(desk, kept)
        assert desk.repo.objects.packed_bytes() < 10 * MIB
        desk.close()


def lines(desk: Desk) -> bytes:
    return b"".join(b"%s\n" % os.urandom(30).hex().encode() for _ in range(20_000))


@pytest.mark.parametrize("packed", [False, True])
def test_what_was_dropped_on_a_full_disk_stays_dropped(desk, packed):
    """The log had no room to tell of it: else the next opening would take it for lost, and bring it back."""
    for number in range(300):
        desk.write(b"some/%s" % os.urandom(8).hex().encode(), b"%d" % number)
    with tiny_disk(desk.checkpoint_dir, 1024):
        for number in range(6):
            desk.write(b"f", os.urandom(20_000))
            desk.save(f"number {number}")
        if packed:
            drained(desk.repo.refs.pack(1))
        kept = contents(desk)
        log = os.path.join(desk.folder, b"ckpt/log")
        # The last block of the log is full as well.
        with open(log, "ab") as file:
            file.write(b" " * (-os.path.getsize(log) % 4096 - 1) + b"\n")
        filler = fill(desk.checkpoint_dir)
        drop(desk, "#1", "#2", "#3")
        os.unlink(filler)
        desk.reopen()
        assert contents(desk) == {seq: kept[seq] for seq in (4, 5, 6)}
        gc(desk)
        desk.reopen()
        assert contents(desk) == {seq: kept[seq] for seq in (4, 5, 6)}
        desk.close()


def test_deltas_are_made_only_where_there_is_twice_the_room(desk):
    with tiny_disk(desk.checkpoint_dir, 48 * 1024):
        text = lines(desk)
        for number in range(20):
            desk.write(b"f", text + b"%d" % number)
            desk.save()
        kept = everything(desk)
        size = desk.repo.objects.packed_bytes()
        filler = leave(desk, size + 8 * MIB)
        assert gc(desk).bytes_after > size * 3 // 4
        check_nothing_is_lost(desk, kept)
        os.unlink(filler)
        assert gc(desk).bytes_after < size // 2
        check_nothing_is_lost(desk, kept)
        desk.close()


def test_a_disk_that_is_filled_up_while_deltas_are_made(desk):
    with tiny_disk(desk.checkpoint_dir, 64 * 1024):
        text = lines(desk)
        for number in range(20):
            desk.write(b"f", text + b"%d" % number)
            desk.save()
        kept = everything(desk)
        run = desk.writer.gc(GcParams(**desk.common(), token=desk.token()), Caller("test"))
        filler = ""
        while (result := run.step()) is None:
            if run.is_waiting and not filler and os.path.isdir(os.path.join(desk.folder, b"ckpt/deltas")):
                filler = leave(desk, 0)
        assert filler
        assert [note.startswith("no deltas were made") for note in result.notes] == [True]
        check_nothing_is_lost(desk, kept)
        os.unlink(filler)
        assert gc(desk).bytes_after < result.bytes_after // 2
        check_nothing_is_lost(desk, kept)
        desk.close()


def test_a_save_is_done_where_there_is_no_room_to_merge_what_saves_have_left(desk):
    with tiny_disk(desk.checkpoint_dir, 4 * 1024):
        for number in range(14):
            desk.write(b"f", os.urandom(60_000))
            desk.save(f"number {number}")
        filler = leave(desk, 400_000)
        for number in range(14, 18):
            desk.write(b"f", os.urandom(60_000))
            assert desk.save(f"number {number}").created
        kept = everything(desk)
        assert len(kept) == 18
        check_nothing_is_lost(desk, kept)
        os.unlink(filler)
        desk.reopen()
        check_nothing_is_lost(desk, kept)
        desk.close()
