"""The way from the worktree's root down to the directory that a scan is in."""

import os
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from ckptd.shadow.scan.basis import Basis
from ckptd.shadow.scan.helpers import HashJob
from ckptd.shadow.scan.look import Look
from ckptd.shadow.scan.model import DirNode

__all__ = ["DIR_FLAGS", "Frame", "FrameStack", "reopen"]

DIR_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# A tree may be deeper than a process may have files open, and the daemon needs some for others meanwhile.
_MAX_OPEN: Final = 48


class Frame:
    """A directory on the way: what has been listed of it, and the directories that still have to be walked.

    ``fd`` is -1 while the directory is closed, and for good where it could not be found again. ``look`` says which
    names to look at, None: all of them. ``jobs`` are files that somebody else reads; while any is out, here or below,
    the directory ``waits`` to be finished. ``place`` is that of its sign, empty where it has not been listed.
    """

    __slots__ = (
        "basis",
        "children",
        "entries",
        "fd",
        "identity",
        "ignored",
        "is_store",
        "jobs",
        "look",
        "name",
        "now_ns",
        "old",
        "only_tracked",
        "path",
        "pending",
        "perm",
        "place",
        "waits",
    )  # fmt: skip

    def __init__(self, fd: int, path: bytes, name: bytes, perm: int, old: DirNode | None, basis: Basis) -> None:
        self.fd = fd
        self.path = path
        self.name = name
        self.perm = perm
        self.old = old
        self.basis = basis
        self.only_tracked = False
        self.waits = False
        self.jobs: list[HashJob] = []
        self.is_store = False
        self.look: Look | None = None
        self.now_ns = 0
        self.identity = (0, 0)
        self.place = b""
        self.entries: dict[bytes, bytes] = {}
        self.children: dict[bytes, DirNode] = {}
        self.ignored: set[bytes] = set()
        self.pending: list[tuple[bytes, os.stat_result, bool]] = []

    def path_of(self, name: bytes) -> bytes:
        """Give the path of one of its names."""
        return self.path + b"/" + name if self.path else name


class FrameStack:
    """The directories from the root down, of which only the deepest ones are open."""

    def __init__(self, root: Frame) -> None:
        self._frames = [root]

    @property
    def root_fd(self) -> int:
        """The handle of the root, open as long as the stack is."""
        return self._frames[0].fd

    @property
    def is_at_root(self) -> bool:
        """Whether the root is all that is left."""
        return len(self._frames) == 1

    @property
    def top(self) -> Frame:
        """The deepest directory."""
        return self._frames[-1]

    def push(self, frame: Frame) -> None:
        """Go down one directory."""
        self._frames.append(frame)
        if len(self._frames) > _MAX_OPEN + 1:
            # The root stays open: it is where a way back begins if one was cut.
            far = self._frames[-_MAX_OPEN - 1]
            if far.fd >= 0:
                far.identity = _identity(far.fd)
                _close(far)

    def pop(self) -> Frame:
        """Go up one directory from one below the root, and give it. It is opened again where it had been closed."""
        done = self._frames.pop()
        above = self._frames[-1]
        if above.fd < 0:
            above.fd = _step(done.fd, b"..", above.identity) if done.fd >= 0 else -1
            if above.fd < 0:
                above.fd = _walk(self._frames[0].fd, above.path, above.identity)
        _close(done)
        return above

    def so_far(self, waiting: Iterable[tuple[Frame, Frame]] = ()) -> DirNode:
        """Give a model of what has been seen, for a scan that ends here: whatever it lacks, the next one reads.

        ``waiting`` are directories that have been walked and not finished, each after those in it, with the one above.
        Without a basis nothing that it holds is taken for not ignored, and without ids every tree is made again.
        """
        made: dict[Frame, dict[bytes, DirNode]] = {}
        above: Frame
        for frame, above in (*waiting, *pairwise(reversed(self._frames))):
            made.setdefault(above, {})[frame.name] = _unfinished(frame, made.pop(frame, {}))
        return _unfinished(self._frames[0], made.get(self._frames[0], {}))

    def close(self) -> None:
        """Close all of them."""
        for frame in self._frames:
            _close(frame)


def _unfinished(frame: Frame, below: dict[bytes, DirNode]) -> DirNode:
    old = frame.old
    entries = {**(old.entries if old is not None else {}), **frame.entries}
    children = {**(old.children if old is not None else {}), **frame.children, **below}
    return DirNode(entries, children, frozenset(), frame.perm, b"", b"", None)


def reopen(root_fd: int, path: bytes, wanted: tuple[int, int]) -> int:
    """Open a directory by its path from the root; -1 where that leads elsewhere now."""
    return _walk(root_fd, path, wanted) if path else os.dup(root_fd)


def _walk(root_fd: int, path: bytes, wanted: tuple[int, int]) -> int:
    fd = os.dup(root_fd)
    for name in path.split(b"/"):
        below = _step(fd, name, None)
        os.close(fd)
        fd = below
        if fd < 0:
            return -1
    if _identity(fd) == wanted:
        return fd
    os.close(fd)
    return -1


def _step(fd: int, name: bytes, wanted: tuple[int, int] | None) -> int:
    """Open a directory beside or below an open one; -1 where it is not there or not the wanted one."""
    try:
        found = os.open(name, DIR_FLAGS, dir_fd=fd)
    except OSError:
        return -1
    if wanted is None or _identity(found) == wanted:
        return found
    os.close(found)
    return -1


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _close(frame: Frame) -> None:
    if frame.fd >= 0:
        os.close(frame.fd)
        frame.fd = -1
