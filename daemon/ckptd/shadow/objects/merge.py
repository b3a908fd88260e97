"""Merging small packs into one by copying their entries as they are: nothing is inflated or compressed again.

A save leaves a pack of its own; looking an object up costs the number of packs. Packs with deltas, with a ``.keep``
file, or with an entry that no longer has the checksum of its index are left alone.
"""

import os
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.durable import fsync_dir
from ckptd.shadow.objects.pack import PackWriter, entry_header_kind
from ckptd.shadow.objects.packindex import PackIndex

__all__ = ["LARGEST_BYTES", "merge_packs"]

LARGEST_BYTES: Final = 64 * 1024 * 1024
"""Packs above this size are left as they are: copying them gains little."""

_TRAILER_BYTES: Final = 20
_PLAIN_KINDS: Final = (1, 2, 3, 4)


class _Small(NamedTuple):
    idx: PackIndex
    data: bytes


def merge_packs(pack_dir: bytes, *, at_least: int = 2, hook: Callable[[str], None] = lambda _point: None) -> int:
    """Merge the small packs of a directory if there are ``at_least`` so many; return how many have gone.

    The merged pack is durable and visible before any other is unlinked, so that nobody ever misses an object. Raises
    DomainError where the disk refuses; the packs are then all still there. ``hook`` is told each named point.
    """
    try:
        names = sorted(os.listdir(pack_dir))
        paths = [os.path.join(pack_dir, name) for name in names if name.startswith(b"pack-") and name.endswith(b".idx")]
        if len(paths) < at_least:
            return 0
        small = [found for path in paths if (found := _load(path)) is not None]
        if len(small) < at_least:
            return 0
        merged = _copy(pack_dir, small)
        hook("merged")
        gone = [one for one in small if merged is not None and one.idx.pack_path != _pack_path(pack_dir, merged)]
        _unlink_all(pack_dir, names, gone, hook)
        return len(gone)
    except OSError as error:
        raise from_os_error(error, "merge the packs in", pack_dir) from error


def _pack_path(pack_dir: bytes, name: bytes) -> bytes:
    return os.path.join(pack_dir, name + b".pack")


def _load(index_path: bytes) -> _Small | None:
    """Read a pack that may be merged; None for one that must be left alone."""
    stem = index_path[: -len(b".idx")]
    if os.path.exists(stem + b".keep"):
        return None
    try:
        if os.path.getsize(stem + b".pack") > LARGEST_BYTES:
            return None
        index = PackIndex(index_path)
        with open(index.pack_path, "rb") as file:
            data = file.read()
        sound = all(_is_sound(data, *entry) for entry in _entries(index, data))
    except (FileNotFoundError, DomainError):
        return None
    return _Small(index, data) if sound else None


def _entries(index: PackIndex, data: bytes) -> list[tuple[bytes, int, int, int]]:
    """Give each entry's id, start, end and checksum, in the order in which they lie in the pack."""
    ordered = sorted((offset, oid, crc) for oid, offset, crc in index.entries())
    ends = [offset for offset, _, _ in ordered[1:]] + [len(data) - _TRAILER_BYTES]
    return [(oid, offset, end, crc) for (offset, oid, crc), end in zip(ordered, ends, strict=True)]


def _is_sound(data: bytes, _oid: bytes, start: int, end: int, crc: int) -> bool:
    if not 12 <= start < end <= len(data) - _TRAILER_BYTES or entry_header_kind(data[start]) not in _PLAIN_KINDS:
        return False
    return zlib.crc32(data[start:end]) == crc


def _copy(pack_dir: bytes, small: list[_Small]) -> bytes | None:
    writer = PackWriter(pack_dir, lambda _oid: False)
    try:
        for one in small:
            for oid, start, end, crc in _entries(one.idx, one.data):
                writer.add_raw(oid, one.data[start:end], crc)
        return writer.finish()
    finally:
        writer.abort()


def _unlink_all(pack_dir: bytes, names: list[bytes], gone: list[_Small], hook: Callable[[str], None]) -> None:
    # An index over many packs, and bitmaps, would go on naming packs that are no longer there.
    for name in names:
        if name.startswith(b"multi-pack-index") or name.endswith(b".bitmap"):
            os.unlink(os.path.join(pack_dir, name))
    for one in gone:
        one.idx.close()
        # Without its index a pack is invisible; without its pack an index would vouch for nothing.
        os.unlink(one.idx.path)
        hook("unlinking")
        os.unlink(one.idx.pack_path)
    if gone:
        fsync_dir(pack_dir)
