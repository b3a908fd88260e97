"""Object ids: SHA-1 of git's header and the content."""

import hashlib
import os
from collections.abc import Callable, Iterator

__all__ = ["CHUNK_BYTES", "EMPTY_BLOB", "EMPTY_TREE", "file_chunks", "hash_file", "hash_object"]

CHUNK_BYTES = 1 << 20

EMPTY_TREE = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")
EMPTY_BLOB = bytes.fromhex("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")


def hash_object(kind: bytes, data: bytes) -> bytes:
    """Give the 20-byte id of an object of ``kind`` (``blob``, ``tree``, ``commit``) with this content."""
    digest = hashlib.sha1(b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.digest()


def file_chunks(fd: int, size: int, beat: Callable[[int], None] = lambda _bytes: None) -> Iterator[bytes]:
    """Read ``size`` bytes from the start of an open file; fewer come where the file is shorter.

    ``beat`` is told the bytes of each piece before it comes; what it raises goes through.
    """
    offset = 0
    while offset < size:
        chunk = os.pread(fd, min(CHUNK_BYTES, size - offset), offset)
        if not chunk:
            return
        offset += len(chunk)
        beat(len(chunk))
        yield chunk


def hash_file(fd: int, size: int, beat: Callable[[int], None] = lambda _bytes: None) -> bytes | None:
    """Give the blob id of the first ``size`` bytes of an open file; None where the file is shorter."""
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    if size <= CHUNK_BYTES:
        # One call for nearly every file there is.
        data = os.pread(fd, size, 0)
        if len(data) == size:
            beat(size)
            digest.update(data)
            return digest.digest()
    read = 0
    for chunk in file_chunks(fd, size, beat):
        digest.update(chunk)
        read += len(chunk)
    return digest.digest() if read == size else None
