"""The lines that show a patch, or a file that is new in its whole: binary content is said, length has a limit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from fabricatio_checkpoint.cli.patchview import told_lines
from fabricatio_checkpoint.cli.text import size, visible
from fabricatio_checkpoint.record import Patch
from fabricatio_checkpoint.ui.span import Line, Span, expanded

__all__ = ["MAX_BYTES", "of_file", "of_patch"]

MAX_BYTES = 512 * 1024
"""So much of a patch is read; nobody scrolls through more."""

_MAX_LINES = 5000
_MAX_COLUMNS = 2000
_BINARY = "GIT binary patch"
_NOISE = ("diff --git ", "index ", "--- ", "+++ ")
_NUL_WITHIN = 8000
"""Where git looks for a NUL to call a content binary."""


def of_patch(patch: Patch) -> tuple[Line, ...]:
    """Show the patch of one path; what it has no words for comes first."""
    notes = [(Span(visible(note), "note"),) for note in patch.notes]
    whole = len(patch.data) >= patch.total_bytes
    lines = list(islice(_told(patch.data), _MAX_LINES + 1))
    if not lines and not notes:
        return ((Span("no difference in content", "dim"),),)
    return (*notes, *_limited(lines, whole=whole, total_bytes=patch.total_bytes))


def of_file(data: bytes, *, whole: bool) -> tuple[Line, ...]:
    """Show a content that stands where nothing was before it."""
    if b"\0" in data[:_NUL_WITHIN]:
        return ((Span(f"new binary file, {_at_least(len(data), whole=whole)}", "note"),),)
    if not data:
        return ((Span("new, empty file", "note"),),)
    texts = data.removesuffix(b"\n").split(b"\n")
    told = (_line("added", "+" + text.decode("utf-8", "backslashreplace")) for text in texts)
    return _limited(list(islice(told, _MAX_LINES + 1)), whole=whole, total_bytes=None)


def _told(data: bytes) -> Iterator[Line]:
    binary = False
    for part, text in told_lines([data]):
        if part == "head" and text.startswith("diff --git "):
            binary = False
        if binary:
            # Its lines are base 85, which nobody reads.
            continue
        if part == "head" and text == _BINARY:
            binary = True
            yield (Span("binary file: its content is not shown", "note"),)
        elif part != "head" or not text.startswith(_NOISE):
            yield _line("note" if part == "head" else part, text)


def _line(role: str, text: str) -> Line:
    shown = text if len(text) <= _MAX_COLUMNS else text[:_MAX_COLUMNS] + "…"
    return (Span(expanded("\t".join(map(visible, shown.split("\t")))), role),)


def _limited(lines: list[Line], *, whole: bool, total_bytes: int | None) -> tuple[Line, ...]:
    if len(lines) <= _MAX_LINES and whole:
        return tuple(lines)
    of_all = "" if total_bytes is None else f" of {size(total_bytes)}"
    return (
        *lines[:_MAX_LINES],
        (Span(f"… cut here: too long to show{of_all}; ckpt diff and ckpt cat have all", "note"),),
    )


def _at_least(number: int, *, whole: bool) -> str:
    return size(number) if whole else f"more than {size(number)}"
