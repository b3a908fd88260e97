"""Dropping and collecting on a disk that is full: history can be deleted, and nothing else gets lost."""

import os

import pytest

from ckpt_protocol.checkpoint import DropParams
from ckpt_protocol.store import GcParams, GcResult
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from support.tiny_disk import fill, tiny_disk
from support.worktrees import Desk, verify

pytestmark = pytest.mark.core


def drop(desk: Desk, *ids: str) -> None:
    desk.writer.drop(DropParams(**desk.common(), token=desk.token(), ids=list(ids)), Caller("test"))


def gc(desk: Desk) -> GcResult:
    run = desk.writer.gc(GcParams(**desk.common(), token=desk.token()), Caller("test"))
    while (result := run.step()) is None:
        pass
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
