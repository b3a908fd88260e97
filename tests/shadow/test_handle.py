"""Walking to a directory: no link is followed, no other file system is entered, depth and descriptors do not matter."""

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptd.shadow.restore.handle import Blocked, Pinned, open_entry, parts_of, walk

pytestmark = pytest.mark.core


@pytest.fixture
def root_fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def dev_of(fd: int) -> int:
    return os.fstat(fd).st_dev


def test_the_root_is_the_empty_path(root_fd: int):
    assert parts_of(b"") == []
    with walk(root_fd, [], dev_of(root_fd)) as here:
        assert (here.dev, here.ino) == (dev_of(root_fd), os.fstat(root_fd).st_ino)


def test_it_leads_to_the_directory(tmp_path: Path, root_fd: int):
    (tmp_path / "a/b\n c").mkdir(parents=True)
    with walk(root_fd, parts_of(b"a/b\n c"), dev_of(root_fd)) as here:
        assert here.ino == (tmp_path / "a/b\n c").stat().st_ino


@pytest.mark.parametrize("kind", ["link", "relative link", "dangling", "loop", "file", "fifo"])
@pytest.mark.parametrize("path", [b"x", b"x/b", b"in/x", b"in/x/b"])
def test_nothing_but_directories_is_walked_through(tmp_path: Path, root_fd: int, kind: str, path: bytes):
    (tmp_path / "in").mkdir()
    (tmp_path / "real/b").mkdir(parents=True)
    place = tmp_path / ("in/x" if path.startswith(b"in") else "x")
    make = {
        "link": lambda: place.symlink_to(tmp_path / "real"),
        "relative link": lambda: place.symlink_to("real" if place.parent == tmp_path else "../real"),
        "dangling": lambda: place.symlink_to("nowhere"),
        "loop": lambda: place.symlink_to("x"),
        "file": lambda: place.write_bytes(b""),
        "fifo": lambda: os.mkfifo(place),
    }
    make[kind]()
    with pytest.raises(Blocked) as caught:
        walk(root_fd, parts_of(path), dev_of(root_fd))
    assert caught.value.reason == "beyond_symlink"
    assert caught.value.at == (b"in/x" if path.startswith(b"in") else b"x")


def test_what_is_absent_is_told_apart(tmp_path: Path, root_fd: int):
    (tmp_path / "a").mkdir()
    with pytest.raises(Blocked) as caught:
        walk(root_fd, [b"a", b"b", b"c"], dev_of(root_fd))
    assert (caught.value.reason, caught.value.at) == ("gone", b"a/b")


def test_another_device_is_not_entered(tmp_path: Path, root_fd: int):
    (tmp_path / "a").mkdir()
    with pytest.raises(Blocked) as caught:
        walk(root_fd, [b"a"], dev_of(root_fd) + 1)
    assert caught.value.reason == "other_mount"


def test_a_mount_is_not_entered(tmp_path: Path, root_fd: int):
    (tmp_path / "m").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path / "m"], capture_output=True).returncode:
        pytest.skip("mounting needs root and a tmpfs")
    try:
        with pytest.raises(Blocked, match="other_mount"):
            walk(root_fd, [b"m"], dev_of(root_fd))
    finally:
        subprocess.run(["umount", tmp_path / "m"], check=True)


def test_paths_longer_than_the_system_takes_as_one(tmp_path: Path, root_fd: int):
    name = b"d" * 200
    fd = os.dup(root_fd)
    for _ in range(40):
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    with walk(root_fd, [name] * 40, dev_of(root_fd)) as here:
        assert here.ino == os.fstat(fd).st_ino
    os.close(fd)


def test_few_descriptors_are_needed_and_none_is_left(tmp_path: Path, root_fd: int):
    (tmp_path / "/".join(["d"] * 50)).mkdir(parents=True)
    before = os.listdir("/proc/self/fd")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, before))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 3, hard))
    try:
        walk(root_fd, [b"d"] * 50, dev_of(root_fd)).close()
        with pytest.raises(Blocked):
            walk(root_fd, [b"d"] * 51, dev_of(root_fd))
        with pytest.raises(Blocked):
            walk(root_fd, [b"d"] * 50, dev_of(root_fd) + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert os.listdir("/proc/self/fd") == before


def test_a_fifo_does_not_hold_up_the_opening(tmp_path: Path, root_fd: int):
    os.mkfifo(tmp_path / "pipe")
    os.close(open_entry(root_fd, b"pipe"))


def test_a_pinned_file_is_told_from_what_takes_its_name(tmp_path: Path, root_fd: int):
    target = tmp_path / "f"
    target.write_bytes(b"")
    with Pinned.at(root_fd, b"f") as held:
        held.set_bits(0o600)
        assert target.stat().st_mode & 0o7777 == 0o600
        assert held.has(root_fd, b"f")
        target.unlink()
        assert not held.has(root_fd, b"f")
        os.mkfifo(target, 0o644)
        assert not held.has(root_fd, b"f")
        held.set_bits(0o640)
    assert target.stat().st_mode & 0o777 == 0o644


def test_what_is_pinned_for_walking_only_has_bits_to_set(tmp_path: Path, root_fd: int):
    if not hasattr(os, "O_PATH"):
        pytest.skip("this system has no handles for walking only")
    (tmp_path / "d").mkdir()
    with Pinned.at(root_fd, b"d") as held:
        handle = os.open(tmp_path / "d", os.O_PATH)
        os.dup2(handle, held.fd)
        os.close(handle)
        held.set_bits(0o711)
    assert (tmp_path / "d").stat().st_mode & 0o7777 == 0o711
