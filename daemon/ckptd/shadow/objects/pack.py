"""Writing packs: a save's objects go, undeltified, into one pack that is durable before anything refers to it."""

import hashlib
import os
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain
from typing import BinaryIO

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.blob import CHUNK_BYTES, hash_object
from ckptd.shadow.objects.deflate import LEVEL, MOST_PLAIN_BYTES, deflate, wrap
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.indexform import index_pieces, note
from ckptd.shadow.objects.pieces import Pieces, Portion, at_once, beside, drained, emptying
from ckptd.shadow.objects.syncing import Unsynced, sync_folders, sync_together

__all__ = ["KIND_NUMBERS", "TEMP_ENDS", "TEMP_PREFIX", "HashOnly", "ObjectSink", "PackWriter"]

KIND_NUMBERS = {b"commit": 1, b"tree": 2, b"blob": 3, b"tag": 4}

TEMP_PREFIX = b"tmp_ckpt_"
"""Begins the names of packs in the making; what a killed daemon left is found by it."""

TEMP_ENDS = (b".pack", b".index")
"""End the names of a pack in the making and of its index: whatever ends with ``.idx`` is read by git."""

_HEADER_BYTES = 12
_REF_DELTA = 7
_SYNC_EVERY_BYTES = 64 * 1024 * 1024
_SYNC_OFTEN_BYTES = 4 * 1024 * 1024
_INDEX_PIECE_BYTES = 16 * 1024


class ObjectSink(ABC):
    """What takes the objects of a scan: base of the pack writer and of the one that only hashes."""

    @abstractmethod
    def add(self, kind: bytes, data: bytes) -> bytes:
        """Take an object; return its 20-byte id."""

    @abstractmethod
    def add_stream(self, size: int, chunks: Iterable[bytes]) -> bytes | None:
        """Take a blob of ``size`` bytes piece by piece; None, and nothing taken, where the pieces are not that many.

        An OSError that the pieces raise goes through, and nothing is taken: it is the file's fault, not the sink's.
        """


class HashOnly(ObjectSink):
    """Gives ids and keeps nothing: for looking at a worktree without writing anywhere."""

    def add(self, kind: bytes, data: bytes) -> bytes:
        """Hash an object."""
        return hash_object(kind, data)

    def add_stream(self, size: int, chunks: Iterable[bytes]) -> bytes | None:
        """Hash a blob piece by piece."""
        digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        read = 0
        for chunk in chunks:
            digest.update(chunk)
            read += len(chunk)
        return digest.digest() if read == size else None


class _SourceError(Exception):
    def __init__(self, cause: OSError) -> None:
        super().__init__(cause)
        self.cause = cause


def _marked(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Tell the errors of a file that is read from those of the pack that is written."""
    try:
        yield from chunks
    except OSError as error:
        raise _SourceError(error) from error


class PackWriter(ObjectSink):
    """Collects objects into ``pack_dir``; nothing can be seen by readers before settle(), finish() or give_name().

    ``exists`` tells whether the store has an object already, which is then not written again. ``beat`` is called
    between the pieces of what takes long; what it raises goes through. Of what add() is given up to ``plain_bytes`` of
    small objects are not deflated, but stored as they are: whoever waits is waiting for that.
    """

    def __init__(
        self,
        pack_dir: bytes,
        exists: Callable[[bytes], bool],
        beat: Callable[[], None] = lambda: None,
        *,
        plain_bytes: int = 0,
    ) -> None:
        self._dir = pack_dir
        self._exists = exists
        self._beat = beat
        self._plain_bytes = plain_bytes
        self._known: set[bytes] = set()
        self._failure: DomainError | None = None
        self.pack_count = 0
        """How many packs have become visible."""
        self._begin()

    def _begin(self) -> None:
        self._file: BinaryIO | None = None
        self._index_file: BinaryIO | None = None
        self._name = b""
        self.stem = os.path.join(self._dir, TEMP_PREFIX + os.urandom(8).hex().encode())
        """Where the unfinished pack and index lie, without their endings."""
        self._path, self._index_temp = (self.stem + end for end in TEMP_ENDS)
        self._offset = _HEADER_BYTES
        self._synced = _HEADER_BYTES
        self._written: list[bytes] = []

    @property
    def object_count(self) -> int:
        """How many objects have been written so far."""
        return len(self._known)

    @property
    def oids(self) -> set[bytes]:
        """The ids of the objects that have been written so far."""
        return set(self._known)

    def add(self, kind: bytes, data: bytes) -> bytes:
        """Write an object unless the store or this pack has it; raises DomainError where the disk refuses."""
        oid = hash_object(kind, data)
        if oid not in self._known and not self._exists(oid):
            self._append(oid, _entry_header(KIND_NUMBERS[kind], len(data)) + self._packed(data))
        return oid

    def _packed(self, data: bytes) -> bytes:
        if len(data) > min(self._plain_bytes, MOST_PLAIN_BYTES):
            return deflate(data)
        self._plain_bytes -= len(data)
        return wrap(data)

    def has(self, oid: bytes) -> bool:
        """Tell whether an object has been written here."""
        return oid in self._known

    def adding(self, oid: bytes, chunks: Iterable[bytes]) -> Pieces[None]:
        """Copy an entry of another pack as it is, in pieces; what the chunks raise goes through.

        Now and then it is awaited that the disk has what there is: else all would have to be written at the end, and
        whoever has to wait for the disk by then would wait for all of it.
        """
        if oid in self._known:
            return
        file, start, crc, length = self._open(), self._offset, 0, 0
        try:
            for chunk in chunks:
                crc = zlib.crc32(chunk, crc)
                length += file.write(chunk)
                if start + length - self._synced >= _SYNC_OFTEN_BYTES:
                    file.flush()
                    yield from beside(partial(os.fdatasync, file.fileno()))
                    self._synced = start + length
                if len(chunk) == CHUNK_BYTES:
                    yield False
        except OSError as error:
            raise self._broken(error) from error
        except BaseException:
            self._cut(file, start)
            raise
        self._note(oid, crc, length)

    def adding_delta(self, oid: bytes, base: bytes, size: int, chunks: Iterable[bytes]) -> Pieces[None]:
        """Copy a delta of ``size`` bytes that applies to an object of this very pack, as adding() does."""
        return self.adding(oid, chain([_entry_header(_REF_DELTA, size) + base], chunks))

    def add_stream(self, size: int, chunks: Iterable[bytes]) -> bytes | None:
        """Write a blob piece by piece, in constant memory."""
        file = self._open()
        start = self._offset
        digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        packer = zlib.compressobj(LEVEL)
        header = _entry_header(KIND_NUMBERS[b"blob"], size)
        crc = zlib.crc32(header)
        length, read = len(header), 0
        try:
            file.write(header)
            for chunk in _marked(chunks):
                digest.update(chunk)
                read += len(chunk)
                packed = packer.compress(chunk)
                crc = zlib.crc32(packed, crc)
                length += file.write(packed)
                self._sync_early(file, self._offset + length)
            packed = packer.flush()
            crc = zlib.crc32(packed, crc)
            length += file.write(packed)
            oid = digest.digest()
            if read != size or oid in self._known or self._exists(oid):
                self._cut(file, start)
                return oid if read == size else None
        except _SourceError as error:
            self._cut(file, start)
            raise error.cause from None
        except OSError as error:
            raise self._broken(error) from error
        except BaseException:
            # Called off in the middle: what came before it is to be kept.
            self._cut(file, start)
            raise
        self._note(oid, crc, length)
        return oid

    def count_in(self, oids: Iterable[bytes]) -> None:
        """Count objects as written that somebody else has put into a pack of the same store, durably, for this one."""
        before = len(self._known)
        self._known.update(oids)
        self.pack_count += len(self._known) > before

    def settle(self) -> bytes | None:
        """Make what there is so far durable and visible; what comes goes into another pack. Otherwise as finish()."""
        name = self.finish()
        self._begin()
        return name

    def finish(self) -> bytes | None:
        """Make the pack and its index durable and visible; return the pack's name, None for an empty one.

        Raises DomainError where the disk refuses; what had not been settled before is then forgotten.
        """
        return drained(self._finishing(at_once, nullcontext), self._beat)

    def finishing(self, naming: Callable[[], AbstractContextManager[None]] = nullcontext) -> Pieces[bytes | None]:
        """Do as finish() does, in pieces; ``naming`` is around the moment in which the pack becomes visible."""
        return self._finishing(beside, naming)

    def _finishing(
        self,
        waiting: Callable[[Callable[[], None]], Pieces[None]],
        naming: Callable[[], AbstractContextManager[None]],
    ) -> Pieces[bytes | None]:
        try:
            files = yield from self.writing_out()
            if not files:
                return None
            yield from waiting(partial(sync_together, files))
            reach("pack-synced")
            reach("index-synced")
            with naming():
                folder = self.give_name()
            yield from waiting(partial(sync_folders, [folder]))
        except DomainError:
            self.abort()
            raise
        reach("pack-durable")
        return self._name

    def write_out(self) -> list[Unsynced]:
        """Write the pack and its index to the end, under temporary names; give both, or nothing for an empty pack.

        When they are on disk, give_name() is to follow, and nothing else. Raises DomainError as finish() does.
        """
        return drained(self.writing_out(), self._beat)

    def writing_out(self) -> Pieces[list[Unsynced]]:
        """Do the same in pieces."""
        if self._failure is not None:
            failure = self._failure
            self.abort()
            raise failure
        if not self._written:
            self._drop()
            return []
        try:
            return (yield from self._write_out())
        except OSError as error:
            self.abort()
            raise from_os_error(error, "write a pack to", self._dir) from error

    def give_name(self) -> bytes:
        """Make pack and index visible, which are on disk; give the directory that holds their names, to be synced.

        Raises DomainError as finish() does.
        """
        try:
            # Readers find a pack by its index, so the index comes last.
            os.rename(self._path, os.path.join(self._dir, self._name + b".pack"))
            reach("pack-named")
            os.rename(self._index_temp, os.path.join(self._dir, self._name + b".idx"))
            reach("index-named")
        except OSError as error:
            self.abort()
            raise from_os_error(error, "write a pack to", self._dir) from error
        self._written = []
        self._close()
        self.pack_count += 1
        return self._dir

    def emptying(self) -> Pieces[None]:
        """Let go, in pieces, of what is known of the objects that have been settled; nothing is written afterwards."""
        return emptying(self._known)

    def abort(self) -> None:
        """Forget what was added and not settled. Raises nothing: on a full disk it must still free what it can."""
        self._known.difference_update([one[:20] for one in self._written])
        self._written = []
        self._failure = None
        self._drop()

    def _close(self) -> None:
        for file in (self._file, self._index_file):
            if file is not None:
                _close_quietly(file)
        self._file = self._index_file = None

    def _drop(self) -> None:
        begun = self._file is not None or self._index_file is not None
        self._close()
        if begun:
            _unlink_quietly(self._path)
            _unlink_quietly(self._index_temp)
        self._offset = self._synced = _HEADER_BYTES

    def _open(self) -> BinaryIO:
        if self._file is None:
            try:
                self._file = open(self._path, "xb+", buffering=1 << 18)  # noqa: SIM115 - closed by finish and abort
                self._file.write(b"\0" * _HEADER_BYTES)
            except OSError as error:
                raise from_os_error(error, "write a pack to", self._dir) from error
        return self._file

    def _append(self, oid: bytes, raw: bytes) -> None:
        file = self._file or self._open()
        try:
            file.write(raw)
        except OSError as error:
            raise self._broken(error) from error
        self._note(oid, zlib.crc32(raw), len(raw))

    def _sync_early(self, file: BinaryIO, offset: int) -> None:
        """Keep the disk busy: else all that is to be durable would wait for the end, and nothing would be heard."""
        if offset - self._synced >= _SYNC_EVERY_BYTES:
            file.flush()
            os.fdatasync(file.fileno())
            self._synced = offset
            self._beat()

    def _cut(self, file: BinaryIO, start: int) -> None:
        try:
            file.seek(start)
            file.truncate()
        except OSError as error:
            # Seeking writes out what is buffered: a full disk shows here too, and is no fault of the file that is read.
            raise self._broken(error) from error

    def _broken(self, error: OSError) -> DomainError:
        """Half an entry may be in the file now: no pack can come of it."""
        self._failure = from_os_error(error, "write a pack to", self._dir)
        return self._failure

    def _note(self, oid: bytes, crc: int, length: int) -> None:
        self._written.append(note(oid, crc, self._offset))
        self._known.add(oid)
        self._offset += length

    def _write_out(self) -> Pieces[list[Unsynced]]:
        file = self._open()
        file.seek(0)
        file.write(struct.pack(">4sII", b"PACK", 2, len(self._written)))
        file.seek(0)
        digest = hashlib.sha1(usedforsecurity=False)
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            if len(chunk) == CHUNK_BYTES:
                yield False
        checksum = digest.digest()
        file.write(checksum)
        file.flush()
        reach("pack-written")
        os.fchmod(file.fileno(), 0o400)
        self._name = b"pack-" + checksum.hex().encode()
        index = self._index_file = open(self._index_temp, "xb")  # noqa: SIM115 - closed by give_name and abort
        portion = Portion(most_bytes=_INDEX_PIECE_BYTES)
        for piece in index_pieces(self._written, checksum):
            index.write(piece)
            # An empty one stands for work without a result.
            if portion.is_full(size=len(piece)) or not piece:
                yield False
        index.flush()
        os.fchmod(index.fileno(), 0o400)
        return [Unsynced(one.fileno(), "write a pack to", self._dir) for one in (file, index)]


def _entry_header(kind: int, size: int) -> bytes:
    first, size = kind << 4 | size & 0x0F, size >> 4
    header = bytearray()
    while size:
        header.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
    header.append(first)
    return bytes(header)


def _close_quietly(file: BinaryIO) -> None:
    try:
        file.close()
    except OSError:
        # Closing writes what is still buffered; it is not wanted any more.
        pass


def _unlink_quietly(path: bytes) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
