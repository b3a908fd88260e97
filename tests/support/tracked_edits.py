"""Random editing of one directory that knows what lay where, and since when: what autosave's promise is held against.

``TrackedEdits(root, seed, sizes)``: ``edit()`` makes one edit of any kind, ``burst(count)`` many files at once.
``ended`` collects the contents that are not at their path any more, ``alive`` those that are. After somebody else has
written here (a restore), ``resync()`` looks at the disk. Times are ``time.time()``.
"""

import hashlib
import os
import random
import shutil
import time
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Content", "Stay", "TrackedEdits", "blob_of"]

_FOLDERS = 12
_NAMES = 30


class Content(NamedTuple):
    """A path, relative, and the id of the blob that git would make of what is there."""

    path: bytes
    blob: str


class Stay(NamedTuple):
    """A content, and from when to when it was there."""

    content: Content
    since: float
    until: float


def blob_of(data: bytes) -> str:
    """Give the id of a blob."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class TrackedEdits:
    """See the module. ``sizes`` are the least and the most bytes of a file, ``most`` how many files there are."""

    def __init__(self, root: str, seed: int, sizes: tuple[int, int], most: int) -> None:
        self.root = os.fsencode(root)
        self.alive: dict[bytes, tuple[str, float]] = {}
        self.ended: list[Stay] = []
        self.count = 0
        self._chance = random.Random(seed)
        self._sizes = sizes
        self._most = most
        os.makedirs(self.root, exist_ok=True)
        # So that it is never suddenly empty.
        for number in range(3):
            self._write(b"always %d" % number, b"%d" % number)
        for number in range(_FOLDERS):
            os.makedirs(os.path.join(self.root, b"d%d" % number))

    def edit(self) -> None:
        """Make one edit, as programs do them."""
        self.count += 1
        chance = self._chance.random()
        for share, act in _SHARES:
            if chance < share:
                act(self)
                return
            chance -= share

    def burst(self, count: int) -> None:
        """Write many small files into a new directory, and take it away as a whole the next time."""
        self.count += count
        self._remove_tree(b"burst")
        for number in range(count):
            self._write(b"burst/%d/f%d" % (number // 50, number), self._chance.randbytes(40))

    def resync(self, before: float) -> None:
        """Look at what somebody else has written: what is not there any more has ended at ``before``, its beginning."""
        now = time.time()
        found = dict(self._look())
        for path in list(self.alive):
            if found.get(path) != self.alive[path][0]:
                self._end(path, before)
        for path, blob in found.items():
            self.alive.setdefault(path, (blob, now))

    # -- the edits

    def _overwrite(self) -> None:
        path = self._some_file() or b"d0/new"
        self._write(path, self._data())

    def _create(self) -> None:
        if len([path for path in self.alive if not path.startswith(b"burst")]) > self._most:
            self._delete()
            return
        folder = b"d%d" % self._chance.randrange(_FOLDERS)
        if self._chance.random() < 0.3:
            folder += b"/sub%d" % self._chance.randrange(4)
        self._write(folder + b"/n%d" % self._chance.randrange(_NAMES), self._data())

    def _append(self) -> None:
        path = self._some_file()
        if path is None:
            return
        with open(self._full(path), "ab") as file:
            file.write(b"one more line\n")
        self._note(path)

    def _replace(self) -> None:
        """As editors save: a new file in the place of the old one."""
        path = self._some_file()
        if path is None:
            return
        temp = self._full(path) + b"~"
        with open(temp, "wb") as file:
            file.write(self._data())
        os.replace(temp, self._full(path))
        self._note(path)

    def _delete(self) -> None:
        path = self._some_file()
        if path is not None:
            os.unlink(self._full(path))
            self._end(path, time.time())

    def _rename(self) -> None:
        path = self._some_file()
        if path is not None:
            self._move(path, path + b"r" if len(path) < 60 else b"d1/back")

    def _rename_tree(self) -> None:
        path = b"d%d" % self._chance.randrange(_FOLDERS)
        other = b"m%d" % self._chance.randrange(3)
        if os.path.isdir(self._full(path)):
            self._remove_tree(other)
            self._move(path, other)
        elif os.path.isdir(self._full(other)):
            self._move(other, path)

    def _wreck(self) -> None:
        self._remove_tree(b"d%d" % self._chance.randrange(_FOLDERS))

    def _permit(self) -> None:
        path = self._some_file()
        if path is not None:
            os.chmod(self._full(path), self._chance.choice((0o600, 0o644, 0o755)))

    def _remove_tree(self, path: bytes) -> None:
        shutil.rmtree(self._full(path), ignore_errors=True)
        now = time.time()
        for below in [one for one in self.alive if one.startswith(path + b"/")]:
            self._end(below, now)

    def _move(self, path: bytes, other: bytes) -> None:
        os.rename(self._full(path), self._full(other))
        now = time.time()
        for below in [one for one in self.alive if one == path or one.startswith(path + b"/")]:
            blob = self.alive[below][0]
            self._end(below, now)
            there = other + below[len(path) :]
            if there in self.alive:
                self._end(there, now)
            self.alive[there] = (blob, now)

    # -- what is kept of them

    def _write(self, path: bytes, data: bytes) -> None:
        full = self._full(path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(data)
        self._note(path)

    def _note(self, path: bytes) -> None:
        now = time.time()
        with open(self._full(path), "rb") as file:
            blob = blob_of(file.read())
        known = self.alive.get(path)
        if known is not None and known[0] == blob:
            return
        if known is not None:
            self._end(path, now)
        self.alive[path] = (blob, now)

    def _end(self, path: bytes, now: float) -> None:
        blob, since = self.alive.pop(path)
        self.ended.append(Stay(Content(path, blob), since, now))

    def _look(self) -> list[tuple[bytes, str]]:
        found = []
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found.append((os.path.relpath(path, self.root), blob_of(file.read())))
        return found

    def _data(self) -> bytes:
        return self._chance.randbytes(self._chance.randint(*self._sizes))

    def _some_file(self) -> bytes | None:
        found = [path for path in self.alive if not path.startswith((b"always", b"burst"))]
        return self._chance.choice(found) if found else None

    def _full(self, path: bytes) -> bytes:
        return os.path.join(self.root, path)


_SHARES: list[tuple[float, Callable[[TrackedEdits], None]]] = [
    (0.33, TrackedEdits._overwrite),
    (0.25, TrackedEdits._create),
    (0.08, TrackedEdits._append),
    (0.15, TrackedEdits._replace),
    (0.07, TrackedEdits._delete),
    (0.05, TrackedEdits._rename),
    (0.02, TrackedEdits._rename_tree),
    (0.02, TrackedEdits._wreck),
    (0.03, TrackedEdits._permit),
]
