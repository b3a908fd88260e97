"""Making a whole file system durable with one call."""

import ctypes
import errno
import os

from ckptd.errors import from_os_error

__all__ = ["sync"]

_LIBC = ctypes.CDLL(None, use_errno=True)


def sync(root_fd: int) -> None:
    """Write everything that the file system of this directory holds back in memory to its disk.

    Raises DomainError (``io_error``, ``no_space``) where the disk reports that it could not.
    """
    try:
        # The root's own handle may be one that is only good for walking.
        fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root_fd)
    except OSError:
        os.sync()
        return
    try:
        _syncfs(fd)
    finally:
        os.close(fd)


def _syncfs(fd: int) -> None:
    if not hasattr(_LIBC, "syncfs"):
        os.sync()
        return
    while _LIBC.syncfs(ctypes.c_int(fd)) != 0:
        code = ctypes.get_errno()
        if code == errno.EINTR:
            continue
        raise from_os_error(OSError(code, os.strerror(code)), "sync the file system of", _path_of(fd))


def _path_of(fd: int) -> bytes | None:
    try:
        return os.readlink(b"/proc/self/fd/%d" % fd)
    except OSError:
        return None
