"""Calls that fail as a disk makes them fail, one after the other: for forked processes alone.

``Failing(roots)`` stands in for the calls of the process that it is made in, for good. ``arm(kind, nth, code)`` lets
the n-th call of a kind below ``roots`` fail with an error number, and with ``lasting`` every later one of that kind
too; ``disarm()`` ends it. ``count[kind]`` tells how many there were since. Kinds: ``KINDS``.
"""

import builtins
import ctypes
import errno
import io
import os
from collections import Counter
from collections.abc import Callable, Sequence

from ckptd.shadow.restore import exchange, sync

__all__ = ["CODES", "KINDS", "Failing"]

KINDS = (
    "create",
    "open",
    "write",
    "fsync",
    "rename",
    "exchange",
    "link",
    "unlink",
    "mkdir",
    "rmdir",
    "chmod",
    "syncfs",
)

CODES = {
    "create": (errno.ENOSPC, errno.EMFILE, errno.EROFS, errno.EACCES, errno.EDQUOT),
    "open": (errno.EMFILE, errno.EIO, errno.EACCES),
    "write": (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG),
    "fsync": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EROFS, errno.ENOSPC, errno.EIO, errno.EACCES),
    "exchange": (errno.EROFS, errno.ENOSPC, errno.EIO, errno.EACCES),
    "link": (errno.ENOSPC, errno.EROFS, errno.EACCES),
    "unlink": (errno.EROFS, errno.EIO, errno.EACCES),
    "mkdir": (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT),
    "rmdir": (errno.EROFS, errno.EACCES),
    "chmod": (errno.EROFS, errno.EPERM, errno.EIO),
    "syncfs": (errno.EIO, errno.ENOSPC),
}
"""What each kind of call fails with."""


class Failing:
    """See the module."""

    def __init__(self, roots: Sequence[bytes]) -> None:
        self._roots = tuple(roots)
        self._kind = ""
        self._nth = self._code = 0
        self._lasting = False
        self.count: Counter[str] = Counter()
        self._real_open = builtins.open
        self._real_os_open = os.open
        builtins.open = self._open_file
        os.open = self._open_fd
        self._before(os, "write", "write", lambda fd, *_: _path_of(fd))
        self._before(os, "ftruncate", "write", lambda fd, *_: _path_of(fd))
        self._before(os, "fsync", "fsync", lambda fd: _path_of(fd))
        self._before(os, "fchmod", "chmod", lambda fd, *_: _path_of(fd))
        self._before(os, "chmod", "chmod", lambda path, *_, dir_fd=None, **__: _below(dir_fd, path))
        for name in ("unlink", "rmdir", "mkdir"):
            self._before(os, name, name, lambda path, *_, dir_fd=None: _below(dir_fd, path))
        for name in ("rename", "replace", "link"):
            kind = "link" if name == "link" else "rename"
            self._before(
                os, name, kind, lambda _from, path, *_, src_dir_fd=None, dst_dir_fd=None, **__: _below(dst_dir_fd, path)
            )
        self._before(os, "symlink", "create", lambda _to, path, *_, dir_fd=None: _below(dir_fd, path))
        self._before(exchange, "_RENAMEAT2", "exchange", lambda _fd, _from, dir_fd, path, _flag: _below(dir_fd, path))
        self._before(sync._LIBC, "syncfs", "syncfs", lambda fd: _path_of(fd.value))

    def arm(self, kind: str, nth: int, code: int, *, lasting: bool = False) -> None:
        self.count.clear()
        self._kind, self._nth, self._code, self._lasting = kind, nth, code, lasting

    def disarm(self) -> None:
        self._kind = ""

    def _pass(self, kind: str, path: bytes) -> None:
        if not any(path == root or path.startswith(root + b"/") for root in self._roots):
            return
        self.count[kind] += 1
        late = self.count[kind] > self._nth and self._lasting
        if kind == self._kind and (self.count[kind] == self._nth or late):
            raise OSError(self._code, os.strerror(self._code), path)

    def _before(self, owner: object, name: str, kind: str, path_of: Callable[..., bytes]) -> None:
        real = getattr(owner, name)

        def watched(*given: object, **options: object) -> object:
            self._pass(kind, path_of(*given, **options))
            return real(*given, **options)

        def told_by_number(*given: object) -> object:
            try:
                return watched(*given)
            except OSError as error:
                ctypes.set_errno(error.errno)
                return -1

        setattr(owner, name, told_by_number if owner is sync._LIBC else watched)

    def _open_fd(self, path, flags, mode=0o777, *, dir_fd=None):
        full = _below(dir_fd, path)
        creates = flags & os.O_CREAT and not os.path.lexists(full)
        self._pass("create" if creates else "open", full)
        return self._real_os_open(path, flags, mode, dir_fd=dir_fd)

    def _open_file(self, file, mode="r", buffering=-1, *rest, **options):
        if isinstance(file, int) or "b" not in mode:
            return self._real_open(file, mode, buffering, *rest, **options)
        path = os.fsencode(file)
        if "r" in mode and "+" not in mode:
            self._pass("open", path)
            return self._real_open(file, mode, buffering, *rest, **options)
        self._pass("create" if not os.path.lexists(path) else "open", path)
        raw = _Raw(path, mode.replace("b", ""), self._pass)
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        return io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)


class _Raw(io.FileIO):
    """A file whose writes may fail."""

    def __init__(self, path: bytes, mode: str, check: Callable[[str, bytes], None]) -> None:
        super().__init__(path, mode)
        self._check = check
        self._path = path

    def write(self, data) -> int:
        self._check("write", self._path)
        return super().write(data)


def _path_of(fd: int) -> bytes:
    return os.readlink(b"/proc/self/fd/%d" % fd)


def _below(dir_fd: int | None, path: object) -> bytes:
    name = os.fsencode(path)
    return os.path.abspath(name) if dir_fd is None else os.path.join(_path_of(dir_fd), name)
