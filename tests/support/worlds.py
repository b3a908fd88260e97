"""Worktrees as plain data, looked at as git and as a restore in its middle see them."""

import re
from typing import Final

from ckptd.shadow.objects.blob import hash_object
from support.plainworld import World

__all__ = ["TEMPORARY", "plain", "tree_id", "without", "without_temporaries"]

TEMPORARY: Final = re.compile(rb"\.ckpt-[0-9a-f]{16}\.tmp")


def tree_id(world: World) -> str:
    """Give git's id of a tree with everything in a world."""
    below: dict[bytes, list[tuple[bytes, bytes, bytes]]] = {b"": []}
    for path, node in sorted(world.items()):
        if node.kind == "d":
            below[path] = []
    for path in sorted(world, key=lambda one: -one.count(b"/")):
        node = world[path]
        parent, _, name = path.rpartition(b"/")
        if node.kind == "d":
            below[parent].append((b"40000", name, _hash_tree(below[path])))
        else:
            mode = b"120000" if node.kind == "l" else (b"100755" if node.perm & 0o100 else b"100644")
            below[parent].append((mode, name, hash_object(b"blob", node.data)))
    return _hash_tree(below[b""]).hex()


def _hash_tree(entries: list[tuple[bytes, bytes, bytes]]) -> bytes:
    ordered = sorted(entries, key=lambda one: one[1] + (b"/" if one[0] == b"40000" else b""))
    return hash_object(b"tree", b"".join(b"%s %s\0%s" % one for one in ordered))


def without_temporaries(world: World) -> World:
    return {path: node for path, node in world.items() if not TEMPORARY.fullmatch(path.rpartition(b"/")[2])}


def plain(world: World) -> World:
    """Leave out the permission bits of directories, which a restore opens up meanwhile."""
    return {path: node._replace(perm=0) if node.kind == "d" else node for path, node in world.items()}


def without(world: World, edited: World) -> World:
    """Leave out what somebody has edited."""
    return {path: node for path, node in world.items() if path not in edited}
