"""Patches that ``git apply`` takes, byte for byte as ``git diff --full-index --binary`` writes them."""

import stat
from collections.abc import Iterable, Iterator
from typing import Final

from ckptd.shadow.patch.hunks import render_body
from ckptd.shadow.patch.pair import Pair, Side, is_huge, without_directories
from ckptd.shadow.patch.quote import quote, quote_prefixed
from ckptd.shadow.patch.similarity import percent
from ckptd.shadow.patch.summary import render_name_status, render_stat

__all__ = ["Pair", "Side", "render_name_status", "render_patch", "render_stat"]

_NO_ID: Final = b"0" * 40


def render_patch(pairs: Iterable[Pair], context_lines: int) -> Iterator[bytes]:
    """Give the patch of each pair, in the order given: one chunk of bytes, or several where it is large.

    A pair that git cannot express (an empty directory) or that does not differ gives nothing. A file that became
    a link, or the reverse, is a deletion and a creation.
    Raises DomainError ``internal`` where libgit2 fails, and whatever loading a side raises.
    """
    for pair in pairs:
        for part in _split(without_directories(pair)):
            yield from _render(part, context_lines)


def _split(pair: Pair) -> Iterator[Pair]:
    old, new = pair.old, pair.new
    if old and new and stat.S_IFMT(old.mode) != stat.S_IFMT(new.mode):
        yield Pair(pair.old_path or pair.path, old, None)
        yield Pair(pair.path, None, new)
    elif old or new:
        yield pair


def _render(pair: Pair, context_lines: int) -> Iterator[bytes]:
    old, new = pair.old, pair.new
    differs = old is None or new is None or old.oid != new.oid
    if differs and (is_huge(old) or is_huge(new)):
        yield _without_content(pair)
        return
    before = old.content() if old and differs else b""
    after = new.content() if new and differs else b""
    header = [*_mode_lines(pair), *_rename_lines(pair, before, after)]
    if differs:
        header.append(_index_line(old, new))
    if not header:
        return
    start = b"".join([_git_line(pair), *header])
    if before == after:
        yield start
        return
    body = render_body(before, after, _labels(pair), context_lines)
    yield start + next(body)
    yield from body


def _without_content(pair: Pair) -> bytes:
    """Say that the two differ and no more, as git does of binary files: nothing would be gained by gigabytes."""
    old = quote_prefixed(b"a/", _old_path(pair)) if pair.old else b"/dev/null"
    new = quote_prefixed(b"b/", pair.path) if pair.new else b"/dev/null"
    header = [_git_line(pair), *_mode_lines(pair), _index_line(pair.old, pair.new)]
    return b"".join(header) + b"Binary files %s and %s differ\n" % (old, new)


def _git_line(pair: Pair) -> bytes:
    old = quote_prefixed(b"a/", _old_path(pair))
    return b"diff --git %s %s\n" % (old, quote_prefixed(b"b/", pair.path))


def _old_path(pair: Pair) -> bytes:
    return pair.path if pair.old_path is None else pair.old_path


def _mode_lines(pair: Pair) -> Iterator[bytes]:
    old, new = pair.old, pair.new
    if old is None and new is not None:
        yield b"new file mode %06o\n" % new.mode
    elif old is not None and new is None:
        yield b"deleted file mode %06o\n" % old.mode
    elif old and new and old.mode != new.mode:
        yield b"old mode %06o\n" % old.mode
        yield b"new mode %06o\n" % new.mode


def _rename_lines(pair: Pair, before: bytes, after: bytes) -> Iterator[bytes]:
    if pair.old_path is None:
        return
    yield b"similarity index %d%%\n" % percent(before, after)
    yield b"rename from %s\n" % quote(pair.old_path)
    yield b"rename to %s\n" % quote(pair.path)


def _index_line(old: Side | None, new: Side | None) -> bytes:
    before = old.oid.hex().encode() if old else _NO_ID
    after = new.oid.hex().encode() if new else _NO_ID
    mode = b" %06o" % new.mode if old and new and old.mode == new.mode else b""
    return b"index %s..%s%s\n" % (before, after, mode)


def _labels(pair: Pair) -> bytes:
    old = _label(b"a/", _old_path(pair)) if pair.old else b"/dev/null"
    new = _label(b"b/", pair.path) if pair.new else b"/dev/null"
    return b"--- %s\n+++ %s\n" % (old, new)


def _label(prefix: bytes, name: bytes) -> bytes:
    """Quote a name for ``---`` or ``+++``: readers take a name with a space to end at a tab."""
    label = quote_prefixed(prefix, name)
    return label + b"\t" if b" " in label else label
