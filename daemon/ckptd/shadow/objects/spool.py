"""Content that is needed for the length of one request and never enters the store."""

import os
import tempfile
import zlib
from collections.abc import Iterable
from typing import IO, Final

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.pack import HashOnly, ObjectSink

__all__ = ["Spool", "SpoolSink"]

_IN_MEMORY_BYTES: Final = 8 * 1024 * 1024


class Spool:
    """Bytes that are written once from the front and then read at any place; in memory while they are few.

    ``folder`` takes the nameless file of a larger one. Raises DomainError where the disk refuses.
    """

    def __init__(self, folder: bytes) -> None:
        self._folder = folder
        # Closed by close(), not by a with statement: it outlives the request that fills it.
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=os.fsdecode(folder))  # noqa: SIM115
        self.size = 0

    def append(self, data: bytes) -> None:
        """Add to the end."""
        try:
            self._file.seek(self.size)
            self._file.write(data)
        except OSError as error:
            raise from_os_error(error, "write a temporary file in", self._folder) from error
        self.size += len(data)

    def read(self, offset: int, length: int) -> bytes:
        """Read a piece; shorter at the end, and nothing beyond it."""
        if offset >= self.size:
            return b""
        try:
            self._file.seek(offset)
            return self._file.read(length)
        except OSError as error:
            raise from_os_error(error, "read a temporary file in", self._folder) from error

    def close(self) -> None:
        """Let go of it."""
        self._file.close()


class SpoolSink(ObjectSink):
    """Hashes like HashOnly and keeps the blobs, so that a diff shows the very bytes that were hashed."""

    def __init__(self, folder: bytes) -> None:
        self._spool = Spool(folder)
        self._hash = HashOnly()
        self._places: dict[bytes, tuple[int, int]] = {}

    def add(self, kind: bytes, data: bytes) -> bytes:
        """Take an object; only blobs are kept."""
        oid = hash_object(kind, data)
        if kind == b"blob" and oid not in self._places:
            packed = zlib.compress(data, 1)
            self._places[oid] = (self._spool.size, len(packed))
            self._spool.append(packed)
        return oid

    def add_stream(self, size: int, chunks: Iterable[bytes]) -> bytes | None:
        """Take a blob piece by piece."""
        packer = zlib.compressobj(1)
        start = self._spool.size

        def kept() -> Iterable[bytes]:
            for chunk in chunks:
                self._spool.append(packer.compress(chunk))
                yield chunk
            self._spool.append(packer.flush())

        oid = self._hash.add_stream(size, kept())
        if oid is not None:
            self._places[oid] = (start, self._spool.size - start)
        return oid

    def __contains__(self, oid: bytes) -> bool:
        return oid in self._places

    def load(self, oid: bytes) -> bytes:
        """Give a blob that was taken; raises DomainError ``object_missing`` for any other."""
        if oid not in self._places:
            raise DomainError("object_missing", f"object {oid.hex()} was not read")
        return zlib.decompress(self._spool.read(*self._places[oid]))

    def close(self) -> None:
        """Let go of what was kept."""
        self._spool.close()
