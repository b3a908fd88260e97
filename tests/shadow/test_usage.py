"""What the stores of a checkpoint directory are said to hold."""

import os
import shutil

import pytest

from ckpt_protocol.store import ThinParams, UsageResult
from ckpt_protocol.structs import from_wire
from ckptd.core.caller import Caller
from ckptd.errors import DomainError
from ckptd.shadow.record.thinning import Keep
from ckptd.shadow.store import stepping
from support.worktrees import Desk, to_the_end

pytestmark = pytest.mark.core


def usage(desk: Desk, path: bytes | None = None) -> UsageResult:
    return to_the_end(desk.catalog().usage(desk.checkpoint_dir, path))


def test_checkpoints_by_kind(desk: Desk):
    desk.write(b"f", b"1")
    first = desk.save(tag="t").id
    desk.write(b"f", b"2")
    desk.save(kind="auto")
    desk.reset(first)
    result = usage(desk)
    (one,) = result.stores
    assert (one.manual, one.auto, one.safety, one.unreadable, one.tags) == (1, 1, 1, 0, 1)
    assert (from_wire(one.path), from_wire(one.store), one.state) == (desk.root, desk.folder, "ok")
    assert result.bytes == one.bytes > 0
    assert one.newest == desk.list().checkpoints[0].time
    assert usage(desk, desk.root).stores[0].manual == 1


def test_files_of_the_last_save(desk: Desk):
    for number in range(3):
        desk.write(b"d/f%d" % number, b"1")
    desk.save()
    os.unlink(desk.path(b"d/f1"))
    desk.link(b"l", b"f")
    desk.mkdir(b"empty")
    desk.save(kind="auto")
    assert usage(desk).stores[0].files == 3
    with open(os.path.join(desk.folder, b"ckpt/log"), "ab") as file:
        file.write(b'{"type":"intent","verb":"save","n":')
    assert usage(desk).stores[0].files == 3


def test_it_goes_on_in_steps_from_store_to_store_and_checkpoint_to_checkpoint(desk: Desk, monkeypatch):
    desk.configure(keep=Keep(3, 0, 0, 0))
    for number in range(30):
        desk.write(b"f", b"%d" % number)
        desk.save(kind="auto")
    whole = usage(desk)
    monkeypatch.setattr(stepping, "_STEP_S", -1.0)
    run, steps = desk.catalog().usage(desk.checkpoint_dir, None), 0
    while (result := run.step()) is None:
        steps += 1
    assert result == whole
    # One for each checkpoint, and for each of those that would go.
    assert steps > 30 + 20


def test_a_store_that_is_deleted_between_two_steps_is_not_told_of(desk: Desk, monkeypatch):
    for number in range(5):
        desk.write(b"f", b"%d" % number)
        desk.save()
    desk.close()
    monkeypatch.setattr(stepping, "_STEP_S", -1.0)
    run = desk.catalog().usage(desk.checkpoint_dir, None)
    assert [run.step() for _ in range(3)] == [None] * 3
    shutil.rmtree(desk.folder)
    while (result := run.step()) is None:
        pass
    assert (result.stores, result.damaged) == ([], [])


def test_the_log_is_read_from_its_end(desk: Desk):
    for number in range(3):
        desk.write(b"f%d" % number, b"1")
        desk.save()
    with open(os.path.join(desk.folder, b"ckpt/log"), "rb+") as file:
        whole = file.read()
        for damage in (b"", b"\n", b'"verb":"save"\n', b'{"verb":"save"}\n{"n":1}\n'):
            file.truncate(len(whole))
            file.seek(len(whole))
            file.write(damage)
            file.flush()
            assert usage(desk).stores[0].files == 3
        file.seek(0)
        file.truncate(len(whole))


@pytest.mark.parametrize("checkpoints", [8, 320])
def test_about_what_thinning_would_free(desk: Desk, checkpoints: int):
    """More than 200 are not all looked at. Some of the content comes again, or is of a directory that moves."""
    desk.configure(keep=Keep(3, 0, 0, 0))
    for number in range(checkpoints):
        desk.write(b"a/f", os.urandom(400))
        desk.write(b"a/%d" % (number % 7), b"%d" % (number % 5))
        if number % 4 == 0:
            desk.write(b"b/c/g", os.urandom(2_000))
        desk.save(kind="auto" if number != 2 else "manual")
    told = usage(desk).stores[0].thinning_frees
    exact = to_the_end(
        desk.writer.thin(ThinParams(**desk.common(), token=desk.token(), dry_run=True), Caller("test"))
    ).frees_bytes
    assert exact > 0
    assert exact * 0.7 < told < exact * 1.3
    to_the_end(desk.writer.thin(ThinParams(**desk.common(), token=desk.token()), Caller("test")))
    assert usage(desk).stores[0].thinning_frees == 0


def test_what_is_unreadable_is_counted(desk: Desk):
    desk.damaged = True
    desk.write(b"f", b"1")
    desk.save()
    with open(os.path.join(desk.folder, b"refs/checkpoints/0000000001"), "w") as file:
        file.write("?")
    assert usage(desk).stores[0].unreadable == 1


def test_an_untracked_one(desk: Desk):
    assert usage(desk).stores == []
    with pytest.raises(DomainError) as caught:
        usage(desk, desk.root)
    assert caught.value.kind == "not_tracked"
