"""Who has connected, whatever the transport: bytes in, bytes out, and whether it may talk at all."""

import asyncio
import os
import select
import socket
import struct
from typing import Protocol

__all__ = ["Listener", "NotProvedError", "SocketListener", "SocketStream", "Stream", "UnixStream"]


class NotProvedError(Exception):
    """The peer did not show in time that it knows the token; the text says what it did instead."""


class Stream(Protocol):
    """One accepted connection. receive() and send() raise OSError."""

    def stranger(self) -> str | None:
        """Tell why this peer is not to be served, where the system knows that already; else None."""
        ...

    async def prove(self) -> None:
        """Let both sides prove who they are, before the first frame; raises NotProvedError and OSError."""
        ...

    async def receive(self, most_bytes: int) -> bytes:
        """Wait for the next bytes; none where the peer has ended its side."""
        ...

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        ...

    def say(self, data: bytes) -> None:
        """Send what can be sent without waiting: the one frame for a peer that is turned away."""
        ...

    def is_gone(self) -> bool:
        """Tell whether the peer has hung up, and not only ended its side; False where that cannot be known."""
        ...

    def end(self) -> None:
        """End both directions: a receive() or send() that waits comes back. close() is still to be called."""
        ...

    def close(self) -> None:
        """Hang up. May be called again."""
        ...


class Listener(Protocol):
    """Where clients connect."""

    async def accept(self) -> Stream:
        """Wait for the next client; raises OSError, and may be called again then."""
        ...

    def close(self) -> None:
        """Stop listening. May be called again."""
        ...


class SocketStream:
    """A connected socket, not blocking. Serves everybody: the subclasses say whom not."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected

    def stranger(self) -> str | None:
        """Nobody is one."""
        return None

    async def prove(self) -> None:
        """Nothing has to be proved."""

    async def receive(self, most_bytes: int) -> bytes:
        """See Stream."""
        return await asyncio.get_running_loop().sock_recv(self.socket, most_bytes)

    async def send(self, data: bytes) -> None:
        """See Stream."""
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    def say(self, data: bytes) -> None:
        """See Stream."""
        self.socket.send(data)

    def is_gone(self) -> bool:
        """See Stream."""
        poll = select.poll()
        # Hanging up and errors are told unasked.
        poll.register(self.socket, 0)
        return bool(poll.poll(0))

    def end(self) -> None:
        """See Stream."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The client was faster.
            return

    def close(self) -> None:
        """See Stream."""
        self.socket.close()


class UnixStream(SocketStream):
    """A client on a Unix socket: the kernel knows whose it is."""

    def stranger(self) -> str | None:
        """Everybody is but this user."""
        uid = _peer_uid(self.socket)
        return None if uid == os.getuid() else f"user {uid}"


class SocketListener:
    """A listening socket, not blocking. Descriptors of children never include it."""

    def __init__(self, listening: socket.socket) -> None:
        self.socket = listening

    async def accept(self) -> Stream:
        """See Listener."""
        connected, _ = await asyncio.get_running_loop().sock_accept(self.socket)
        return self.admit(connected)

    def admit(self, connected: socket.socket) -> Stream:
        """Make the stream of a socket that has just connected: one of a Unix socket. Raises OSError."""
        return UnixStream(connected)

    def close(self) -> None:
        """See Listener."""
        self.socket.close()


def _peer_uid(client: socket.socket) -> int | None:
    try:
        if hasattr(socket, "SO_PEERCRED"):
            packed = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return int(struct.unpack("3i", packed)[1])
        # LOCAL_PEERCRED at level SOL_LOCAL, which the socket module does not name: struct xucred {version, uid, ...}.
        return int(struct.unpack_from("2I", client.getsockopt(0, 1, 76))[1])
    except OSError:
        return None
