"""Small files that are either the old or the new in full, also after a power cut."""

import os
from typing import Final

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.failpoint import reach

__all__ = ["TEMP_PREFIX", "fsync_dir", "read_derived", "read_if_there", "replace_file"]

TEMP_PREFIX: Final = b".tmp-"
"""Begins the names of files in the making. With the dot, none is ever taken for a ref, by git or by us."""


def fsync_dir(path: bytes) -> None:
    """Make the names in a directory durable; raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: bytes, data: bytes, *, durable: bool = True) -> None:
    """Put a file in the place of another; raises DomainError, after which the old one is still there.

    ``durable`` false is for what can be derived again: whole or old, but after a power cut perhaps the old.
    """
    temp = os.path.join(os.path.dirname(path), TEMP_PREFIX + os.urandom(8).hex().encode())
    try:
        try:
            with open(temp, "xb") as file:
                file.write(data)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            reach("file-written", path)
            os.rename(temp, path)
        except OSError:
            if os.path.lexists(temp):
                os.unlink(temp)
            raise
        reach("file-named", path)
        if durable:
            fsync_dir(os.path.dirname(path))
    except OSError as error:
        raise from_os_error(error, "write", path) from error


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
