"""What tests of restores look at: a copy of a worktree, what nobody may touch, and what a store holds."""

import os
import shutil
from contextlib import contextmanager

import pytest

from ckpt_protocol.structs import from_wire
from ckptd.errors import DomainError
from support.plainworld import look
from support.same import differences

__all__ = ["Copy", "content", "kept", "left_out", "names", "refused", "stats", "untouched"]


class Copy:
    """A copy of a desk's worktree, made now; ``differences()`` compares with how the worktree is then."""

    def __init__(self, desk, name: bytes = b"copy") -> None:
        self._desk = desk
        self.root = os.path.join(desk.base, name)
        shutil.copytree(desk.root, self.root, symlinks=True)

    def differences(self) -> list[str]:
        return list(differences(os.fsdecode(self._desk.root), os.fsdecode(self.root)))


def content(desk, name: bytes) -> bytes:
    with open(desk.path(name), "rb") as file:
        return file.read()


def stats(desk) -> dict[bytes, tuple[int, ...]]:
    """Give inode, mode, size and times of everything in the worktree that is not the checkpoint directory."""
    found = {}
    for folder, directories, files in os.walk(desk.root):
        directories[:] = [name for name in directories if os.path.join(folder, name) != desk.checkpoint_dir]
        for name in directories + files:
            path = os.path.join(folder, name)
            there = os.lstat(path)
            facts = (there.st_ino, there.st_mode, there.st_size, there.st_mtime_ns, there.st_ctime_ns)
            found[os.path.relpath(path, desk.root)] = facts
    return found


@contextmanager
def untouched(desk):
    """Assert that neither the worktree nor the store is written to."""
    before, store = stats(desk), look(desk.folder)
    yield
    assert stats(desk) == before
    assert look(desk.folder) == store


@contextmanager
def refused(desk, kind: str, *paths: bytes):
    """Assert a refusal that names these paths and has changed nothing in the worktree and made no checkpoint."""
    before, checkpoints = stats(desk), desk.list().checkpoints
    with pytest.raises(DomainError) as caught:
        yield caught
    assert (caught.value.kind, caught.value.paths) == (kind, paths), caught.value.message
    assert stats(desk) == before
    assert desk.list().checkpoints == checkpoints


def names(wire_paths) -> list[bytes]:
    return [from_wire(path) for path in wire_paths]


def kept(result) -> list[bytes]:
    return names(result.kept)


def left_out(items) -> list[tuple[bytes, str]]:
    return [(from_wire(item.path), item.reason) for item in items]
