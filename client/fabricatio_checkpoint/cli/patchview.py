"""A patch as a person sees it on a terminal: in colour, and unable to steer the terminal."""

from __future__ import annotations

import re

from fabricatio_checkpoint.cli.text import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["patch_lines", "stat_lines", "told_lines"]

_COLOURS = {"head": "1", "deleted": "31", "added": "32", "hunk": "36"}
_MARKS = {"+": "added", "-": "deleted"}


_BAR = re.compile(r"^( .* \| +\d+ )(\+*)(-*)$")


def stat_lines(pieces: Iterable[bytes], *, colour: bool) -> Iterator[str]:
    """Give the lines of a summary likewise; its bars are coloured."""
    for line in _lines(pieces):
        text = visible(line.decode("utf-8", "backslashreplace"))
        found = _BAR.match(text) if colour else None
        if found is not None:
            text = found[1] + _coloured("added", found[2]) + _coloured("deleted", found[3])
        yield text


def _coloured(part: str, text: str) -> str:
    return f"\x1b[{_COLOURS[part]}m{text}\x1b[m" if text else ""


def patch_lines(pieces: Iterable[bytes], *, colour: bool) -> Iterator[str]:
    """Give the lines of a patch that comes in pieces; control characters of files and names are escaped."""
    for part, text in told_lines(pieces):
        yield _coloured(part, text) if colour and part else text


def told_lines(pieces: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    """Give the lines as patch_lines() does, each with what it is: head, hunk, added, deleted, or nothing of these."""
    view = _View()
    for line in _lines(pieces):
        text = "\t".join(visible(part) for part in line.decode("utf-8", "backslashreplace").split("\t"))
        yield view.part(text), text


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest


class _View:
    """Knows what a line is. Inside a hunk the first character tells, whatever the line looks like.

    ``old`` and ``new`` count the lines that the hunk still has of either side.
    """

    def __init__(self) -> None:
        self.old = 0
        self.new = 0

    def part(self, line: str) -> str:
        """Say what the next line is."""
        if self.old > 0 or self.new > 0:
            return self._in_hunk(line)
        if line.startswith("@@ "):
            self.old, self.new = (_count(part) for part in line.split(" ")[1:3])
            return "hunk"
        return "" if line.startswith("\\") else "head"

    def _in_hunk(self, line: str) -> str:
        if line.startswith("\\"):
            return ""
        self.old -= not line.startswith("+")
        self.new -= not line.startswith("-")
        return _MARKS.get(line[:1], "")


def _count(part: str) -> int:
    """Read the number of lines of ``-12,3``; one line where none is said."""
    _, comma, number = part.partition(",")
    return int(number) if comma else 1
