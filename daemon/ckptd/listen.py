"""The daemon's address: a file that only the holder of its lock makes, replaces or removes. Here a Unix socket."""

import errno
import os
import socket
import stat
import time
import zlib
from typing import Final

from ckpt_protocol import address
from ckptd.lock import HeldLock, LockedElsewhereError, this_process
from ckptd.stream import Listener, SocketListener

__all__ = ["BACKLOG", "Address", "AddressInUseError"]

BACKLOG: Final = 1024
_WAIT_S: Final = 8.0
"""How long a start waits for a daemon that holds the lock and does not answer: it ends, or binds its socket again."""
_RETRY_S: Final = 0.05


class AddressInUseError(Exception):
    """Another daemon serves this socket."""


class Address:
    """A socket's path and its lock. ``path`` is absolute; the directory is made private.

    ``text`` is how clients are told of it. Subclasses put something else at the path, and listen elsewhere.
    Raises AddressInUseError where another daemon holds the lock, OSError where the directory is not ours alone
    or something cannot be made.
    """

    def __init__(self, path: str, adopted: socket.socket | None = None, text: str | None = None) -> None:
        self.path: Final = path
        self.text: Final = text or path
        self.adopted: Final = adopted is not None
        """The socket came from a service manager, which alone may bind or remove it."""
        self._lock_path = os.fsencode(path) + b".lock"
        self._identity: tuple[int, int] | None = None
        address.ensure_private(os.path.dirname(path))
        self._lock = self._wait_for_lock()
        try:
            self.listener: Listener = self._remember(adopted) if adopted is not None else self.bind()
        except BaseException:
            self._lock.close()
            raise

    def bind(self) -> Listener:
        """Listen, and put what leads there in place of whatever is at the path; raises OSError."""
        # Fixed by the name, so that the leftover of a killed daemon is replaced; short, since sun_path is.
        directory, name = os.path.split(self.path)
        temporary = os.path.join(directory, f".{zlib.crc32(os.fsencode(name)):08x}")
        self._refuse_other_file()
        _remove(temporary)
        # Listening before it has its name: whoever finds the name can connect.
        listener = self.listen(temporary)
        try:
            self._identity = _identity(temporary)
            os.rename(temporary, self.path)
        except BaseException:
            listener.close()
            raise
        self.listener = listener
        return listener

    def listen(self, file: str) -> Listener:
        """Listen, and make the file, mode 0600, that leads clients there; raises OSError."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.bind(file)
            os.chmod(file, 0o600)
            listening.listen(BACKLOG)
        except BaseException:
            listening.close()
            raise
        return SocketListener(listening)

    def belongs(self, mode: int) -> bool:
        """Tell whether a file of this ``st_mode`` is what may stand at the path."""
        return stat.S_ISSOCK(mode)

    def answers(self) -> bool:
        """Tell whether somebody can be connected to at the path."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(self.path)
            except OSError:
                return False
        return True

    def is_ours(self) -> bool:
        """Tell whether the path leads to the socket that was bound last."""
        return self._identity is not None and _identity(self.path) == self._identity

    def directory_exists(self) -> bool:
        """Tell whether the socket's directory is there, and still ours alone: in another's nothing is to be made."""
        return address.is_private(os.path.dirname(self.path))

    def keep_lock(self) -> bool:
        """Tell whether the lock is still the file at its path, after taking that one where it is another.

        False means that another process has it; raises OSError where that cannot be found out.
        """
        if self._lock.is_at(self._lock_path):
            return True
        try:
            lock = HeldLock.take(self._lock_path, this_process(self.text))
        except LockedElsewhereError:
            return False
        self._lock.close()
        self._lock = lock
        return True

    def remove(self) -> None:
        """Remove the socket from its path, if it is ours to remove. The listener goes on."""
        if not self.adopted and self.is_ours() and self._lock.is_at(self._lock_path):
            _remove(self.path)

    def close(self) -> None:
        """Remove the socket, close it and give the lock back."""
        self.remove()
        self.listener.close()
        self._lock.close()

    def _wait_for_lock(self) -> HeldLock:
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                return HeldLock.take(self._lock_path, this_process(self.text))
            except LockedElsewhereError as error:
                # A holder that nobody can connect to is starting or ending: the next moment tells which.
                if self.answers() or time.monotonic() > deadline:
                    pid = "unknown" if error.owner is None else error.owner.pid
                    raise AddressInUseError(f"another ckptd (pid {pid}) serves {self.text}") from error
            time.sleep(_RETRY_S)

    def _refuse_other_file(self) -> None:
        # A mistyped option must not replace somebody's file.
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return
        if not self.belongs(found.st_mode):
            raise FileExistsError(errno.EEXIST, "there is something else in place of the address", self.path)

    def _remember(self, adopted: socket.socket) -> Listener:
        self._identity = _identity(self.path)
        return SocketListener(adopted)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
