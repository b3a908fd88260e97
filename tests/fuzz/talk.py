"""Talking to a daemon as nobody should: many frames at once, without order, and a look at what comes back.

``Session(path)``: ``exchange(frames)`` sends them all, reads meanwhile, and waits until everything that has to be
answered is; gives the answers. ``pester(path, rng)`` misbehaves on a connection of its own.
"""

import contextlib
import json
import random
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["Exchange", "HungError", "Session", "pester"]

_DEADLINE_S = 120.0
_PIECE = 1 << 18


class HungError(Exception):
    """No answer, and no end of the connection, within two minutes."""


class Exchange(NamedTuple):
    """``answers`` are single ones, those of batches included; ``closed`` tells that the daemon hung up."""

    answers: list[Any]
    closed: bool


class Session:
    """See the module."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_DEADLINE_S)
        self._socket.connect(path)
        self._socket.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
        self._read = b""

    def close(self) -> None:
        """Hang up."""
        self._selector.close()
        self._socket.close()

    def exchange(self, frames: Sequence[bytes], mark: str) -> Exchange:
        """Send all, and wait for all that is due; ``mark`` is an id that no other request has."""
        last = json.dumps({"jsonrpc": "2.0", "method": "daemon.status", "id": mark}).encode()
        left = memoryview(b"\n".join([*frames, last]) + b"\n")
        due = sum(map(_answers_due, frames)) + 1
        answers: list[Any] = []
        lines = 0
        end = time.monotonic() + _DEADLINE_S
        while lines < due:
            if time.monotonic() > end:
                raise HungError(f"{due - lines} of {due} answers are missing after {_DEADLINE_S} s")
            for _, events in self._selector.select(1.0):
                if events & selectors.EVENT_WRITE:
                    left = self._send(left)
                if events & selectors.EVENT_READ:
                    read = self._lines()
                    if read is None:
                        return Exchange(answers, True)
                    for said in map(json.loads, read):
                        # Progress and events come unasked.
                        if "method" not in said:
                            lines += 1
                            answers += _singles(said)
        self._selector.modify(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
        return Exchange(answers, False)

    def _send(self, left: memoryview) -> memoryview:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            left = left[self._socket.send(left[:_PIECE]) :]
        if not left:
            self._selector.modify(self._socket, selectors.EVENT_READ)
        return left

    def _lines(self) -> list[bytes] | None:
        try:
            piece = self._socket.recv(_PIECE)
        except BlockingIOError:
            return []
        except ConnectionError:
            piece = b""
        if not piece:
            return None
        *lines, self._read = (self._read + piece).split(b"\n")
        return lines


def _answers_due(frame: bytes) -> int:
    """Tell how many lines a frame is answered with: none where it is blank, or a call without id that can be read."""
    text = frame.strip(b" \t\r\f\v")
    if not frame.strip():
        return 0
    try:
        document = json.loads(text.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError):
        return 1
    calls = document if isinstance(document, list) and document and len(document) <= 64 else [document]
    return int(any(not _is_notification(call) for call in calls))


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _is_notification(call: Any) -> bool:
    """Tell whether it is a call to which nobody waits for an answer; anything odd about it is answered."""
    return (
        isinstance(call, dict)
        and "id" not in call
        and set(call) <= {"jsonrpc", "method", "params"}
        and call.get("jsonrpc") == "2.0"
        and isinstance(call.get("method"), str)
    )


def _singles(answer: Any) -> Iterator[Any]:
    yield from answer if isinstance(answer, list) else [answer]


def pester(path: str, rng: random.Random, frames: Sequence[bytes]) -> socket.socket | None:
    """Misbehave once; gives a socket that is to be kept open and forgotten, or None."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(5)
    with contextlib.suppress(OSError):
        client.connect(path)
        how = rng.randrange(6)
        data = b"\n".join(frames) + b"\n"
        if how == 1:
            client.sendall(data[: rng.randrange(len(data))])
        elif how == 2:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        elif how == 3:
            client.sendall(data)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            return None
        elif how == 4:
            for byte in data[:200]:
                client.sendall(bytes([byte]))
        elif how == 5:
            client.sendall(b"x" * rng.choice([100, 70_000, 1 << 20]))
        return client
    client.close()
    return None
