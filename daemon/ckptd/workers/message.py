"""What daemon and worker say to one another: a length of four bytes, then a list in MessagePack.

Both ends are the same build, as the first message proves.
"""

import struct
from typing import Any, Final

import msgspec

__all__ = ["Inbox", "Plain", "frame"]

Plain = bytes | int | str | None | tuple[Any, ...] | list[Any]
"""What a message is made of; tuples come as lists."""

_LENGTH: Final = struct.Struct(">I")


def frame(*values: Plain) -> bytes:
    """Give the bytes of a message."""
    body = msgspec.msgpack.encode(values)
    return _LENGTH.pack(len(body)) + body


class Inbox:
    """Makes messages of bytes that come in pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Take bytes; give the messages that are whole now."""
        self._data += data
        found = []
        at = 0
        while len(self._data) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data, at)
            end = at + _LENGTH.size + length
            if len(self._data) < end:
                break
            found.append(msgspec.msgpack.decode(bytes(memoryview(self._data)[at + _LENGTH.size : end])))
            at = end
        del self._data[:at]
        return found
