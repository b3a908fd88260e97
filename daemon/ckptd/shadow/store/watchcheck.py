"""Holding a watcher's word against what is on disk, a directory at a time, while nothing else is asked for."""

import os
from collections.abc import Collection, Generator, Iterator

from ckptd.shadow.scan.entry import SIGNATURE, is_racy, signature
from ckptd.shadow.scan.model import DirNode, iter_nodes
from ckptd.shadow.scan.temporary import is_temporary
from ckptd.shadow.trees.tree import is_git_dir

__all__ = ["differing", "is_told"]


def differing(worktree: bytes, root: DirNode, left_out: Collection[bytes]) -> Generator[None, None, list[bytes]]:
    """Compare names and stat data with a model; give the paths that differ.

    ``left_out`` is not in the model on purpose. No file is opened. A directory that cannot be listed is left to the
    next scan.
    """
    found: list[bytes] = []
    for path, node in iter_nodes(root):
        start = path + b"/" if path else b""
        found += [start + name for name in _names(os.path.join(worktree, path), node, start, left_out)]
        yield
    return found


def _names(folder: bytes, node: DirNode, start: bytes, left_out: Collection[bytes]) -> Iterator[bytes]:
    try:
        with os.scandir(folder) as listing:
            items = {item.name: item for item in listing}
    except OSError:
        return
    for name, item in items.items():
        entry = node.entries.get(name)
        if entry is not None:
            if not is_racy(entry) and _sign(item) != entry[SIGNATURE]:
                yield name
        elif not (_is_known(node, name) or is_temporary(name) or is_git_dir(name) or start + name in left_out):
            yield name
    yield from (name for name in (*node.entries, *node.children) if name not in items)


def _is_known(node: DirNode, name: bytes) -> bool:
    return name in node.children or name in node.ignored or name + b"/" in node.ignored


def _sign(item: "os.DirEntry[bytes]") -> bytes:
    try:
        return signature(item.stat(follow_symlinks=False))
    except OSError:
        return b""


def is_told(names: dict[bytes, set[bytes]], path: bytes) -> bool:
    """Tell whether a watcher has named a path, or a directory above it, which is then looked at whole."""
    while path:
        folder, _, name = path.rpartition(b"/")
        if name in names.get(folder, ()):
            return True
        path = folder
    return False
