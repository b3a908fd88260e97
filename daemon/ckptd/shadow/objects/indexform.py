"""The form of a pack's index, version 2 (gitformat-pack), as it is written."""

import hashlib
import struct
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

__all__ = ["format_index", "index_pieces", "note"]

_NOTE: Final = struct.Struct(">20sIQ")
_OID: Final = slice(0, 20)
_CRC: Final = slice(20, 24)
_OFFSET: Final = slice(24, 32)
_SMALL_OFFSET: Final = slice(28, 32)
_FIRST_LARGE: Final = (0x80000000).to_bytes(8)
_SORTED_AT_ONCE: Final = 4096
_PACKED_AT_ONCE: Final = 1000


def note(oid: bytes, crc: int, offset: int) -> bytes:
    """Give what is kept of an entry until the index is written: its object's id, its CRC-32, and where it begins.

    There may be a million of them, so that each is one small value, in the order in which they are to be sorted.
    """
    return _NOTE.pack(oid, crc, offset)


def format_index(notes: Iterable[bytes], pack_checksum: bytes) -> bytes:
    """Give the bytes of an index of the entries that were noted."""
    return b"".join(index_pieces(notes, pack_checksum))


def index_pieces(notes: Iterable[bytes], pack_checksum: bytes) -> Iterator[bytes]:
    """Give the same in pieces, some of them empty: each is made of a few thousand entries, or of a 256th of all."""
    digest = hashlib.sha1(usedforsecurity=False)
    for piece in _body(notes, pack_checksum):
        digest.update(piece)
        yield piece
    yield digest.digest()


def _body(notes: Iterable[bytes], pack_checksum: bytes) -> Iterator[bytes]:
    # In 256 parts: to sort or to pack a hundred thousand at once would lock the interpreter for too long.
    every: list[list[bytes]] = [[] for _ in range(256)]
    for number, one in enumerate(notes, 1):
        every[one[0]].append(one)
        if not number % _SORTED_AT_ONCE:
            yield b""
    counts = struct.pack(">256I", *accumulate(map(len, every)))
    parts: list[list[bytes]] = [[]]
    # In the pack of one save nearly all of them are empty.
    for part in filter(None, every):
        if len(parts[-1]) >= _PACKED_AT_ONCE:
            parts.append([])
            yield b""
        part.sort()
        parts[-1] += part
    yield b"\377tOc\0\0\0\2" + counts
    for part in parts:
        yield b"".join([one[_OID] for one in part])
    for part in parts:
        yield b"".join([one[_CRC] for one in part])
    large: list[bytes] = []
    for part in parts:
        yield b"".join([_small_offset(one, large) for one in part])
    yield b"".join(large)
    yield pack_checksum


def _small_offset(one: bytes, large: list[bytes]) -> bytes:
    """Give what stands for an offset in the table of small ones; a large one goes to the end of the other table."""
    offset = one[_OFFSET]
    if offset < _FIRST_LARGE:
        return one[_SMALL_OFFSET]
    large.append(offset)
    return (0x80000000 | len(large) - 1).to_bytes(4)
