"""What systemd says to a service and hears from it: passed sockets, state, watchdog. Plain protocol, no library."""

import os
import socket
from collections.abc import MutableMapping
from typing import Final, NamedTuple

__all__ = ["Supervisor", "adopt_sockets", "take_supervisor"]

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


class Supervisor(NamedTuple):
    """The service manager, or nobody: ``watchdog_s`` is how often it wants to hear from the process, 0 for never."""

    destination: str = ""
    watchdog_s: float = 0.0

    def tell(self, state: str) -> None:
        """Send ``state`` ("READY=1"); without a service manager, or with a deaf one, nothing happens."""
        if self.destination[:1] not in ("/", "@"):
            return
        peer = "\0" + self.destination[1:] if self.destination[0] == "@" else self.destination
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # A service manager whose buffer is full is left without the news: nobody waits here.
                sender.setblocking(False)
                sender.sendto(state.encode(), peer)
        except OSError:
            # It is a courtesy: a service that works must not end because nobody listens.
            return


def take_supervisor(environ: MutableMapping[str, str]) -> Supervisor:
    """Find out who supervises this process; the variables are removed, as they are not for children."""
    destination = environ.pop("NOTIFY_SOCKET", "")
    interval, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", str(os.getpid()))
    wanted = destination and interval.isdecimal() and pid == str(os.getpid())
    return Supervisor(destination, int(interval) / 1e6 if wanted else 0.0)


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
