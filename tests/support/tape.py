"""What a process does to files, call by call, so that a power cut can be played after any of the calls.

``record(roots, work)`` runs ``work(mark)`` in a forked process whose calls are recorded: ``mark(name)`` notes a moment,
such as that of an answer. The content of a file is noted when it is written through ``os.write``, synced, or gets a
name; what is in the buffer of a file object before that is not on disk for anybody. ``Tape.play`` gives ``Disk``, which
must be the true disk when all of it is played: then no call that matters was overlooked.
"""

import builtins
import os
import pickle
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ckptd.shadow.restore import exchange, sync
from support.worktrees import in_child

__all__ = ["Call", "record"]


class Call(NamedTuple):
    """``what`` is create, data, fsync, rename, exchange, link, symlink, unlink, mkdir, rmdir, syncfs or mark."""

    what: str
    path: bytes
    other: bytes = b""
    data: bytes = b""


def record(roots: Sequence[bytes], work: Callable[[Callable[[str], None]], object], place: bytes) -> list[Call]:
    """Give the calls below ``roots``; ``place`` is a free path for a scratch file."""

    def watched() -> None:
        recorder = _Recorder(roots)
        work(recorder.mark)
        calls = list(recorder.calls)
        recorder.calls.clear()
        with recorder.real_open(place, "wb") as out:
            pickle.dump([tuple(call) for call in calls], out)

    assert in_child(watched) == 0
    with open(place, "rb") as file:
        calls = [Call(*fields) for fields in pickle.load(file)]
    os.unlink(place)
    return calls


def _path_of(fd: int) -> bytes:
    return os.readlink(b"/proc/self/fd/%d" % fd)


def _below(dir_fd: int | None, path: object) -> bytes:
    name = os.fsencode(path)  # type: ignore[arg-type]
    return name if dir_fd is None else os.path.join(_path_of(dir_fd), name)


class _Recorder:
    """Stands in for the calls of the process that it is made in, for good."""

    def __init__(self, roots: Sequence[bytes]) -> None:
        self.calls: list[Call] = []
        self._roots = tuple(roots)
        self.real_open = builtins.open
        builtins.open = self._open_file
        self._real_os_open = os.open
        os.open = self._open_fd
        self._after(os, "write", lambda fd, _data: self._data(_path_of(fd)))
        self._after(os, "ftruncate", lambda fd, _size: self._data(_path_of(fd)))
        self._after(os, "fsync", lambda fd: self._synced(_path_of(fd)))
        for name in ("mkdir", "unlink", "rmdir", "remove"):
            what = "unlink" if name == "remove" else name
            self._after(os, name, lambda path, *_, dir_fd=None, _what=what: self._note(_what, _below(dir_fd, path)))
        for name in ("rename", "replace"):
            self._after(os, name, self._renamed)
        self._after(os, "link", self._linked)
        self._after(
            os,
            "symlink",
            lambda to, path, *_, dir_fd=None: self._note("symlink", _below(dir_fd, path), b"", os.fsencode(to)),
        )
        self._after(exchange, "_RENAMEAT2", self._flagged)
        self._after(sync._LIBC, "syncfs", lambda fd: self._note("syncfs", _path_of(fd.value)))

    def mark(self, name: str) -> None:
        self.calls.append(Call("mark", name.encode()))

    def _after(self, owner: object, name: str, tell: Callable[..., None]) -> None:
        real = getattr(owner, name)

        def recorded(*given: object, **options: object) -> object:
            result = real(*given, **options)
            # The system calls that come through ctypes tell of a failure by what they return.
            if not (owner in (exchange, sync._LIBC) and result != 0):
                tell(*given, **options)
            return result

        setattr(owner, name, recorded)

    def _note(self, what: str, path: bytes, other: bytes = b"", data: bytes = b"") -> None:
        if any(path == root or path.startswith(root + b"/") for root in self._roots):
            self.calls.append(Call(what, path, other, data))

    def _data(self, path: bytes) -> None:
        if os.path.isfile(path) and not os.path.islink(path):
            with self.real_open(path, "rb") as file:
                self._note("data", path, b"", file.read())

    def _synced(self, path: bytes) -> None:
        self._data(path)
        self._note("fsync", path)

    def _renamed(
        self, source: object, target: object, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        path = _below(dst_dir_fd, target)
        self._note("rename", path, _below(src_dir_fd, source))
        self._data(path)

    def _flagged(self, source_fd: int, source: bytes, target_fd: int, target: bytes, flag: int) -> None:
        what = "exchange" if flag == exchange.EXCHANGE else "rename"
        self._note(what, _below(target_fd, target), _below(source_fd, source))
        self._data(_below(target_fd, target))

    def _linked(
        self,
        source: object,
        target: object,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        **_: object,
    ) -> None:
        self._note("link", _below(dst_dir_fd, target), _below(src_dir_fd, source))

    def _open_file(self, file, mode="r", *rest, **options):
        path = os.path.abspath(os.fsencode(file)) if not isinstance(file, int) else b""
        fresh = any(letter in mode for letter in "wxa") and not os.path.lexists(path)
        opened = self.real_open(file, mode, *rest, **options)
        if fresh:
            self._note("create", path)
        return opened

    def _open_fd(self, path, flags, mode=0o777, *, dir_fd=None):
        full = _below(dir_fd, path)
        fresh = bool(flags & os.O_CREAT) and not os.path.lexists(full)
        fd = self._real_os_open(path, flags, mode, dir_fd=dir_fd)
        if fresh:
            self._note("create", full)
        return fd
