"""How much of one file is found again in another, counted the way git counts it for renames."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["MAX_SCORE", "Fingerprint", "fingerprint", "is_binary", "percent", "score"]

MAX_SCORE: Final = 60_000
"""The score of two files of the same content; git's scale, so that its rounding comes out the same."""

_LOOKS_AT: Final = 8000
_PIECE_BYTES: Final = 1 << 16
_CHUNK: Final = re.compile(rb"[^\n]{64}|[^\n]*\n|[^\n]+")


class Fingerprint(NamedTuple):
    """The size of a file and how often each of its chunks (a line, at most 64 bytes of it) is in it."""

    size: int
    chunks: Counter[bytes]


def is_binary(data: bytes) -> bool:
    """Tell whether git would call this binary: a NUL among the first 8000 bytes."""
    return data.find(b"\0", 0, _LOOKS_AT) >= 0


def fingerprint(data: bytes) -> Fingerprint:
    """Cut content into chunks and count them. In text, a carriage return before a line feed does not count."""
    text = data if is_binary(data) else data.replace(b"\r\n", b"\n")
    chunks: Counter[bytes] = Counter()
    for piece in _pieces(text):
        chunks.update(_CHUNK.findall(piece))
    return Fingerprint(len(data), chunks)


def score(old: Fingerprint, new: Fingerprint, minimum: int = 0) -> int:
    """Give 0 to MAX_SCORE; 0 at once where the sizes alone rule out ``minimum``."""
    largest = max(old.size, new.size)
    if not new.size or largest * (MAX_SCORE - minimum) < abs(old.size - new.size) * MAX_SCORE:
        return 0
    few, many = sorted((old.chunks, new.chunks), key=len)
    copied = sum(len(chunk) * min(count, many[chunk]) for chunk, count in few.items() if chunk in many)
    return copied * MAX_SCORE // largest


def percent(old: bytes, new: bytes) -> int:
    """Give the whole per cent that the header of a rename states."""
    return 100 if old == new else score(fingerprint(old), fingerprint(new)) * 100 // MAX_SCORE


def _pieces(text: bytes) -> Iterator[bytes]:
    """Cut at line ends where possible: one call of the regex engine holds the interpreter lock."""
    at = 0
    while at < len(text):
        end = text.rfind(b"\n", at, at + _PIECE_BYTES) + 1
        if not end:
            end = at + _PIECE_BYTES
        yield text[at:end]
        at = end
