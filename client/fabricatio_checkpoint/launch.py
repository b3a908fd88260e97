"""Finds the daemon's socket and connects, starting the daemon where it does not run.

Nothing here ever removes a socket: only the daemon that holds the lock may. Cheap to import; what a start needs
(``spawn``) is imported when there is something to start.
"""

from __future__ import annotations

import _socket
import errno
import os
import sys

from ckpt_protocol import address
from fabricatio_checkpoint.errors import TransportError, error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    class Channel(Protocol):
        """What a link needs of a connected socket, with the meaning that a socket gives it."""

        def sendall(self, data: bytes, flags: int = 0, /) -> None: ...
        def send(self, data: bytes, flags: int = 0, /) -> int: ...
        def recv(self, bufsize: int, flags: int = 0, /) -> bytes: ...
        def settimeout(self, timeout: float | None, /) -> None: ...
        def gettimeout(self) -> float | None: ...
        def shutdown(self, how: int, /) -> None: ...
        def close(self) -> None: ...


__all__ = ["connect", "dial", "program", "socket_path"]

_NOBODY_THERE = (errno.ENOENT, errno.ECONNREFUSED)
_LONGEST_NAME = 60


def socket_path(configured: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """Give the daemon's address, mostly the path of its socket; ``configured`` is the option ``socket``."""
    return address.socket_path(os.environ if environ is None else environ, configured)


def connect(path: str, *, start: bool = True, environ: Mapping[str, str] | None = None) -> Channel:
    """Connect to the daemon at ``path``; with ``start``, start one where nobody answers.

    ``environ`` is what the daemon inherits (default: this process's). Raises TransportError: ``not_running``
    without ``start``, ``start_failed`` where the daemon does not come up, ``unreachable`` where something else
    is wrong with the socket.
    """
    connected = dial(path)
    if connected is not None:
        return connected
    if not start:
        raise error_of("not_running", f"no daemon is running at {path}")
    from fabricatio_checkpoint import spawn

    return spawn.start(path, os.environ if environ is None else environ)


def program() -> str:
    """Name this program in printable ASCII, for the history: who made this checkpoint."""
    name = os.path.basename(sys.argv[0] if sys.argv else "")
    if name in ("", "-c", "-m", "__main__.py"):
        name = "python"
    return "".join(char if "!" <= char <= "~" else "?" for char in name)[:_LONGEST_NAME]


def dial(path: str) -> Channel | None:
    """Connect, or give None where no daemon listens; any other failure is raised, as it proves nothing."""
    if path.startswith(address.SCHEMES):
        return _dial_remote(path)
    try:
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    except OSError as error:
        raise _unreachable(path, error) from error
    try:
        # The process may have set a default time limit for its own sockets.
        sock.settimeout(None)
        sock.connect(path)
        _check_peer(sock, path)
    except OSError as error:
        sock.close()
        if error.errno in _NOBODY_THERE:
            return None
        raise _unreachable(path, error) from error
    except BaseException:
        sock.close()
        raise
    return sock


def _dial_remote(text: str) -> Channel | None:
    from fabricatio_checkpoint import remote

    try:
        return remote.dial(text)
    except OSError as error:
        raise _unreachable(text, error) from error


def _check_peer(sock: _socket.socket, path: str) -> None:
    """Refuse a daemon of another user, where the system tells whose it is."""
    option = getattr(_socket, "SO_PEERCRED", None)
    if option is None:
        return
    credentials = sock.getsockopt(_socket.SOL_SOCKET, option, 12)
    owner = int.from_bytes(credentials[4:8], sys.byteorder)
    if owner != os.geteuid():
        raise error_of(
            "forbidden_peer",
            f"the daemon at {path} belongs to user {owner}, not to you ({os.geteuid()})",
            hint="check who made this socket, or set the option socket",
        )


def _unreachable(path: str, error: OSError) -> TransportError:
    # Without the table of errors: it would have to be imported, and the reason may be that no file can be opened.
    reason = error.strerror or str(error)
    return TransportError(f"cannot connect to the daemon at {path}: {reason}", kind="unreachable", retryable=True)
