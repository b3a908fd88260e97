"""A disk as a power cut leaves it: names and contents that were not synced are there, gone, cut or zeroed, as it likes.

``Disk(roots)`` begins as what is on the real disk below them, all of it safe. ``apply(call)`` does a recorded call.
``state(names, data)`` gives what may be there after a cut: ``names`` picks which of the changes of names that no sync
of their directory has made safe are there (each directory by itself, so that they need not keep their order), ``data``
what is in a file whose content is not safe. ``now()`` is the disk if no power is cut. ``write(state)`` makes it real.
"""

import os
import random
import shutil
from collections.abc import Callable, Sequence

from support.tape import Call

__all__ = ["DATA", "NAMES", "Disk", "State", "chances", "write"]

State = dict[bytes, bytes | tuple[bytes] | None]
"""By path: a file's bytes, the target of a link in a tuple, None for a directory."""


class _File:
    def __init__(self, data: bytes = b"") -> None:
        self.safe = self.now = data


class _Link:
    def __init__(self, target: bytes) -> None:
        self.target = target


class _Dir:
    """``pending`` are changes of its names, each whole: what stands at each of them afterwards."""

    def __init__(self) -> None:
        self.safe: dict[bytes, _Node] = {}
        self.now: dict[bytes, _Node] = {}
        self.pending: list[dict[bytes, _Node | None]] = []

    def change(self, what: "dict[bytes, _Node | None]") -> None:
        self.pending.append(what)
        _put(self.now, what)

    def sync(self) -> None:
        self.safe, self.pending = dict(self.now), []


_Node = _File | _Link | _Dir


def _put(entries: dict[bytes, _Node], change: "dict[bytes, _Node | None]") -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


Names = Callable[[int], list[bool]]
Data = Callable[[bytes, bytes], bytes]


def _cut(safe: bytes, now: bytes) -> bytes:
    kept = safe if now.startswith(safe) else b""
    return kept + now[len(kept) : len(kept) + (len(now) - len(kept)) // 2]


def _zeroed(safe: bytes, now: bytes) -> bytes:
    kept = safe if now.startswith(safe) else b""
    return kept + bytes(len(now) - len(kept))


NAMES: dict[str, Names] = {
    "no name": lambda count: [False] * count,
    "every name": lambda count: [True] * count,
    "the last name": lambda count: [number == count - 1 for number in range(count)],
}
DATA: dict[str, Data] = {
    "old": lambda safe, _now: safe,
    "new": lambda _safe, now: now,
    "empty": lambda safe, now: safe if now.startswith(safe) else b"",
    "zeroed": _zeroed,
    "cut": _cut,
}


def chances(seed: int) -> tuple[Names, Data]:
    """Give names and data as chance has them, each change and file by itself."""
    chance = random.Random(seed)
    return (
        lambda count: [chance.random() < 0.5 for _ in range(count)],
        lambda safe, now: chance.choice(list(DATA.values()))(safe, now),
    )


class Disk:
    """See the module."""

    def __init__(self, roots: Sequence[bytes]) -> None:
        self._top = _Dir()
        self._roots = tuple(roots)
        for root in roots:
            self._top.safe[root] = _read(root)
        self._top.now = dict(self._top.safe)

    def apply(self, call: Call) -> None:
        """Do what a call did."""
        getattr(self, "_" + call.what)(call)

    def now(self) -> State:
        """Give all of it as it is while there is power."""
        return self.state(NAMES["every name"], DATA["new"])

    def state(self, names: Names, data: Data) -> State:
        """Give what a power cut may leave."""
        found: State = {}
        stack: list[tuple[bytes, _Node]] = list(self._top.safe.items())
        while stack:
            path, node = stack.pop()
            if isinstance(node, _File):
                found[path] = node.safe if node.safe == node.now else data(node.safe, node.now)
            elif isinstance(node, _Link):
                found[path] = (node.target,)
            else:
                found[path] = None
                entries = dict(node.safe)
                for change, is_there in zip(node.pending, names(len(node.pending)), strict=True):
                    if is_there:
                        _put(entries, change)
                stack += [(path + b"/" + name, one) for name, one in entries.items()]
        return found

    def _find(self, path: bytes) -> _Node:
        root = next(one for one in self._roots if path == one or path.startswith(one + b"/"))
        node: _Node = self._top.now[root]
        for name in filter(None, path[len(root) :].split(b"/")):
            assert isinstance(node, _Dir)
            node = node.now[name]
        return node

    def _at(self, path: bytes) -> tuple[_Dir, bytes]:
        folder = self._find(os.path.dirname(path))
        assert isinstance(folder, _Dir)
        return folder, os.path.basename(path)

    def _mark(self, call: Call) -> None:
        """Nothing happens."""

    def _create(self, call: Call) -> None:
        folder, name = self._at(call.path)
        folder.change({name: _File()})

    def _mkdir(self, call: Call) -> None:
        folder, name = self._at(call.path)
        folder.change({name: _Dir()})

    def _symlink(self, call: Call) -> None:
        folder, name = self._at(call.path)
        folder.change({name: _Link(call.data)})

    def _link(self, call: Call) -> None:
        folder, name = self._at(call.path)
        folder.change({name: self._find(call.other)})

    def _unlink(self, call: Call) -> None:
        folder, name = self._at(call.path)
        folder.change({name: None})

    _rmdir = _unlink

    def _rename(self, call: Call) -> None:
        folder, name = self._at(call.path)
        other, old = self._at(call.other)
        node = other.now[old]
        if other is folder:
            folder.change({old: None, name: node})
        else:
            # Two directories, each safe by itself: it may come to be in both, or in neither.
            other.change({old: None})
            folder.change({name: node})

    def _exchange(self, call: Call) -> None:
        folder, name = self._at(call.path)
        folder.change({os.path.basename(call.other): self._find(call.path), name: self._find(call.other)})

    def _data(self, call: Call) -> None:
        node = self._find(call.path)
        assert isinstance(node, _File)
        node.now = call.data

    def _fsync(self, call: Call) -> None:
        node = self._find(call.path)
        if isinstance(node, _Dir):
            node.sync()
        elif isinstance(node, _File):
            node.safe = node.now

    def _syncfs(self, call: Call) -> None:
        stack = [self._find(call.path)]
        while stack:
            node = stack.pop()
            if isinstance(node, _Dir):
                node.sync()
                stack += node.now.values()
            elif isinstance(node, _File):
                node.safe = node.now


def _read(path: bytes) -> _Node:
    if os.path.islink(path):
        return _Link(os.readlink(path))
    if not os.path.isdir(path):
        with open(path, "rb") as file:
            return _File(file.read())
    made = _Dir()
    made.safe = {name: _read(os.path.join(path, name)) for name in os.listdir(path)}
    made.now = dict(made.safe)
    return made


def write(state: State, roots: Sequence[bytes]) -> None:
    """Put a state in the place of what is on the real disk below the roots."""
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
    for path, node in sorted(state.items()):
        if node is None:
            os.mkdir(path)
        elif isinstance(node, tuple):
            os.symlink(node[0], path)
        else:
            with open(path, "wb") as file:
                file.write(node)
