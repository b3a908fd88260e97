"""What the ignored names of a directory are decided by: the rules in force there, and what the user's Git tracks."""

import os
import stat
from collections.abc import Mapping
from typing import Final

from ckptd.errors import DomainError
from ckptd.regular import read_regular
from ckptd.shadow.ignore.chain import IgnoreChain
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.scan.entry import OID, SIGNATURE, is_racy, signature
from ckptd.shadow.scan.model import DirNode
from ckptd.shadow.scan.tracked import NOTHING_TRACKED, Tracked, exclude_path, git_dir_of

__all__ = ["Basis", "BasisMaker"]

_GITIGNORE: Final = b".gitignore"
_CKPTIGNORE: Final = b".ckptignore"
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LIMIT_BYTES: Final = 16 * 1024 * 1024


class Basis:
    """Rules and tracked paths of one directory, shared with the directories below that add nothing.

    Identity matters: while a directory's basis is the same object, what it decided still holds. ``signs`` are
    the stat signatures that this basis was made from, None where they cannot vouch for the next scan. ``outside``
    is a repository's own exclude file; ``gitignore`` and ``ckptignore`` the texts of ``path``'s ignore files. ``git``
    is what a repository's top had of Git by then: its directory, its exclude file and that one's signature.
    """

    __slots__ = ("chain", "ckptignore", "git", "gitignore", "outside", "parent", "path", "signs", "tracked")

    def __init__(
        self,
        chain: IgnoreChain,
        tracked: Tracked,
        parent: "Basis | None",
        signs: tuple[bytes | None, ...] | None,
        path: bytes = b"",
        outside: bytes | None = None,
        gitignore: bytes | None = None,
        ckptignore: bytes | None = None,
    ) -> None:
        self.chain = chain
        self.tracked = tracked
        self.parent = parent
        self.signs = signs
        self.path = path
        self.outside = outside
        self.gitignore = gitignore
        self.ckptignore = ckptignore
        self.git: tuple[bytes | None, ...] | None = None


class BasisMaker:
    """Makes the basis of each directory from the ignore files that lie in it.

    An ignore file whose stat signature the model knows is read from the store and not opened.
    """

    def __init__(self, root: bytes, chain: IgnoreChain, objects: ObjectStore) -> None:
        self._root = root
        self._objects = objects
        self._trackers: list[Tracked] = []
        self._repositories: list[Basis] = []
        self.root: Final = Basis(chain, NOTHING_TRACKED, None, None)
        self._unknown: list[bytes] = []

    def take_unknown_rules(self) -> list[bytes]:
        """Give the ignore files that could not be read since the last call."""
        found, self._unknown = sorted(self._unknown), []
        return found

    def take_problems(self) -> list[str]:
        """Give what else could not be read since the last call, as sentences."""
        found = sorted({f"cannot read {tracker.problem}" for tracker in self._trackers if tracker.problem})
        self._trackers = []
        return found

    def take_repositories(self) -> list[Basis]:
        """Give what was known of the Git repositories that were entered since the last call."""
        found, self._repositories = self._repositories, []
        return found

    def is_current(self, basis: Basis) -> bool:
        """Tell whether a repository's exclude file and index are what they were: nobody watches below ``.git``."""
        return basis.git == self._git_of(basis.path) and basis.tracked.is_current()

    def _git_of(self, path: bytes) -> tuple[bytes | None, ...]:
        git_dir = git_dir_of(os.path.join(self._root, path) if path else self._root)
        exclude = exclude_path(git_dir) if git_dir is not None else None
        return git_dir, exclude, _exclude_sign(exclude)

    def enter(
        self, parent: Basis, path: bytes, fd: int, items: Mapping[bytes, "os.DirEntry[str]"], old: DirNode | None
    ) -> Basis:
        """Give the basis of a directory; ``parent`` itself where the directory adds no rules."""
        if _GITIGNORE not in items and _CKPTIGNORE not in items and b".git" not in items:
            return parent
        git = self._git_of(path) if b".git" in items else (None, None, None)
        signs = (_sign(items, _GITIGNORE), _sign(items, _CKPTIGNORE), *git)
        before = old.basis if old is not None else None
        if (
            isinstance(before, Basis)
            and before.parent is parent
            and before.signs == signs
            and before.tracked.is_current()
        ):
            found = before
            self._trackers.append(before.tracked)
        else:
            found = self._make(parent, path, fd, items, old, git[0], signs)
        if b".git" in items:
            found.git = git
            self._repositories.append(found)
        return found

    def _make(
        self,
        parent: Basis,
        path: bytes,
        fd: int,
        items: Mapping[bytes, "os.DirEntry[str]"],
        old: DirNode | None,
        git_dir: bytes | None,
        signs: tuple[bytes | None, ...],
    ) -> Basis:
        exclude = self._exclude(path, git_dir)
        gitignore, settled_git = self._rules(path, _GITIGNORE, fd, items, old)
        ckptignore, settled_ckpt = self._rules(path, _CKPTIGNORE, fd, items, old)
        chain = parent.chain.enter(path, gitignore=gitignore, ckptignore=ckptignore, git_exclude=exclude)
        tracked = parent.tracked
        if git_dir is not None:
            tracked = Tracked(path, os.path.join(git_dir, b"index"))
        self._trackers.append(tracked)
        vouched = signs if settled_git and settled_ckpt else None
        return Basis(chain, tracked, parent, vouched, path, exclude, gitignore, ckptignore)

    def _exclude(self, path: bytes, git_dir: bytes | None) -> bytes | None:
        try:
            return read_regular(exclude_path(git_dir), _LIMIT_BYTES) if git_dir is not None else None
        except OSError:
            self._unknown.append(os.path.join(path, b".git/info/exclude"))
            return None

    def _rules(
        self, path: bytes, name: bytes, fd: int, items: Mapping[bytes, "os.DirEntry[str]"], old: DirNode | None
    ) -> tuple[bytes | None, bool]:
        """Give an ignore file's bytes, and whether its stat signature can vouch for them at the next scan."""
        if name not in items:
            return None, True
        known = old.entries.get(name) if old is not None else None
        try:
            found = items[name].stat(follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                # As git has it: a link, or a directory of this name, holds no rules.
                return None, True
            if known is not None and known[SIGNATURE] == signature(found) and not is_racy(known):
                stored = self._from_store(known[OID])
                if stored is not None:
                    return stored, True
            return _read(name, fd), False
        except FileNotFoundError:
            return None, False
        except OSError:
            self._unknown.append(path + b"/" + name if path else name)
            return None, False

    def _from_store(self, oid: bytes) -> bytes | None:
        try:
            return self._objects.read(oid, b"blob")
        except DomainError:
            return None


def _read(name: bytes, dir_fd: int) -> bytes:
    fd = os.open(name, _FLAGS, dir_fd=dir_fd)
    try:
        data = b""
        while len(data) < _LIMIT_BYTES and (piece := os.read(fd, 1 << 20)):
            data += piece
        return data
    finally:
        os.close(fd)


def _sign(items: Mapping[bytes, "os.DirEntry[str]"], name: bytes) -> bytes | None:
    if name not in items:
        return None
    try:
        return signature(items[name].stat(follow_symlinks=False))
    except OSError:
        return b"gone"


def _exclude_sign(exclude: bytes | None) -> bytes | None:
    if exclude is None:
        return None
    try:
        return signature(os.stat(exclude))
    except OSError:
        return b"none"
