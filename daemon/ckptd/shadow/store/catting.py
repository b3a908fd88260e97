"""A file of a checkpoint, given to a caller who asks for one piece after the other."""

from collections.abc import Iterator
from typing import Final

from ckptd.shadow.objects.store import ObjectStore

__all__ = ["FileStream"]


class FileStream:
    """Reads one blob from front to back, in constant memory; going back begins again.

    Raises DomainError where the blob is missing or damaged, before the last piece at the latest.
    """

    def __init__(self, objects: ObjectStore, oid: bytes) -> None:
        self.oid: Final = oid
        self.total_bytes: Final = objects.size(oid)
        self._objects = objects
        self._pieces: Iterator[bytes] = objects.chunks(oid)
        self._start = 0
        self._kept = b""

    def read(self, offset: int, length: int) -> bytes:
        """Give up to ``length`` bytes from ``offset`` on; fewer at the end only, none beyond it."""
        if offset >= self.total_bytes:
            return b""
        if offset < self._start:
            self._pieces, self._start, self._kept = self._objects.chunks(self.oid), 0, b""
        while self._start + len(self._kept) < min(offset + length, self.total_bytes):
            self._drop_before(offset)
            self._kept += next(self._pieces)
        self._drop_before(offset)
        return self._kept[:length]

    def _drop_before(self, offset: int) -> None:
        # What was given last stays: an answer that was lost on its way is asked for again.
        gone = min(offset - self._start, len(self._kept))
        self._start += gone
        self._kept = self._kept[gone:]
