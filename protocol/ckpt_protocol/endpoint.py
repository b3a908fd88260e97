"""Addresses where the system does not say who is at the other end: TCP on loopback, a Windows named pipe.

As an option they are spelled ``tcp:127.0.0.1:0``, ``tcp:[::1]:4711`` and ``pipe:NAME``; whole, with the address file:
``tcp:127.0.0.1:0@/run/user/1000/fabricatio-checkpoint/ckptd.tcp``. The address file holds what a client connects to
(the port that the daemon got), the token file beside it what both sides have to know. Both are for this user alone.
"""

import ipaddress
import os
import stat
from typing import NamedTuple

__all__ = [
    "TOKEN_BYTES",
    "AddressError",
    "Endpoint",
    "InsecureFileError",
    "parse",
    "published",
    "read_private",
    "read_token",
]

TOKEN_BYTES = 32

_MOST_BYTES = 4096
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class AddressError(ValueError):
    """An address that is not one, or that others than this machine's users could reach."""


class InsecureFileError(OSError):
    """An address or token file that is not this user's alone, or that holds something else."""


class Endpoint(NamedTuple):
    """``scheme`` is tcp or pipe, ``place`` what follows it, ``file`` the address file, empty where not said."""

    scheme: str
    place: str
    file: str = ""

    @property
    def text(self) -> str:
        """The whole address, with the file."""
        return f"{self.name}@{self.file}"

    @property
    def name(self) -> str:
        """The address alone, without the file: what an address file holds, and what the proofs are about."""
        return f"{self.scheme}:{self.place}"

    @property
    def token_file(self) -> str:
        """Where the token lies."""
        return self.file + ".token"

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Of tcp: the numeric address without brackets, and the port."""
        host, _, port = self.place.rpartition(":")
        return host.strip("[]"), int(port)

    def at_port(self, port: int) -> "Endpoint":
        """Of tcp: the same with another port."""
        return self._replace(place=f"{self.place.rpartition(':')[0]}:{port}")


def parse(text: str) -> Endpoint:
    """Read an address, with or without its file; raises AddressError."""
    name, _, file = text.partition("@")
    scheme, _, place = name.partition(":")
    if file and not os.path.isabs(file):
        raise AddressError(f"{text}: the address file must be an absolute path")
    if scheme == "pipe" and place and not set(place) & set("/\\@"):
        return Endpoint(scheme, place, file)
    if scheme == "tcp":
        return Endpoint(scheme, _loopback(place), file)
    raise AddressError(f"{text}: an address is a path, tcp:127.0.0.1:PORT, tcp:[::1]:PORT or pipe:NAME")


def published(endpoint: Endpoint) -> Endpoint | None:
    """Give where the daemon listens now, as its address file says; None where there is none.

    Raises InsecureFileError, AddressError for a file that holds something else, and OSError.
    """
    try:
        text = read_private(endpoint.file).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    found = parse(text)
    if found.scheme != endpoint.scheme or found.file:
        raise AddressError(f"{endpoint.file} holds {text!r}, which is no {endpoint.scheme} address")
    return found._replace(file=endpoint.file)


def read_token(path: str) -> bytes:
    """Read a token of 256 bits, which the file has as 64 hexadecimal digits and a line feed.

    Raises InsecureFileError where others may read it or it is not a token, and OSError.
    """
    try:
        token = bytes.fromhex(read_private(path).decode("ascii"))
    except ValueError:
        token = b""
    if len(token) != TOKEN_BYTES:
        raise InsecureFileError(f"{path} does not hold a token: stop the daemon, then delete it")
    return token


def read_private(path: str) -> bytes:
    """Read a small file that must be this user's alone; raises InsecureFileError where it is not, and OSError."""
    # Not blocking: what lies there may be a FIFO.
    fd = os.open(path, _READ)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not _is_ours_alone(found):
            raise InsecureFileError(
                f"{path} must be a file of yours with mode 0600: check who made it; if in doubt stop the daemon and "
                "delete it"
            )
        return os.read(fd, _MOST_BYTES)
    finally:
        os.close(fd)


def _is_ours_alone(found: os.stat_result) -> bool:
    # Windows has no such bits: there a user's profile, where these files lie, is by its own rules the user's alone.
    return os.name == "nt" or (found.st_uid == os.geteuid() and not found.st_mode & 0o077)


def _loopback(place: str) -> str:
    host, _, port = place.rpartition(":")
    try:
        found = ipaddress.ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    except ValueError:
        raise AddressError(f"tcp:{place}: give a numeric address and a port, such as tcp:127.0.0.1:0") from None
    if not found.is_loopback:
        raise AddressError(f"tcp:{place}: only addresses of the loopback interface (127.0.0.1, [::1]) are served")
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise AddressError(f"tcp:{place}: the port must be a number from 0 to 65535")
    return f"[{found}]:{int(port)}" if found.version == 6 else f"{found}:{int(port)}"
