"""Where an export goes: a directory or a tar archive, which has its name when all of it is on disk.

Everything is written under a temporary name beside the destination, and nothing is written through a file object, for
what one still holds would be lost by a sync.
"""

import contextlib
import errno
import os
import shutil
import tarfile
from collections.abc import Callable
from typing import Final, Protocol

from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.syncing import fsync_dir
from ckptd.shadow.restore.sync import sync

__all__ = ["Destination", "Folder", "Tar", "destination"]

_TAR: Final = b".tar"
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_NO_SYNC: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES, errno.EPERM)
"""What systems say that know no sync of a directory, or let nobody open one that cannot be listed."""
_BUFFER_BYTES: Final = 1 << 18


class Destination(Protocol):
    """Takes what is exported, directories before what is in them. One thread at a time uses it.

    Each raises OSError, and DomainError ``destination_exists`` where something has the name.
    """

    def begin(self) -> None:
        """Make the temporary thing."""
        ...

    def add_folder(self, path: bytes, perm: int) -> None:
        """Add a directory."""
        ...

    def add_link(self, path: bytes, target: bytes) -> None:
        """Add a symbolic link."""
        ...

    def begin_file(self, path: bytes, perm: int, size: int) -> None:
        """Add a file, of which so many bytes are going to be written."""
        ...

    def write(self, data: bytes) -> None:
        """Write the next bytes of it."""
        ...

    def end_file(self) -> None:
        """All of it has been written."""
        ...

    def sync(self) -> None:
        """End it, and have all of it on disk; that may take long."""
        ...

    def take_name(self) -> None:
        """Give it its name, and have that on disk."""
        ...

    def discard(self) -> None:
        """Take away what has no name. Raises nothing; may be called again."""
        ...


def destination(path: bytes, time_s: int) -> Destination:
    """Give what writes to a path; ``time_s`` is the time that files in an archive get."""
    temporary = path + b".ckpt-" + os.urandom(8).hex().encode() + b".tmp"
    return Tar(path, temporary, time_s) if path.endswith(_TAR) else Folder(path, temporary)


class Folder:
    """A directory of our own making: nobody but its owner can put links into it meanwhile."""

    def __init__(self, path: bytes, temporary: bytes) -> None:
        self._path = path
        self._temporary = temporary
        self._perms: list[tuple[bytes, int]] = []
        self._fd = -1
        self._perm = 0
        self._is_there = False

    def begin(self) -> None:
        """Make it."""
        _refuse_taken(self._path)
        os.mkdir(self._temporary, 0o700)
        self._is_there = True

    def add_folder(self, path: bytes, perm: int) -> None:
        """Make a directory."""
        os.mkdir(os.path.join(self._temporary, path), 0o700)
        # At the end: what is to go into it must not be refused.
        self._perms.append((path, perm))

    def add_link(self, path: bytes, target: bytes) -> None:
        """Make a link."""
        os.symlink(target, os.path.join(self._temporary, path))

    def begin_file(self, path: bytes, perm: int, _size: int) -> None:
        """Make a file."""
        self._fd = _create(os.path.join(self._temporary, path), 0o600)
        self._perm = perm

    def write(self, data: bytes) -> None:
        """Write to it."""
        _write(self._fd, data)

    def end_file(self) -> None:
        """Give it its permission bits."""
        fd, self._fd = self._fd, -1
        try:
            os.fchmod(fd, self._perm)
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Sync the file system once, however many files there are."""
        for path, perm in reversed(self._perms):
            os.chmod(os.path.join(self._temporary, path), perm)
        os.chmod(self._temporary, 0o755)
        top = os.open(self._temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(top)
        finally:
            os.close(top)

    def take_name(self) -> None:
        """Take it; an empty directory may have it."""
        _refuse_taken(self._path)
        os.rename(self._temporary, self._path)
        self._is_there = False
        _sync_name(self._path)

    def discard(self) -> None:
        """Take it away, also directories that nobody may write to."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._is_there:
            for path, _ in self._perms:
                with contextlib.suppress(OSError):
                    os.chmod(os.path.join(self._temporary, path), 0o700)
            shutil.rmtree(self._temporary, ignore_errors=True)


class Tar:
    """A tar archive in GNU's format, which has room for any name; names are bytes, as on disk."""

    def __init__(self, path: bytes, temporary: bytes, time_s: int) -> None:
        self._path = path
        self._temporary = temporary
        self._time_s = time_s
        self._fd = -1
        self._size = 0
        self._left = 0
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._is_there = False

    def begin(self) -> None:
        """Make it."""
        _refuse_taken(self._path)
        self._fd = _create(self._temporary, 0o644)
        self._is_there = True

    def add_folder(self, path: bytes, perm: int) -> None:
        """Add a directory."""
        self._add_head(path, perm, tarfile.DIRTYPE)

    def add_link(self, path: bytes, target: bytes) -> None:
        """Add a link."""
        self._add_head(path, 0o777, tarfile.SYMTYPE, target=target)

    def begin_file(self, path: bytes, perm: int, size: int) -> None:
        """Add a file."""
        self._add_head(path, perm, tarfile.REGTYPE, size=size)
        self._left = -size % tarfile.BLOCKSIZE

    def write(self, data: bytes) -> None:
        """Write to the archive when enough is there."""
        self._held.append(data)
        self._held_bytes += len(data)
        self._size += len(data)
        if self._held_bytes >= _BUFFER_BYTES:
            self._flush()

    def end_file(self) -> None:
        """Fill its last block."""
        self.write(bytes(self._left))

    def sync(self) -> None:
        """End it as tar does, and sync it."""
        self.write(bytes(2 * tarfile.BLOCKSIZE))
        self.write(bytes(-self._size % tarfile.RECORDSIZE))
        self._flush()
        os.fsync(self._fd)
        self._close()

    def take_name(self) -> None:
        """Take it."""
        _refuse_taken(self._path)
        take_name(self._temporary, self._path)
        self._is_there = False
        _sync_name(self._path)

    def discard(self) -> None:
        """Take it away."""
        self._close()
        if self._is_there:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)

    def _flush(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        _write(self._fd, b"".join(held))

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _add_head(self, path: bytes, perm: int, kind: bytes, *, size: int = 0, target: bytes = b"") -> None:
        info = tarfile.TarInfo(path.decode("utf-8", "surrogateescape"))
        info.type, info.mode, info.size, info.mtime = kind, perm, size, self._time_s
        info.linkname = target.decode("utf-8", "surrogateescape")
        self.write(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))


def take_name(temporary: bytes, path: bytes, link: Callable[[bytes, bytes], None] | None = None) -> None:
    """Give a file its name; raises FileExistsError where somebody has put something there meanwhile."""
    try:
        # Unlike a rename, a link never takes the place of anything.
        (link or os.link)(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A removable disk, for one: an empty file of ours holds the place.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.rename(temporary, path)
    else:
        os.unlink(temporary)


def _refuse_taken(path: bytes) -> None:
    try:
        taken = bool(os.listdir(path)) if os.path.isdir(path) and not path.endswith(_TAR) else os.path.lexists(path)
    except OSError as error:
        raise from_os_error(error, "look at", path) from error
    if taken:
        raise DomainError(
            "destination_exists", f"{to_text(path)} exists already", hint="choose another destination", paths=(path,)
        )


def _create(path: bytes, perm: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, perm)


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _sync_name(path: bytes) -> None:
    """Have a name on disk, as far as the system can."""
    try:
        fsync_dir(os.path.dirname(path))
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
