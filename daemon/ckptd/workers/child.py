"""The worker process: reads what it is told to, packs it, and ends with the pipe that it is told by."""

import errno
import gc
import os
import signal
from collections.abc import Iterator
from typing import Any, Final

from ckpt_protocol.version import BUILD
from ckptd.errors import DomainError
from ckptd.shadow.objects.pack import PackWriter
from ckptd.shadow.objects.packindex import PackIndex
from ckptd.shadow.scan.entry import KIND, KINDS, OID
from ckptd.shadow.scan.exclusion import UNREADABLE, UNSTABLE
from ckptd.shadow.scan.reading import ReadResult, read_entry
from ckptd.shadow.trees.tree import join_tree
from ckptd.workers.message import Inbox, Plain, frame

__all__ = ["main"]

_DIR_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_BYTES: Final = 1 << 16
_IN, _OUT = 0, 1


def main() -> int:
    """Serve until the pipe ends; return the exit code."""
    # Whoever stops the daemon may signal all of its group: it decides when this ends, by closing the pipe.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Nothing here makes cycles, and there is much of it.
    gc.disable()
    messages = _messages()
    worker: _Worker | None = None
    try:
        build, *terms = next(messages, (None,))
        if build != BUILD:
            return 1
        worker = _Worker(*terms)
        _send("ready", worker.stem)
        for verb, *values in messages:
            _send(*(worker.settle() if verb == "settle" else worker.read(*values)))
    except DomainError as error:
        _send("failed", error.kind, error.message, error.hint, error.paths)
    except BrokenPipeError:
        return 0
    finally:
        if worker is not None:
            worker.close()
    return 0


def _messages() -> Iterator[Any]:
    inbox = Inbox()
    while data := os.read(_IN, _READ_BYTES):
        yield from inbox.feed(data)


def _send(*values: Plain) -> None:
    left = memoryview(frame(*values))
    while left:
        left = left[os.write(_OUT, left) :]


class _Worker:
    def __init__(self, worktree: bytes, pack_dir: bytes, index_paths: list[bytes], suspects: list[bytes]) -> None:
        self._root_fd = os.open(worktree, _DIR_FLAGS)
        self._indexes = [index for path in index_paths if (index := _index(path)) is not None]
        self._suspects = frozenset(suspects)
        self._pack = PackWriter(pack_dir, self._exists)
        self._settled: set[bytes] = set()

    @property
    def stem(self) -> bytes:
        """Where the unfinished pack lies, without its ending."""
        return self._pack.stem

    def settle(self) -> tuple[Any, ...]:
        """Make the pack durable; tell which objects have become so, and where the next one will lie."""
        self._pack.settle()
        oids = self._pack.oids
        fresh, self._settled = oids - self._settled, oids
        return "settled", list(fresh), self._pack.stem

    def read(
        self, directory: bytes, identity: list[int], now_ns: int, margin_ns: int, is_all: bool, names: list[bytes]
    ) -> tuple[Any, ...]:
        """Store some files of a directory, and its tree where they are all that it holds."""
        try:
            fd = _walk(self._root_fd, directory, identity)
        except FileNotFoundError:
            return "done", [tuple(ReadResult(None, b"", gone=True))] * len(names)
        except OSError as error:
            return "done", [tuple(_unopened(error))] * len(names)
        results: list[Any] = []
        try:
            for name in names:
                result = read_entry(fd, name, self._pack, now_ns, margin_ns)
                results.append(result if isinstance(result, bytes) else tuple(result))
        finally:
            os.close(fd)
        if is_all:
            self._add_tree(names, results)
        return "done", results

    def _add_tree(self, names: list[bytes], results: list[Any]) -> None:
        """Store the tree that the scan is going to make of the same, and need not write then."""
        if all(isinstance(entry, bytes) for entry in results):
            files = [(name, KINDS[entry[KIND]].text, entry[OID]) for name, entry in zip(names, results, strict=True)]
            self._pack.add(b"tree", join_tree(files, ()))

    def close(self) -> None:
        """Leave nothing unfinished behind."""
        self._pack.abort()

    def _exists(self, oid: bytes) -> bool:
        # In a first save there is none to look into.
        if not self._indexes or oid in self._suspects:
            return False
        return any(index.find(oid) is not None for index in self._indexes)


def _index(path: bytes) -> PackIndex | None:
    try:
        return PackIndex(path)
    except DomainError:
        return None


def _walk(root_fd: int, directory: bytes, identity: list[int]) -> int:
    """Open a directory step by step, following no link, and make sure that it is the one that was listed."""
    fd = os.dup(root_fd)
    try:
        for name in directory.split(b"/") if directory else ():
            below = os.open(name, _DIR_FLAGS, dir_fd=fd)
            os.close(fd)
            fd = below
        found = os.fstat(fd)
        if [found.st_dev, found.st_ino] != identity:
            raise OSError(errno.ELOOP, "moved")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _unopened(error: OSError) -> ReadResult:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return ReadResult(None, b"", problem=UNSTABLE, detail="its directory was moved while it was read")
    return ReadResult(None, b"", problem=UNREADABLE, detail=error.strerror)
