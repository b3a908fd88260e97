"""Stores of other worktrees, should a worktree hold their checkpoint directory: recognised by what they are.

A daemon writes to them while a scan runs; as files of a checkpoint they would be rolled back under its hands.
"""

import os
from collections.abc import Collection
from typing import Final

__all__ = ["is_store_folder", "may_be_store"]

_METADATA: Final = b"ckpt/metadata.json"
_LOCK: Final = b".lock"
_TELLING: Final = frozenset({_LOCK, _LOCK + b"/", b"ckpt", b"ckpt/"})


def is_store_folder(dir_fd: int, names: Collection[bytes]) -> bool:
    """Tell whether an open directory with these names is a store, or a checkpoint directory with a store in it."""
    if b"ckpt" in names:
        return b"objects" in names and b"HEAD" in names and _exists(dir_fd, _METADATA)
    return _LOCK in names and any(_exists(dir_fd, name + b"/" + _METADATA) for name in names)


def may_be_store(*names: Collection[bytes]) -> bool:
    """Tell whether it depends on what lies deeper if a directory with all these names is one of them.

    Names of directories may end with a slash.
    """
    # Asked of each directory of a worktree: nearly none has a name that matters.
    for some in names:
        if some and not _TELLING.isdisjoint(some):
            break
    else:
        return False
    plain = {name.rstrip(b"/") for some in names for name in some}
    return _LOCK in plain or plain.issuperset((b"ckpt", b"objects", b"HEAD"))


def _exists(dir_fd: int, path: bytes) -> bool:
    try:
        os.lstat(path, dir_fd=dir_fd)
    except OSError:
        return False
    return True
