"""The user's own Git repositories inside a worktree: read for what they track, never written."""

import os
import re
import stat
from typing import Final

import pygit2

from ckptd.regular import read_regular

__all__ = ["NOTHING_TRACKED", "Tracked", "exclude_path", "git_dir_of"]

_LIMIT_BYTES: Final = 1 << 16


def git_dir_of(directory: bytes) -> bytes | None:
    """Give the Git directory of a repository whose top is ``directory`` (absolute), None where it is none.

    ``.git`` may be a directory, or a file that names one: a submodule or a linked worktree.
    """
    dot_git = os.path.join(directory, b".git")
    if os.path.isdir(dot_git):
        return dot_git if os.path.exists(os.path.join(dot_git, b"HEAD")) else None
    text = _read(dot_git)
    match = re.match(rb"gitdir: (.+?)\r?\n?\Z", text or b"", re.DOTALL)
    return os.path.join(directory, match[1]) if match else None


def exclude_path(git_dir: bytes) -> bytes:
    """Give the path of a repository's ``info/exclude``, which linked worktrees share."""
    common = _read(os.path.join(git_dir, b"commondir"))
    base = os.path.join(git_dir, common.strip()) if common else git_dir
    return os.path.join(base, b"info", b"exclude")


def _read(path: bytes) -> bytes | None:
    """Read a small regular file; None for anything else."""
    try:
        return read_regular(path, _LIMIT_BYTES)
    except OSError:
        return None


class Tracked:
    """The paths that one repository's index holds, as paths of the worktree.

    The index is read when the first ignored path asks. ``problem`` is set where it cannot be read: then nothing
    counts as tracked, and that is reported.
    """

    def __init__(self, base: bytes, index_path: bytes | None) -> None:
        self._base: Final = base
        self._index_path: Final = index_path
        self._sign: tuple[int, int, int] | None = _stat_sign(index_path)
        self._paths: frozenset[bytes] | None = None if self._sign else frozenset()
        self._folders: frozenset[bytes] = frozenset()
        self.problem: str | None = None

    def is_current(self) -> bool:
        """Tell whether the index is still the file that was read."""
        return self._sign == _stat_sign(self._index_path)

    def has_file(self, path: bytes) -> bool:
        """Tell whether the index holds this very path."""
        return path in self._load()

    def has_below(self, path: bytes) -> bool:
        """Tell whether the index holds anything below this directory, or the directory itself: a submodule."""
        return path in self._load() or path in self._folders

    def _load(self) -> frozenset[bytes]:
        if self._paths is None:
            names: list[bytes] = []
            try:
                names = [os.fsencode(entry.path) for entry in _Index(os.fsdecode(self._index_path or b""))]
            except (pygit2.GitError, OSError, ValueError) as error:
                self.problem = f"the index of the Git repository at {os.fsdecode(self._base) or '.'}: {error}"
            prefix = self._base + b"/" if self._base else b""
            paths = frozenset([prefix + name for name in names])
            # Paths last: another thread may ask meanwhile, and must not take a half for the whole.
            self._folders = _folders_of(paths)
            self._paths = paths
        return self._paths


class _Index(pygit2.Index):
    """An index that says nothing on stderr when it goes, if it could not be opened."""

    def __del__(self) -> None:
        if hasattr(self, "_index"):
            super().__del__()


def _stat_sign(path: bytes | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def _folders_of(paths: frozenset[bytes]) -> frozenset[bytes]:
    folders: set[bytes] = set()
    for path in paths:
        folder = path.rpartition(b"/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition(b"/")[0]
    return frozenset(folders)


NOTHING_TRACKED: Final = Tracked(b"", None)
