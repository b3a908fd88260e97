"""Merging small packs into one by copying their entries as they are: nothing is inflated or compressed again.

A save leaves a pack of its own; looking an object up costs the number of packs. Packs with deltas, with a ``.keep``
file, or with an entry that no longer has the checksum of its index are left alone.
"""

import os
import zlib
from collections.abc import Callable
from typing import Final

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.pack import PackWriter, entry_header_kind
from ckptd.shadow.objects.packindex import PackIndex
from ckptd.shadow.objects.syncing import fsync_dir

__all__ = ["LARGEST_BYTES", "merge_packs"]

LARGEST_BYTES: Final = 64 * 1024 * 1024
"""Packs above this size are left as they are: copying them gains little."""

_TRAILER_BYTES: Final = 20
_PLAIN_KINDS: Final = (1, 2, 3, 4)


def merge_packs(
    pack_dir: bytes,
    *,
    at_least: int = 2,
    largest_bytes: int = LARGEST_BYTES,
    hook: Callable[[str], None] = lambda _point: None,
) -> int:
    """Merge the packs of up to ``largest_bytes`` if there are ``at_least`` so many; return how many have gone.

    The merged pack is durable and visible before any other is unlinked, so that nobody ever misses an object. Raises
    DomainError where the disk refuses; the packs are then all still there. ``hook`` is told each named point.
    """
    try:
        names = sorted(os.listdir(pack_dir))
        paths = [os.path.join(pack_dir, name) for name in names if name.startswith(b"pack-") and name.endswith(b".idx")]
        paths = [path for path in paths if _is_small(_pack_of(path), largest_bytes)]
        if len(paths) < at_least:
            return 0
        writer = PackWriter(pack_dir, lambda _oid: False)
        try:
            # One pack at a time: all of them together may be more than the memory has room for.
            copied = [index for path in paths if (index := _copy(path, writer)) is not None]
            if len(copied) < at_least:
                return 0
            merged = writer.finish()
        finally:
            writer.abort()
        hook("merged")
        reach("merged")
        gone = [one for one in copied if merged is not None and one.pack_path != _pack_path(pack_dir, merged)]
        _unlink_all(pack_dir, names, gone, hook)
        return len(gone)
    except OSError as error:
        raise from_os_error(error, "merge the packs in", pack_dir) from error


def _pack_path(pack_dir: bytes, name: bytes) -> bytes:
    return os.path.join(pack_dir, name + b".pack")


def _pack_of(index_path: bytes) -> bytes:
    return index_path[: -len(b".idx")] + b".pack"


def _is_small(path: bytes, largest_bytes: int) -> bool:
    try:
        return os.path.getsize(path) <= largest_bytes
    except FileNotFoundError:
        return False


def _copy(index_path: bytes, writer: PackWriter) -> PackIndex | None:
    """Copy a pack's entries; None, and nothing copied, for one that must be left alone."""
    if os.path.exists(index_path[: -len(b".idx")] + b".keep"):
        return None
    try:
        index = PackIndex(index_path)
        with open(index.pack_path, "rb") as file:
            data = file.read()
        entries = _entries(index, data)
        if not all(_is_sound(data, *entry) for entry in entries):
            return None
    except (FileNotFoundError, DomainError):
        return None
    for oid, start, end, crc in entries:
        writer.add_raw(oid, data[start:end], crc)
    return index


def _entries(index: PackIndex, data: bytes) -> list[tuple[bytes, int, int, int]]:
    """Give each entry's id, start, end and checksum, in the order in which they lie in the pack."""
    ordered = sorted((offset, oid, crc) for oid, offset, crc in index.entries())
    ends = [offset for offset, _, _ in ordered[1:]] + [len(data) - _TRAILER_BYTES]
    return [(oid, offset, end, crc) for (offset, oid, crc), end in zip(ordered, ends, strict=True)]


def _is_sound(data: bytes, _oid: bytes, start: int, end: int, crc: int) -> bool:
    if not 12 <= start < end <= len(data) - _TRAILER_BYTES or entry_header_kind(data[start]) not in _PLAIN_KINDS:
        return False
    return zlib.crc32(data[start:end]) == crc


def _unlink_all(pack_dir: bytes, names: list[bytes], gone: list[PackIndex], hook: Callable[[str], None]) -> None:
    # An index over many packs, and bitmaps, would go on naming packs that are no longer there.
    for name in names:
        if name.startswith(b"multi-pack-index") or name.endswith(b".bitmap"):
            os.unlink(os.path.join(pack_dir, name))
    for one in gone:
        one.close()
        # Without its index a pack is invisible; without its pack an index would vouch for nothing.
        os.unlink(one.path)
        hook("unlinking")
        reach("pack-hidden")
        os.unlink(one.pack_path)
    if gone:
        reach("packs-gone")
        fsync_dir(pack_dir)
