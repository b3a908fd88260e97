"""A file system of a few hundred kilobytes, to be full on: needs root."""

import contextlib
import ctypes
import os
from collections.abc import Iterator

import pytest

__all__ = ["fill", "tiny_disk"]

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def tiny_disk(place: bytes, kibibytes: int = 256) -> Iterator[bytes]:
    """Mount a tmpfs at a directory for a while; skips the test where that is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system to fill up")
    if _libc.mount(b"none", place, b"tmpfs", 0, b"size=%dk,mode=0700" % kibibytes) != 0:
        pytest.skip(f"cannot mount a tmpfs here: {os.strerror(ctypes.get_errno())}")
    try:
        yield place
    finally:
        # MNT_DETACH: a file that a failed test left open must not keep the place from being removed.
        assert _libc.umount2(place, 2) == 0


def fill(place: bytes, *, leave_bytes: int = 0) -> bytes:
    """Use up the space of a file system, but for so much; give the path of the file that takes it."""
    path = os.path.join(place, b"filler")
    with open(path, "wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        file.truncate(max(0, file.tell() - leave_bytes))
    return path
