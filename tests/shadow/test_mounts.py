"""What is mounted in a worktree is not its content, a bind mount of its own file system no more than another."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from ckptd.shadow.scan.mounts import file_system_of, mounts_in
from support.worktrees import Desk

pytestmark = pytest.mark.core

MOUNTINFO = b"""\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
31 22 254:0 /srv /home/me/tree/in\\040side rw - ext4 /dev/vda rw
32 22 0:40 / /home/me/tree/tmp rw - tmpfs tmpfs rw
33 22 0:41 / /home/me/treeshop rw - tmpfs tmpfs rw
"""


def test_mount_points_are_found_below_a_path_and_nowhere_else():
    assert mounts_in(b"/home/me/tree", MOUNTINFO) == {b"in side", b"tmp"}
    assert mounts_in(b"/home/me/tree/tmp", MOUNTINFO) == frozenset()
    assert b"proc" in mounts_in(b"/", MOUNTINFO)
    assert mounts_in(b"/home", b"") == frozenset()


def test_a_file_system_is_told_by_its_device():
    assert file_system_of(os.makedev(254, 0), MOUNTINFO) == "ext4"
    assert file_system_of(os.makedev(0, 40), MOUNTINFO) == "tmpfs"
    assert file_system_of(os.makedev(9, 9), MOUNTINFO) is None


@pytest.fixture
def bound(desk: Desk) -> Iterator[bytes]:
    """A directory outside, bound into the worktree at ``inside``."""
    outside = desk.path(b"").rstrip(b"/") + b"-outside"
    os.mkdir(outside)
    with open(outside + b"/precious", "wb") as file:
        file.write(b"not of this worktree")
    point = desk.mkdir(b"inside")
    desk.save("before the mount")
    if subprocess.run(["mount", "--bind", outside, point], capture_output=True, check=False).returncode:
        pytest.skip("binding a directory is not allowed here")
    yield outside
    subprocess.run(["umount", point], check=True)


def test_a_bind_mount_is_left_out_and_left_alone(desk: Desk, bound: bytes):
    desk.write(b"a", b"new")
    saved = desk.save("with the mount")
    assert [(item.path, item.reason) for item in saved.excluded] == [("inside", "other_mount")]
    assert desk.reset("#1").deleted == ["a"]
    with open(bound + b"/precious", "rb") as file:
        assert file.read() == b"not of this worktree"
    assert not os.path.exists(desk.path(b"a"))


def test_the_mount_point_itself_is_no_conflict_but_content_below_it_is(desk: Desk, bound: bytes):
    assert desk.reset("#1", dry_run=True).conflicts == []
    subprocess.run(["umount", desk.path(b"inside")], check=True)
    desk.write(b"inside/file", b"content")
    desk.save("with content")
    subprocess.run(["mount", "--bind", bound, desk.path(b"inside")], check=True)
    conflicts = desk.reset("HEAD", dry_run=True).conflicts
    assert [(item.path, item.reason) for item in conflicts] == [("inside/file", "other_mount")]
    assert not os.path.exists(bound + b"/file")
