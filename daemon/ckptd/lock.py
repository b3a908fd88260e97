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
_ORPHAN_ATTEMPTS: Final = 750


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

    @staticmethod
    def probe(path: bytes) -> None:
        """Look whether a lock is held, for a moment; raises LockedElsewhereError where it is, OSError."""
        os.close(_open_locked(path))

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

    def claim(self, checkpoint_dir: bytes, make: bool = True) -> bool:
        """Make sure that this process owns a checkpoint directory; ``make`` makes one (0700) where it is absent.

        Without ``make`` nothing is made where there is no store to own: neither the directory nor its lock.
        The lock is compared with the file at each call and taken anew where that is another. Gives False where
        this is no longer the directory that was owned before: whatever was opened below it must be closed.
        Raises DomainError, which says the same: ``owned_elsewhere`` (the hint is the owner's address, if it is
        on this machine), ``foreign_owner``, ``not_a_directory``, and what from_os_error() gives.
        """
        path = os.path.join(checkpoint_dir, LOCK_NAME)
        with self._mutex:
            held = self._held.get(checkpoint_dir)
        # No file is touched under the mutex: a slow file system holds up nobody who uses another one.
        if held is not None and held.is_at(path):
            return True
        self.release(checkpoint_dir)
        if not make and _nothing_to_own(checkpoint_dir, path):
            return held is None
        _prepare(checkpoint_dir)
        taken = self._take(checkpoint_dir, path)
        with self._mutex:
            self._held[checkpoint_dir] = taken
        return held is None

    def close(self) -> None:
        """Give all locks back."""
        for checkpoint_dir in list(self._held):
            self.release(checkpoint_dir)

    def release(self, checkpoint_dir: bytes) -> None:
        """Give back what was owned by this name, if anything was."""
        with self._mutex:
            held = self._held.pop(checkpoint_dir, None)
        if held is not None:
            held.close()

    def _take(self, checkpoint_dir: bytes, path: bytes) -> HeldLock:
        attempts = 0
        while True:
            attempts += 1
            try:
                self._refuse_second_name(checkpoint_dir, path)
                return HeldLock.take(path, self._owner)
            except LockedElsewhereError as error:
                if attempts >= self._patience(error.owner):
                    raise _owned_elsewhere(checkpoint_dir, error.owner, self._owner) from error
            except OSError as error:
                raise from_os_error(error, "lock", path) from error
            time.sleep(_RETRY_S)

    def _patience(self, owner: Owner | None) -> int:
        """Give how often to try."""
        if owner in (None, self._owner):
            # Perhaps a thread of ours, by another name, or an owner that is about to say who it is.
            return _ATTEMPTS
        # Who had the address that is ours now has lost it: nobody can be sent there, and it ends when it notices.
        if not owner.address:
            # Somebody who clears up, and is done in a moment.
            return _ORPHAN_ATTEMPTS
        same = owner.address == self._owner.address and _same_machine(owner, self._owner)
        return _ORPHAN_ATTEMPTS if same else 1

    def _refuse_second_name(self, checkpoint_dir: bytes, path: bytes) -> None:
        """Refuse a directory that is served by another name already: two names would be two owners of one store.

        Links are no such names, for they are resolved before; bind mounts are.
        """
        found = _identity(path)
        with self._mutex:
            names = [name for name, held in self._held.items() if held.identity == found]
        for name in names:
            if found is not None and _identity(os.path.join(name, LOCK_NAME)) == found:
                raise DomainError(
                    "bad_path",
                    f"{to_text(checkpoint_dir)} is the same directory as {to_text(name)}",
                    hint=f"use {to_text(name)}, by which name it is served already",
                    paths=(checkpoint_dir,),
                )
            # It was renamed: the old name leads nowhere any more, and its lock would be in the way of our own.
            self.release(name)


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
    if not _same_machine(owner, me):
        hint = f"stop the daemon (pid {owner.pid}) on {owner.host}, or use another checkpoint directory"
        return DomainError("owned_elsewhere", f"{what} on host {owner.host}", hint=hint, paths=(checkpoint_dir,))
    message = f"{what}, pid {owner.pid} at {owner.address}"
    # The client takes the hint as the address to go to.
    return DomainError("owned_elsewhere", message, hint=owner.address, paths=(to_bytes(owner.address),))


def _same_machine(one: Owner, other: Owner) -> bool:
    # A container has a name of its own, and a laptop gets another one with each network; the boot is one.
    if one.boot_id and other.boot_id:
        return one.boot_id == other.boot_id
    return one.host == other.host


def _nothing_to_own(checkpoint_dir: bytes, lock_path: bytes) -> bool:
    """Tell whether no daemon ever had this directory and no store was put there by hand."""
    if os.path.lexists(lock_path):
        return False
    try:
        with os.scandir(checkpoint_dir) as entries:
            return not any(os.path.isdir(os.path.join(entry.path, b"ckpt")) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        raise from_os_error(error, "look into the checkpoint directory", checkpoint_dir) from error


def _prepare(checkpoint_dir: bytes) -> None:
    try:
        _check_owner(checkpoint_dir)
        _make_durably(checkpoint_dir)
    except FileExistsError as error:
        raise _not_a_directory(checkpoint_dir) from error
    except OSError as error:
        raise from_os_error(error, "make the checkpoint directory", checkpoint_dir) from error


def _make_durably(path: bytes) -> None:
    """Make a directory and those above it; raises OSError. All stores would be gone with its name after a power cut."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if not os.path.lexists(parent):
        _make_durably(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    _sync_names(parent)


def _sync_names(directory: bytes) -> None:
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        # One may make a directory where one may not list: there it stays to the system when the name is on disk.
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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
