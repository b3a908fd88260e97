"""Merging small packs into one by copying their entries as they are: nothing is inflated or compressed again.

A save leaves a pack of its own; looking an object up costs the number of packs. Packs with deltas, with a ``.keep``
file, or with an entry that no longer has the checksum of its index are left alone.
"""

import os
from collections.abc import Callable
from typing import Final

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.pack import PackWriter
from ckptd.shadow.objects.packfile import Entry, PackFile
from ckptd.shadow.objects.syncing import fsync_dir

__all__ = ["LARGEST_BYTES", "merge_packs"]

LARGEST_BYTES: Final = 64 * 1024 * 1024
"""Packs above this size are left as they are: copying them gains little."""

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
            copied = [stem for path in paths if (stem := _copy(path, writer)) is not None]
            if len(copied) < at_least:
                return 0
            merged = writer.finish()
        finally:
            writer.abort()
        hook("merged")
        reach("merged")
        gone = [stem for stem in copied if merged is not None and stem != os.path.join(pack_dir, merged)]
        _unlink_all(pack_dir, names, gone, hook)
        return len(gone)
    except OSError as error:
        raise from_os_error(error, "merge the packs in", pack_dir) from error


def _pack_of(index_path: bytes) -> bytes:
    return index_path[: -len(b".idx")] + b".pack"


def _is_small(path: bytes, largest_bytes: int) -> bool:
    try:
        return os.path.getsize(path) <= largest_bytes
    except FileNotFoundError:
        return False


def _copy(index_path: bytes, writer: PackWriter) -> bytes | None:
    """Copy a pack and give its path without an end; None, and nothing copied, where it is to be left alone."""
    stem = index_path[: -len(b".idx")]
    if os.path.exists(stem + b".keep"):
        return None
    try:
        pack = PackFile(index_path)
    except DomainError:
        return None
    try:
        entries = _sound_entries(pack)
        # A piece at a time: also a single blob may be most of a pack.
        for entry in entries or ():
            writer.add_pieces(entry.oid, pack.pieces(entry.start, entry.end))
        return stem if entries is not None else None
    finally:
        pack.close()


def _sound_entries(pack: PackFile) -> list[Entry] | None:
    """Give all entries; None where one is a delta, or is not what the index says."""
    try:
        entries = pack.entries()
        sound = all(pack.head(entry).number in _PLAIN_KINDS and pack.is_sound(entry) for entry in entries)
    except DomainError:
        return None
    return entries if sound else None


def _unlink_all(pack_dir: bytes, names: list[bytes], gone: list[bytes], hook: Callable[[str], None]) -> None:
    # An index over many packs, and bitmaps, would go on naming packs that are no longer there.
    for name in names:
        if name.startswith(b"multi-pack-index") or name.endswith(b".bitmap"):
            os.unlink(os.path.join(pack_dir, name))
    for stem in gone:
        # Without its index a pack is invisible; without its pack an index would vouch for nothing.
        os.unlink(stem + b".idx")
        hook("unlinking")
        reach("pack-hidden")
        os.unlink(stem + b".pack")
    if gone:
        reach("packs-gone")
        fsync_dir(pack_dir)
