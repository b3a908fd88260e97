"""One pack with its index, entry by entry: checking it, and copying from it, in constant memory."""

import hashlib
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.blob import CHUNK_BYTES, hash_object
from ckptd.shadow.objects.deflate import MOST_PLAIN_BYTES, holds_plain
from ckptd.shadow.objects.pack import KIND_NUMBERS
from ckptd.shadow.objects.packindex import PackIndex
from ckptd.shadow.objects.pieces import Pieces, drained

__all__ = ["OFS_DELTA", "REF_DELTA", "Entry", "PackFile", "checksum_chunks"]

OFS_DELTA: Final = 6
REF_DELTA: Final = 7

_KINDS: Final = {number: kind for kind, number in KIND_NUMBERS.items()}
_HEADER_BYTES: Final = 12
_TRAILER_BYTES: Final = 20
_HEAD_BYTES: Final = 64
_BUCKET: Final = 1000
_PLACED: Final = struct.Struct(">Q20sI")
# Of a small pack every entry is read at least twice.
_READ_WHOLE_BYTES: Final = 64 * 1024


class Entry(NamedTuple):
    """An object in a pack: its bytes are from ``start`` to ``end``, ``crc`` is what the index says of them."""

    oid: bytes
    start: int
    end: int
    crc: int


class Head(NamedTuple):
    """What an entry begins with: the kind's number, the inflated size, where the compressed bytes begin.

    ``base`` is the id (REF_DELTA) or the start (OFS_DELTA) of what a delta applies to.
    """

    number: int
    size: int
    data_at: int
    base: bytes | int | None


class PackFile:
    """A pack that is open. Raises DomainError where the pack or the index cannot be read, or they do not belong
    together: ``store_damaged``, with what is wrong in its message."""

    def __init__(self, index_path: bytes) -> None:
        self.index: Final = PackIndex(index_path)
        self.path: Final = self.index.pack_path
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.index.close()
            raise from_os_error(error, "read the pack", self.path) from error
        self._starts: dict[int, bytes] | None = None
        self._data: bytes | None = None
        try:
            self.size: Final = os.fstat(self._fd).st_size
            if self.size <= _READ_WHOLE_BYTES:
                self._data = self._read(0, self.size)
            self._check_frame()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of both files."""
        os.close(self._fd)
        self.index.close()

    def entries(self) -> list[Entry]:
        """Give all entries in the order in which they lie in the pack.

        Raises DomainError ``store_damaged`` where the index names places that the pack does not have.
        """
        return [entry for part in self.parts() for entry in part]

    def parts(self) -> Iterator[list[Entry]]:
        """Give the same in parts of about a thousand, and empty ones: to have all at once would take much memory."""
        buckets: list[list[bytes]] = [[] for _ in range(self.index.count // _BUCKET + 1)]
        width = self.size // len(buckets) + 1
        for number, part in enumerate(self.index.parts()):
            if number:
                yield []
            for oid, offset, crc in part:
                # Whatever is beyond the end is found out below.
                buckets[min(offset // width, len(buckets) - 1)].append(_PLACED.pack(offset, oid, crc))
        # Where an entry ends is known by where the next one begins.
        last: list[bytes] = []
        end = _HEADER_BYTES
        buckets.reverse()
        while buckets:
            bucket = last + sorted(buckets.pop())
            last = bucket[-1:]
            part_of = self._between(bucket, end)
            end = part_of[-1].end if part_of else end
            yield part_of
        final = self._between([*last, _PLACED.pack(self.size - _TRAILER_BYTES, b"", 0)], end)
        if (final[-1].end if final else end) != self.size - _TRAILER_BYTES:
            raise self._misplaced()
        yield final

    def _between(self, placed: list[bytes], begin: int) -> list[Entry]:
        """Give the entries that begin at these places, but for the last of them; the first is to be at ``begin``."""
        found = []
        for (start, oid, crc), (end, _, _) in pairwise(map(_PLACED.unpack, placed)):
            if start != begin or end <= start:
                raise self._misplaced()
            found.append(Entry(oid, start, end, crc))
            begin = end
        return found

    def _misplaced(self) -> DomainError:
        return self._damaged("the index names places that the pack does not have")

    def head(self, entry: Entry) -> Head:
        """Read how an entry begins; raises DomainError ``store_damaged`` where that makes no sense."""
        head = self._read(entry.start, min(_HEAD_BYTES, entry.end - entry.start))
        try:
            return _parse_head(head, entry.start)
        except IndexError as error:
            raise self._damaged(f"the entry at {entry.start} is cut") from error

    def base_of(self, head: Head) -> bytes | None:
        """Give the id of what a delta applies to; None where this pack has nothing there."""
        if not isinstance(head.base, int):
            return head.base
        if self._starts is None:
            self._starts = {offset: oid for oid, offset, _ in self.index.entries()}
        return self._starts.get(head.base)

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Give the bytes of a stretch of the pack as they are."""
        while start < end:
            piece = self._read(start, min(CHUNK_BYTES, end - start))
            if not piece:
                raise self._damaged("it is cut")
            start += len(piece)
            yield piece

    def plain(self, entry: Entry, head: Head) -> tuple[bytes, bytes] | None:
        """Give kind and content of an entry that is small and only wrapped up; None for any other, or a bad one."""
        kind = _KINDS.get(head.number)
        if kind is None or head.size > MOST_PLAIN_BYTES:
            return None
        packed = self._read(head.data_at, entry.end - head.data_at)
        if not holds_plain(packed):
            return None
        try:
            data = zlib.decompress(packed)
        except zlib.error:
            return None
        return (kind, data) if hash_object(kind, data) == entry.oid else None

    def is_sound(self, entry: Entry) -> bool:
        """Tell whether an entry's bytes are those that were written, by the checksum in the index."""
        return drained(self.proving(entry))

    def proving(self, entry: Entry) -> Pieces[bool]:
        """Tell the same in pieces."""
        crc = 0
        for chunk in self.pieces(entry.start, entry.end):
            crc = zlib.crc32(chunk, crc)
            if len(chunk) == CHUNK_BYTES:
                yield False
        return crc == entry.crc

    def hashes_to_its_id(self, entry: Entry, head: Head) -> bool:
        """Tell whether an entry that is no delta inflates to what its id says."""
        kind = _KINDS.get(head.number)
        if kind is None:
            return False
        digest = hashlib.sha1(b"%s %d\0" % (kind, head.size), usedforsecurity=False)
        unpacker, total = zlib.decompressobj(), 0
        try:
            for packed in self.pieces(head.data_at, entry.end):
                rest = packed
                while rest and not unpacker.eof:
                    piece = unpacker.decompress(rest, CHUNK_BYTES)
                    digest.update(piece)
                    total += len(piece)
                    rest = unpacker.unconsumed_tail
        except zlib.error:
            return False
        return unpacker.eof and total == head.size and digest.digest() == entry.oid

    def checksum(self) -> Iterator[int]:
        """Hash the whole pack, giving the bytes done; raises DomainError where it is not what its end says."""
        digest = hashlib.sha1(usedforsecurity=False)
        for piece in self.pieces(0, self.size - _TRAILER_BYTES):
            digest.update(piece)
            yield len(piece)
        if digest.digest() != self.index.pack_checksum:
            raise self._damaged("its bytes are not those that its checksum was made of")

    def _check_frame(self) -> None:
        head = self._read(0, _HEADER_BYTES)
        if self.size < _HEADER_BYTES + _TRAILER_BYTES or head[:8] != b"PACK\0\0\0\2":
            raise self._damaged("it does not begin as a pack does" if self.size else "it is empty")
        if self._read(self.size - _TRAILER_BYTES, _TRAILER_BYTES) != self.index.pack_checksum:
            raise self._damaged("it is cut, or is not the pack of its index")
        if int.from_bytes(head[8:], "big") != self.index.count:
            raise self._damaged(f"it has {int.from_bytes(head[8:], 'big')} objects, its index {self.index.count}")

    def _read(self, offset: int, length: int) -> bytes:
        if self._data is not None:
            return self._data[offset : offset + length]
        try:
            return os.pread(self._fd, length, offset)
        except OSError as error:
            raise from_os_error(error, "read the pack", self.path) from error

    def _damaged(self, why: str) -> DomainError:
        return DomainError("store_damaged", f"the pack {to_text(self.path)} is damaged: {why}", paths=(self.path,))


def checksum_chunks(path: bytes) -> bool:
    """Tell whether a file ends with the SHA-1 of all that is before, as indexes do; raises OSError."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= _TRAILER_BYTES:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            digest = hashlib.sha1(usedforsecurity=False)
            for at in range(0, size - _TRAILER_BYTES, CHUNK_BYTES):
                digest.update(data[at : min(at + CHUNK_BYTES, size - _TRAILER_BYTES)])
            return digest.digest() == data[-_TRAILER_BYTES:]


def _parse_head(head: bytes, start: int) -> Head:
    byte = head[0]
    number, size, shift, used = byte >> 4 & 7, byte & 0x0F, 4, 1
    while byte & 0x80:
        byte = head[used]
        size |= (byte & 0x7F) << shift
        shift, used = shift + 7, used + 1
    base: bytes | int | None = None
    if number == REF_DELTA:
        base, used = head[used : used + 20], used + 20
        if len(base) < 20:
            raise IndexError(used)
    elif number == OFS_DELTA:
        back, used = _parse_back(head, used)
        base = start - back
    return Head(number, size, start + used, base)


def _parse_back(head: bytes, used: int) -> tuple[int, int]:
    """Read how far back the base of a delta begins (gitformat-pack)."""
    byte = head[used]
    used += 1
    back = byte & 0x7F
    while byte & 0x80:
        byte = head[used]
        used += 1
        back = (back + 1) << 7 | byte & 0x7F
    return back, used
