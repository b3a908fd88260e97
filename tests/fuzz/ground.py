"""What the fuzzed daemon works on: small worktrees with traps in them, and files around them that nobody may touch.

``Ground(base)`` makes it below ``base`` (a private directory). ``worktrees``, ``checkpoint_dirs`` (absolute paths as
text) are those that requests mean; ``odd_places`` are others below ``base`` that they may mean, ``names`` paths in a
worktree, good and bad. ``outside()`` describes all that no request may change; ``stir(rng)`` changes a worktree, as
its user does; ``swap(rng)`` for a moment only, to lead a restore astray. ``is_inside(path)`` tells whether a place
that a request names stays below ``base`` and apart from what is outside.
"""

import contextlib
import hashlib
import os
import random
import threading
import time
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
_SWAPPED = ["dir", "dir/deep", "dir/deep/er", "bulk"]
_CHANGES = ["a.txt", "dir/b.py", "dir/deep/er/c", "new", "é", "bulk/1", "bulk/2", "x.log"]


class Ground:
    """See the module."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._turn = threading.Lock()
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
            os.path.join(self.worktrees[0], "inside"),
            os.path.join(self.worktrees[1], "self", "inside"),
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
        real = os.path.realpath(path)
        if os.path.commonpath([self.outside_dir, real]) == self.outside_dir:
            # Where a client wants a store there it is made; what must not be reached is reached without being named.
            return os.path.isfile(real)
        return os.path.commonpath([self.base, real]) == self.base

    def outside(self) -> dict[str, str]:
        """Describe every file that no request may change."""
        return {os.path.relpath(path, self.base): _describe(path) for path in self._walk(self.outside_dir)}

    def strangers(self) -> list[str]:
        """Give what looks like a store or its lock, lies where none belongs and was not there in the beginning."""
        return sorted(self._census() - self._other)

    def stir(self, rng: random.Random) -> None:
        """Change a worktree a little."""
        root = rng.choice(self.worktrees)
        *folders, name = rng.choice(_CHANGES).split("/")
        # A restore may be at work in it, or may have brought a link back that was saved: it must not lead this one out.
        with self._turn, contextlib.suppress(OSError):
            here = _open_below(root, folders)
            try:
                self._change(here, name, rng)
            finally:
                os.close(here)

    def _change(self, here: int, name: str, rng: random.Random) -> None:
        chance = rng.random()
        if chance < 0.3:
            os.unlink(name, dir_fd=here)
            if chance < 0.1:
                os.symlink(self.outside_dir, name, dir_fd=here)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with open(os.open(name, flags, 0o644, dir_fd=here), "w") as file:
                file.write(f"{rng.random()}\n" * rng.randrange(30))

    def swap(self, rng: random.Random) -> None:
        """Put a link to the outside in the place of a directory for a moment, as somebody with bad intentions does."""
        path = os.path.join(rng.choice(self.worktrees), rng.choice(_SWAPPED))
        aside = f"{path}.aside"
        with self._turn:
            with contextlib.suppress(OSError):
                os.rename(path, aside)
                os.symlink(self.outside_dir, path)
                time.sleep(rng.random() * 0.003)
            with contextlib.suppress(OSError):
                os.unlink(path)
            with contextlib.suppress(OSError):
                os.rename(aside, path)

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


def _open_below(root: str, folders: list[str]) -> int:
    """Open a directory without following a link; what is no directory on the way is removed and made anew."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    here = os.open(root, flags)
    for folder in folders:
        above = here
        try:
            with contextlib.suppress(OSError):
                os.unlink(folder, dir_fd=above)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, dir_fd=above)
            here = os.open(folder, flags, dir_fd=above)
        finally:
            os.close(above)
    return here


def _describe(path: str) -> str:
    seen = os.lstat(path)
    text = hashlib.sha256(Path(path).read_bytes()).hexdigest() if os.path.isfile(path) else ""
    return f"{seen.st_mode:o} {seen.st_ino} {seen.st_size} {seen.st_mtime_ns} {text}"
