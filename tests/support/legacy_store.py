"""A checkpoint folder as version 0.3.6 left it, made with git: for tests of what is read of it.

``LegacyStore(checkpoint_dir, worktree)``: begins like 0.3.6, with an empty commit. ``save(message)`` and ``reset(id)``
do what it did; each gives or takes 40 digits. ``git(*words)`` runs git on the folder, ``object_path(id)`` is where an
object lies. ``shape()`` is every name in it with mode, time of change and bytes, to compare.
"""

import os

from support.worktrees import run_git

__all__ = ["LegacyStore", "shape_of"]

_CONFIG = """[core]
\tbare = false
\trepositoryformatversion = 0
\tfilemode = true
\tlogallrefupdates = true
\tworktree = %s
[user]
\tname = Agent
\temail = placeholder@example.com
"""


class LegacyStore:
    """See the module."""

    def __init__(self, checkpoint_dir: bytes, worktree: bytes, digits: str = "0a3591f2") -> None:
        self.folder = os.path.join(checkpoint_dir, os.path.basename(worktree) + b"_" + digits.encode())
        self._worktree = os.path.realpath(worktree)
        run_git("init", "-q", "--bare", "--initial-branch=master", self.folder)
        with open(os.path.join(self.folder, b"config"), "w") as file:
            file.write(_CONFIG % os.fsdecode(worktree))
        self.beginning = self._commit("Initial commit")

    def git(self, *words: str | bytes) -> bytes:
        """Run git on the folder and its worktree."""
        return run_git(b"--git-dir=" + self.folder, b"--work-tree=" + self._worktree, *words, cwd=self._worktree)

    def save(self, message: str = "") -> str:
        """Make a checkpoint of the worktree."""
        self.git("add", "-A")
        return self._commit(message)

    def reset(self, commit: str) -> None:
        """Reset the worktree; later checkpoints are in the reflog alone."""
        self.git("reset", "-q", "--hard", commit)

    def object_path(self, oid: str) -> bytes:
        """Where an object lies."""
        return os.path.join(self.folder, b"objects", oid[:2].encode(), oid[2:].encode())

    def shape(self) -> dict[bytes, tuple[int, int, bytes]]:
        """Everything in the folder."""
        return shape_of(self.folder)

    def _commit(self, message: str) -> str:
        self.git("commit", "-q", "--allow-empty", "--allow-empty-message", "--cleanup=verbatim", "-m", message)
        return self.git("rev-parse", "HEAD").decode().strip()


def shape_of(folder: bytes) -> dict[bytes, tuple[int, int, bytes]]:
    """Give mode, time of change and bytes of everything below a folder, and of the folder itself."""
    found = {}
    for place, _, files in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in files)):
            data = b""
            if path != place:
                with open(path, "rb") as file:
                    data = file.read()
            status = os.lstat(path)
            found[os.path.relpath(path, folder)] = (status.st_mode, status.st_mtime_ns, data)
    return found
