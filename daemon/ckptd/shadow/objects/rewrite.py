"""Copying what is needed of some packs into new ones, entry by entry, without inflating what need not be.

What was only wrapped up, for somebody waited, is deflated now. Deltas are copied as deltas while what they apply to
comes along; where that is not needed any more, they are made whole. Blobs above LARGE_BYTES go into a pack of their
own, which nobody makes deltas of.
"""

import os
import struct
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from ckptd.errors import DomainError
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.pack import TEMP_ENDS, TEMP_PREFIX, PackWriter
from ckptd.shadow.objects.packfile import OFS_DELTA, REF_DELTA, Entry, Head, PackFile
from ckptd.shadow.objects.pieces import Pieces, Portion, drained
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.objects.stream import LARGE_BYTES
from ckptd.shadow.objects.syncing import fsync_dir

__all__ = ["BESIDES", "Rewrite", "hide_indexes_over_packs", "hide_packs", "remove_hidden"]

_DELTAS: Final = (OFS_DELTA, REF_DELTA)

# Git reads whatever ends with ``.idx``.
_HIDDEN_ENDS: Final = dict(zip((b".pack", b".idx"), TEMP_ENDS, strict=True))

# Entries that wait for their turn: there may be a million of them.
_PACKED: Final = struct.Struct(">20sQQI")

BESIDES: Final = (b".rev", b".bitmap", b".mtimes", b".promisor")
"""Files that git may have put beside a pack, and that mean nothing without it."""


class _Taken(NamedTuple):
    """A pack that is copied. ``passed`` are entries that nobody needs; ``whole``: of the others none is a delta."""

    stem: bytes
    pack: PackFile
    passed: list[bytes]
    whole: bool


class Rewrite:
    """Makes new packs of some old ones; nothing is visible before settling(), and nothing old is touched.

    ``is_needed`` is asked anew at the end for each object that was not needed: what has become needed meanwhile is
    copied, too. ``stems`` are paths without their ends. After finish(), ``replaced`` are those of them that can go,
    ``left`` are those that must not, and why; ``dropped`` counts the objects that were not copied, of
    ``dropped_bytes``. ``copied_bytes`` have been by now.
    """

    def __init__(self, objects: ObjectStore, stems: Collection[bytes], is_needed: Callable[[bytes], bool]) -> None:
        self.replaced: Final[list[bytes]] = []
        self.left: Final[dict[bytes, str]] = {}
        self.dropped = 0
        self.dropped_bytes = 0
        self.copied_bytes = 0
        self._objects = objects
        self._stems = sorted(stems)
        self._is_needed = is_needed
        self._small = PackWriter(objects.pack_dir, lambda _oid: False)
        self._large = PackWriter(objects.pack_dir, lambda _oid: False)
        self._packs: list[_Taken] = []
        self._made: set[bytes] = set()
        self._portion = Portion()

    def run(self) -> Pieces[None]:
        """Copy. Raises DomainError where the disk refuses."""
        for stem in self._stems:
            yield from self._take(stem)

    def settling(self, naming: Callable[[], AbstractContextManager[None]]) -> Pieces[None]:
        """Make the new packs durable and visible; ``naming`` as PackWriter.finishing() has it."""
        for writer in (self._small, self._large):
            self._note_made((yield from writer.finishing(naming)))

    def finish(self) -> None:
        """Copy what has become needed since, durably. To be followed by hide_packs() with nothing in between."""
        late = PackWriter(self._objects.pack_dir, lambda _oid: False)
        try:
            for taken in self._packs:
                for entry in map(_unpacked, taken.passed):
                    if self._is_needed(entry.oid) and not (self._has(entry.oid) or late.has(entry.oid)):
                        # Whole, whatever it was made of.
                        self._copy_late(late, taken.pack, entry)
            self._note_made(late.finish())
        finally:
            late.abort()
        for taken in self._packs:
            if taken.stem not in self._made:
                self.replaced.append(taken.stem)
            gone = [entry for entry in map(_unpacked, taken.passed) if not self._is_needed(entry.oid)]
            self.dropped += len(gone)
            self.dropped_bytes += sum(entry.end - entry.start for entry in gone)
        reach("merged")

    def emptying(self) -> Pieces[None]:
        """Let go, in pieces, of what has been needed; to be closed all the same."""
        for writer in (self._small, self._large):
            yield from writer.emptying()

    def close(self) -> None:
        """Forget what is not finished, and let go of all files."""
        for writer in (self._small, self._large):
            writer.abort()
        for taken in self._packs:
            taken.pack.close()
        self._packs.clear()

    def _note_made(self, name: bytes | None) -> None:
        if name is not None:
            self._made.add(os.path.join(self._objects.pack_dir, name))

    def _take(self, stem: bytes) -> Pieces[None]:
        """Copy a pack, unless it is not as it should be: then it is left as it is, for nothing may be lost with it."""
        try:
            pack = PackFile(stem + b".idx")
        except DomainError as error:
            _refuse_shortage(error)
            self.left[stem] = error.message
            return
        needed: list[bytes] = []
        passed: list[bytes] = []
        try:
            whole = yield from self._look(pack, needed, passed)
        except DomainError as error:
            pack.close()
            _refuse_shortage(error)
            self.left[stem] = error.message
            return
        except BaseException:
            pack.close()
            raise
        taken = _Taken(stem, pack, passed, whole)
        self._packs.append(taken)
        for entry in map(_unpacked, needed):
            if not self._has(entry.oid):
                yield from self._copy(taken, entry)
            size = entry.end - entry.start
            self.copied_bytes += size
            if self._portion.is_full(size=size):
                yield False

    def _look(self, pack: PackFile, needed: list[bytes], passed: list[bytes]) -> Pieces[bool]:
        """Sort the entries of a pack and make sure of what is needed; tell whether none of that is a delta."""
        whole = True
        for part in pack.parts():
            if not part:
                yield False
            for entry in part:
                if not self._is_needed(entry.oid):
                    passed.append(_PACKED.pack(*entry))
                    full = self._portion.is_full()
                elif not (yield from pack.proving(entry)):
                    raise DomainError("store_damaged", f"object {entry.oid.hex()} in it is damaged")
                else:
                    needed.append(_PACKED.pack(*entry))
                    whole = whole and pack.head(entry).number not in _DELTAS
                    full = self._portion.is_full(size=entry.end - entry.start)
                if full:
                    yield False
        return whole

    def _copy(self, taken: _Taken, entry: Entry) -> Pieces[None]:
        pack = taken.pack
        head = pack.head(entry)
        if head.number in _DELTAS:
            yield from self._copy_delta(pack, entry, head)
            return
        plain = pack.plain(entry, head)
        if plain is not None:
            self._small.add(*plain)
            return
        # A delta and what it applies to have to be in one pack, however large that is.
        writer = self._large if head.size > LARGE_BYTES and taken.whole else self._small
        yield from writer.adding(entry.oid, pack.pieces(entry.start, entry.end))

    def _copy_delta(self, pack: PackFile, entry: Entry, head: Head) -> Pieces[None]:
        base = pack.base_of(head)
        if base is not None and self._is_needed(base) and not self._large.has(base):
            yield from self._small.adding_delta(entry.oid, base, head.size, pack.pieces(head.data_at, entry.end))
            return
        kind, data = self._objects.read_any(entry.oid)
        (self._large if len(data) > LARGE_BYTES else self._small).add(kind, data)

    def _copy_late(self, late: PackWriter, pack: PackFile, entry: Entry) -> None:
        if pack.head(entry).number in _DELTAS:
            late.add(*self._objects.read_any(entry.oid))
        else:
            drained(late.adding(entry.oid, pack.pieces(entry.start, entry.end)))

    def _has(self, oid: bytes) -> bool:
        return self._small.has(oid) or self._large.has(oid)


def _unpacked(packed: bytes) -> Entry:
    return Entry(*_PACKED.unpack(packed))


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


def hide_packs(stems: Iterable[bytes]) -> list[bytes]:
    """Take packs out of sight whose objects are all elsewhere, durably, or not needed; give the paths to remove.

    To give a file another name takes no time; to remove it may: a disk is told of each block that is free. Raises
    OSError.
    """
    hidden = []
    for stem in stems:
        aside = os.path.join(os.path.dirname(stem), TEMP_PREFIX + os.urandom(8).hex().encode())
        # Without its index a pack is invisible; without its pack an index would vouch for nothing.
        for end in (b".idx", b".pack", *BESIDES):
            path = aside + _HIDDEN_ENDS.get(end, end)
            try:
                os.rename(stem + end, path)
            except FileNotFoundError:
                continue
            hidden.append(path)
            if end == b".idx":
                reach("pack-hidden")
    return hidden


def remove_hidden(pack_dir: bytes, hidden: Iterable[bytes]) -> None:
    """Remove what hide_packs() has hidden; raises OSError."""
    for path in hidden:
        os.unlink(path)
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
