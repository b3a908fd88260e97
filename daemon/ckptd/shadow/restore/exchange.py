"""Renames that replace nothing: two names change places, or a name moves to an empty place, or it fails.

Linux has renameat2, macOS renameatx_np (written from its manual page; not run by this project's tests).
"""

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Callable
from typing import Final

__all__ = ["EXCHANGE", "NOREPLACE", "NoExchange", "Rename", "Renamer", "native_rename"]

NOREPLACE: Final = 1
EXCHANGE: Final = 2

Rename = Callable[[int, bytes, bytes, int], None]
"""``(dir_fd, source, target, NOREPLACE | EXCHANGE)`` within one directory; raises OSError."""

_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
_NO_LINK: Final = _UNSUPPORTED | {errno.EPERM, errno.EMLINK, errno.EACCES}
_DARWIN_FLAGS: Final = {NOREPLACE: 0x4, EXCHANGE: 0x2}
_SYSCALLS: Final = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}


class NoExchange(Exception):
    """The file system can't exchange two names."""


def _renameat2(libc: ctypes.CDLL) -> Callable[[int, bytes, int, bytes, int], int] | None:
    arguments = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    symbol = "renameatx_np" if sys.platform == "darwin" else "renameat2"
    if hasattr(libc, symbol):
        function = getattr(libc, symbol)
        function.argtypes = arguments
        return lambda *given: int(function(*given))
    number = _SYSCALLS.get(platform.machine()) if sys.platform == "linux" else None
    if number is None:
        return None
    # A libc without the wrapper (older musl) still has the kernel's call.
    libc.syscall.argtypes = (ctypes.c_long, *arguments)
    return lambda *given: int(libc.syscall(number, *given))


_RENAMEAT2: Final = _renameat2(ctypes.CDLL(None, use_errno=True))


def native_rename(dir_fd: int, source: bytes, target: bytes, flag: int) -> None:
    """Ask the operating system. Raises OSError; ENOSYS where it has no such call."""
    if b"\0" in source or b"\0" in target:
        raise ValueError("a name holds a NUL byte")
    if _RENAMEAT2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if sys.platform == "darwin":
        flag = _DARWIN_FLAGS[flag]
    if _RENAMEAT2(dir_fd, source, dir_fd, target, flag) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), source, None, target)


class Renamer:
    """The three moves of a restore, each with what it falls back to on a file system that has less."""

    def __init__(self, rename: Rename = native_rename) -> None:
        self._rename: Final = rename
        self._can: Final[dict[tuple[int, int], bool]] = {}

    def exchange(self, dir_fd: int, dev: int, one: bytes, other: bytes) -> None:
        """Let two existing names change places.

        Raises NoExchange where device ``dev`` can't, OSError (ENOENT where one is absent).
        """
        if not self._try(dir_fd, dev, one, other, EXCHANGE):
            raise NoExchange

    def place(self, dir_fd: int, dev: int, source: bytes, target: bytes) -> bool:
        """Give ``source``, a name that is ours alone, the name ``target`` if that is free.

        False tells that it could only be looked at, not made sure, that it was free. Raises FileExistsError, OSError.
        """
        if self._try(dir_fd, dev, source, target, NOREPLACE):
            return True
        try:
            # A new link never replaces anything; directories and some file systems have none.
            os.link(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            return _place_unsure(dir_fd, source, target)
        os.unlink(source, dir_fd=dir_fd)
        return True

    def set_aside(self, dir_fd: int, dev: int, name: bytes, spare: bytes) -> None:
        """Give whatever has ``name`` now the name ``spare``, a random one of ours. Raises OSError.

        Link and unlink would not do here: between the two, ``name`` may come to be something else.
        """
        if not self._try(dir_fd, dev, name, spare, NOREPLACE):
            _place_unsure(dir_fd, name, spare)

    def _try(self, dir_fd: int, dev: int, source: bytes, target: bytes, flag: int) -> bool:
        known = self._can.get((dev, flag))
        if known is False:
            return False
        try:
            self._rename(dir_fd, source, target, flag)
        except OSError as error:
            # Once it has worked on a device, EINVAL means something else there.
            if error.errno not in _UNSUPPORTED or known:
                raise
            self._can[dev, flag] = False
            return False
        self._can[dev, flag] = True
        return True


def _place_unsure(dir_fd: int, source: bytes, target: bytes) -> bool:
    try:
        os.lstat(target, dir_fd=dir_fd)
    except FileNotFoundError:
        os.rename(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        return False
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
