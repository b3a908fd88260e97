"""Handles of directories: a path is walked from the root's handle, and no link is followed on the way."""

import ctypes
import errno
import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import ClassVar, Final, Self

__all__ = ["Blocked", "Directory", "Pinned", "open_entry", "parts_of", "walk"]

# O_PATH needs no read permission of the directory, only search permission of those above it.
_WALK: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
# openat2 of Linux 5.6 has this number on every machine that Python is built for. No C library wraps it everywhere.
_OPENAT2: Final = 437


class _OpenHow(ctypes.Structure):
    _fields_: ClassVar = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


# Not to another mount, through no link of any kind, not above the beginning: what the walk step by step holds to.
_HOW: Final = _OpenHow(_WALK, 0, 0x01 | 0x02 | 0x04 | 0x08)
_HOW_AT: Final = ctypes.byref(_HOW)
_HOW_BYTES: Final = ctypes.sizeof(_HOW)


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
        try:
            found = os.fstat(fd)
        except OSError:
            self.close()
            raise
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
    fd = _open_at_once(root_fd, b"/".join(parts))
    if fd >= 0:
        here = Directory(fd)
        if here.dev == root_dev:
            return here
        # A part of a file system may have a device number of its own without being mounted.
        here.close()
    here = Directory(os.open(b".", _WALK, dir_fd=root_fd))
    for depth, name in enumerate(parts):
        with here:
            here = _step_down(here, name, b"/".join(parts[: depth + 1]))
        if here.dev != root_dev:
            here.close()
            raise Blocked("other_mount", b"/".join(parts[: depth + 1]))
    return here


def _open_at_once(root_fd: int, path: bytes) -> int:
    """Have the kernel walk all of it, in one call; -1 where it can't or won't, and the walk step by step tells why."""
    if sys.platform != "linux" or b"\0" in path:
        return -1
    return int(_LIBC.syscall(_OPENAT2, root_fd, path or b".", _HOW_AT, _HOW_BYTES))


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


class Pinned:
    """A file or directory that is held, whatever happens to its name, so that its inode is not used again."""

    __slots__ = ("fd", "found")

    def __init__(self, fd: int) -> None:
        """Own a descriptor. Raises OSError."""
        self.fd = fd
        try:
            self.found = os.fstat(fd)
        except OSError:
            self.close()
            raise

    @classmethod
    def at(cls, dir_fd: int, name: bytes) -> Self:
        """Take hold of what has a name now, readable or not. Raises OSError."""
        try:
            return cls(open_entry(dir_fd, name))
        except PermissionError:
            return cls(os.open(name, _WALK & ~os.O_DIRECTORY, dir_fd=dir_fd))

    def set_bits(self, bits: int) -> None:
        """Set its permission bits. Raises OSError."""
        try:
            os.fchmod(self.fd, bits)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            # A handle for walking is not one for fchmod, but the kernel's own link to it leads to exactly this inode.
            os.chmod(b"/proc/self/fd/%d" % self.fd, bits)

    def has(self, dir_fd: int, name: bytes) -> bool:
        """Tell whether a name leads to it. Raises OSError."""
        try:
            found = os.lstat(name, dir_fd=dir_fd)
        except FileNotFoundError:
            return False
        held = os.fstat(self.fd)
        return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)

    def close(self) -> None:
        """Let go of it."""
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()
