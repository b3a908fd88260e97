"""Connecting to a daemon on loopback TCP, blocking: the client's side of the proof."""

import _socket
import time
from typing import Protocol

from ckpt_protocol.endpoint import Endpoint, published, read_token
from ckpt_protocol.proof import CHALLENGE_BYTES, PATIENCE_S, ClientSide, UnprovedError

__all__ = ["connect", "prove"]


class Duplex(Protocol):
    """What an exchange needs of a connected socket, or of what acts as one."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of it."""
        ...

    def recv(self, bufsize: int, /) -> bytes:
        """Receive some bytes, none at the end."""
        ...

    def settimeout(self, timeout: float, /) -> None:
        """Set the longest wait in seconds."""
        ...


def connect(endpoint: Endpoint, patience_s: float = PATIENCE_S) -> _socket.socket | None:
    """Connect to where the address file says, and let both sides prove that they know the token.

    Gives None where no daemon listens: there is no address file, or the connection is refused. The socket has no time
    limit. Raises UnprovedError for a listener that cannot prove itself within ``patience_s`` seconds, AddressError for
    an address file that holds something else, and OSError.
    """
    found = published(endpoint)
    if found is None:
        return None
    token = read_token(found.token_file)
    host, port = found.host_and_port
    sock = _socket.socket(_socket.AF_INET6 if ":" in host else _socket.AF_INET, _socket.SOCK_STREAM)
    try:
        sock.settimeout(patience_s)
        sock.connect((host, port))
        # An answer is a whole message: nothing is gained by waiting for more to send.
        sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        prove(sock, token, found.name, patience_s)
        sock.settimeout(None)
    except ConnectionRefusedError:
        sock.close()
        return None
    except BaseException:
        sock.close()
        raise
    return sock


def prove(sock: Duplex, token: bytes, address: str, patience_s: float = PATIENCE_S) -> None:
    """Carry out the client's side of the exchange on a connected socket; raises UnprovedError and OSError."""
    side = ClientSide(token, address)
    deadline = time.monotonic() + patience_s
    try:
        sock.sendall(side.greeting())
        sock.sendall(side.answer(_line(sock, deadline)))
    except (TimeoutError, ConnectionError) as error:
        raise UnprovedError(f"what listens there proved nothing: {error}") from error


def _line(sock: Duplex, deadline: float) -> bytes:
    """Read one line, and nothing after it; a longer one is cut, which no side takes for an answer."""
    line = b""
    while len(line) < CHALLENGE_BYTES and not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it takes too long")
        sock.settimeout(left)
        piece = sock.recv(CHALLENGE_BYTES - len(line))
        if not piece:
            raise ConnectionAbortedError("it hung up")
        line += piece
    return line
