"""Deflated content in a file, inflated a piece at a time: what is large is never in memory as a whole."""

import os
import zlib
from collections.abc import Iterator
from typing import Final

from ckptd.shadow.objects.blob import CHUNK_BYTES

__all__ = ["LARGE_BYTES", "BrokenStreamError", "StoredBlob", "open_loose"]

LARGE_BYTES: Final = 16 * 1024 * 1024
"""A blob above this is streamed, whichever way it goes."""

_LONGEST_HEADER_BYTES: Final = 64


class BrokenStreamError(Exception):
    """The deflated bytes are cut, damaged, or not as long as their header says."""


class StoredBlob:
    """One copy of a blob: ``size`` bytes, deflated, from ``offset`` of an open file that it owns.

    ``skip`` bytes of what is inflated come before the content (the header of a loose object).
    """

    def __init__(self, fd: int, offset: int, size: int, skip: int = 0) -> None:
        self._fd = fd
        self._offset = offset
        self._skip = skip
        self.size: Final = size

    def pieces(self) -> Iterator[bytes]:
        """Give the content from the start, ``size`` bytes in all, in pieces of at most CHUNK_BYTES.

        Raises BrokenStreamError where it cannot be given to its end, and OSError.
        """
        left, skip = self.size, self._skip
        for piece in self._inflated(self.size + skip):
            content = piece[skip:]
            skip -= len(piece) - len(content)
            left -= len(content)
            if left < 0:
                break
            if content:
                yield content
        if left or skip:
            raise BrokenStreamError

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _inflated(self, expected: int) -> Iterator[bytes]:
        """Inflate up to one byte more than is expected, so that too much is noticed."""
        unpacker, at, left = zlib.decompressobj(), self._offset, expected + 1
        raw = b""
        while not unpacker.eof and left > 0:
            if not raw:
                raw = os.pread(self._fd, CHUNK_BYTES, at)
                at += len(raw)
                if not raw:
                    raise BrokenStreamError
            try:
                piece = unpacker.decompress(raw, min(left, CHUNK_BYTES))
            except zlib.error as error:
                raise BrokenStreamError from error
            raw = unpacker.unconsumed_tail
            left -= len(piece)
            yield piece


def open_loose(path: bytes, kind: bytes) -> StoredBlob | None:
    """Open a loose object of a kind; None for one of another kind, or whose header is damaged. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = zlib.decompressobj().decompress(os.pread(fd, 4096, 0), _LONGEST_HEADER_BYTES)
        header, zero, _ = head.partition(b"\0")
        word, _, size = header.partition(b" ")
        if zero and word == kind and size.isdigit():
            found = StoredBlob(fd, 0, int(size), len(header) + 1)
            fd = -1
            return found
    except zlib.error:
        return None
    finally:
        if fd >= 0:
            os.close(fd)
    return None
