"""Checking all packs and loose objects of a store for damage."""

import hashlib
import os
import time
import zlib
from collections.abc import Generator, Iterator
from typing import Final

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.blob import CHUNK_BYTES
from ckptd.shadow.objects.pack import KIND_NUMBERS, TEMP_PREFIX
from ckptd.shadow.objects.packfile import Entry, PackFile, checksum_chunks
from ckptd.shadow.objects.store import ObjectStore

__all__ = ["PackChecks", "loose_objects"]

_NUMBERS: Final = frozenset(KIND_NUMBERS.values())
_PACKS: Final = b"objects/pack/"
_YOUNG_S: Final = 3600.0


def loose_objects(git_dir: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Give the id and the path of each loose object; raises DomainError where a folder cannot be listed."""
    top = os.path.join(git_dir, b"objects")
    try:
        folders = sorted(name for name in os.listdir(top) if len(name) == 2 and _is_hex(name))
        for folder in folders:
            for name in sorted(os.listdir(os.path.join(top, folder))):
                if len(name) == 38 and _is_hex(name):
                    yield bytes.fromhex((folder + name).decode("ascii")), os.path.join(top, folder, name)
    except OSError as error:
        raise from_os_error(error, "list the objects in", top) from error


def _is_hex(name: bytes) -> bool:
    return all(char in b"0123456789abcdef" for char in name)


class PackChecks:
    """Looks at every pack, and with ``read_data`` at every object in it and every loose one.

    ``flaws`` are (path below the store, what is wrong); ``notes`` what is left over; ``bytes`` have been read.
    """

    def __init__(self, folder: bytes, objects: ObjectStore, *, read_data: bool) -> None:
        self.flaws: Final[list[tuple[bytes, str]]] = []
        self.notes: Final[list[str]] = []
        self.count = 0
        self.bytes = 0
        self._folder = folder
        self._objects = objects
        self._read_data = read_data
        self._bad: set[bytes] = set()
        self._doubtful: dict[bytes, str] = {}
        self._open: PackFile | None = None

    def run(self) -> Iterator[int]:
        """Check, giving after each piece how many objects have been looked at."""
        done = 0
        for stem in self._stems():
            for _ in self._check(stem):
                done += 1
                yield done
        self._tell_left()
        if self._read_data:
            for oid, path in loose_objects(self._folder):
                self._check_loose(oid, path)
                done += 1
                yield done

    def has_blob(self, oid: bytes) -> bool:
        """Tell whether a blob is there, and as it was as far as has been looked."""
        if oid not in self._bad:
            return oid in self._objects
        try:
            self._objects.check(oid)
        except DomainError as error:
            if error.kind not in ("object_missing", "store_damaged"):
                raise
            return False
        return True

    def close(self) -> None:
        """Let go of all files."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _stems(self) -> Iterator[bytes]:
        """Give the packs that have an index, and name what is left over."""
        try:
            names = set(os.listdir(self._objects.pack_dir))
        except OSError as error:
            raise from_os_error(error, "list the packs in", self._objects.pack_dir) from error
        for name in sorted(names):
            stem, dot = os.path.splitext(name)
            if name.startswith((TEMP_PREFIX, b"tmp_", b".tmp-")):
                self._doubtful[name] = "left by a process that was killed"
            elif dot == b".idx" and name.startswith(b"pack-"):
                if stem + b".pack" in names:
                    yield stem
                else:
                    self._doubtful[name] = "an index without its pack: nothing is read through it"
            elif dot == b".pack" and stem + b".idx" not in names:
                self._doubtful[name] = "a pack without its index: nothing is read from it"

    def _tell_left(self) -> None:
        """Name what is left over; what is young may only be in the making, or on its way out."""
        for name, text in self._doubtful.items():
            try:
                changed_s = os.lstat(os.path.join(self._objects.pack_dir, name)).st_mtime
            except FileNotFoundError:
                continue
            if time.time() - changed_s > _YOUNG_S:
                self.notes.append(f"{os.fsdecode(_PACKS + name)}: {text}")

    def _check(self, stem: bytes) -> Iterator[None]:
        index = os.path.join(self._objects.pack_dir, stem + b".idx")
        self.count += 1
        try:
            if not checksum_chunks(index):
                self.flaws.append((_PACKS + stem + b".idx", "the index is not what its checksum was made of"))
            self._open = PackFile(index)
            yield from self._check_open(self._open)
        except FileNotFoundError:
            # Merged into another one meanwhile, which holds the same.
            self.count -= 1
        except OSError as error:
            raise from_os_error(error, "read the pack index", index) from error
        except DomainError as error:
            if error.kind == "too_many_files":
                raise
            if os.path.exists(index):
                self.flaws.append((_PACKS + stem + b".pack", error.message))
        finally:
            self.close()

    def _check_open(self, pack: PackFile) -> Iterator[None]:
        bad = 0
        for part in pack.parts():
            yield
            if self._read_data:
                bad += yield from self._check_data(pack, part)
        if bad:
            of_all = f"{bad} of its {pack.index.count} objects are damaged"
            self.flaws.append((_PACKS + os.path.basename(pack.path), of_all))
        elif self._read_data:
            for _ in pack.checksum():
                yield

    def _check_data(self, pack: PackFile, part: list[Entry]) -> Generator[None, None, int]:
        """Read objects; give how many of them are bad."""
        bad = 0
        for entry in part:
            if not self._is_sound(pack, entry):
                # Also what no walk will come to: it may lie below a lost tree, and be taken for known by a save.
                self._objects.distrust(entry.oid)
                self._bad.add(entry.oid)
                bad += 1
            self.bytes += entry.end - entry.start
            yield
        return bad

    def _is_sound(self, pack: PackFile, entry: Entry) -> bool:
        try:
            head = pack.head(entry)
            if head.number in _NUMBERS:
                return pack.hashes_to_its_id(entry, head)
            # A delta stands for what it gives together with its base, which may be bad where it is not.
            sound = pack.is_sound(entry)
        except DomainError:
            return False
        return sound and any(self._objects.is_readable(entry.oid, kind) for kind in KIND_NUMBERS)

    def _check_loose(self, oid: bytes, path: bytes) -> None:
        try:
            if _is_whole(oid, path):
                self.bytes += os.path.getsize(path)
                return
        except FileNotFoundError:
            return
        except OSError as error:
            raise from_os_error(error, "read the object", path) from error
        self._bad.add(oid)
        self.flaws.append((os.path.relpath(path, self._folder), "the object is not what its name says"))


def _is_whole(oid: bytes, path: bytes) -> bool:
    """Tell whether a loose object's file inflates to what its name says, in constant memory; raises OSError."""
    digest, unpacker = hashlib.sha1(usedforsecurity=False), zlib.decompressobj()
    try:
        with open(path, "rb") as file:
            while packed := unpacker.unconsumed_tail or file.read(CHUNK_BYTES):
                digest.update(unpacker.decompress(packed, CHUNK_BYTES))
    except zlib.error:
        return False
    return unpacker.eof and digest.digest() == oid
