"""Content that is needed for the length of one request and never enters the store."""

import os
import struct
import tempfile
import weakref
import zlib
from collections.abc import Iterable
from typing import IO, Final

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.deflate import LEVEL, deflate
from ckptd.shadow.objects.pack import HashOnly, ObjectSink
from ckptd.shadow.objects.stream import LARGE_BYTES

__all__ = ["Spool", "SpoolSink"]

_IN_MEMORY_BYTES: Final = 8 * 1024 * 1024

# Where a blob lies in the spool, how long (0: nowhere), and the size of its content. There may be a hundred thousand,
# and the garbage collector looks at no bytes.
_PLACE: Final = struct.Struct(">QQQ")
_NOWHERE: Final = bytes(24)


class Spool:
    """Bytes that are written once from the front and then read at any place; in memory while they are few.

    ``folder`` takes the nameless file of a larger one. Raises DomainError where the disk refuses.
    """

    def __init__(self, folder: bytes) -> None:
        self._folder = folder
        # Closed by close(), not by a with statement: it outlives the request that fills it.
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=os.fsdecode(folder))  # noqa: SIM115
        # It may also be handed on to somebody who does not want it any more.
        self._close = weakref.finalize(self, self._file.close)
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
        """Let go of it; may be called again."""
        self._close()


class SpoolSink(ObjectSink):
    """Hashes like HashOnly and keeps the blobs, so that a diff shows the very bytes that were hashed.

    Of blobs above LARGE_BYTES it keeps the size alone: nobody shows them.
    """

    def __init__(self, folder: bytes) -> None:
        self._spool = Spool(folder)
        self._hash = HashOnly()
        self._places: dict[bytes, bytes] = {}

    def add(self, kind: bytes, data: bytes) -> bytes:
        """Take an object; only blobs are kept."""
        oid = hash_object(kind, data)
        if kind == b"blob" and oid not in self._places:
            packed = deflate(data)
            self._places[oid] = _PLACE.pack(self._spool.size, len(packed), len(data))
            self._spool.append(packed)
        return oid

    def add_stream(self, size: int, chunks: Iterable[bytes]) -> bytes | None:
        """Take a blob piece by piece."""
        if size > LARGE_BYTES:
            oid = self._hash.add_stream(size, chunks)
            if oid is not None:
                self._places.setdefault(oid, _PLACE.pack(0, 0, size))
            return oid
        packer = zlib.compressobj(LEVEL)
        start = self._spool.size

        def kept() -> Iterable[bytes]:
            for chunk in chunks:
                self._spool.append(packer.compress(chunk))
                yield chunk
            self._spool.append(packer.flush())

        oid = self._hash.add_stream(size, kept())
        if oid is not None:
            self._places[oid] = _PLACE.pack(start, self._spool.size - start, size)
        return oid

    def __contains__(self, oid: bytes) -> bool:
        return oid in self._places

    def load(self, oid: bytes) -> bytes:
        """Give a blob that was kept; raises DomainError ``object_missing`` for any other."""
        offset, length, _ = _PLACE.unpack(self._places.get(oid, _NOWHERE))
        if not length:
            raise DomainError("object_missing", f"object {oid.hex()} was not kept")
        return zlib.decompress(self._spool.read(offset, length))

    def size(self, oid: bytes) -> int:
        """Give the size in bytes of a blob that was taken."""
        size: int = _PLACE.unpack(self._places[oid])[2]
        return size

    def close(self) -> None:
        """Let go of what was kept."""
        self._spool.close()
