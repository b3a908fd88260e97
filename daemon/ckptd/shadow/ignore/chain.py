"""Ignore files at every level, and which of them has the word about a path.

Paths are bytes relative to the worktree, with ``/`` between components and none at the ends. Case matters, as it
does to git where ``core.ignoreCase`` is off.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ckptd.shadow.ignore.ruleset import rules_of

__all__ = ["IgnoreChain", "IgnoreFile", "IgnoreRules", "ReadIgnoreFiles"]

ReadIgnoreFiles = Callable[[bytes], tuple[bytes | None, bytes | None, bytes | None]]
"""Gives a directory's ``.gitignore``, ``.ckptignore`` and, where it is a repository's root, ``.git/info/exclude``."""


class IgnoreFile:
    """One ignore file in force at ``base``, the directory that holds it (empty for the root), and below."""

    __slots__ = ("_rules", "_skipped")

    def __init__(self, data: bytes, base: bytes) -> None:
        self._rules = rules_of(data)
        self._skipped = len(base) + 1 if base else 0

    def __bool__(self) -> bool:
        return bool(self._rules)

    def verdict(self, path: bytes, name: bytes, is_dir: bool) -> bool | None:
        """Tell what the file says of a path below its base: true ignored, false re-included, None nothing.

        ``name`` is the last component of ``path``. The last rule that matches decides.
        """
        return self._rules.verdict(path[self._skipped :], name, is_dir)


class IgnoreChain:
    """The ignore files in force in one directory.

    The first that has a verdict decides, in this order: options; ``.ckptignore``, deepest first; ``.gitignore``,
    deepest first, each with its repository's ``info/exclude`` right behind it; the user's global excludes.
    """

    __slots__ = ("_checkpoint", "_files", "_git", "_options")

    def __init__(
        self,
        options: tuple[IgnoreFile, ...],
        checkpoint: tuple[IgnoreFile, ...],
        git: tuple[IgnoreFile, ...],
    ) -> None:
        self._options = options
        self._checkpoint = checkpoint
        self._git = git
        self._files = options + checkpoint + git

    @classmethod
    def root(cls, *, options: Sequence[bytes] = (), global_excludes: bytes | None = None) -> "IgnoreChain":
        """Give what is in force before the worktree's own files are read. Each option is a line of an ignore file."""
        return cls(_files(b"", b"\n".join(options)), (), _files(b"", global_excludes))

    def enter(
        self,
        directory: bytes,
        *,
        gitignore: bytes | None = None,
        ckptignore: bytes | None = None,
        git_exclude: bytes | None = None,
    ) -> "IgnoreChain":
        """Give what is in force in a directory that holds these files; the chain itself where they say nothing."""
        checkpoint = _files(directory, ckptignore)
        git = _files(directory, gitignore, git_exclude)
        if not checkpoint and not git:
            return self
        return IgnoreChain(self._options, checkpoint + self._checkpoint, git + self._git)

    def ignored(self, path: bytes, is_dir: bool) -> bool:
        """Tell whether a path in this directory is ignored. The directory itself is known not to be."""
        name = path[path.rfind(b"/") + 1 :]
        for file in self._files:
            verdict = file.verdict(path, name, is_dir)
            if verdict is not None:
                return verdict
        return False


class IgnoreRules:
    """The rules of a whole tree, whose ignore files are read when a path below them is first asked for.

    Not for several threads at once. What ``read`` raises is passed on, and the directory is asked for again next
    time: a rule that could not be read must never count as one that is not there.
    """

    def __init__(self, root: IgnoreChain, read: ReadIgnoreFiles) -> None:
        self._read: Final = read
        self._outermost: Final = root
        self._chains: Final[dict[bytes, IgnoreChain | None]] = {}

    def ignored(self, path: bytes, is_dir: bool) -> bool:
        """Tell whether a path, or a directory above it, is ignored."""
        chain = self._chain(path[: max(path.rfind(b"/"), 0)])
        return chain is None or chain.ignored(path, is_dir)

    def _chain(self, directory: bytes) -> IgnoreChain | None:
        """Give what is in force in a directory; None where it is ignored, so that its files have no say."""
        missing = []
        # A loop, since a path may have more components than calls can be nested.
        while directory and directory not in self._chains:
            missing.append(directory)
            directory = directory[: max(directory.rfind(b"/"), 0)]
        if directory not in self._chains:
            self._chains[directory] = self._entered(directory, self._outermost)
        chain = self._chains[directory]
        for below in reversed(missing):
            if chain is not None:
                chain = None if chain.ignored(below, True) else self._entered(below, chain)
            self._chains[below] = chain
        return chain

    def _entered(self, directory: bytes, chain: IgnoreChain) -> IgnoreChain:
        gitignore, ckptignore, git_exclude = self._read(directory)
        return chain.enter(directory, gitignore=gitignore, ckptignore=ckptignore, git_exclude=git_exclude)


def _files(base: bytes, *contents: bytes | None) -> tuple[IgnoreFile, ...]:
    """Compile what is there; a file without a rule is left out."""
    files = [IgnoreFile(data, base) for data in contents if data]
    return tuple(file for file in files if file)
