"""What differs between two directories, each of a checkpoint or of the worktree."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from ckpt_protocol.structs import ChangeKind
from ckptd.shadow.objects.pieces import Pieces, drained
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.view import DirectoryView, Mark

__all__ = ["Delta", "change_kind", "compare", "picking_visible", "same_state", "visible"]

_AT_ONCE: Final = 500
_SORTED_AT_ONCE: Final = 4_000


class Delta(NamedTuple):
    """A path and what stands there on either side; a directory has a Delta of its own, before what it holds."""

    path: bytes
    old: State | None
    new: State | None


def same_state(one: State | None, other: State | None) -> bool:
    """Tell whether two states are equal; permission bits that nobody recorded are equal to any."""
    if one is None or other is None:
        return one is other
    if not one.same_content(other):
        return False
    return one.perm is None or other.perm is None or one.perm == other.perm


def compare(old: DirectoryView | None, new: DirectoryView | None, prefix: bytes = b"") -> Iterator[Delta]:
    """Give what differs below two directories, in no particular order; equal subtrees are not looked into."""
    stack = [(prefix, old, new)]
    while stack:
        path, one, other = stack.pop()
        if one is not None and other is not None and one.key == other.key:
            continue
        start = path + b"/" if path else b""
        old_files, old_dirs = _parts(one)
        new_files, new_dirs = _parts(other)
        # Of a directory that differs nearly all files are equal.
        files = [name for name, mark in old_files.items() if new_files.get(name) != mark]
        files += [name for name in new_files if name not in old_files]
        for name in dict.fromkeys((*files, *old_dirs, *new_dirs)):
            before = _state(one, old_dirs, name)
            after = _state(other, new_dirs, name)
            if not same_state(before, after):
                yield Delta(start + name, before, after)
            if name in old_dirs or name in new_dirs:
                stack.append((start + name, old_dirs.get(name), new_dirs.get(name)))


def visible(deltas: list[Delta]) -> list[Delta]:
    """Give what a person is told, sorted by path: directories only where they are empty or change their type.

    A directory whose files are all listed says nothing more.
    """
    return drained(picking_visible(deltas))


def picking_visible(deltas: list[Delta]) -> Pieces[list[Delta]]:
    """Do the same in pieces."""
    full: set[bytes] = set()
    for number, delta in enumerate(deltas):
        folder = delta.path.rpartition(b"/")[0]
        while folder and folder not in full:
            full.add(folder)
            folder = folder.rpartition(b"/")[0]
        if not number % _AT_ONCE:
            yield False
    found: list[Delta] = []
    for at in range(0, len(deltas), _AT_ONCE):
        found += [delta for delta in deltas[at : at + _AT_ONCE] if not _is_implied(delta, full)]
        yield False
    return (yield from _sorting(found))


def _sorting(deltas: list[Delta]) -> Pieces[list[Delta]]:
    """Sort by path in parts: to sort hundreds of thousands in one call would hold everybody up."""
    stride = max(1, len(deltas) // (len(deltas) // _SORTED_AT_ONCE + 1))
    bounds = sorted(delta.path for delta in deltas[stride // 2 :: stride])
    parts: list[list[Delta]] = [[] for _ in range(len(bounds) + 1)]
    for number, delta in enumerate(deltas):
        parts[bisect_right(bounds, delta.path)].append(delta)
        if not number % _AT_ONCE:
            yield False
    ordered: list[Delta] = []
    for part in parts:
        part.sort()
        ordered += part
        yield False
    return ordered


def change_kind(delta: Delta) -> ChangeKind:
    """Name what happened to a path, from the old side to the new one."""
    if delta.old is None:
        return "added"
    if delta.new is None:
        return "deleted"
    if delta.old.is_dir != delta.new.is_dir or (delta.old.mode ^ delta.new.mode) & 0o170000:
        return "type"
    return "modified" if delta.old.oid != delta.new.oid else "mode"


def _is_implied(delta: Delta, full: set[bytes]) -> bool:
    states = [state for state in (delta.old, delta.new) if state is not None]
    if not all(state.is_dir for state in states):
        return False
    return len(states) == 1 and delta.path in full


def _parts(view: DirectoryView | None) -> tuple[dict[bytes, Mark], dict[bytes, DirectoryView]]:
    return ({}, {}) if view is None else (view.marks(), view.dirs())


def _state(view: DirectoryView | None, dirs: dict[bytes, DirectoryView], name: bytes) -> State | None:
    if view is None:
        return None
    return dirs[name].state() if name in dirs else view.file(name)
