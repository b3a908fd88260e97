"""How often a text is in a content that comes in pieces, counted the way git counts it for ``log -S``."""

import re
from typing import Final

__all__ = ["Needle", "Tally"]


class Needle:
    """A text of at least one byte. Its occurrences do not overlap: the first one counts, then those behind its end.

    ``ignore_case`` takes both cases of a letter of UTF-8 text for the same, where each is one character. No other
    patterns: a regular expression can be made to run for ever, and nobody can stop it.
    """

    def __init__(self, text: bytes, *, ignore_case: bool = False) -> None:
        self.key: Final = (text, ignore_case)
        self._text = text
        spellings = [_spellings(char) for char in text.decode("utf-8", "surrogateescape")] if ignore_case else []
        self._pattern = re.compile(b"".join(map(_either, spellings))) if ignore_case else None
        self.longest_bytes: Final = sum(max(map(len, each)) for each in spellings) if ignore_case else len(text)
        self.can_overlap: Final = ignore_case or any(text[:size] == text[-size:] for size in range(1, len(text)))

    def find(self, data: bytes, start: int) -> tuple[int, int] | None:
        """Give begin and end of the first occurrence from ``start`` on."""
        if self._pattern is not None:
            match = self._pattern.search(data, start)
            return None if match is None else match.span()
        begin = data.find(self._text, start)
        return None if begin < 0 else (begin, begin + len(self._text))

    def count_all(self, data: bytes) -> int:
        """Count all of a text that cannot overlap itself."""
        return data.count(self._text)


class Tally:
    """The occurrences in one content: give it the pieces in order, then take the total()."""

    def __init__(self, needle: Needle) -> None:
        self._needle = needle
        self._count = 0
        # What may be the beginning of an occurrence that ends in the next piece.
        self._rest = b""

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        data, longest = self._rest + piece, self._needle.longest_bytes
        if not self._needle.can_overlap:
            self._count += self._needle.count_all(data)
            self._rest = data[max(0, len(data) - longest + 1) :]
            return
        # One that begins further behind may turn out to be another one, with more bytes of the next piece.
        at = self._take(data, len(data) - longest)
        self._rest = data[max(at, len(data) - longest + 1, 0) :]

    def total(self) -> int:
        """Give the number of occurrences; nothing is added afterwards."""
        if self._needle.can_overlap:
            self._take(self._rest, len(self._rest))
        return self._count

    def _take(self, data: bytes, last: int) -> int:
        """Count those that begin at ``last`` or before; give the end of the last one."""
        at = 0
        while (found := self._needle.find(data, at)) is not None and found[0] <= last:
            self._count += 1
            at = found[1]
        return at


def _spellings(char: str) -> list[bytes]:
    """Give a character in both cases; one whose other case has several characters stands for itself alone."""
    both = {char, char.lower(), char.upper()}
    return sorted(each.encode("utf-8", "surrogateescape") for each in both if len(each) == 1)


def _either(spellings: list[bytes]) -> bytes:
    return b"(?:" + b"|".join(map(re.escape, spellings)) + b")"
