"""What the model knows of a file: its blob and its stat signature, packed into one ``bytes`` value.

A packed value takes a third of the memory of an object, and the common case of a scan (nothing changed) is one
comparison of a slice.
"""

import os
import stat
import struct
from typing import Final, NamedTuple

from ckptd.shadow.trees.modes import is_exception
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import EXECUTABLE, LINK, REGULAR, mode_text

__all__ = [
    "KIND",
    "KINDS",
    "OID",
    "SETTLED",
    "SIGNATURE",
    "doubted",
    "is_racy",
    "is_settled",
    "is_young",
    "mode_of",
    "pack_entry",
    "signature",
    "state_of",
]

_SIGNATURE: Final = struct.Struct("<IQQqQ")
# A program can set an mtime before 1970 or after 2262.
_64_BITS: Final = 0xFFFFFFFFFFFFFFFF
_RACY_AT: Final = 20 + _SIGNATURE.size
SETTLED: Final = struct.Struct(_SIGNATURE.format + "x")
"""Mode, size, mtime, ctime and inode as they follow the id in an entry that is not racy."""

_COARSE_NS: Final = 1_000_000_000
_COARSE_MARGIN_NS: Final = 2_000_000_000

OID: Final = slice(0, 20)
SIGNATURE: Final = slice(20, _RACY_AT)
KIND: Final = slice(20, 24)
_CTIME: Final = slice(40, 48)


class _Kind(NamedTuple):
    """What follows from a mode: git's text for it, and permission bits that have to be recorded beside that."""

    text: bytes
    exception: int | None


class _Kinds(dict[bytes, _Kind]):
    """The kinds of files by the four bytes that an entry has of them; there are but a few in a worktree."""

    def __missing__(self, key: bytes) -> _Kind:
        st_mode = int.from_bytes(key, "little")
        mode, perm = _mode(st_mode), st_mode & 0o7777
        found = self[key] = _Kind(mode_text(mode), perm if is_exception(mode, perm) else None)
        return found


KINDS: Final = _Kinds()
"""The kind of an entry's file, by the entry's part KIND."""


def signature(found: os.stat_result) -> bytes:
    """Give the stat signature: mode, size, mtime, ctime and inode. ctime cannot be set back by a program."""
    return _SIGNATURE.pack(
        found.st_mode, found.st_size, found.st_mtime_ns & _64_BITS, found.st_ctime_ns & 0x7FFFFFFFFFFFFFFF, found.st_ino
    )


def is_settled(entry: bytes, found: os.stat_result) -> bool:
    """Tell whether an entry is not racy and its signature is what was found: the one question of an idle scan."""
    return entry[20:] == SETTLED.pack(
        found.st_mode, found.st_size, found.st_mtime_ns & _64_BITS, found.st_ctime_ns & 0x7FFFFFFFFFFFFFFF, found.st_ino
    )


def pack_entry(oid: bytes, sign: bytes, *, racy: bool) -> bytes:
    """Pack what is known. ``racy`` entries are read again by the next scan, whatever their signature."""
    return oid + sign + (b"\1" if racy else b"\0")


def is_young(ctime_ns: int, now_ns: int, margin_ns: int) -> bool:
    """Tell whether a change after a look could leave the same ctime behind; ``now_ns`` is the clock before the look."""
    # Whole seconds: a file system that keeps no finer times (128-byte inodes of ext4, for one).
    coarse = ctime_ns % _COARSE_NS == 0
    return ctime_ns >= now_ns - (_COARSE_MARGIN_NS if coarse else margin_ns)


def doubted(entry: bytes, since_ns: int) -> bytes:
    """Give an entry whose file changed since then as a racy one, any other as it is."""
    ctime_ns = int.from_bytes(entry[_CTIME], "little")
    return entry[:_RACY_AT] + b"\1" if ctime_ns >= since_ns else entry


def is_racy(entry: bytes) -> bool:
    """Tell whether a change right after the last look could have gone unnoticed."""
    return entry[_RACY_AT] != 0


def mode_of(entry: bytes) -> int:
    """Give git's mode of a packed file or link."""
    return _mode(int.from_bytes(entry[KIND], "little"))


def _mode(st_mode: int) -> int:
    if stat.S_ISLNK(st_mode):
        return LINK
    return EXECUTABLE if st_mode & 0o100 else REGULAR


def state_of(entry: bytes) -> State:
    """Give what a packed entry says is at its path; permission bits for regular files only."""
    st_mode = int.from_bytes(entry[20:24], "little")
    mode = mode_of(entry)
    return State(mode, entry[OID], None if mode == LINK else stat.S_IMODE(st_mode))
