"""Pieces of a line and how many columns they take. Text of files, names and messages is escaped before it gets here."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

__all__ = ["Line", "Span", "cut", "cut_path", "expanded", "fitted", "padded", "plain", "width"]

_ELLIPSIS = "…"
_TAB = 4


class Span(NamedTuple):
    """Text of one line, and what it is: a role that a theme gives a colour, or nothing special."""

    text: str
    role: str = ""


Line = tuple[Span, ...]


def plain(line: Line) -> str:
    """Give a line without its roles."""
    return "".join(span.text for span in line)


def width(line: Line) -> int:
    """Count the columns of a line: a wide character takes two, a combining one none."""
    return sum(cell_len(span.text) for span in line)


def cut(text: str, columns: int) -> str:
    """Shorten text to so many columns; an ellipsis stands for what is missing at its end."""
    if cell_len(text) <= columns:
        return text
    if columns <= 0:
        return ""
    return set_cell_size(text, columns - 1).rstrip() + _ELLIPSIS


def cut_path(path: str, columns: int) -> str:
    """Shorten a path: its end, which tells files apart, stays."""
    if cell_len(path) <= columns:
        return path
    if columns <= 0:
        return ""
    start, left = len(path), columns - 1
    while start and (left := left - cell_len(path[start - 1])) >= 0:
        start -= 1
    return _ELLIPSIS + path[start:]


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """Bring text to exactly so many columns, cut or with spaces; ``right`` puts these before it."""
    text = cut(text, columns)
    space = " " * (columns - cell_len(text))
    return space + text if right else text + space


def fitted(line: Line, columns: int) -> Line:
    """Cut a line that is too long; its last piece says so."""
    if width(line) <= columns:
        return line
    kept: list[Span] = []
    for span in line:
        if cell_len(span.text) >= columns:
            # At the very edge the ellipsis has to replace something of this piece.
            kept.append(Span(cut(span.text + " ", columns), span.role))
            break
        kept.append(span)
        columns -= cell_len(span.text)
    return tuple(kept)


def expanded(text: str) -> str:
    """Replace tabs by spaces, as columns count."""
    *parts, last = text.split("\t")
    done, column = [], 0
    for part in parts:
        column += cell_len(part)
        space = _TAB - column % _TAB
        done.append(part + " " * space)
        column += space
    return "".join(done) + last
