"""The file ``packed-refs``: many refs in one file, read once and rewritten in one go."""

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import BinaryIO, Final, NamedTuple

from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.durable import StagedFile, read_if_there
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.pieces import Pieces, beside, drained
from ckptd.shadow.objects.syncing import fsync_dir, sync_folders, sync_together
from ckptd.shadow.objects.users import can_tell, user_of

__all__ = ["PackedRefs"]

_logger = logging.getLogger(__name__)

_LINE: Final = re.compile(rb"([0-9a-f]{40}) (refs/[^ \n]+)")
_PEELED: Final = re.compile(rb"\^[0-9a-f]{40}")
_HEADER: Final = b"# pack-refs with:"
_OURS: Final = b"# pack-refs with: peeled fully-peeled sorted \n"
_SETTLED_NS: Final = 2_000_000_000
_AT_ONCE: Final = 1_000

_Stamp = tuple[int, int, int]


class _Content(NamedTuple):
    """``peeled`` are the lines that follow a ref of an annotated tag; ``bad`` counts lines that are none.

    ``below`` are the refs by the prefixes that have been asked for, their names without them.
    """

    refs: dict[bytes, bytes]
    peeled: dict[bytes, bytes]
    header: bytes
    bad: int
    below: dict[bytes, dict[bytes, bytes]]


class _Known(NamedTuple):
    """What was read, and of which file; ``stamp`` None: it has to be read again."""

    stamp: _Stamp | None
    content: _Content


class PackedRefs:
    """Reads and rewrites one store's file; ids are 40 hex digits. Several threads may read, one of them writes."""

    def __init__(self, git_dir: bytes) -> None:
        self.path: Final = os.path.join(git_dir, b"packed-refs")
        self._known = _Known(None, _parse(b""))

    def refs(self) -> Mapping[bytes, bytes]:
        """Give all packed refs by their full names; the file is read again only if it may have changed."""
        return self._read().refs

    def below(self, prefix: bytes) -> Mapping[bytes, bytes]:
        """Give the packed refs below a prefix, named without it; a long history is gone through once for each."""
        content = self._read()
        found = content.below.get(prefix)
        if found is None:
            length = len(prefix)
            found = {name[length:]: oid for name, oid in content.refs.items() if name.startswith(prefix)}
            content.below[prefix] = found
        return found

    def bad_lines(self) -> int:
        """Count the lines that cannot be read."""
        return self._read().bad

    def rewrite(self, added: Mapping[bytes, bytes], removed: Collection[bytes] = ()) -> None:
        """Put refs in and take refs out, durably and all at once.

        Raises DomainError where the disk refuses, or where git is at work on the file; it is then as before.
        """
        before = _parse(read_if_there(self.path) or b"")
        after = _changed(before, added, removed)
        self._replace(b"".join(_lines(after)))
        # What we have written ourselves need not be read again: whoever replaces it gives it another inode.
        self._known = _Known(self._look(), after)

    def adding(self, added: Mapping[bytes, bytes], is_current: Callable[[], bool]) -> Pieces[bool]:
        """Put refs in, durably and all at once, in pieces; False: it has come to nothing, and nothing has changed.

        For others may change the file meanwhile, or what is to go into it: ``is_current`` is asked right before the new
        one gets the name. Raises DomainError as rewrite() does.
        """
        # Open to the end: so long no other file can have its inode.
        with contextlib.closing(_Old(self.path)) as old:
            after = _changed((yield from _parsing(old.lines())), added)
            staged = StagedFile(self.path, b"")
            try:
                lines = _lines(after)
                while part := b"".join(islice(lines, _AT_ONCE)):
                    staged.append(part)
                    yield False
                yield from beside(partial(sync_together, [staged.unsynced]))
                if not self._name(staged, lambda: old.is_still_there() and is_current()):
                    return False
            finally:
                staged.drop()
            self._known = _Known(self._look(), after)
        yield from beside(partial(sync_folders, [os.path.dirname(self.path)]))
        reach("refs-packed")
        return True

    def _name(self, staged: StagedFile, is_current: Callable[[], bool]) -> bool:
        """Put a file in the place of the old one while git keeps away, unless something has changed."""
        lock = self.path + b".lock"
        try:
            os.close(self._take(lock))
        except FileExistsError as error:
            raise _in_the_way(lock) from error
        except OSError as error:
            raise from_os_error(error, "write", self.path) from error
        try:
            if not is_current():
                return False
            staged.give_name()
        finally:
            with contextlib.suppress(OSError):
                os.unlink(lock)
        return True

    def _replace(self, data: bytes) -> None:
        lock = self.path + b".lock"
        try:
            fd = self._take(lock)
            try:
                with open(fd, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(lock, self.path)
            except OSError:
                os.unlink(lock)
                raise
            fsync_dir(os.path.dirname(self.path))
            reach("refs-packed")
        except FileExistsError as error:
            raise _in_the_way(lock) from error
        except OSError as error:
            raise from_os_error(error, "write", self.path) from error

    def _take(self, lock: bytes) -> int:
        """Take git's own lock: it never rewrites the file while this exists, nor do we while it does.

        One that was left by a git program that died is removed, once it is proved that none is at work here. Raises
        OSError.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(lock, flags, 0o600)
        except FileExistsError:
            if not can_tell() or user_of(os.path.dirname(lock)) is not None:
                raise
        _logger.warning("%s was left by a process that died; it is removed", to_text(lock))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(lock)
        return os.open(lock, flags, 0o600)

    def _read(self) -> _Content:
        now_ns = time.time_ns()
        stamp, known = self._look(), self._known
        if stamp is not None and stamp == known.stamp:
            return known.content
        content = _parse(read_if_there(self.path) or b"")
        # What changed just now can change again within the same tick of its clock.
        settled = stamp is not None and stamp[0] < now_ns - _SETTLED_NS
        self._known = _Known(stamp if settled else None, content)
        return content

    def _look(self) -> _Stamp | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise from_os_error(error, "read", self.path) from error
        return found.st_mtime_ns, found.st_ino, found.st_size


class _Old:
    """The file as it is now, if there is one. Nobody changes it in its place: it is replaced by another."""

    def __init__(self, path: bytes) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - closed by close()
        except FileNotFoundError:
            return
        except OSError as error:
            raise from_os_error(error, "read", path) from error

    def lines(self) -> Iterator[bytes]:
        """Give its lines without their ends; raises DomainError where it cannot be read."""
        try:
            for line in self._file or ():
                yield line.removesuffix(b"\n")
        except OSError as error:
            raise from_os_error(error, "read", self._path) from error

    def is_still_there(self) -> bool:
        """Tell whether it has not been replaced."""
        try:
            now = os.stat(self._path)
        except FileNotFoundError:
            return self._file is None
        except OSError as error:
            raise from_os_error(error, "read", self._path) from error
        return self._file is not None and os.path.samestat(now, os.fstat(self._file.fileno()))

    def close(self) -> None:
        """Let go of it."""
        if self._file is not None:
            self._file.close()


def _in_the_way(lock: bytes) -> DomainError:
    return DomainError(
        "io_error",
        f"{to_text(lock)} is in the way: a git program is at work in the store, or was killed there",
        hint="try again; if no git program runs in the store, remove it",
        paths=(lock,),
    )


def _changed(before: _Content, added: Mapping[bytes, bytes], removed: Collection[bytes] = ()) -> _Content:
    """Give what is in the file once refs were put in and taken out; what is no line of one is left out."""
    refs = {name: oid for name, oid in before.refs.items() if name not in removed} | dict(added)
    peeled = {name: line for name, line in before.peeled.items() if name in refs and name not in added}
    return _Content(dict(sorted(refs.items())), peeled, before.header or _OURS, 0, {})


def _lines(content: _Content) -> Iterator[bytes]:
    """Give the file line by line."""
    yield content.header
    for name, oid in content.refs.items():
        yield oid + b" " + name + b"\n"
        if name in content.peeled:
            yield content.peeled[name] + b"\n"


def _parse(data: bytes) -> _Content:
    return drained(_parsing(data.split(b"\n")))


def _parsing(lines: Iterable[bytes]) -> Pieces[_Content]:
    refs: dict[bytes, bytes] = {}
    peeled: dict[bytes, bytes] = {}
    header, last, bad = b"", b"", 0
    for number, line in enumerate(lines, 1):
        if not number % _AT_ONCE:
            yield False
        match = _LINE.fullmatch(line)
        if match is not None:
            last = match[2]
            refs[last] = match[1]
        elif line.startswith(b"^"):
            if last and _PEELED.fullmatch(line):
                peeled[last] = line
            else:
                bad += 1
        elif line.startswith(_HEADER):
            header = line + b"\n"
        elif line and not line.startswith(b"#"):
            last, bad = b"", bad + 1
    return _Content(refs, peeled, header, bad, {})
