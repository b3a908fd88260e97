"""Copying what is needed of some packs into new ones, entry by entry, without inflating what need not be.

Deltas are copied as deltas while what they apply to comes along; where that is not needed any more, they are made
whole. Blobs above LARGE_BYTES go into a pack of their own, which nobody makes deltas of.
"""

import os
from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from ckptd.errors import DomainError
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.pack import PackWriter
from ckptd.shadow.objects.packfile import OFS_DELTA, REF_DELTA, Entry, Head, PackFile
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.objects.stream import LARGE_BYTES
from ckptd.shadow.objects.syncing import fsync_dir

__all__ = ["BESIDES", "Rewrite", "hide_indexes_over_packs", "unlink_packs"]

_DELTAS: Final = (OFS_DELTA, REF_DELTA)

BESIDES: Final = (b".rev", b".bitmap", b".mtimes", b".promisor")
"""Files that git may have put beside a pack, and that mean nothing without it."""


class _Taken(NamedTuple):
    """A pack that is copied; ``whole``: nothing that is needed of it is a delta."""

    stem: bytes
    pack: PackFile
    entries: list[Entry]
    whole: bool


class Rewrite:
    """Makes new packs of some old ones; nothing is visible before finish(), and nothing old is touched.

    ``is_needed`` is asked anew for each object at the end: what has become needed meanwhile is copied, too. ``stems``
    are paths without their ends. After finish(), ``replaced`` are those of them that can go, ``left`` are those that
    must not, and why; ``dropped`` counts the objects that were not copied, of ``dropped_bytes``.
    """

    def __init__(self, objects: ObjectStore, stems: Collection[bytes], is_needed: Callable[[bytes], bool]) -> None:
        self.replaced: Final[list[bytes]] = []
        self.left: Final[dict[bytes, str]] = {}
        self.dropped = 0
        self.dropped_bytes = 0
        self._objects = objects
        self._stems = sorted(stems)
        self._is_needed = is_needed
        self._small = PackWriter(objects.pack_dir, lambda _oid: False)
        self._large = PackWriter(objects.pack_dir, lambda _oid: False)
        self._packs: list[_Taken] = []

    def run(self) -> Iterator[int]:
        """Copy, giving the bytes done after each piece. Raises DomainError where the disk refuses."""
        for stem in self._stems:
            yield from self._take(stem)

    def finish(self) -> list[bytes]:
        """Make the new packs durable; give their stems. To be followed by unlink_packs() with nothing in between."""
        for taken in self._packs:
            for entry in taken.entries:
                if self._is_needed(entry.oid) and not self._has(entry.oid):
                    self._copy(taken, entry)
        made = [name for writer in (self._small, self._large) if (name := writer.finish()) is not None]
        stems = [os.path.join(self._objects.pack_dir, name) for name in made]
        for stem, _, entries, _ in self._packs:
            if stem not in stems:
                self.replaced.append(stem)
            gone = [entry for entry in entries if not self._is_needed(entry.oid)]
            self.dropped += len(gone)
            self.dropped_bytes += sum(entry.end - entry.start for entry in gone)
        reach("merged")
        return stems

    def close(self) -> None:
        """Forget what is not finished, and let go of all files."""
        for writer in (self._small, self._large):
            writer.abort()
        for taken in self._packs:
            taken.pack.close()
        self._packs.clear()

    def _take(self, stem: bytes) -> Iterator[int]:
        """Copy a pack, unless it is not as it should be: then it is left as it is, for nothing may be lost with it."""
        try:
            pack = PackFile(stem + b".idx")
        except DomainError as error:
            _refuse_shortage(error)
            self.left[stem] = error.message
            return
        try:
            entries = pack.entries()
            needed = [entry for entry in entries if self._is_needed(entry.oid)]
            whole = True
            for entry in needed:
                if not pack.is_sound(entry):
                    raise DomainError("store_damaged", f"object {entry.oid.hex()} in it is damaged")
                whole = whole and pack.head(entry).number not in _DELTAS
                yield 0
        except DomainError as error:
            _refuse_shortage(error)
            pack.close()
            self.left[stem] = error.message
            return
        taken = _Taken(stem, pack, entries, whole)
        self._packs.append(taken)
        for entry in needed:
            if not self._has(entry.oid):
                self._copy(taken, entry)
            yield entry.end - entry.start

    def _copy(self, taken: _Taken, entry: Entry) -> None:
        pack = taken.pack
        head = pack.head(entry)
        if head.number in _DELTAS:
            self._copy_delta(pack, entry, head)
            return
        # A delta and what it applies to have to be in one pack, however large that is.
        writer = self._large if head.size > LARGE_BYTES and taken.whole else self._small
        writer.add_pieces(entry.oid, pack.pieces(entry.start, entry.end))

    def _copy_delta(self, pack: PackFile, entry: Entry, head: Head) -> None:
        base = pack.base_of(head)
        if base is not None and self._is_needed(base) and not self._large.has(base):
            self._small.add_delta(entry.oid, base, head.size, pack.pieces(head.data_at, entry.end))
            return
        kind, data = self._objects.read_any(entry.oid)
        (self._large if len(data) > LARGE_BYTES else self._small).add(kind, data)

    def _has(self, oid: bytes) -> bool:
        return self._small.has(oid) or self._large.has(oid)


def _refuse_shortage(error: DomainError) -> None:
    if error.kind in ("too_many_files", "no_space"):
        raise error


def hide_indexes_over_packs(git_dir: bytes) -> None:
    """Remove what speaks of many packs or commits at once: it would go on naming what is no longer there.

    Raises OSError.
    """
    pack_dir, info = os.path.join(git_dir, b"objects", b"pack"), os.path.join(git_dir, b"objects", b"info")
    for name in os.listdir(pack_dir):
        if name.startswith(b"multi-pack-index") or name.endswith(b".bitmap"):
            _remove(os.path.join(pack_dir, name))
    for name in (b"commit-graph", b"commit-graphs", b"packs"):
        _remove(os.path.join(info, name))


def unlink_packs(pack_dir: bytes, stems: Collection[bytes]) -> None:
    """Remove packs whose objects are all elsewhere, durably, or not needed; raises OSError."""
    for stem in stems:
        # Without its index a pack is invisible; without its pack an index would vouch for nothing.
        os.unlink(stem + b".idx")
        reach("pack-hidden")
        os.unlink(stem + b".pack")
        for end in BESIDES:
            _remove(stem + end)
    if stems:
        reach("packs-gone")
        fsync_dir(pack_dir)


def _remove(path: bytes) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        for name in os.listdir(path):
            _remove(os.path.join(path, name))
        os.rmdir(path)
