"""Looking at what the model does not hold: ignored, excluded and skipped things that stand where a restore writes."""

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple

from ckpt_protocol.wirepath import to_text
from ckptd.shadow.objects.pack import ObjectSink
from ckptd.shadow.restore.handle import Blocked, Directory, walk
from ckptd.shadow.scan.exclusion import OTHER_MOUNT, SPECIAL, STORE, UNREADABLE
from ckptd.shadow.scan.foreignstore import is_store_folder
from ckptd.shadow.scan.reading import read_file, read_link
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import DIRECTORY, EXECUTABLE, LINK, REGULAR, is_git_dir

__all__ = ["ABSENT", "Disk", "Found", "Nowhere"]


class Found(NamedTuple):
    """What stands at a path: a state whose content is in the sink, or the reason why no checkpoint can hold it."""

    state: State | None = None
    problem: str | None = None
    detail: str | None = None


ABSENT: Final = Found()


class Disk:
    """Reads single paths of a worktree; what it reads goes to ``sink``, whatever rules and limits say.

    ``guard`` are (device, inode) of directories that are never entered: the stores. ``mounts`` are the paths of
    mount points, which are not entered either.
    """

    def __init__(
        self,
        root_fd: int,
        sink: ObjectSink,
        guard: frozenset[tuple[int, int]] = frozenset(),
        mounts: frozenset[bytes] = frozenset(),
    ) -> None:
        self._mounts = mounts
        self._root_fd = root_fd
        self._guard = guard
        self._root_dev = os.fstat(root_fd).st_dev
        self._sink = sink

    def look(self, path: bytes) -> Found:
        """Tell what stands at a path; where a link or file is on the way to it, that is a problem."""
        if self._is_mounted(path):
            return Found(problem=OTHER_MOUNT)
        folder, _, name = path.rpartition(b"/")
        try:
            with self._open(folder) as here:
                return self._look_at(here, name)
        except Blocked as blocked:
            if blocked.reason == "gone":
                return ABSENT
            return Found(problem=blocked.reason, detail=f"{to_text(blocked.at)} is on the way to it")
        except OSError as error:
            problem = "bad_name" if error.errno == errno.ENAMETOOLONG else UNREADABLE
            return Found(problem=problem, detail=error.strerror)

    def kind(self, path: bytes) -> State | None:
        """Tell what kind of thing stands at a path, without reading it; None for nothing that a tree could hold."""
        folder, _, name = path.rpartition(b"/")
        try:
            with self._open(folder) as here:
                return _kind_of(os.lstat(name, dir_fd=here.fd))
        except (Blocked, OSError):
            return None

    def below(self, path: bytes) -> Iterator[tuple[bytes, Found]]:
        """Give everything below a directory, each directory before what it holds."""
        stack = [path]
        while stack:
            top = stack.pop()
            for name, found in self._list(top):
                inside = top + b"/" + name
                if inside in self._mounts:
                    found = Found(problem=OTHER_MOUNT)
                yield inside, found
                if found.state is not None and found.state.is_dir:
                    stack.append(inside)

    def names(self, path: bytes) -> list[bytes]:
        """Give the names in a directory, none where it cannot be listed."""
        try:
            with self._open(path) as here:
                return _names(here)
        except (Blocked, OSError):
            return []

    def _list(self, path: bytes) -> list[tuple[bytes, Found]]:
        try:
            with self._open(path) as here:
                names = _names(here)
                return [(name, self._look_at(here, name)) for name in names]
        except Blocked as blocked:
            return [(b"", Found(problem=blocked.reason))]
        except OSError as error:
            return [(b"", Found(problem=UNREADABLE, detail=error.strerror))]

    def _is_mounted(self, path: bytes) -> bool:
        return any(path == point or path.startswith(point + b"/") for point in self._mounts)

    def _open(self, folder: bytes) -> Directory:
        return walk(self._root_fd, folder.split(b"/") if folder else [], self._root_dev)

    def _look_at(self, here: Directory, name: bytes) -> Found:
        try:
            found = os.lstat(name, dir_fd=here.fd)
        except FileNotFoundError:
            return ABSENT
        if is_git_dir(name):
            return Found(problem="git_dir", detail="no checkpoint holds what is below .git")
        if found.st_dev != self._root_dev:
            return Found(problem=OTHER_MOUNT)
        if (found.st_dev, found.st_ino) in self._guard:
            return Found(problem=STORE, detail="no checkpoint holds the checkpoints themselves")
        if stat.S_ISDIR(found.st_mode):
            if _is_store(here, name):
                return Found(problem=STORE, detail="no checkpoint holds other checkpoints")
            return Found(State(DIRECTORY, b"", stat.S_IMODE(found.st_mode)))
        if stat.S_ISLNK(found.st_mode):
            result = read_link(here.fd, name, found, self._sink)
            mode, perm = LINK, None
        elif stat.S_ISREG(found.st_mode):
            result = read_file(here.fd, name, self._sink)
            mode, perm = EXECUTABLE if found.st_mode & 0o100 else REGULAR, stat.S_IMODE(found.st_mode)
        else:
            return Found(problem=SPECIAL, detail="a FIFO, socket or device is there")
        if result.gone:
            return ABSENT
        if result.oid is None or result.problem is not None:
            return Found(problem=result.problem or UNREADABLE, detail=result.detail)
        return Found(State(mode, result.oid, perm))


class Nowhere:
    """Answers as Disk does for a worktree that is not there."""

    def look(self, path: bytes) -> Found:
        """Tell that nothing stands at a path."""
        del path
        return ABSENT

    def kind(self, path: bytes) -> State | None:
        """Tell that nothing stands at a path."""
        return self.look(path).state

    def below(self, path: bytes) -> Iterator[tuple[bytes, Found]]:
        """Give nothing."""
        del path
        return iter(())

    def names(self, path: bytes) -> list[bytes]:
        """Give nothing."""
        del path
        return []


def _is_store(here: Directory, name: bytes) -> bool:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here.fd)
    except OSError:
        return False
    try:
        return is_store_folder(fd, [os.fsencode(one) for one in os.listdir(fd)])
    finally:
        os.close(fd)


def _kind_of(found: os.stat_result) -> State | None:
    if stat.S_ISDIR(found.st_mode):
        return State(DIRECTORY, b"", stat.S_IMODE(found.st_mode))
    if stat.S_ISLNK(found.st_mode):
        return State(LINK, b"")
    return State(REGULAR, b"", stat.S_IMODE(found.st_mode)) if stat.S_ISREG(found.st_mode) else None


def _names(here: Directory) -> list[bytes]:
    """List a directory; its handle may be one that cannot be read from."""
    fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here.fd)
    try:
        return sorted(os.fsencode(name) for name in os.listdir(fd))
    finally:
        os.close(fd)
