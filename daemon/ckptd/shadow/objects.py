"""Reading objects of a store: our own packs directly, deltas and loose objects through libgit2.

Everything that is read is hashed: an object is what its id says, or it is an error. A copy that turns out bad is
passed over for another, and is counted as missing from then on, so that the next save writes it again.
"""

import hashlib
import os
import zlib
from collections.abc import Iterator
from typing import Final

import pygit2

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.blob import CHUNK_BYTES, hash_object
from ckptd.shadow.pack import KIND_NUMBERS, PackWriter
from ckptd.shadow.packindex import PackIndex

__all__ = ["ObjectStore"]

_KINDS: Final = {number: kind for kind, number in KIND_NUMBERS.items()}
_MAX_OPEN_PACKS: Final = 32


class ObjectStore:
    """The objects of one bare repository. Used by one thread at a time."""

    def __init__(self, git_dir: bytes) -> None:
        self._git_dir = git_dir
        self.pack_dir: Final = os.path.join(git_dir, b"objects", b"pack")
        self._indexes: dict[bytes, PackIndex] = {}
        self._files: dict[bytes, int] = {}
        self._listed_ns = -1
        self._repository: pygit2.Repository | None = None
        self._bad: set[bytes] = set()
        self.damaged_indexes: list[bytes] = []

    def writer(self) -> PackWriter:
        """Begin a pack for new objects."""
        self.refresh()
        return PackWriter(self.pack_dir, self.__contains__)

    def refresh(self) -> None:
        """Look again which packs there are, if the directory has changed."""
        try:
            changed_ns = os.stat(self.pack_dir).st_mtime_ns
            if changed_ns == self._listed_ns:
                return
            names = {name for name in os.listdir(self.pack_dir) if name.endswith(b".idx") and name[:5] == b"pack-"}
        except OSError as error:
            raise from_os_error(error, "list the packs in", self.pack_dir) from error
        self._listed_ns = changed_ns
        for name in self._indexes.keys() - names:
            self._drop(name)
        for name in sorted(names - self._indexes.keys()):
            self._load(name)

    def fingerprint(self) -> bytes:
        """Give bytes that change when a pack comes or goes: a cheap check of what the model rests on."""
        self.refresh()
        return hashlib.sha1(b"\0".join(sorted(self._indexes)), usedforsecurity=False).digest()

    def __contains__(self, oid: bytes) -> bool:
        if oid in self._bad:
            return False
        return any(index.find(oid) is not None for index in self._indexes.values()) or self._is_loose(oid)

    def distrust(self, oid: bytes) -> None:
        """Count an object as missing until it is written again."""
        self._bad.add(oid)

    def trust(self, oids: set[bytes]) -> None:
        """Count objects that have just been written as there."""
        self._bad -= oids

    @property
    def distrusted(self) -> frozenset[bytes]:
        """The objects that turned out missing or bad since the store was opened."""
        return frozenset(self._bad)

    def read(self, oid: bytes, kind: bytes) -> bytes:
        """Give the content of an object.

        Raises DomainError: ``object_missing``, or ``store_damaged`` where its bytes do not hash to its id or it
        is of another kind.
        """
        self.refresh()
        found = False
        for index in list(self._indexes.values()):
            offset = index.find(oid)
            if offset is not None:
                found = True
                data = self._read_packed(index, offset, oid, kind)
                if data is not None and hash_object(kind, data) == oid:
                    return data
        loose = self._read_elsewhere(oid, kind)
        if loose is not None:
            return loose
        self.distrust(oid)
        raise _lost(oid, found)

    def chunks(self, oid: bytes) -> Iterator[bytes]:
        """Give a blob's content; nothing comes before all of it is known to be right."""
        data = memoryview(self.read(oid, b"blob"))
        for at in range(0, len(data), CHUNK_BYTES):
            yield bytes(data[at : at + CHUNK_BYTES])

    def close(self) -> None:
        """Close all files."""
        for name in list(self._indexes):
            self._drop(name)
        self._repository = None

    def _load(self, name: bytes) -> None:
        path = os.path.join(self.pack_dir, name)
        try:
            index = PackIndex(path)
        except DomainError:
            # One damaged index hurts the objects in its pack alone; they are missing now.
            self.damaged_indexes.append(path)
            return
        self._indexes[name] = index

    def _drop(self, name: bytes) -> None:
        index = self._indexes.pop(name)
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

    def _read_packed(self, index: PackIndex, offset: int, oid: bytes, kind: bytes) -> bytes | None:
        """Give a packed object's bytes; None where the pack cannot give them."""
        try:
            fd = self._pack_fd(index.pack_path)
            head = os.pread(fd, 4096, offset)
            number, size, used = _parse_header(head)
            if number not in _KINDS:
                return self._read_by_libgit2(oid, kind)
            if _KINDS[number] != kind:
                return None
            return _inflate(fd, offset + used, size, head[used:])
        except (OSError, zlib.error, IndexError):
            return None

    def _is_loose(self, oid: bytes) -> bool:
        text = oid.hex().encode()
        return os.path.exists(os.path.join(self._git_dir, b"objects", text[:2], text[2:]))

    def _read_elsewhere(self, oid: bytes, kind: bytes) -> bytes | None:
        data = self._read_by_libgit2(oid, kind) if self._is_loose(oid) else None
        return data if data is not None and hash_object(kind, data) == oid else None

    def _read_by_libgit2(self, oid: bytes, kind: bytes) -> bytes | None:
        if self._repository is None:
            self._repository = pygit2.Repository(os.fsdecode(self._git_dir))
        try:
            number, data = self._repository.read(pygit2.Oid(raw=oid))
        except (KeyError, ValueError, OSError, pygit2.GitError):
            return None
        return data if _KINDS.get(int(number)) == kind else None


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


def _lost(oid: bytes, found: bool) -> DomainError:
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
