"""Waiting for the disk once where several files have to be on it."""

import ctypes
import os
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ckptd.errors import from_os_error

__all__ = ["Unsynced", "fsync_dir", "sync_folders", "sync_together"]

_LIBC: Final = ctypes.CDLL(None)
_START_WRITING: Final = 2


class Unsynced(NamedTuple):
    """An open file that is not known to be on disk; an error says that it happened while ``doing`` it to ``path``."""

    fd: int
    doing: str
    path: bytes


def sync_together(files: Sequence[Unsynced]) -> None:
    """Make files durable, in no order: none of them may have to be on disk before another.

    Each gets an fsync of its own, which is all that is relied on. Where the system can be told to begin with all of
    them before the first is waited for, a journal has them in one commit, and the others find nothing left to wait for.
    Threads that wait at the same time come to the same, at twice the work. Raises DomainError for the first that the
    disk refuses.
    """
    if len(files) > 1:
        for one in files:
            _start_writing(one.fd)
    for fd, doing, path in files:
        try:
            os.fsync(fd)
        except OSError as error:
            raise from_os_error(error, doing, path) from error


def sync_folders(folders: Iterable[bytes]) -> None:
    """Make the names in directories durable, in no order; raises DomainError as sync_together() does."""
    for folder in dict.fromkeys(folders):
        try:
            fsync_dir(folder)
        except OSError as error:
            raise from_os_error(error, "write names to", folder) from error


def fsync_dir(path: bytes) -> None:
    """Make the names in a directory durable; raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _start_writing(fd: int) -> None:
    """Only a hint: whether it is understood or not, and whatever comes of it, the fsync that follows tells."""
    if hasattr(_LIBC, "sync_file_range"):
        _LIBC.sync_file_range(ctypes.c_int(fd), ctypes.c_int64(0), ctypes.c_int64(0), ctypes.c_uint(_START_WRITING))
