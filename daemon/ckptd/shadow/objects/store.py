"""Reading objects of a store: our own packs and loose objects directly, deltas through libgit2.

Everything that is read is hashed: an object is what its id says, or it is an error. A copy that turns out bad is
passed over for another, and is counted as missing from then on, so that the next save writes it again.
"""

import contextlib
import errno
import hashlib
import os
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, Protocol

import pygit2

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.blob import CHUNK_BYTES, hash_object
from ckptd.shadow.objects.pack import KIND_NUMBERS, PackWriter
from ckptd.shadow.objects.packindex import PackIndex
from ckptd.shadow.objects.stream import LARGE_BYTES, BrokenStreamError, StoredBlob, open_loose

__all__ = ["ObjectSource", "ObjectStore", "Suspects"]

_KINDS: Final = {number: kind for kind, number in KIND_NUMBERS.items()}
_MAX_OPEN_PACKS: Final = 32
_SETTLED_NS: Final = 2_000_000_000
_SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class ObjectSource(Protocol):
    """Other objects that can be read, but that are not the store's."""

    def __contains__(self, oid: bytes) -> bool: ...

    def read(self, oid: bytes, kind: bytes) -> bytes:
        """Give the content of an object."""
        ...

    def size(self, oid: bytes) -> int:
        """Give the size of a blob in bytes."""
        ...

    def chunks(self, oid: bytes) -> Iterator[bytes]:
        """Give the content of a blob piece by piece."""
        ...


class Suspects(set[bytes]):
    """The ids of objects that turned out missing or bad, shared by all that read one repository."""

    renewals = 0

    def renew(self) -> None:
        """Let everybody open the packs anew: what is remembered of them may no longer be on the disk."""
        self.renewals += 1


class ObjectStore:
    """The objects of one bare repository. Used by one thread at a time.

    ``suspects`` are the objects that turned out missing or bad. Stores of one repository share the set, so that what
    a reader stumbles over is written again by the next save. What is only in ``others`` can be read but is not in the
    store: it is written like anything new.
    """

    def __init__(self, git_dir: bytes, suspects: "Suspects | None" = None, others: ObjectSource | None = None) -> None:
        self._others = others
        self.git_dir: Final = git_dir
        self.pack_dir: Final = os.path.join(git_dir, b"objects", b"pack")
        self._indexes: dict[bytes, PackIndex] = {}
        self._sizes: dict[bytes, int] = {}
        self._files: dict[bytes, int] = {}
        self._listed_ns = -1
        self._odb: pygit2.Odb | None = None
        self.suspects: Final = Suspects() if suspects is None else suspects
        self._renewals = self.suspects.renewals

    def writer(self, beat: Callable[[], None] = lambda: None, *, plain_bytes: int = 0) -> PackWriter:
        """Begin a pack for new objects; ``beat`` and ``plain_bytes`` as the writer has them."""
        self.refresh()
        # In a store of ours nothing lies loose; to look for each new object all the same is a tenth of a first save.
        exists = self.__contains__ if _holds_loose(self.git_dir) else self._is_in_pack
        return PackWriter(self.pack_dir, exists, beat, plain_bytes=plain_bytes)

    def _is_in_pack(self, oid: bytes) -> bool:
        return self._is_sound(oid) if oid in self.suspects else self.is_packed(oid)

    def refresh(self) -> None:
        """Look again which packs there are, if the directory may have changed."""
        if self._renewals != self.suspects.renewals:
            self._renewals = self.suspects.renewals
            self._listed_ns = -1
            for name in list(self._indexes):
                self._drop(name)
        try:
            now_ns = time.time_ns()
            changed_ns = os.stat(self.pack_dir).st_mtime_ns
            if changed_ns == self._listed_ns:
                return
            found = set(os.listdir(self.pack_dir))
        except OSError as error:
            raise from_os_error(error, "list the packs in", self.pack_dir) from error
        self._listed_ns = -1
        # An index whose pack is gone would vouch for objects that nobody has.
        names = {
            name for name in found if name.endswith(b".idx") and name[:5] == b"pack-" and name[:-4] + b".pack" in found
        }
        for name in self._indexes.keys() - names:
            self._drop(name)
            # It may have that pack open.
            self._odb = None
        loaded = [self._load(name) for name in sorted(names - self._indexes.keys())]
        # A directory that changed just now can change again within the same tick of its clock; and an index that
        # could not be read may be readable the next time.
        if all(loaded) and changed_ns < now_ns - _SETTLED_NS:
            self._listed_ns = changed_ns

    @property
    def index_paths(self) -> list[bytes]:
        """The paths of the indexes of all packs that are whole, as far as is known."""
        return [index.path for index in self._indexes.values()]

    @property
    def pack_count(self) -> int:
        """How many packs there are, as far as is known."""
        return len(self._indexes)

    @property
    def pack_sizes(self) -> dict[bytes, int]:
        """The bytes of each pack, by its path without an end, as far as is known."""
        return {index.path[: -len(b".idx")]: self._sizes[name] for name, index in self._indexes.items()}

    def objects_in(self, stems: Collection[bytes]) -> int:
        """How many objects some packs have together, each given by its path without an end."""
        return sum(self._indexes[os.path.basename(stem) + b".idx"].count for stem in stems)

    @property
    def object_count(self) -> int:
        """How many objects the packs have together, as far as is known."""
        return sum(index.count for index in self._indexes.values())

    def fingerprint(self) -> bytes:
        """Give bytes that change when a pack comes or goes: a cheap check of what the model rests on."""
        self.refresh()
        return hashlib.sha1(b"\0".join(sorted(self._indexes)), usedforsecurity=False).digest()

    def __contains__(self, oid: bytes) -> bool:
        if oid in self.suspects:
            return self._is_sound(oid)
        return self.has_copy(oid)

    def _is_sound(self, oid: bytes) -> bool:
        """Look at a suspect again: what could not be read once may only have been out of reach for a moment."""
        if not any(self._find(oid, kind) is not None for kind in KIND_NUMBERS):
            return False
        self.suspects.discard(oid)
        return True

    def known(self) -> Callable[[bytes], bool]:
        """Give what tells for many objects what ``in`` tells for one: each of them would be looked for in each pack."""
        packed = frozenset().union(*(index.oids() for index in self._indexes.values()))
        return lambda oid: (oid in packed and oid not in self.suspects) or oid in self

    def distrust(self, oid: bytes) -> None:
        """Count an object as missing until it is written again."""
        self.suspects.add(oid)

    def trust(self, oids: set[bytes]) -> None:
        """Count objects that have just been written as there."""
        self.suspects.difference_update(oids)

    def can_read(self, oid: bytes) -> bool:
        """Tell whether an object is in the store or elsewhere."""
        return oid in self or (self._others is not None and oid in self._others)

    def read(self, oid: bytes, kind: bytes) -> bytes:
        """Give the content of an object, wherever it is; errors as read_own() has them."""
        if self._others is not None and oid not in self and oid in self._others:
            return self._others.read(oid, kind)
        return self.read_own(oid, kind)

    def read_blob(self, oid: bytes) -> bytes:
        """Give the content of a blob, as read()."""
        return self.read(oid, b"blob")

    def read_own(self, oid: bytes, kind: bytes) -> bytes:
        """Give the content of an object of the store itself.

        Raises DomainError: ``object_missing``, or ``store_damaged`` where its bytes do not hash to its id or it
        is of another kind.
        """
        data = self._find(oid, kind)
        if data is None:
            # Packs come and go beside a reader: what is not in those known may be in one that is new.
            self.refresh()
            data = self._find(oid, kind)
        if data is None:
            self.distrust(oid)
            raise _lost(oid, found=any(index.find(oid) is not None for index in self._indexes.values()))
        return data

    def size(self, oid: bytes) -> int:
        """Give the size of a blob in bytes, wherever it is, without reading it; raises ``object_missing``."""
        if self._others is not None and oid not in self and oid in self._others:
            return self._others.size(oid)
        plain = self._plain_size(oid)
        if plain is not None:
            return plain
        for copy in self._copies(oid):
            copy.close()
            return copy.size
        found = self._size_by_libgit2(oid)
        # What is found nowhere is looked for in packs that have come meanwhile, and told of as ever.
        return found if found is not None else len(self.read_own(oid, b"blob"))

    def has_copy(self, oid: bytes) -> bool:
        """Tell whether there is anything under an object's id, sound or not."""
        return any(index.find(oid) is not None for index in self._indexes.values()) or self._is_loose(oid)

    def read_any(self, oid: bytes) -> tuple[bytes, bytes]:
        """Give kind and content of an object of the store itself, whatever it is; errors as read_own() has them."""
        for kind in KIND_NUMBERS:
            data = self._find(oid, kind)
            if data is not None:
                return kind, data
        return b"blob", self.read_own(oid, b"blob")

    def packed_bytes(self) -> int:
        """Give the bytes of all packs, as far as is known."""
        return sum(self._sizes.values())

    def is_packed(self, oid: bytes) -> bool:
        """Tell whether a pack has an object."""
        return any(index.find(oid) is not None for index in self._indexes.values())

    def is_large(self, oid: bytes) -> bool:
        """Tell whether an object is a blob that is streamed."""
        for copy in self._copies(oid):
            copy.close()
            return copy.size > LARGE_BYTES
        return False

    def commits(self, loose: Iterable[bytes] = ()) -> Iterator[bytes]:
        """Give the ids of all commits in packs, and of those among the ``loose`` objects; a look at each object."""
        self.refresh()
        packed = (oid for index in self._indexes.values() for oid, _, _ in index.entries())
        for oid in dict.fromkeys([*packed, *loose]):
            if self._header_by_libgit2(oid)[0] == b"commit":
                yield oid

    def is_readable(self, oid: bytes, kind: bytes) -> bool:
        """Tell whether the store itself has an object of this kind, whole; nothing is counted as missing by it."""
        return self._find(oid, kind) is not None

    def chunks(self, oid: bytes) -> Iterator[bytes]:
        """Give a blob's content piece by piece, wherever it is; errors as read_own() has them.

        Nothing comes of a blob of up to LARGE_BYTES before all of it is known to be right. Of a larger one the
        last piece does not: a reader that was given all of it was given the right thing.
        """
        if self._others is not None and oid not in self and oid in self._others:
            yield from self._others.chunks(oid)
        elif self.size(oid) > LARGE_BYTES:
            yield from self._stream(oid)
        else:
            data = memoryview(self.read_own(oid, b"blob"))
            for at in range(0, len(data), CHUNK_BYTES):
                yield bytes(data[at : at + CHUNK_BYTES])

    def whole(self, oid: bytes, most_bytes: int) -> bytes | None:
        """Give a blob of up to ``most_bytes`` in one piece, None for a larger one; errors as chunks() has them."""
        for index in self._indexes.values():
            offset = index.find(oid)
            if offset is not None:
                data = self._read_packed(index, offset, oid, b"blob", most_bytes)
                if data is not None and hash_object(b"blob", data) == oid:
                    return data
                break
        # Large, in deltas, elsewhere, or bad: the long way tells which.
        return b"".join(self.chunks(oid)) if self.size(oid) <= most_bytes else None

    def check(self, oid: bytes) -> None:
        """Make sure that a blob of the store itself can be read and is right; errors as read_own() has them."""
        if self.size(oid) > LARGE_BYTES:
            for _ in self._stream(oid):
                pass
        else:
            self.read_own(oid, b"blob")

    def let_go(self) -> None:
        """Close all packs: one that is gone takes its space on the disk for as long as anybody has it open."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
        self._odb = None
        with contextlib.suppress(DomainError):
            self.refresh()
        self.rest()

    def rest(self) -> None:
        """Take as little memory as can be until something is read or looked for again."""
        for index in self._indexes.values():
            index.rest()

    def close(self) -> None:
        """Close all files."""
        for name in list(self._indexes):
            self._drop(name)
        self._odb = None

    def _find(self, oid: bytes, kind: bytes) -> bytes | None:
        for index in list(self._indexes.values()):
            offset = index.find(oid)
            if offset is not None:
                data = self._read_packed(index, offset, oid, kind)
                if data is not None and hash_object(kind, data) == oid:
                    return data
        return self._read_loose(oid, kind) if self._is_loose(oid) else None

    def _stream(self, oid: bytes) -> Iterator[bytes]:
        copies = list(self._copies(oid))
        try:
            # What has been given cannot be taken back: where there is a choice, the copy is proved before it is used.
            good = copies if len(copies) == 1 else [copy for copy in copies if _is_right(copy, oid)][:1]
            if good:
                yield from _proved(good[0], oid)
                return
        except BrokenStreamError:
            self.distrust(oid)
            raise _lost(oid, found=True) from None
        except OSError as error:
            raise from_os_error(error, "read an object of", self.git_dir) from error
        finally:
            for copy in copies:
                copy.close()
        # In deltas, which only libgit2 reads, and only as a whole; or gone.
        data = memoryview(self.read_own(oid, b"blob"))
        for at in range(0, len(data), CHUNK_BYTES):
            yield bytes(data[at : at + CHUNK_BYTES])

    def _copies(self, oid: bytes) -> Iterator[StoredBlob]:
        """Open the copies of a blob that are not made of deltas; whoever takes one closes it."""
        for index in list(self._indexes.values()):
            offset = index.find(oid)
            copy = self._packed_copy(index, offset) if offset is not None else None
            if copy is not None:
                yield copy
        path = self._loose_path(oid)
        try:
            copy = open_loose(path, b"blob")
        except OSError as error:
            _refuse_shortage(error, path)
            return
        if copy is not None:
            yield copy

    def _plain_size(self, oid: bytes) -> int | None:
        """Give the size of a blob that lies in a pack as it is: nearly every one does."""
        for index in self._indexes.values():
            offset = index.find(oid)
            if offset is None:
                continue
            try:
                number, size, _ = _parse_header(os.pread(self._pack_fd(index.pack_path), 32, offset))
            except (OSError, IndexError, OverflowError):
                return None
            return size if number == KIND_NUMBERS[b"blob"] else None
        return None

    def _packed_copy(self, index: PackIndex, offset: int) -> StoredBlob | None:
        try:
            fd = self._pack_fd(index.pack_path)
            number, size, used = _parse_header(os.pread(fd, 32, offset))
            # A pack that is closed here, or merged away, stays readable to whoever has begun.
            return StoredBlob(os.dup(fd), offset + used, size) if number == KIND_NUMBERS[b"blob"] else None
        except OSError as error:
            _refuse_shortage(error, index.pack_path)
            return None
        except (IndexError, OverflowError):
            return None

    def _load(self, name: bytes) -> bool:
        path = os.path.join(self.pack_dir, name)
        try:
            index = PackIndex(path)
        except DomainError as error:
            if error.kind == "too_many_files":
                raise
            # One damaged index hurts the objects in its pack alone; they are missing now.
            return False
        size = _size_if_whole(index)
        if size is None:
            # Cut, or not the pack of this index: what it would vouch for has to be written again.
            index.close()
            return True
        self._indexes[name] = index
        self._sizes[name] = size
        return True

    def _drop(self, name: bytes) -> None:
        index = self._indexes.pop(name)
        del self._sizes[name]
        index.close()
        fd = self._files.pop(index.pack_path, None)
        if fd is not None:
            os.close(fd)

    def _pack_fd(self, path: bytes) -> int:
        fd = self._files.get(path)
        if fd is None:
            if len(self._files) >= _MAX_OPEN_PACKS:
                os.close(self._files.pop(next(iter(self._files))))
            fd = self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return fd

    def _read_packed(
        self, index: PackIndex, offset: int, oid: bytes, kind: bytes, most_bytes: int | None = None
    ) -> bytes | None:
        """Give a packed object's bytes; None where the pack cannot give them, or has more than ``most_bytes`` of it."""
        try:
            fd = self._pack_fd(index.pack_path)
            head = os.pread(fd, 4096, offset)
            number, size, used = _parse_header(head)
            if number not in _KINDS:
                return self._read_by_libgit2(oid, kind) if most_bytes is None else None
            if _KINDS[number] != kind or (most_bytes is not None and size > most_bytes):
                return None
            return _inflate(fd, offset + used, size, head[used:])
        except OSError as error:
            _refuse_shortage(error, index.pack_path)
            return None
        except (zlib.error, IndexError, OverflowError):
            return None

    def _loose_path(self, oid: bytes) -> bytes:
        text = oid.hex().encode()
        return os.path.join(self.git_dir, b"objects", text[:2], text[2:])

    def _is_loose(self, oid: bytes) -> bool:
        return os.path.exists(self._loose_path(oid))

    def _read_loose(self, oid: bytes, kind: bytes) -> bytes | None:
        """Give a loose object's bytes. libgit2 would look into the packs first, and stop at a bad copy there."""
        path = self._loose_path(oid)
        try:
            with open(path, "rb") as file:
                data = zlib.decompress(file.read()).partition(b"\0")[2]
        except OSError as error:
            _refuse_shortage(error, path)
            return None
        except zlib.error:
            return None
        return data if hash_object(kind, data) == oid else None

    def _read_by_libgit2(self, oid: bytes, kind: bytes) -> bytes | None:
        try:
            number, data = self._open_odb().read(pygit2.Oid(raw=oid))
        except (KeyError, ValueError, OSError, pygit2.GitError):
            # What it remembers of packs that were merged away is no use to it.
            self._odb = None
            return None
        return data if _KINDS.get(int(number)) == kind else None

    def _size_by_libgit2(self, oid: bytes) -> int | None:
        kind, size = self._header_by_libgit2(oid)
        return size if kind == b"blob" else None

    def _header_by_libgit2(self, oid: bytes) -> tuple[bytes | None, int]:
        try:
            number, size = self._open_odb().read_header(pygit2.Oid(raw=oid))
        except (KeyError, ValueError, OSError, pygit2.GitError):
            return None, 0
        return _KINDS.get(int(number)), int(size)

    def _open_odb(self) -> pygit2.Odb:
        if self._odb is None:
            # The objects alone: no configuration is read, and nobody asks who owns the directory.
            self._odb = pygit2.Odb(os.fsdecode(os.path.join(self.git_dir, b"objects")))
        return self._odb


def _holds_loose(git_dir: bytes) -> bool:
    """Tell whether a repository has folders of loose objects. Raises DomainError."""
    try:
        return any(len(name) == 2 for name in os.listdir(os.path.join(git_dir, b"objects")))
    except OSError as error:
        raise from_os_error(error, "list the objects in", git_dir) from error


def _refuse_shortage(error: OSError, path: bytes) -> None:
    """Raise DomainError where it is this process that lacks something: the object may be as good as ever."""
    if error.errno in _SHORTAGES:
        raise from_os_error(error, "read an object of", path) from error


def _size_if_whole(index: PackIndex) -> int | None:
    """Give the bytes of a pack that ends as its index says: with the checksum of all of it. None for any other."""
    try:
        with open(index.pack_path, "rb") as file:
            end = file.seek(-20, os.SEEK_END)
            return end + 20 if file.read() == index.pack_checksum else None
    except OSError as error:
        _refuse_shortage(error, index.pack_path)
        return None


def _parse_header(head: bytes) -> tuple[int, int, int]:
    """Give kind number, size, and length of a pack entry's header."""
    byte = head[0]
    kind, size, shift, used = byte >> 4 & 7, byte & 0x0F, 4, 1
    while byte & 0x80:
        byte = head[used]
        size |= (byte & 0x7F) << shift
        shift += 7
        used += 1
    return kind, size, used


def _inflate(fd: int, offset: int, size: int, first: bytes) -> bytes | None:
    unpacker = zlib.decompressobj()
    pieces = [unpacker.decompress(first, size + 1)]
    total = len(pieces[0])
    at = offset + len(first)
    while not unpacker.eof and total <= size:
        raw = unpacker.unconsumed_tail
        if not raw:
            raw = os.pread(fd, CHUNK_BYTES, at)
            at += len(raw)
            if not raw:
                return None
        piece = unpacker.decompress(raw, size + 1 - total)
        pieces.append(piece)
        total += len(piece)
    return b"".join(pieces) if total == size else None


def _proved(copy: StoredBlob, oid: bytes) -> Iterator[bytes]:
    """Give a copy's pieces; raises BrokenStreamError instead of the last one where it is not what its id says."""
    digest = hashlib.sha1(b"blob %d\0" % copy.size, usedforsecurity=False)
    held: bytes | None = None
    for piece in copy.pieces():
        if held is not None:
            yield held
        digest.update(piece)
        held = piece
    if digest.digest() != oid:
        raise BrokenStreamError
    if held is not None:
        yield held


def _is_right(copy: StoredBlob, oid: bytes) -> bool:
    try:
        for _ in _proved(copy, oid):
            pass
    except (BrokenStreamError, OSError):
        return False
    return True


def _lost(oid: bytes, *, found: bool) -> DomainError:
    if found:
        return DomainError(
            "store_damaged",
            f"object {oid.hex()} of the store is damaged",
            hint="nothing was changed; a save of files that are still as they were writes it again",
        )
    return DomainError(
        "object_missing",
        f"object {oid.hex()} is missing from the store",
        hint="nothing was changed; a save of files that are still as they were writes it again",
    )
