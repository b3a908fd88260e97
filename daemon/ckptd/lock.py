"""Locks held for life by ``flock``: one daemon for a socket, one daemon for the data of a checkpoint directory.

The text in a lock file says who holds it, for people and for the client that looks for the owner. It is
information only: whether a lock is held is the kernel's word, and no process is ever signalled by it.
"""

import errno
import fcntl
import json
import os
import socket
import stat
import threading
import time
from typing import Final, NamedTuple

from ckpt_protocol.version import BUILD
from ckpt_protocol.wirepath import to_bytes, to_text
from ckptd.errors import DomainError, from_os_error

__all__ = ["LOCK_NAME", "DataLocks", "HeldLock", "LockedElsewhereError", "Owner", "this_process"]

LOCK_NAME: Final = b".lock"
_INFO_BYTES: Final = 4096
_ATTEMPTS: Final = 5
_RETRY_S: Final = 0.02


class Owner(NamedTuple):
    """Who holds a lock: ``address`` is the socket, ``boot_id`` tells whether ``pid`` can still mean anything."""

    pid: int
    boot_id: str
    host: str
    address: str
    build: str


def this_process(address: str) -> Owner:
    """Describe the process that runs this, which answers at ``address``."""
    return Owner(os.getpid(), _boot_id(), socket.gethostname(), address, BUILD)


class LockedElsewhereError(Exception):
    """Another process holds the lock; ``owner`` is None where its text could not be read."""

    def __init__(self, owner: Owner | None) -> None:
        super().__init__("held by another process")
        self.owner: Final = owner


class HeldLock:
    """A lock file, open and locked until close() or the end of the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        found = os.fstat(fd)
        self.identity: Final = (found.st_dev, found.st_ino)

    @classmethod
    def take(cls, path: bytes, owner: Owner) -> "HeldLock":
        """Lock the file at ``path``, which is made where absent, and write ``owner`` into it.

        Raises LockedElsewhereError where another process holds it, OSError where it cannot be opened or locked.
        """
        for _ in range(_ATTEMPTS):
            held = cls(_open_locked(path))
            # Between open and lock the file may have been replaced: then this lock would guard nothing.
            if held.is_at(path):
                held._describe(owner)
                return held
            held.close()
        raise OSError(errno.EAGAIN, "the lock file is replaced again and again")

    def is_at(self, path: bytes) -> bool:
        """Tell whether ``path`` is this very file."""
        return _identity(path) == self.identity

    def close(self) -> None:
        """Give the lock back. The file stays: removing it would let two processes lock two files."""
        os.close(self._fd)

    def _describe(self, owner: Owner) -> None:
        text = json.dumps(owner._asdict()).encode()
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text, 0)


class DataLocks:
    """The checkpoint directories that this process owns. Safe to use from several threads."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._held: dict[bytes, HeldLock] = {}
        self._mutex = threading.Lock()

    def claim(self, checkpoint_dir: bytes) -> None:
        """Make sure that this process owns a checkpoint directory, which is made (0700) where absent.

        The lock is compared with the file at each call and taken anew where that is another. Raises DomainError:
        ``owned_elsewhere`` (the hint is the owner's address, if it is on this host), ``foreign_owner``,
        ``not_a_directory``, and what from_os_error() gives.
        """
        path = os.path.join(checkpoint_dir, LOCK_NAME)
        with self._mutex:
            held = self._held.get(checkpoint_dir)
        # No file is touched under the mutex: a slow file system holds up nobody who uses another one.
        if held is not None and held.is_at(path):
            return
        self._release(checkpoint_dir)
        _prepare(checkpoint_dir)
        held = self._take(checkpoint_dir, path)
        with self._mutex:
            self._held[checkpoint_dir] = held

    def close(self) -> None:
        """Give all locks back."""
        for checkpoint_dir in list(self._held):
            self._release(checkpoint_dir)

    def _release(self, checkpoint_dir: bytes) -> None:
        with self._mutex:
            held = self._held.pop(checkpoint_dir, None)
            shared = held in self._held.values()
        if held is not None and not shared:
            held.close()

    def _take(self, checkpoint_dir: bytes, path: bytes) -> HeldLock:
        attempts = _ATTEMPTS
        while True:
            attempts -= 1
            try:
                # Two names of one directory: a second flock would be refused because of our own first one.
                return self._same_file(path) or HeldLock.take(path, self._owner)
            except LockedElsewhereError as error:
                # Perhaps a thread of ours, by another name, or an owner that is about to say who it is.
                if error.owner not in (None, self._owner) or not attempts:
                    raise _owned_elsewhere(checkpoint_dir, error.owner, self._owner) from error
            except OSError as error:
                raise from_os_error(error, "lock", path) from error
            time.sleep(_RETRY_S)

    def _same_file(self, path: bytes) -> HeldLock | None:
        found = _identity(path)
        with self._mutex:
            return next((held for held in self._held.values() if held.identity == found), None)


def _open_locked(path: bytes) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = _read_owner(fd)
        os.close(fd)
        raise LockedElsewhereError(owner) from error
    except OSError:
        os.close(fd)
        raise
    return fd


def _read_owner(fd: int) -> Owner | None:
    try:
        return Owner(**json.loads(os.pread(fd, _INFO_BYTES, 0)))
    except (OSError, ValueError, TypeError):
        # The owner may be about to write it.
        return None


def _owned_elsewhere(checkpoint_dir: bytes, owner: Owner | None, me: Owner) -> DomainError:
    what = f"{to_text(checkpoint_dir)} belongs to another daemon"
    if owner is None:
        return DomainError("owned_elsewhere", what, hint="try again: it is just starting", paths=(checkpoint_dir,))
    if owner.host != me.host:
        hint = f"stop the daemon (pid {owner.pid}) on {owner.host}, or use another checkpoint directory"
        return DomainError("owned_elsewhere", f"{what} on host {owner.host}", hint=hint, paths=(checkpoint_dir,))
    message = f"{what}, pid {owner.pid} at {owner.address}"
    # The client takes the hint as the address to go to.
    return DomainError("owned_elsewhere", message, hint=owner.address, paths=(to_bytes(owner.address),))


def _prepare(checkpoint_dir: bytes) -> None:
    try:
        _check_owner(checkpoint_dir)
        os.makedirs(checkpoint_dir, 0o700, exist_ok=True)
    except FileExistsError as error:
        raise _not_a_directory(checkpoint_dir) from error
    except OSError as error:
        raise from_os_error(error, "make the checkpoint directory", checkpoint_dir) from error


def _check_owner(checkpoint_dir: bytes) -> None:
    me = os.getuid()
    nearest, found = _nearest_existing(checkpoint_dir)
    if not stat.S_ISDIR(found.st_mode):
        raise _not_a_directory(nearest)
    # A new directory below one of root's is how /tmp and mount points work; below another user's it is sudo.
    allowed = (me,) if nearest == checkpoint_dir else (me, 0)
    if found.st_uid not in allowed:
        raise DomainError(
            "foreign_owner",
            f"the checkpoint directory {to_text(checkpoint_dir)} belongs to user {found.st_uid}, this is user {me}",
            hint="run as that user (without sudo), or use a checkpoint directory of your own",
            paths=(checkpoint_dir,),
        )


def _nearest_existing(path: bytes) -> tuple[bytes, os.stat_result]:
    while True:
        try:
            return path, os.stat(path)
        except FileNotFoundError:
            if path == b"/":
                raise
            path = os.path.dirname(path)


def _not_a_directory(path: bytes) -> DomainError:
    return DomainError("not_a_directory", f"{to_text(path)} is not a directory", paths=(path,))


def _identity(path: bytes) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
