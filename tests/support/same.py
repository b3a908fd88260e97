"""Compares two directories as a restore has to leave them: names, type, mode, bytes, link targets."""

import os
import stat
from collections.abc import Iterator

__all__ = ["differences"]


def differences(one: str, other: str, below: str = "") -> Iterator[str]:
    """Give a line for each path that is not the same on both sides, in order."""
    first, second = (os.lstat(os.path.join(side, below)) for side in (one, other))
    where = below or "."
    if stat.S_IFMT(first.st_mode) != stat.S_IFMT(second.st_mode):
        yield f"{where}: {_type(first)} on one side, {_type(second)} on the other"
    elif stat.S_ISLNK(first.st_mode):
        if os.readlink(os.path.join(one, below)) != os.readlink(os.path.join(other, below)):
            yield f"{where}: another link target"
    else:
        if stat.S_IMODE(first.st_mode) != stat.S_IMODE(second.st_mode):
            yield f"{where}: mode {stat.S_IMODE(first.st_mode):o} and {stat.S_IMODE(second.st_mode):o}"
        if stat.S_ISDIR(first.st_mode):
            yield from _entries(one, other, below)
        elif stat.S_ISREG(first.st_mode) and _bytes(one, below) != _bytes(other, below):
            yield f"{where}: other bytes"


def _entries(one: str, other: str, below: str) -> Iterator[str]:
    names, others = (set(os.listdir(os.path.join(side, below))) for side in (one, other))
    for name in sorted(names | others):
        path = os.path.join(below, name)
        if name in names and name in others:
            yield from differences(one, other, path)
        else:
            yield f"{path}: only in {one if name in names else other}"


def _bytes(side: str, below: str) -> bytes:
    with open(os.path.join(side, below), "rb") as file:
        return file.read()


def _type(found: os.stat_result) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    return kinds.get(stat.S_IFMT(found.st_mode), "special")
