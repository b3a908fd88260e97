"""What the fuzzed daemon works on: small worktrees with traps in them, and files around them that nobody may touch.

``Ground(base)`` makes it below ``base`` (a private directory). ``worktrees``, ``checkpoint_dirs`` (absolute paths as
text) are those that requests mean; ``odd_places`` are others below ``base`` that they may mean, ``names`` paths in a
worktree, good and bad. ``outside()`` describes all that no request may change; ``stir(rng)`` changes a worktree, as
its user does. ``is_inside(path)`` tells whether a path stays below ``base``.
"""

import contextlib
import hashlib
import os
import random
import shutil
from pathlib import Path

__all__ = ["Ground"]

_FILES = {"a.txt": "one\ntwo\n", "dir/b.py": "print()\n", "dir/deep/er/c": "c", ".gitignore": "*.log\n", "x.log": "x"}
_NAMES = [
    "a.txt", "dir", "dir/b.py", "dir/deep", "dir/deep/er/c", ".gitignore", "x.log", "new", "out", "out/secret", "up",
    "up/secret", "self", "self/a.txt", "nothing", "dir/nothing", "é", "a\nb", "\x1b[31m", "\u202egpj", " ", "-rf",
    "a.txt/x", ".git", ".git/config", ".GIT/config", "git~1", ".g\u200cit", ".git ", ".ckptignore", "fabricatio.toml",
    "fifo",
]  # fmt: skip
_BAD_NAMES = [
    "", ".", "..", "../outside/secret", "dir/../../outside/secret", "/etc/passwd", "//", "a//b", "dir/", "./a.txt",
    "a\0b", "dir/..", "a" * 300, "/".join(["d"] * 500), "x/" * 3000, "\ud800", "~", "~/x", "C:\\x", "\\\\host\\share",
]  # fmt: skip
_OURS = (".lock", "cd", "one_", "two ", "three_", "h_", "ckpt")
_CHANGES = ["a.txt", "dir/b.py", "dir/deep/er/c", "new", "é", "bulk/1", "bulk/2", "x.log"]


class Ground:
    """See the module."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.home = os.path.join(base, "h")
        self.names, self.bad_names = _NAMES, _BAD_NAMES
        self.outside_dir = os.path.join(base, "outside")
        os.makedirs(self.outside_dir)
        Path(self.outside_dir, "secret").write_text("nobody's business\n")
        Path(self.outside_dir, "empty").mkdir()
        self.worktrees = [os.path.join(self.home, name) for name in ("one", "two é", "three")]
        for root in self.worktrees:
            self._plant(root)
        self.checkpoint_dirs = [os.path.join(self.home, "cd"), os.path.join(self.home, "more", "cd")]
        os.symlink(self.worktrees[0], os.path.join(self.home, "link"))
        self.odd_places = [
            self.base,
            self.home,
            self.outside_dir + "/secret",
            os.path.join(self.home, "link"),
            os.path.join(self.home, "missing"),
            os.path.join(self.worktrees[0], "dir"),
            os.path.join(self.worktrees[1], "self", "dir"),
            self.checkpoint_dirs[0],
            "/",
            "relative",
            "",
        ]
        self._other = self._census()

    def _plant(self, root: str) -> None:
        for name, text in _FILES.items():
            path = Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        os.symlink(self.outside_dir, os.path.join(root, "out"))
        os.symlink("../../outside", os.path.join(root, "up"))
        os.symlink(".", os.path.join(root, "self"))
        os.mkfifo(os.path.join(root, "fifo"))

    def is_inside(self, path: str) -> bool:
        """Tell whether a path means something below the base, or nothing at all."""
        if "\0" in path or not path.startswith("/"):
            return True
        return os.path.commonpath([self.base, os.path.normpath(path)]) == self.base

    def outside(self) -> dict[str, str]:
        """Describe every file that no request may change."""
        return {os.path.relpath(path, self.base): _describe(path) for path in self._walk(self.outside_dir)}

    def strangers(self) -> list[str]:
        """Give what looks like a store or its lock, lies where none belongs and was not there in the beginning."""
        return sorted(self._census() - self._other)

    def stir(self, rng: random.Random) -> None:
        """Change a worktree a little."""
        root = rng.choice(self.worktrees)
        path = Path(root, rng.choice(_CHANGES))
        # A restore may be at work in it.
        with contextlib.suppress(OSError):
            if rng.random() < 0.2:
                path.unlink()
            elif rng.random() < 0.1:
                shutil.rmtree(path.parent if path.parent != Path(root) else path)
            elif rng.random() < 0.1:
                path.unlink()
                path.symlink_to(self.outside_dir)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{rng.random()}\n" * rng.randrange(30))

    def _census(self) -> set[str]:
        found = set()
        for folder in ("/", os.path.expanduser("~"), os.path.dirname(self.base)):
            ours = (*_OURS, os.path.basename(self.base))
            found.update(os.path.join(folder, name) for name in os.listdir(folder) if name.startswith(ours))
        return found

    @staticmethod
    def _walk(top: str) -> list[str]:
        found = [top]
        for folder, folders, names in os.walk(top):
            found += [os.path.join(folder, name) for name in folders + names]
        return found


def _describe(path: str) -> str:
    seen = os.lstat(path)
    text = hashlib.sha256(Path(path).read_bytes()).hexdigest() if os.path.isfile(path) else ""
    return f"{seen.st_mode:o} {seen.st_ino} {seen.st_size} {seen.st_mtime_ns} {text}"
