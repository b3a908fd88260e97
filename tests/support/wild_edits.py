"""A program that edits a directory as nobody should: for tests in which another process does so.

    python3 wild_edits.py ROOT OUTSIDE SEED COUNT [KIND]

Makes COUNT edits below ROOT and prints how many of them the file system took. KIND is ``all`` (default; no second
names), ``moves`` (mostly directories that change their places), ``burst`` (one directory, as fast as it goes, little
of which stays) or ``links`` (writes through second names). OUTSIDE, on the same file system, gets second names of
files, and directories that leave ROOT for a while. A name there is written through only by a later run, and before that
everything has to be looked at: of a second name that is made outside no watcher is told.
"""

import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator

__all__ = ["Wild", "main"]

_MODES = (0o600, 0o644, 0o755)


class Wild:
    """One run."""

    def __init__(self, root: str, outside: str, seed: int) -> None:
        os.chdir(root)
        self._outside = outside
        self._chance = random.Random(seed)
        self._run = seed
        self._older = sorted(os.listdir(outside))
        self._number = 0

    def edit(self, kind: str, count: int) -> int:
        """Make the edits; give how many came to something."""
        done = 0
        acts = self._burst(count) if kind == "burst" else (self._any(kind) for _ in range(count))
        for act in acts:
            self._number += 1
            try:
                act()
                done += 1
            except OSError:
                # The next one will fare better.
                continue
        return done

    def _any(self, kind: str) -> Callable[[], object]:
        chosen = self._chance.choices([act for act, _ in _ACTS[kind]], [weight for _, weight in _ACTS[kind]])[0]
        return lambda: chosen(self)

    def _burst(self, count: int) -> Iterator[Callable[[], object]]:
        folder = "burst"
        # Another run may be at it: even the directory can be gone the next moment.
        yield lambda: os.makedirs(folder, exist_ok=True)
        for number in range(40):
            yield lambda number=number: self._put(os.path.join(folder, f"always{number}"), "1")
        for number in range(count):
            name = os.path.join(folder, str(self._chance.randrange(4_000)))
            if number % 997 == 0:
                yield lambda: os.makedirs(os.path.join(folder, f"late{self._chance.randrange(20)}", "x"))
            elif number % 5 == 0:
                yield lambda name=name, number=number: self._put(name, str(number))
            elif number % 5 == 1:
                yield lambda name=name: os.unlink(name)
            else:
                # An event each, as the one before was of another file.
                yield lambda number=number: os.utime(os.path.join(folder, f"always{number % 40}"))

    # -- single edits

    def write(self) -> None:
        with open(self._name(), self._chance.choice(("w", "a"))) as file:
            file.write(f"{self._run} {self._number}")

    def make_folders(self) -> None:
        os.makedirs(os.path.join(self._name(), "sub", "sub"))

    def fill_folder(self) -> None:
        top = os.path.join(self._some_folder(), f"f{self._chance.randrange(6)}", "g")
        os.makedirs(top)
        for number in range(5):
            self._put(os.path.join(top, str(number)), f"{self._run} {self._number}")

    def remove(self) -> None:
        name = self._name()
        if os.path.isdir(name) and not os.path.islink(name):
            shutil.rmtree(name)
        else:
            os.unlink(name)

    def rename(self) -> None:
        os.rename(self._name(), self._name())

    def replace(self) -> None:
        """As editors save."""
        temp = os.path.join(self._some_folder(), ".swap")
        self._put(temp, f"{self._run} {self._number}")
        os.replace(temp, self._name())

    def link_symbolically(self) -> None:
        os.symlink(self._chance.choice(("n1", "/nowhere", ".")), self._name())

    def change_mode(self) -> None:
        os.chmod(self._name(), self._chance.choice(_MODES))

    def move_folder(self) -> None:
        top = self._some_folder()
        if top != ".":
            os.rename(top, os.path.join(self._some_folder(), f"m{self._chance.randrange(9)}"))

    def swap_folders(self) -> None:
        one, other = self._some_folder(), self._some_folder()
        temp = os.path.join(os.path.dirname(one), "between")
        os.rename(one, temp)
        os.rename(other, one)
        os.rename(temp, other)

    def move_out_and_back(self) -> None:
        top, away = self._some_folder(), os.path.join(self._outside, f"away{self._run}")
        if top == ".":
            return
        os.rename(top, away)
        self._put(os.path.join(away, "while it was away"), f"{self._run} {self._number}")
        os.rename(away, os.path.join(self._some_folder(), f"back{self._chance.randrange(4)}"))

    def truncate(self) -> None:
        with open(self._name(), "r+") as file:
            file.truncate(self._chance.randrange(3))

    def link_inside(self) -> None:
        os.link(self._some_file(), self._name(), follow_symlinks=False)

    def link_outside(self) -> None:
        name = f"{self._run}-{self._number}"
        os.link(self._some_file(), os.path.join(self._outside, name), follow_symlinks=False)

    def write_outside(self) -> None:
        with open(os.path.join(self._outside, self._chance.choice(self._older or [""])), "r+") as file:
            file.write(f"{self._run} {self._number}")

    def unlink_outside(self) -> None:
        os.unlink(os.path.join(self._outside, self._chance.choice(self._older or [""])))

    def _put(self, name: str, text: str) -> None:
        with open(name, "w") as file:
            file.write(text)

    def _name(self) -> str:
        return os.path.join(self._some_folder(), f"n{self._chance.randrange(6)}")

    def _some_folder(self) -> str:
        """A random way down, which is quicker than knowing all."""
        found = "."
        while self._chance.random() < 0.75:
            below = [item.path for item in os.scandir(found) if item.is_dir(follow_symlinks=False)]
            below = [path for path in below if os.path.basename(path) != ".git"]
            if not below:
                break
            found = self._chance.choice(sorted(below))
        return found

    def _some_file(self) -> str:
        folder = self._some_folder()
        files = [item.path for item in os.scandir(folder) if item.is_file(follow_symlinks=False)]
        return self._chance.choice(sorted(files)) if files else os.path.join(folder, "n0")


_ACTS: dict[str, list[tuple[Callable[[Wild], object], int]]] = {
    "all": [
        (Wild.write, 24),
        (Wild.make_folders, 3),
        (Wild.fill_folder, 2),
        (Wild.remove, 6),
        (Wild.rename, 5),
        (Wild.replace, 6),
        (Wild.link_symbolically, 3),
        (Wild.change_mode, 3),
        (Wild.move_folder, 4),
        (Wild.swap_folders, 1),
        (Wild.move_out_and_back, 1),
        (Wild.truncate, 3),
    ],
    "moves": [
        (Wild.move_folder, 10),
        (Wild.swap_folders, 4),
        (Wild.move_out_and_back, 3),
        (Wild.write, 10),
        (Wild.fill_folder, 3),
        (Wild.rename, 2),
        (Wild.remove, 1),
    ],
    "links": [
        (Wild.write_outside, 12),
        (Wild.link_outside, 2),
        (Wild.link_inside, 1),
        (Wild.unlink_outside, 1),
        (Wild.rename, 2),
        (Wild.write, 3),
    ],
}


def main() -> None:
    """Read the command line."""
    root, outside, seed, count = sys.argv[1:5]
    kind = sys.argv[5] if len(sys.argv) > 5 else "all"
    print(Wild(root, outside, int(seed)).edit(kind, int(count)))


if __name__ == "__main__":
    main()
