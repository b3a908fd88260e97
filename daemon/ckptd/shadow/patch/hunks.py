"""What stands below a patch's header: hunks of text from libgit2, or a binary patch."""

import re
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import pygit2
from pygit2.enums import DiffOption

from ckptd.errors import DomainError
from ckptd.shadow.patch.base85 import decode_lines, deflated_section
from ckptd.shadow.patch.similarity import is_binary

__all__ = ["LARGE_BINARY_BYTES", "LARGE_BYTES", "LARGE_SPAN_LINES", "Counts", "count_lines", "render_body"]

# libgit2 holds the interpreter lock for a whole comparison, so whatever would take it long is not given to it.
LARGE_BYTES: Final = 1 << 20
"""Above this (either side), a pair gets a binary patch made by our own code, a piece at a time."""
LARGE_BINARY_BYTES: Final = 256 << 10
"""The same for binary content, where libgit2 also compresses: 35 ms at this size."""
LARGE_SPAN_LINES: Final = 15_000
"""The same for text with more lines (geometric mean of both sides) from the first difference to the last: 50 ms."""

_FLAGS: Final = DiffOption.SHOW_BINARY | DiffOption.INDENT_HEURISTIC
_SECTION: Final = re.compile(rb"(literal|delta) \d+\n((?:.+\n)+)\n")


class Counts(NamedTuple):
    """Lines added and deleted, or, where ``binary``, the size in bytes after and before."""

    added: int
    deleted: int
    binary: bool


def render_body(old: bytes, new: bytes, labels: bytes, context_lines: int) -> Iterator[bytes]:
    """Give what follows the header where ``old`` and ``new`` differ, a large one in several pieces.

    ``labels`` are the two lines that name the files; they stand before hunks, and not before a binary patch.
    Raises DomainError ``internal`` where libgit2 fails.
    """
    if _too_large(old, new):
        yield b"GIT binary patch\n"
        yield from deflated_section(b"literal", new)
        yield from deflated_section(b"literal", old)
    elif _binary(old, new):
        yield b"GIT binary patch\n"
        yield from _smaller_of_literal_and_delta(old, new)
    else:
        yield labels + _cut(_patch(old, new, DiffOption.FORCE_TEXT, context_lines), b"@@ ")


def count_lines(old: bytes, new: bytes) -> Counts:
    """Count what a patch adds and deletes. Raises DomainError ``internal`` where libgit2 fails."""
    if old == new:
        return Counts(0, 0, is_binary(old))
    if _too_large(old, new) or _binary(old, new):
        return Counts(len(new), len(old), True)
    _, added, deleted = _patch(old, new, DiffOption.FORCE_TEXT, 0).line_stats
    return Counts(added, deleted, False)


def _binary(old: bytes, new: bytes) -> bool:
    return is_binary(old) or is_binary(new)


def _too_large(old: bytes, new: bytes) -> bool:
    limit = LARGE_BINARY_BYTES if _binary(old, new) else LARGE_BYTES
    return max(len(old), len(new)) > limit or (not _binary(old, new) and _span_is_long(old, new))


def _span_is_long(old: bytes, new: bytes) -> bool:
    head = _common_head(old, new)
    tail = _common_tail(old[head:], new[head:])
    before = old.count(b"\n", head, len(old) - tail)
    return before * new.count(b"\n", head, len(new) - tail) > LARGE_SPAN_LINES**2


def _common_head(old: bytes, new: bytes) -> int:
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_tail(old: bytes, new: bytes) -> int:
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[len(old) - middle : len(old) - low] == new[len(new) - middle : len(new) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def _patch(old: bytes, new: bytes, kind: DiffOption, context_lines: int) -> pygit2.Patch:
    try:
        # the kind is always forced: left to itself, libgit2 would ask attributes and its own idea of binary
        return pygit2.Patch.create_from(
            old,
            new,
            old_as_path="a",
            new_as_path="a",
            flag=_FLAGS | kind,
            context_lines=context_lines,
            interhunk_lines=0,
        )
    except (pygit2.GitError, ValueError, OSError) as error:
        raise DomainError("internal", f"cannot compare two files: {error}") from error


def _cut(patch: pygit2.Patch, start: bytes) -> bytes:
    """Drop libgit2's header, whose names and modes are placeholders."""
    data = patch.data
    at = data.find(b"\n" + start)
    if at < 0:
        raise DomainError("internal", "libgit2 found no difference between two files that differ")
    return data[at + 1 :]


def _smaller_of_literal_and_delta(old: bytes, new: bytes) -> Iterator[bytes]:
    """Take libgit2's deltas, packed again: it deflates at another level than git, so that the bytes would differ."""
    body = _cut(_patch(old, new, DiffOption.FORCE_BINARY, 0), b"GIT binary patch\n")
    for data, (kind, lines) in zip((new, old), _SECTION.findall(body), strict=True):
        what = data if kind == b"literal" else zlib.decompress(decode_lines(lines))
        yield from deflated_section(kind, what)
