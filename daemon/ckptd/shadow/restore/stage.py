"""New content, finished under a temporary name before it takes its place; and which permissions it gets."""

import errno
import os
import re
import stat
import time
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from ckptd.shadow.restore.look import Ident, Refused
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import EXECUTABLE, LINK

__all__ = ["TEMPORARY", "Source", "Staged", "file_bits", "is_link_target", "is_unfinished", "stage", "temporary_name"]

TEMPORARY: Final = re.compile(rb"\.ckpt-[0-9a-f]{16}\.tmp")
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINK_BYTES: Final = 1 << 16
_UNFINISHED: Final = b"0"
_FINISHED: Final = b"f"

_DRAWN: Final = 256
_DIGITS: Final[list[bytes]] = []
if hasattr(os, "register_at_fork"):
    # Two processes must not come to have the same ones.
    os.register_at_fork(after_in_child=_DIGITS.clear)


class Source(Protocol):
    """Where content comes from."""

    def chunks(self, oid: bytes) -> Iterable[bytes]:
        """Give a blob's content in pieces, checked against its id.

        Raises DomainError ``object_missing`` or ``store_damaged``, at the last piece at the latest.
        """
        ...


class Staged(NamedTuple):
    """A finished new file or link: its temporary name, what it is, and its permission bits.

    ``took_s`` is how long it took the system to make the file, 0 for a link.
    """

    name: bytes
    ident: Ident
    bits: int
    took_s: float = 0.0


def temporary_name(first: bytes = _FINISHED) -> bytes:
    """Make a new name. Its first digit tells, after a crash, what may simply go from what must be looked at."""
    return b".ckpt-%s%s.tmp" % (first, _random_digits())


def _random_digits() -> bytes:
    try:
        return _DIGITS.pop()
    except IndexError:
        # Many at a time: there are thousands of names in a large restore.
        text = os.urandom(8 * _DRAWN).hex().encode()
        _DIGITS.extend([text[at + 1 : at + 16] for at in range(16, len(text), 16)])
        return text[1:16]


def is_unfinished(name: bytes) -> bool:
    """Tell whether a temporary name stands for content that was still being written: nobody's but ours."""
    return TEMPORARY.fullmatch(name) is not None and name[6:7] == _UNFINISHED


def file_bits(after: State, found: os.stat_result | None, umask: int) -> int:
    """Give the permission bits of a file: those recorded, else those it has on disk, else the usual ones.

    Without a record the owner's, group's and others' bits on disk stay (a private file stays private), the
    execute bits follow ``after``, and set-id bits go.
    """
    if after.perm is not None:
        return after.perm & 0o7777
    executable = after.mode == EXECUTABLE
    if found is None or not stat.S_ISREG(found.st_mode):
        return (0o755 if executable else 0o644) & ~umask
    bits = found.st_mode & 0o777
    if executable == bool(bits & stat.S_IXUSR):
        return bits
    return bits | stat.S_IXUSR | (bits & 0o044) >> 2 if executable else bits & ~0o111


def stage(dir_fd: int, source: Source, after: State, bits: int, *, replaces: bool = True) -> Staged:
    """Write the content of ``after`` under a temporary name; nothing is left where that fails.

    A file is readable to its owner alone until it is whole. Where it ``replaces`` something, that will come to have the
    temporary name, which is one of a finished file then; else it is nobody's but ours for as long as it is there.
    Raises DomainError from the source, Refused, OSError.
    """
    if after.mode == LINK:
        return _stage_link(dir_fd, source, after)
    digits = _random_digits()
    name = unfinished = b".ckpt-%s%s.tmp" % (_UNFINISHED, digits)
    begun_s = time.perf_counter()
    fd = os.open(unfinished, _CREATE, 0o600, dir_fd=dir_fd)
    took_s = time.perf_counter() - begun_s
    try:
        ident = _fill(fd, source.chunks(after.oid), bits)
        if replaces:
            name = b".ckpt-%s%s.tmp" % (_FINISHED, digits)
            os.rename(unfinished, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        os.unlink(unfinished, dir_fd=dir_fd)
        raise
    finally:
        os.close(fd)
    return Staged(name, ident, bits, took_s)


def is_link_target(text: bytes | bytearray) -> bool:
    """Tell whether a link can have this text as its target."""
    return bool(text) and b"\0" not in text and len(text) <= _MAX_LINK_BYTES


def _stage_link(dir_fd: int, source: Source, after: State) -> Staged:
    target = bytearray()
    for chunk in source.chunks(after.oid):
        target += chunk
        if len(target) > _MAX_LINK_BYTES:
            break
    if not is_link_target(target):
        raise Refused("bad_link", "the target of this link can't stand in a file system")
    name = temporary_name()
    os.symlink(bytes(target), name, dir_fd=dir_fd)
    return Staged(name, Ident.of(os.lstat(name, dir_fd=dir_fd)), 0o777)


def _fill(fd: int, chunks: Iterable[bytes], bits: int) -> Ident:
    for chunk in chunks:
        written = os.write(fd, chunk)
        if written < len(chunk):
            _write_all(fd, chunk[written:])
    _set_bits(fd, bits)
    return Ident.of(os.fstat(fd))


def _write_all(fd: int, chunk: bytes) -> None:
    left = memoryview(chunk)
    while left:
        left = left[os.write(fd, left) :]


def _set_bits(fd: int, bits: int) -> None:
    try:
        os.fchmod(fd, bits)
    except OSError as error:
        # The file is ours: a refusal means that this file system keeps no permissions of its own.
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
