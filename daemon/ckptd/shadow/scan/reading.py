"""Reading one file or link of a worktree while others may write to it."""

import errno
import os
import stat
from collections.abc import Callable
from typing import Final, NamedTuple

from ckptd.errors import from_os_error
from ckptd.shadow.objects.blob import CHUNK_BYTES, file_chunks, hash_file
from ckptd.shadow.objects.pack import ObjectSink
from ckptd.shadow.scan.entry import is_young, pack_entry, signature
from ckptd.shadow.scan.exclusion import SPECIAL, UNREADABLE, UNSTABLE

__all__ = ["STREAM_ABOVE_BYTES", "ReadResult", "read_entry", "read_file", "read_link", "refuse_shortage"]

_TRIES: Final = 3
STREAM_ABOVE_BYTES: Final = 8 * CHUNK_BYTES
"""A file above this is read piece by piece; ``beat`` is told of each."""
# Up to here a write is over before a reader can get between its beginning and its end (measured: 0 of 226).
_TORN_ABOVE_BYTES: Final = CHUNK_BYTES
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ReadResult(NamedTuple):
    """What came of reading a path.

    ``oid`` None: nothing was read. ``gone``: the path no longer exists, or is something else now. ``problem`` is
    an exclusion's reason; with an oid it is UNSTABLE, and the content is as last read.
    """

    oid: bytes | None
    sign: bytes
    gone: bool = False
    problem: str | None = None
    detail: str | None = None
    ctime_ns: int = 0


_SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def refuse_shortage(error: OSError, path: bytes) -> None:
    """Raise DomainError where it is this process that lacks something: no fault of the path's, and not of one path."""
    if error.errno in _SHORTAGES:
        raise from_os_error(error, "read", path) from error


def _whole_path(dir_fd: int, name: bytes) -> bytes:
    """Give the path of an entry for people, as far as the system tells it: a handle does not know its own name."""
    try:
        return os.path.join(os.readlink(b"/proc/self/fd/%d" % dir_fd), name)
    except OSError:
        return name


_GONE: Final = ReadResult(None, b"", gone=True)


def read_link(dir_fd: int, name: bytes, found: os.stat_result, sink: ObjectSink) -> ReadResult:
    """Store a link as the text it holds; it is never followed."""
    try:
        target = os.readlink(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return _GONE
    except OSError as error:
        # EINVAL: it is no link any more.
        if error.errno == errno.EINVAL:
            return ReadResult(None, b"", problem=UNSTABLE, detail="changed its type while it was read")
        return ReadResult(None, b"", problem=UNREADABLE, detail=error.strerror)
    return ReadResult(sink.add(b"blob", target), signature(found), ctime_ns=found.st_ctime_ns)


def read_entry(dir_fd: int, name: bytes, sink: ObjectSink, now_ns: int, margin_ns: int) -> bytes | ReadResult:
    """Store a regular file as read_file() does; give its entry, or the result where something was the matter.

    ``now_ns`` and ``margin_ns`` as is_young() has them.
    """
    small = _read_small(dir_fd, name, sink)
    if small is not None:
        oid, sign, ctime_ns = small
    else:
        result = read_file(dir_fd, name, sink, now_ns - margin_ns)
        if result.oid is None or result.problem is not None:
            return result
        oid, sign, ctime_ns = result.oid, result.sign, result.ctime_ns
    return pack_entry(oid, sign, racy=is_young(ctime_ns, now_ns, margin_ns))


def read_file(
    dir_fd: int,
    name: bytes,
    sink: ObjectSink,
    fresh_ns: int = 0,
    beat: Callable[[int], None] = lambda _bytes: None,
) -> ReadResult:
    """Store a regular file as it is between two equal looks at its stat data.

    A file that keeps changing is stored as last read and called unstable; the third try decides. A large one that
    has changed since ``fresh_ns`` (its ctime) is read twice: a write sets the time when it begins, not when it ends.
    ``beat`` is told of each piece of a large one, and what it raises goes through.
    """
    small = _read_small(dir_fd, name, sink)
    if small is not None:
        oid, sign, ctime_ns = small
        return ReadResult(oid, sign, ctime_ns=ctime_ns)
    result = _GONE
    for _ in range(_TRIES):
        result = _read_once(dir_fd, name, sink, fresh_ns, beat)
        if result.problem != UNSTABLE:
            break
    return result


def _read_small(dir_fd: int, name: bytes, sink: ObjectSink) -> tuple[bytes, bytes, int] | None:
    """Store a file as nearly every one is: regular, small, and at rest. None for any other, which is to be read anew.

    Gives its id, its signature and its ctime. The same as _read_once() does, in one piece: of a hundred thousand files
    every call tells.
    """
    try:
        fd = os.open(name, _FLAGS, dir_fd=dir_fd)
    except OSError:
        return None
    try:
        before = os.fstat(fd)
        size = before.st_size
        if size > _TORN_ABOVE_BYTES or not stat.S_ISREG(before.st_mode):
            return None
        data = os.read(fd, size + 1)
        if len(data) != size:
            return None
        oid = sink.add(b"blob", data)
        after = os.fstat(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    sign = signature(after)
    return (oid, sign, after.st_ctime_ns) if sign == signature(before) else None


def _read_once(dir_fd: int, name: bytes, sink: ObjectSink, fresh_ns: int, beat: Callable[[int], None]) -> ReadResult:
    try:
        # O_NONBLOCK: should a FIFO have taken the name, the open must not wait for a writer.
        fd = os.open(name, _FLAGS, dir_fd=dir_fd)
    except FileNotFoundError:
        return _GONE
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return ReadResult(None, b"", problem=UNSTABLE, detail="changed its type while it was read")
        refuse_shortage(error, _whole_path(dir_fd, name))
        return ReadResult(None, b"", problem=UNREADABLE, detail=error.strerror)
    try:
        return _read_open(fd, sink, fresh_ns, beat)
    except OSError as error:
        return ReadResult(None, b"", problem=UNREADABLE, detail=error.strerror)
    finally:
        os.close(fd)


def _read_open(fd: int, sink: ObjectSink, fresh_ns: int, beat: Callable[[int], None]) -> ReadResult:
    before = os.fstat(fd)
    if stat.S_ISDIR(before.st_mode):
        return ReadResult(None, b"", problem=UNSTABLE, detail="changed its type while it was read")
    if not stat.S_ISREG(before.st_mode):
        return ReadResult(None, b"", problem=SPECIAL)
    whole = True
    if before.st_size > STREAM_ABOVE_BYTES:
        oid = sink.add_stream(before.st_size, file_chunks(fd, before.st_size, beat))
    else:
        # One byte more than the size tells a file that grew from one that did not.
        data = _read_all(fd, before.st_size + 1)
        whole = len(data) == before.st_size
        oid = sink.add(b"blob", data)
    if before.st_size > _TORN_ABOVE_BYTES and before.st_ctime_ns >= fresh_ns:
        whole = whole and hash_file(fd, before.st_size, beat) == oid
    after = os.fstat(fd)
    sign = signature(after)
    if oid is not None and whole and sign == signature(before):
        return ReadResult(oid, sign, ctime_ns=after.st_ctime_ns)
    return ReadResult(oid, sign, problem=UNSTABLE, detail="changed while it was read", ctime_ns=after.st_ctime_ns)


def _read_all(fd: int, limit: int) -> bytes:
    data = os.read(fd, limit)
    if len(data) == limit - 1 or not data:
        return data
    pieces = [data]
    total = len(data)
    while total < limit and (piece := os.read(fd, limit - total)):
        pieces.append(piece)
        total += len(piece)
    return b"".join(pieces)
