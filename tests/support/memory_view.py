"""Directories in memory, as restores and comparisons see them; and a disk of the same for plans."""

import hashlib
from collections.abc import Iterator

from ckptd.shadow.restore.capture import ABSENT, Found
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import DIRECTORY, EXECUTABLE, LINK, REGULAR, mode_text
from ckptd.shadow.trees.view import DirectoryView, Key, Mark

__all__ = ["FakeDisk", "MemoryView", "directory", "executable", "file", "link", "view"]


def file(text: bytes = b"", perm: int | None = 0o644) -> State:
    return State(REGULAR, hashlib.sha1(text).digest(), perm)


def executable(text: bytes = b"", perm: int | None = 0o755) -> State:
    return State(EXECUTABLE, hashlib.sha1(text).digest(), perm)


def link(target: bytes = b"x") -> State:
    return State(LINK, hashlib.sha1(target).digest(), None)


def directory(perm: int | None = 0o755) -> State:
    return State(DIRECTORY, b"", perm)


class MemoryView:
    """One directory. Its key is a digest of all below, so that equal content has equal keys."""

    def __init__(self, own: State) -> None:
        self._own = own
        self.inside: dict[bytes, State | MemoryView] = {}

    @property
    def key(self) -> Key:
        digest = hashlib.sha1(repr(sorted(self.files().items())).encode())
        for name, child in sorted(self.dirs().items()):
            digest.update(repr((name, child.key, child.state())).encode())
        return digest.digest(), None

    def state(self) -> State:
        return self._own

    def files(self) -> dict[bytes, State]:
        return {name: one for name, one in self.inside.items() if isinstance(one, State)}

    def marks(self) -> dict[bytes, Mark]:
        return {name: (one.oid, (mode_text(one.mode), one.perm)) for name, one in self.files().items()}

    def dirs(self) -> dict[bytes, DirectoryView]:
        return {name: one for name, one in self.inside.items() if isinstance(one, MemoryView)}

    def file(self, name: bytes) -> State | None:
        return self.files().get(name)

    def dir(self, name: bytes) -> DirectoryView | None:
        return self.dirs().get(name)


def view(states: dict[bytes, State]) -> MemoryView:
    """Make a root that holds these paths; directories above them that are not given have bits 0755."""
    root = MemoryView(directory())
    for path, state in sorted(states.items()):
        here = root
        *folders, name = path.split(b"/")
        for folder in folders:
            here = here.inside.setdefault(folder, MemoryView(directory()))
        here.inside[name] = MemoryView(state) if state.is_dir else state
    return root


class FakeDisk:
    """What stands on the disk besides the model, by path: a State, or the reason why it can't be held."""

    def __init__(self, things: dict[bytes, State | str] | None = None) -> None:
        self.things = things or {}

    def look(self, path: bytes) -> Found:
        thing = self.things.get(path)
        if thing is None:
            return ABSENT
        return Found(problem=thing) if isinstance(thing, str) else Found(thing)

    def below(self, path: bytes) -> Iterator[tuple[bytes, Found]]:
        for one in sorted(self.things):
            if one.startswith(path + b"/"):
                yield one, self.look(one)

    def names(self, path: bytes) -> list[bytes]:
        tops = {one[len(path) + 1 :].partition(b"/")[0] for one in self.things if one.startswith(path + b"/")}
        return sorted(tops)

    def kind(self, path: bytes) -> State | None:
        return self.look(path).state
