"""The sections of a binary patch: deflated data in lines of git's base 85."""

import base64
import zlib
from collections.abc import Iterator
from typing import Final

__all__ = ["decode_lines", "deflated_section"]

_LINE_BYTES: Final = 52
_LINE_CHARS: Final = _LINE_BYTES // 4 * 5
_PIECE_BYTES: Final = _LINE_BYTES * 1024
_LENGTHS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def deflated_section(kind: bytes, data: bytes) -> Iterator[bytes]:
    """Give a section of ``kind`` (``literal`` or ``delta``) in pieces of about 64 KiB, with the empty line after it."""
    yield b"%s %d\n" % (kind, len(data))
    waiting = b""
    for deflated in _deflated(data):
        waiting += deflated
        whole = len(waiting) // _LINE_BYTES * _LINE_BYTES
        if whole:
            yield _encode_lines(waiting[:whole])
            waiting = waiting[whole:]
    yield _encode_lines(waiting) + b"\n"


def decode_lines(lines: bytes) -> bytes:
    """Give back the (deflated) data of a section's lines."""
    return b"".join(base64.b85decode(line[1:])[: _LENGTHS.index(line[0]) + 1] for line in lines.splitlines())


def _deflated(data: bytes) -> Iterator[bytes]:
    # git's own level for patches; another would only make other bytes
    packer = zlib.compressobj(zlib.Z_BEST_SPEED)
    view = memoryview(data)
    for at in range(0, len(data), _PIECE_BYTES):
        yield packer.compress(view[at : at + _PIECE_BYTES])
    yield packer.flush()


def _encode_lines(data: bytes) -> bytes:
    """Encode in git's lines: a letter for the number of bytes, then five characters for four bytes."""
    text = base64.b85encode(data, pad=True)
    lines = []
    for number, at in enumerate(range(0, len(text), _LINE_CHARS)):
        length = min(len(data) - number * _LINE_BYTES, _LINE_BYTES)
        lines.append(b"%c%s\n" % (_LENGTHS[length - 1], text[at : at + _LINE_CHARS]))
    return b"".join(lines)
