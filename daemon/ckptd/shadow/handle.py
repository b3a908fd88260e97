"""Handles of directories: a path is walked from the root's handle, and no link is followed on the way."""

import errno
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

__all__ = ["Blocked", "Directory", "open_entry", "parts_of", "set_bits", "walk"]

# O_PATH needs no read permission of the directory, only search permission of those above it.
_WALK: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Blocked(Exception):
    """A path can't be walked: ``reason`` is ``beyond_symlink``, ``other_mount`` or ``gone``; ``at`` is how far it went.

    ``beyond_symlink`` also stands for a component that is a file: what is below it isn't reached either way.
    """

    def __init__(self, reason: str, at: bytes) -> None:
        super().__init__(reason)
        self.reason: Final = reason
        self.at: Final = at


class Directory:
    """An open directory, and the device and inode that tell it from every other one. It owns its descriptor."""

    __slots__ = ("dev", "fd", "ino")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        found = os.fstat(fd)
        self.dev = found.st_dev
        self.ino = found.st_ino

    def is_same(self, other: "Directory") -> bool:
        """Tell whether the two are one directory. Both are open, so that no inode number is used again."""
        return (self.dev, self.ino) == (other.dev, other.ino)

    def close(self) -> None:
        """Close the handle; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()


def parts_of(path: bytes) -> list[bytes]:
    """Split a relative path into its components; the root is the empty path."""
    return path.split(b"/") if path else []


def walk(root_fd: int, parts: Sequence[bytes], root_dev: int) -> Directory:
    """Open the directory at ``parts`` below the root, one component at a time, two descriptors at most.

    Raises Blocked where a component is a link, not a directory, on another device than ``root_dev``, or absent;
    OSError for everything else (permissions, no descriptors left).
    """
    here = Directory(os.open(b".", _WALK, dir_fd=root_fd))
    for depth, name in enumerate(parts):
        with here:
            here = _step_down(here, name, b"/".join(parts[: depth + 1]))
        if here.dev != root_dev:
            here.close()
            raise Blocked("other_mount", b"/".join(parts[: depth + 1]))
    return here


def _step_down(here: Directory, name: bytes, at: bytes) -> Directory:
    try:
        return Directory(os.open(name, _WALK, dir_fd=here.fd))
    except FileNotFoundError as error:
        raise Blocked("gone", at) from error
    except NotADirectoryError as error:
        raise Blocked("beyond_symlink", at) from error


def open_entry(dir_fd: int, name: bytes) -> int:
    """Open an entry of a directory to be read; never waits for a FIFO or device, never follows a link.

    The caller looks with fstat at what it got. Raises OSError (ELOOP for a link, ENXIO for a socket).
    """
    return os.open(name, _READ, dir_fd=dir_fd)


def set_bits(dir_fd: int, name: bytes, bits: int, dev_ino: tuple[int, int]) -> bool:
    """Set the permission bits of the file or directory that is known by device and inode.

    False, with nothing done, where the name stands for something else. Raises OSError.
    """
    try:
        fd = open_entry(dir_fd, name)
    except PermissionError:
        return _set_bits_unread(dir_fd, name, bits, dev_ino)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return False
        raise
    try:
        if not _is(fd, dev_ino):
            return False
        os.fchmod(fd, bits)
        return True
    finally:
        os.close(fd)


def _set_bits_unread(dir_fd: int, name: bytes, bits: int, dev_ino: tuple[int, int]) -> bool:
    fd = os.open(name, _WALK & ~os.O_DIRECTORY, dir_fd=dir_fd)
    try:
        if not _is(fd, dev_ino):
            return False
        # fchmod takes no handle of this kind, but the kernel's own link to it leads to exactly this inode.
        os.chmod(b"/proc/self/fd/%d" % fd, bits)
        return True
    finally:
        os.close(fd)


def _is(fd: int, dev_ino: tuple[int, int]) -> bool:
    found = os.fstat(fd)
    return (found.st_dev, found.st_ino) == dev_ino
