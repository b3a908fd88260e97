"""What the stores of a checkpoint directory are said to hold."""

import os

import pytest

from ckpt_protocol.structs import from_wire
from ckptd.errors import DomainError
from support.worktrees import Desk

pytestmark = pytest.mark.core


def test_checkpoints_by_kind(desk: Desk):
    desk.write(b"f", b"1")
    first = desk.save(tag="t").id
    desk.write(b"f", b"2")
    desk.save(kind="auto")
    desk.reset(first)
    result = desk.catalog().usage(desk.checkpoint_dir, None)
    (one,) = result.stores
    assert (one.manual, one.auto, one.safety, one.unreadable, one.tags) == (1, 1, 1, 0, 1)
    assert (from_wire(one.path), from_wire(one.store), one.state) == (desk.root, desk.folder, "ok")
    assert result.bytes == one.bytes > 0
    assert one.newest == desk.list().checkpoints[0].time
    assert desk.catalog().usage(desk.checkpoint_dir, desk.root).stores[0].manual == 1


def test_what_is_unreadable_is_counted(desk: Desk):
    desk.damaged = True
    desk.write(b"f", b"1")
    desk.save()
    with open(os.path.join(desk.folder, b"refs/checkpoints/0000000001"), "w") as file:
        file.write("?")
    assert desk.catalog().usage(desk.checkpoint_dir, None).stores[0].unreadable == 1


def test_an_untracked_one(desk: Desk):
    assert desk.catalog().usage(desk.checkpoint_dir, None).stores == []
    with pytest.raises(DomainError) as caught:
        desk.catalog().usage(desk.checkpoint_dir, desk.root)
    assert caught.value.kind == "not_tracked"
