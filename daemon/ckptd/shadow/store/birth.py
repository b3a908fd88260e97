"""When a directory was made, where the system tells: Linux has the call, Python 3.11 has not."""

import ctypes
import os
import struct
from collections.abc import Callable
from typing import Final

__all__ = ["birth_of"]

_AT_FDCWD: Final = -100
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_STATX_INO: Final = 0x100
_STATX_BTIME: Final = 0x800
_SIZE: Final = 256
"""Of ``struct statx``, which is the same on all machines."""
_NS: Final = 1_000_000_000


def _find_call() -> Callable[[int, bytes, int, int, object], int] | None:
    # An older C library has no such call; neither has another system.
    call = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
    return call


_STATX: Final = _find_call()


def birth_of(path: bytes, found: os.stat_result) -> str | None:
    """Give the birth time in nanoseconds since 1970, in decimal, of what was ``found`` at the path.

    None where the file system keeps none, where the system does not tell, or where something else stands there now.
    """
    told: float | None = getattr(found, "st_birthtime", None)
    if told is not None:
        return str(round(told * _NS))
    if _STATX is None:
        return None
    buffer = ctypes.create_string_buffer(_SIZE)
    if _STATX(_AT_FDCWD, path, _AT_SYMLINK_NOFOLLOW, _STATX_INO | _STATX_BTIME, buffer) != 0:
        return None
    return _read(buffer.raw, found.st_ino)


def _read(answer: bytes, wanted_ino: int) -> str | None:
    (mask,) = struct.unpack_from("=I", answer)
    (ino,) = struct.unpack_from("=Q", answer, 32)
    seconds, nanoseconds = struct.unpack_from("=qI", answer, 80)
    return str(seconds * _NS + nanoseconds) if mask & _STATX_BTIME and ino == wanted_ino else None
