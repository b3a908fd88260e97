"""What stands at a name right now, and whether it is what a checkpoint holds."""

import errno
import os
import stat
from typing import Final, NamedTuple

from ckptd.errors import from_os_error
from ckptd.shadow.objects.blob import hash_file, hash_object
from ckptd.shadow.restore.handle import Pinned, open_entry
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import EXECUTABLE, LINK, REGULAR

__all__ = [
    "Ident",
    "Refused",
    "confirm",
    "confirm_open",
    "git_mode",
    "lstat_or_none",
    "opened_regular",
    "refuse_kind",
    "told",
]

_CHANGED: Final = "what is there now is not what the safety checkpoint holds"
# ELOOP and ENXIO come from opening what has become a link or a socket.
_REASONS: Final = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO), "changed"),
    errno.ENAMETOOLONG: "bad_name",
    errno.EBUSY: "other_mount",
}


class Refused(Exception):
    """A step that must not be done: ``reason`` is a stable word, ``detail`` a text for people."""

    def __init__(self, reason: str, detail: str | None = None) -> None:
        super().__init__(reason)
        self.reason: Final = reason
        self.detail: Final = detail


class Ident(NamedTuple):
    """What tells one file, as it was last written, from every other. A rename or chmod leaves it as it is."""

    dev: int
    ino: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Ident":
        """Take it from what lstat or fstat gave."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def told(error: Refused | OSError) -> tuple[str, str | None]:
    """Give the word and the text for what stopped a step: ``no_space``, ``permission_denied``, ..., else ``io``."""
    if isinstance(error, Refused):
        return error.reason, error.detail
    reason = _REASONS.get(error.errno or 0) or from_os_error(error, "restore").kind
    return ("io" if reason == "io_error" else reason), error.strerror


def lstat_or_none(dir_fd: int, name: bytes) -> os.stat_result | None:
    """Look at a name, following no link; None where there is nothing. Raises OSError."""
    try:
        return os.lstat(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return None


def git_mode(found: os.stat_result) -> int | None:
    """Give git's mode of a regular file or link; None for everything else."""
    if stat.S_ISLNK(found.st_mode):
        return LINK
    if stat.S_ISREG(found.st_mode):
        return EXECUTABLE if found.st_mode & stat.S_IXUSR else REGULAR
    return None


def refuse_kind(found: os.stat_result, expected: State) -> None:
    """Refuse by type alone, before any work is done: a FIFO is never opened, a directory never moved.

    Raises Refused ``special`` or ``changed``.
    """
    mode = git_mode(found)
    if mode is None and not stat.S_ISDIR(found.st_mode):
        raise Refused("special", "a FIFO, socket or device is there now")
    if mode != expected.mode:
        raise Refused("changed", _CHANGED)


def opened_regular(dir_fd: int, name: bytes) -> Pinned:
    """Open what is a regular file also once it is open. Raises Refused, OSError."""
    try:
        held = Pinned(open_entry(dir_fd, name))
    except PermissionError as error:
        raise Refused("unreadable", "what is there now can't be read, so it can't be compared") from error
    if not stat.S_ISREG(held.found.st_mode):
        held.close()
        raise Refused("changed", _CHANGED)
    return held


def _hash_open(fd: int, before: os.stat_result) -> tuple[bytes | None, os.stat_result]:
    oid = hash_file(fd, before.st_size)
    after = os.fstat(fd)
    # Written to while it was read: no hash says what it holds.
    return (oid if Ident.of(before) == Ident.of(after) else None), after


def confirm_open(held: Pinned, expected: State) -> os.stat_result:
    """Make sure, by content, that an open regular file is what ``expected`` describes. Raises Refused, OSError."""
    oid, found = _hash_open(held.fd, held.found)
    if oid != expected.oid or git_mode(found) != expected.mode:
        raise Refused("changed", _CHANGED)
    return found


def confirm(dir_fd: int, name: bytes, expected: State) -> os.stat_result:
    """Make sure, by content, that a name holds the file or link that ``expected`` describes.

    Raises Refused (``changed``, ``special``, ``unreadable``), OSError.
    """
    found = os.lstat(name, dir_fd=dir_fd)
    refuse_kind(found, expected)
    if expected.mode == LINK:
        if hash_object(b"blob", os.readlink(name, dir_fd=dir_fd)) != expected.oid:
            raise Refused("changed", _CHANGED)
        return found
    with opened_regular(dir_fd, name) as held:
        return confirm_open(held, expected)


def describe(dir_fd: int, name: bytes) -> State | None:
    """Give what a name holds, without permission bits; None for what no tree holds. Raises Refused, OSError."""
    found = os.lstat(name, dir_fd=dir_fd)
    mode = git_mode(found)
    if mode is None:
        return None
    if mode == LINK:
        return State(mode, hash_object(b"blob", os.readlink(name, dir_fd=dir_fd)))
    with opened_regular(dir_fd, name) as held:
        oid, _ = _hash_open(held.fd, held.found)
    return State(mode, oid) if oid is not None else None
