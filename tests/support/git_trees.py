"""The git program as an oracle for patches: trees from plain dictionaries, diffs of them, patches applied to them."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.patch.pair import Pair, Side

__all__ = ["Files", "GitTrees", "pairs_of", "side"]

Files = dict[bytes, tuple[int, bytes]]
"""Mode and content by path."""


def side(mode: int, data: bytes) -> Side:
    return Side(mode, hash_object(b"blob", data), lambda _oid: data)


def pairs_of(old: Files, new: Files) -> list[Pair]:
    return [
        Pair(path, side(*old[path]) if path in old else None, side(*new[path]) if path in new else None)
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]


class GitTrees:
    """A repository with a worktree below ``place``."""

    def __init__(self, place: Path) -> None:
        self._place = place
        place.mkdir()
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "LC_ALL": "C",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_SYSTEM": "/dev/null",
        }
        self.run("init", "-q", ".")
        # names that only other file systems fear are ordinary here
        self.run("config", "core.protectNTFS", "false")

    def run(self, *words: str, data: bytes = b"") -> bytes:
        done = subprocess.run(
            ["git", *words], input=data, cwd=self._place, env=self._environ, capture_output=True, check=False
        )
        assert done.returncode == 0, (words, done.stderr, data[:5000])
        return done.stdout

    def write(self, *trees: Files) -> list[str]:
        """Store trees; give their ids."""
        script = b"".join(_commit(number, files) for number, files in enumerate(trees))
        self.run("fast-import", "--quiet", "--force", data=script)
        names = [f"refs/t/{number}^{{tree}}" for number in range(len(trees))]
        return self.run("rev-parse", *names).decode().split()

    def diff(self, old: str, new: str, *options: str) -> bytes:
        return self.run("diff", "--no-ext-diff", "--no-color", *options, old, new)

    def apply(self, tree: str, patch: bytes, *options: str) -> str:
        """Check out a tree, apply a patch to worktree and index, and give the id of what comes out."""
        self.run("read-tree", "-u", "--reset", tree)
        if patch:
            self.run("apply", "--index", "-p1", "--whitespace=nowarn", *options, data=patch)
        return self.run("write-tree").decode().strip()

    def check(self, old: Files, new: Files, render: Callable[[list[Pair]], bytes], *options: str) -> bytes:
        """Assert that the patch of two trees leads from one to the other and back; give the patch."""
        before, after = self.write(old, new)
        patch = render(pairs_of(old, new))
        assert self.apply(before, patch, *options) == after
        assert self.apply(after, patch, "-R", *options) == before
        return patch


def _commit(number: int, files: Files) -> bytes:
    lines = [b"reset refs/t/%d\ncommit refs/t/%d\ncommitter t <t> 0 +0000\ndata 0\ndeleteall\n" % (number, number)]
    for path, (mode, data) in files.items():
        lines.append(b'M %o inline "%s"\ndata %d\n%s\n' % (mode, _octal(path), len(data), data))
    return b"".join(lines)


def _octal(path: bytes) -> bytes:
    return b"".join(b"\\%03o" % byte for byte in path)
