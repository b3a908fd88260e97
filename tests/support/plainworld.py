"""A worktree as plain data, and what a restore has to make of it: written from the design alone, not from the engine.

``look(root)`` gives everything on disk. ``Rules`` says what is ignored, for patterns of the simple kinds that the
model test writes. ``Kept`` is a checkpoint as the design defines it: what it holds and what it speaks about.
"""

import fnmatch
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Kept", "Node", "Rules", "World", "look", "parents"]


class Node(NamedTuple):
    """``kind`` is ``f``, ``l``, ``d`` or ``s`` (special); ``data`` a file's bytes or a link's target."""

    kind: str
    data: bytes = b""
    perm: int = 0


World = dict[bytes, Node]


def look(root: bytes) -> World:
    """Give everything below a directory."""
    found: World = {}
    for folder, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, root)] = _node(path)
    return found


def _node(path: bytes) -> Node:
    there = os.lstat(path)
    perm = stat.S_IMODE(there.st_mode)
    if stat.S_ISDIR(there.st_mode):
        return Node("d", b"", perm)
    if stat.S_ISLNK(there.st_mode):
        return Node("l", os.readlink(path))
    if not stat.S_ISREG(there.st_mode):
        return Node("s")
    with open(path, "rb") as file:
        return Node("f", file.read(), perm)


def parents(path: bytes) -> Iterator[bytes]:
    """Give the directories above a path, the nearest first."""
    while path := path.rpartition(b"/")[0]:
        yield path


class Rules:
    """The ignore files of a world: patterns ``*``, ``*.x``, ``name``, ``name/`` and ``/name``, perhaps after ``!``."""

    def __init__(self, world: World) -> None:
        self._texts = {
            path: node.data for path, node in world.items() if node.kind == "f" and self._is_rules(path, world)
        }

    @staticmethod
    def _is_rules(path: bytes, world: World) -> bool:
        if path.endswith(b".git/info/exclude"):
            # Without a HEAD it is no repository.
            return path.removesuffix(b"info/exclude") + b"HEAD" in world
        return path.rpartition(b"/")[2] in (b".gitignore", b".ckptignore")

    def ignored(self, path: bytes, is_dir: bool) -> bool:
        """Tell whether a path or a directory above it is ignored."""
        if any(self._ignored_itself(parent, True) for parent in parents(path)):
            return True
        return self._ignored_itself(path, is_dir)

    def _ignored_itself(self, path: bytes, is_dir: bool) -> bool:
        above = [*parents(path), b""]
        for names in ((b".ckptignore",), (b".gitignore", b".git/info/exclude")):
            for folder in above:
                for name in names:
                    verdict = self._verdict(os.path.join(folder, name), folder, path, is_dir)
                    if verdict is not None:
                        return verdict
        return False

    def _verdict(self, file: bytes, folder: bytes, path: bytes, is_dir: bool) -> bool | None:
        below = path[len(folder) + 1 :] if folder else path
        for line in reversed(self._texts.get(file, b"").split()):
            pattern = line.removeprefix(b"!")
            if pattern.endswith(b"/") and not is_dir:
                continue
            pattern = pattern.rstrip(b"/")
            text = below if pattern.startswith(b"/") else below.rpartition(b"/")[2]
            if fnmatch.fnmatchcase(text, pattern.removeprefix(b"/")):
                return not line.startswith(b"!")
        return None


def _in_git_dir(path: bytes) -> bool:
    return b".git" in path.split(b"/")


class Kept:
    """What a checkpoint made of a world holds, and whether it speaks about a path that it lacks."""

    def __init__(self, world: World, max_file_bytes: int) -> None:
        self._rules = Rules(world)
        self._excluded = {path for path, node in world.items() if self._is_excluded(node, max_file_bytes)}
        self.tree: World = {path: node for path, node in world.items() if self.covers(path, node)}

    @staticmethod
    def _is_excluded(node: Node, max_file_bytes: int) -> bool:
        return node.kind == "s" or (node.kind == "f" and len(node.data) > max_file_bytes)

    def covers(self, path: bytes, node: Node) -> bool:
        """Tell whether a path of the world that this was made of is in the checkpoint."""
        return not _in_git_dir(path) and path not in self._excluded and not self._rules.ignored(path, node.kind == "d")

    def says_absent(self, path: bytes, node: Node) -> bool:
        """Tell whether a path, as it is now, was really not there when the checkpoint was made."""
        if path in self.tree or any(one in self._excluded for one in (path, *parents(path))):
            return False
        return not self._rules.ignored(path, node.kind == "d")
