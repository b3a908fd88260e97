"""What the model knows of a file: its blob and its stat signature, packed into one ``bytes`` value.

A packed value takes a third of the memory of an object, and the common case of a scan (nothing changed) is one
comparison of a slice.
"""

import os
import stat
import struct
from typing import Final

from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import EXECUTABLE, LINK, REGULAR

__all__ = ["OID", "SIGNATURE", "doubted", "is_racy", "is_settled", "mode_of", "pack_entry", "signature", "state_of"]

_SIGNATURE: Final = struct.Struct("<IQqqQ")
_RACY_AT: Final = 20 + _SIGNATURE.size
# The same with the last byte of an entry that is not racy.
_SETTLED: Final = struct.Struct(_SIGNATURE.format + "x")

OID: Final = slice(0, 20)
SIGNATURE: Final = slice(20, _RACY_AT)
_CTIME: Final = slice(40, 48)


def signature(found: os.stat_result) -> bytes:
    """Give the stat signature: mode, size, mtime, ctime and inode. ctime cannot be set back by a program."""
    return _SIGNATURE.pack(
        found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns & 0x7FFFFFFFFFFFFFFF, found.st_ino
    )


def is_settled(entry: bytes, found: os.stat_result) -> bool:
    """Tell whether an entry is not racy and its signature is what was found: the one question of an idle scan."""
    return entry[20:] == _SETTLED.pack(
        found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns & 0x7FFFFFFFFFFFFFFF, found.st_ino
    )


def pack_entry(oid: bytes, sign: bytes, *, racy: bool) -> bytes:
    """Pack what is known. ``racy`` entries are read again by the next scan, whatever their signature."""
    return oid + sign + (b"\1" if racy else b"\0")


def doubted(entry: bytes, since_ns: int) -> bytes:
    """Give an entry whose file changed since then as a racy one, any other as it is."""
    ctime_ns = int.from_bytes(entry[_CTIME], "little")
    return entry[:_RACY_AT] + b"\1" if ctime_ns >= since_ns else entry


def is_racy(entry: bytes) -> bool:
    """Tell whether a change right after the last look could have gone unnoticed."""
    return entry[_RACY_AT] != 0


def mode_of(entry: bytes) -> int:
    """Give git's mode of a packed file or link."""
    st_mode = int.from_bytes(entry[20:24], "little")
    if stat.S_ISLNK(st_mode):
        return LINK
    return EXECUTABLE if st_mode & 0o100 else REGULAR


def state_of(entry: bytes) -> State:
    """Give what a packed entry says is at its path; permission bits for regular files only."""
    st_mode = int.from_bytes(entry[20:24], "little")
    mode = mode_of(entry)
    return State(mode, entry[OID], None if mode == LINK else stat.S_IMODE(st_mode))
