"""Reading pack indexes of version 2."""

import mmap
import os
import struct
from collections.abc import Iterator
from typing import Final

from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, from_os_error

__all__ = ["PackIndex"]

_FANOUT_AT: Final = 8
_NAMES_AT: Final = 8 + 256 * 4
_LARGE_OFFSET: Final = 0x80000000
_PART: Final = 1000
_SEARCHED: Final = 64
# Below this an index is read into memory: a mapping costs a page table entry and a descriptor for a while.
_MAP_ABOVE_BYTES: Final = 1 << 18
_DONT_NEED: Final[int | None] = getattr(mmap, "MADV_DONTNEED", None)


class PackIndex:
    """Finds objects of one pack; ``path`` is the path of the ``.idx`` file.

    Raises DomainError ``store_damaged`` where the file is not an index or is cut.
    """

    def __init__(self, path: bytes) -> None:
        self.path: Final = path
        self._data: bytes | mmap.mmap = _load(path)
        if len(self._data) < _NAMES_AT + 40 or self._data[:8] != b"\377tOc\0\0\0\2":
            raise _damaged(path)
        self._fanout = struct.unpack_from(">256I", self._data, _FANOUT_AT)
        self.count: Final = self._fanout[255]
        if len(self._data) < _NAMES_AT + self.count * 28 + 40 or list(self._fanout) != sorted(self._fanout):
            raise _damaged(path)

    @property
    def pack_path(self) -> bytes:
        """The path of the pack that this index is of."""
        return self.path[: -len(b".idx")] + b".pack"

    @property
    def pack_checksum(self) -> bytes:
        """The checksum that the pack ends with, 20 bytes."""
        return self._data[-40:-20]

    def find(self, oid: bytes) -> int | None:
        """Give the offset of an object in the pack, or None; an offset that cannot be right is none."""
        first = oid[0]
        low = self._fanout[first - 1] if first else 0
        high = self._fanout[first]
        data = self._data
        while high - low > _SEARCHED:
            middle = (low + high) // 2
            at = _NAMES_AT + middle * 20
            if data[at : at + 20] <= oid:
                low = middle
            else:
                high = middle
        # One call looks through what is left, faster than a few steps more of the above.
        end = _NAMES_AT + high * 20
        at = data.find(oid, _NAMES_AT + low * 20, end)
        while at >= 0 and (at - _NAMES_AT) % 20:
            # Across two ids.
            at = data.find(oid, at + 1, end)
        return self._offset((at - _NAMES_AT) // 20) if at >= 0 else None

    def oids(self) -> list[bytes]:
        """Give the ids of all objects, sorted."""
        return [self._data[at : at + 20] for at in range(_NAMES_AT, _NAMES_AT + self.count * 20, 20)]

    def entries(self) -> list[tuple[bytes, int, int]]:
        """Give each object's id, offset and the CRC-32 of its packed bytes, sorted by id.

        Raises DomainError ``store_damaged`` where an offset cannot be right.
        """
        return [entry for part in self.parts() for entry in part]

    def parts(self) -> Iterator[list[tuple[bytes, int, int]]]:
        """Give the same in parts of a bounded size, or of a 256th of all."""
        low = 0
        for high in self._fanout:
            if high - low >= _PART or (high == self.count and high > low):
                yield self._part(low, high)
                low = high

    def _part(self, low: int, high: int) -> list[tuple[bytes, int, int]]:
        data, count, length = self._data, self.count, high - low
        checksums = struct.unpack_from(f">{length}I", data, _NAMES_AT + count * 20 + low * 4)
        offsets = struct.unpack_from(f">{length}I", data, _NAMES_AT + count * 24 + low * 4)
        if any(offset & _LARGE_OFFSET for offset in offsets):
            offsets = tuple(self._checked(position) for position in range(low, high))
        starts = range(_NAMES_AT + low * 20, _NAMES_AT + high * 20, 20)
        return list(zip([data[at : at + 20] for at in starts], offsets, checksums, strict=True))

    def _checked(self, position: int) -> int:
        offset = self._offset(position)
        if offset is None:
            raise _damaged(self.path)
        return offset

    def rest(self) -> None:
        """Let the mapping take no memory until it is looked into again; the system may keep what it has of the file."""
        if _DONT_NEED is not None and isinstance(self._data, mmap.mmap):
            self._data.madvise(_DONT_NEED)

    def close(self) -> None:
        """Let go of the mapping."""
        if isinstance(self._data, mmap.mmap):
            self._data.close()

    def _offset(self, position: int) -> int | None:
        small_at = _NAMES_AT + self.count * 24
        (offset,) = struct.unpack_from(">I", self._data, small_at + position * 4)
        if not offset & _LARGE_OFFSET:
            return int(offset)
        large_at = small_at + self.count * 4 + (offset & 0x7FFFFFFF) * 8
        if large_at + 8 > len(self._data) - 40:
            return None
        (large,) = struct.unpack_from(">Q", self._data, large_at)
        return int(large) if large < 1 << 63 else None


def _load(path: bytes) -> bytes | mmap.mmap:
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > _MAP_ABOVE_BYTES:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return file.read()
    except OSError as error:
        raise from_os_error(error, "read the pack index", path) from error


def _damaged(path: bytes) -> DomainError:
    return DomainError("store_damaged", f"the pack index {to_text(path)} is damaged", paths=(path,))
