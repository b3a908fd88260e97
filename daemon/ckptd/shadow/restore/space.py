"""Whether a restore has room: it would be in the middle of its files when the disk is full."""

import os
from collections.abc import Callable, Sequence
from typing import Final

from ckptd.shadow.trees.step import State, Step

__all__ = ["free_bytes", "free_files", "has_plenty", "missing_bytes", "used_bytes"]

_BLOCK_BYTES: Final = 4096


def missing_bytes(
    steps: Sequence[Step],
    free: int,
    used: Callable[[bytes], int],
    size_of: Callable[[bytes], int],
    together: int,
) -> int:
    """Give how much more room the steps need at some time than there is; 0 where there is enough.

    ``used`` tells what a path takes on disk now, ``size_of`` the size of a blob. What only goes, goes first; of what
    changes, ``together`` files of a directory stand there twice at a time.
    """
    free += sum(used(step.path) for step in steps if _is_file(step.before) and not _is_file(step.after))
    batches: dict[bytes, list[Step]] = {}
    for step in steps:
        if _is_file(step.after):
            batches.setdefault(step.path.rpartition(b"/")[0], []).append(step)
    missing = 0
    for batch in batches.values():
        for start in range(0, len(batch), together):
            part = batch[start : start + together]
            needed = sum(_rounded(size_of(step.after.oid)) for step in part if step.after and not _only_bits(step))
            missing = max(missing, needed - free)
            free += sum(used(step.path) for step in part if _is_file(step.before) and not _only_bits(step)) - needed
    return missing


def has_plenty(steps: Sequence[Step], free: int, files: int | None, size_of: Callable[[bytes], int]) -> bool:
    """Tell whether there is room even if nothing that goes makes any: then it does not matter when it goes.

    ``free`` bytes there are, and ``files`` that can still be made, as far as is known.
    """
    if files is not None and sum(1 for step in steps if step.after) > files:
        return False
    new = (step.after.oid for step in steps if step.after and not step.after.is_dir and not _only_bits(step))
    return sum(_rounded(size_of(oid)) for oid in new) <= free


def free_bytes(fd: int) -> int | None:
    """Give the room on the file system of an open directory; None where it does not tell."""
    try:
        found = os.fstatvfs(fd)
    except OSError:
        return None
    if found.f_blocks == 0:
        return None
    return (found.f_bfree if os.geteuid() == 0 else found.f_bavail) * found.f_frsize


def free_files(fd: int) -> int | None:
    """Give how many files can still be made on the file system of an open directory; None where it does not tell."""
    try:
        found = os.fstatvfs(fd)
    except OSError:
        return None
    if found.f_files == 0:
        return None
    return found.f_ffree if os.geteuid() == 0 else found.f_favail


def used_bytes(path: bytes) -> int:
    """Give what unlinking a file would free."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    return found.st_blocks * 512 if found.st_nlink == 1 else 0


def _is_file(state: State | None) -> bool:
    return state is not None and not state.is_dir


def _only_bits(step: Step) -> bool:
    return step.before is not None and step.after is not None and step.before.oid == step.after.oid


def _rounded(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
