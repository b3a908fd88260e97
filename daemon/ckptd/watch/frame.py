"""What the daemon and its watching process say to each other over two pipes.

A frame is the length of its body, four bytes, and a body in MessagePack: paths are bytes on both sides.
"""

from typing import Final

import msgspec

__all__ = ["HEADER_BYTES", "Broken", "Cover", "Covered", "Drop", "FromChild", "Hello", "Seen", "ToChild", "to_frame"]

HEADER_BYTES: Final = 4


class Cover(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Watch these directories of ``root`` (relative paths; empty: the root) and no others.

    What is watched already stays so, unless ``afresh``. A change is told within two steps of ``step_ms``. With
    ``try_out`` a file is made and removed in the root, to see whether the system tells of it. Not more than
    ``limit`` directories may be watched.
    """

    number: int
    root: bytes
    directories: list[bytes]
    step_ms: int
    limit: int
    try_out: bool = False
    afresh: bool = False


class Drop(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Stop watching a root; nothing more is said of it, but for what is under way."""

    number: int


class Hello(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The first word of the watching process: its build."""

    build: str


class Covered(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The answer to Cover. ``native``: changes in ``watched`` directories will be told; ``reason`` is why not.

    ``fresh``: they are watched since now, and nothing is known of what went before. ``left`` directories are there
    and cannot be watched, for which ``reason`` stands if ``native``.
    """

    number: int
    native: bool
    fresh: bool = False
    watched: int = 0
    left: int = 0
    reason: str | None = None


class Seen(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Something has changed: ``paths`` are relative, and ``more`` says that they are not all."""

    number: int
    paths: list[bytes]
    more: bool


class Broken(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A root is not watched any more: anything may change from now on, and may have changed already."""

    number: int
    reason: str


ToChild = Cover | Drop
FromChild = Hello | Covered | Seen | Broken


def to_frame(message: ToChild | FromChild) -> bytes:
    """Give the whole frame of a message."""
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body
