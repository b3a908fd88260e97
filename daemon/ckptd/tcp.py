"""TCP on loopback, for where there is no Unix socket: everybody may connect, and has to know the token."""

import os
import secrets
import socket
import stat
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from ckpt_protocol.endpoint import TOKEN_BYTES, Endpoint, published, read_token
from ckpt_protocol.proof import GREETING_BYTES, PATIENCE_S, PROOF_BYTES, ServerSide, UnprovedError
from ckptd.listen import BACKLOG, Address
from ckptd.stream import Listener, NotProvedError, SocketListener, SocketStream, Stream

__all__ = ["MAX_UNPROVED", "TcpAddress", "Turnstile", "token_of"]

MAX_UNPROVED: Final = 32
"""So many clients may be about to prove themselves at once: others on the machine can hold no more of us."""


class TcpAddress(Address):
    """An endpoint of loopback TCP. ``path`` is the address file, which says the port; the token lies beside it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint: Final = endpoint
        self._bound: socket.socket | None = None
        super().__init__(endpoint.file, text=endpoint.text)

    def listen(self, file: str) -> Listener:
        """Listen at the endpoint, or go on where it listens already, and write the address file."""
        token = token_of(self._endpoint)
        # A port that is bound cannot be bound again: a second listener is the same socket by another descriptor.
        listening = _bind(self._endpoint) if self._bound is None else self._bound.dup()
        try:
            at = self._endpoint.at_port(listening.getsockname()[1])
            write_private(file, f"{at.name}\n")
        except BaseException:
            listening.close()
            raise
        self._bound = listening
        return _TcpListener(listening, Turnstile(token, at.name))

    def is_ours(self) -> bool:
        """Whether both files are there: without its token, nobody can come in."""
        return super().is_ours() and os.path.lexists(self._endpoint.token_file)

    def belongs(self, mode: int) -> bool:
        """An address file is a regular one."""
        return stat.S_ISREG(mode)

    def answers(self) -> bool:
        """Whether something listens where the address file says. What it is, is not asked."""
        try:
            found = published(self._endpoint)
            if found is None:
                return False
            socket.create_connection(found.host_and_port, timeout=1.0).close()
        except (OSError, ValueError):
            return False
        return True


class Turnstile:
    """Lets through who proves to know the token; ``address`` is what the proofs are about. One for a listener."""

    def __init__(self, token: bytes, address: str, patience_s: float = PATIENCE_S) -> None:
        self._token = token
        self._address = address
        self._patience_s = patience_s
        self._inside = 0

    async def prove(self, client: Stream) -> None:
        """Carry out the daemon's side of the exchange; raises NotProvedError, and OSError."""
        if self._inside >= MAX_UNPROVED:
            raise NotProvedError(f"{MAX_UNPROVED} others are about to prove themselves")
        self._inside += 1
        try:
            with anyio.fail_after(self._patience_s):
                await self._exchange(client)
        except TimeoutError as error:
            raise NotProvedError(f"nothing was proved within {self._patience_s:g} s") from error
        except UnprovedError as error:
            raise NotProvedError(str(error)) from error
        finally:
            self._inside -= 1

    async def _exchange(self, client: Stream) -> None:
        side = ServerSide(self._token, self._address)
        await client.send(side.challenge(await _line(client.receive, GREETING_BYTES)))
        side.check(await _line(client.receive, PROOF_BYTES))


class _TcpListener(SocketListener):
    def __init__(self, listening: socket.socket, turnstile: Turnstile) -> None:
        super().__init__(listening)
        self._turnstile = turnstile

    def admit(self, connected: socket.socket) -> Stream:
        # An answer is a whole message: nothing is gained by waiting for more to send.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _TcpStream(connected, self._turnstile)


class _TcpStream(SocketStream):
    def __init__(self, connected: socket.socket, turnstile: Turnstile) -> None:
        super().__init__(connected)
        self._turnstile = turnstile

    async def prove(self) -> None:
        await self._turnstile.prove(self)


def token_of(endpoint: Endpoint) -> bytes:
    """Read the endpoint's token, which is made where there is none; only the holder of the lock may do so.

    Raises InsecureFileError for a file that others may read, and OSError.
    """
    try:
        return read_token(endpoint.token_file)
    except FileNotFoundError:
        # Written whole under another name: a crash leaves no half token.
        temporary = endpoint.token_file + ".new"
        write_private(temporary, secrets.token_hex(TOKEN_BYTES) + "\n")
        os.rename(temporary, endpoint.token_file)
        return read_token(endpoint.token_file)


def write_private(path: str, text: str) -> None:
    """Make a file of mode 0600 with a text, in place of what a crash may have left there."""
    if os.path.lexists(path):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="ascii") as file:
        file.write(text)


def _bind(endpoint: Endpoint) -> socket.socket:
    host, port = endpoint.host_and_port
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        # Connections of a daemon that has just ended must not keep the port from the next one.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        # The line that whoever starts the daemon gets to see has to say where.
        raise OSError(error.errno, f"cannot listen: {error.strerror}", endpoint.name) from error
    except BaseException:
        listening.close()
        raise
    return listening


async def _line(receive: Callable[[int], Awaitable[bytes]], length: int) -> bytes:
    """Read one line of a length that is known, and never a byte of what follows it."""
    line = b""
    while len(line) < length and not line.endswith(b"\n"):
        piece = await receive(length - len(line))
        if not piece:
            raise NotProvedError("hung up in the middle")
        line += piece
    return line
