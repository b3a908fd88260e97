"""What systemd says to a service and hears from it: passed sockets, readiness. Plain protocol, no library."""

import os
import socket
from collections.abc import MutableMapping
from typing import Final

__all__ = ["adopt_sockets", "notify"]

_FIRST_FD: Final = 3


def adopt_sockets(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """Take over the listening Unix sockets that were passed to this process; the variables are removed.

    Descriptors of another kind are closed. None are taken where the variables speak to another process.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    environ.pop("LISTEN_PIDFDID", None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    return [taken for fd in range(_FIRST_FD, _FIRST_FD + int(count)) if (taken := _adopt(fd)) is not None]


def notify(destination: str | None, state: str) -> None:
    """Send ``state`` ("READY=1") to the service manager; without one, or with a deaf one, nothing happens."""
    if not destination or destination[0] not in "/@":
        return
    peer = "\0" + destination[1:] if destination[0] == "@" else destination
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(state.encode(), peer)
    except OSError:
        # Readiness is a courtesy: a service that works must not end because nobody listens.
        return


def _adopt(fd: int) -> socket.socket | None:
    try:
        # Children must never hold the listening socket open.
        os.set_inheritable(fd, False)
        taken = socket.socket(fileno=fd)
    except OSError:
        return None
    listening = taken.family == socket.AF_UNIX and taken.type == socket.SOCK_STREAM
    if listening and taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        taken.setblocking(False)
        return taken
    taken.close()
    return None
