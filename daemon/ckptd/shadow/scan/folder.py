"""What the model knows of a directory as such: which it is, and when it had the names that the model has."""

import os
import struct
from typing import Final

__all__ = ["folder_sign", "place_of"]

_SIGN: Final = struct.Struct("<QQQQ")
_64_BITS: Final = 0xFFFFFFFFFFFFFFFF


def folder_sign(found: os.stat_result) -> bytes:
    """Give a directory's sign: device, inode, mtime and ctime."""
    return _SIGN.pack(found.st_dev, found.st_ino, found.st_mtime_ns & _64_BITS, found.st_ctime_ns & _64_BITS)


def place_of(sign: bytes) -> bytes:
    """Give the part of a sign that tells which directory it is, and nothing of its names."""
    return sign[:16]
