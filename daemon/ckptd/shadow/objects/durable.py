"""Small files that are either the old or the new in full, also after a power cut."""

import contextlib
import os
from collections.abc import Generator, Iterable
from typing import BinaryIO, Final

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.syncing import Unsynced, sync_folders, sync_together

__all__ = ["TEMP_PREFIX", "StagedFile", "read_derived", "read_if_there", "replace_file", "replacing_derived"]

TEMP_PREFIX: Final = b".tmp-"
"""Begins the names of files in the making. With the dot, none is ever taken for a ref, by git or by us."""


class StagedFile:
    """A file that is going to have the name ``path``: written to the end under a temporary name, and not synced.

    Raises DomainError where the disk refuses; then there is nothing of it, and what has the name keeps it.
    """

    def __init__(self, path: bytes, data: bytes) -> None:
        self.path: Final = path
        self._temp = os.path.join(os.path.dirname(path), TEMP_PREFIX + os.urandom(8).hex().encode())
        self._file: BinaryIO | None = None
        try:
            self._file = open(self._temp, "xb")  # noqa: SIM115 - closed by give_name and drop
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            self.drop()
            raise from_os_error(error, "write", path) from error
        self.unsynced: Final = Unsynced(self._file.fileno(), "write", path)
        """What has to be on disk before it gets its name."""
        reach("file-written", path)

    def append(self, data: bytes) -> None:
        """Write more to the end. Raises DomainError as the constructor does."""
        if self._file is None:
            return
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            self.drop()
            raise from_os_error(error, "write", self.path) from error

    def give_name(self) -> bytes:
        """Let it take its place; give the directory that holds the name, to be synced. Raises DomainError."""
        try:
            os.rename(self._temp, self.path)
        except OSError as error:
            self.drop()
            raise from_os_error(error, "write", self.path) from error
        self._close()
        reach("file-named", self.path)
        return os.path.dirname(self.path)

    def drop(self) -> None:
        """Remove what has no name yet. Raises nothing; may be called again."""
        if self._file is not None:
            self._close()
            with contextlib.suppress(OSError):
                os.unlink(self._temp)

    def _close(self) -> None:
        if self._file is not None:
            # All of it has been written before.
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def replace_file(path: bytes, data: bytes, *, durable: bool = True) -> None:
    """Put a file in the place of another; raises DomainError, after which the old one is still there.

    ``durable`` false is for what can be derived again: whole or old, but after a power cut perhaps the old.
    """
    staged = StagedFile(path, data)
    try:
        if durable:
            sync_together([staged.unsynced])
        folder = staged.give_name()
        if durable:
            sync_folders([folder])
    finally:
        staged.drop()


def replacing_derived(path: bytes, pieces: Iterable[bytes]) -> Generator[None, None, None]:
    """Do as replace_file() does for what can be derived again, a piece at a time."""
    staged = StagedFile(path, b"")
    try:
        for piece in pieces:
            staged.append(piece)
            yield
        staged.give_name()
    finally:
        staged.drop()


def read_if_there(path: bytes) -> bytes | None:
    """Read a file whole; None where it does not exist. Raises DomainError where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise from_os_error(error, "read", path) from error


def read_derived(path: bytes) -> bytes | None:
    """Read a file that can be made again; None also where something else is in its place, or it cannot be read.

    Raises DomainError ``too_many_files``: that is no word about the file.
    """
    try:
        return read_if_there(path)
    except DomainError as error:
        if error.kind == "too_many_files":
            raise
        return None
