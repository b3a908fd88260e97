"""Where a patch or a file is cut, so that what a model reads begins and ends well. Pure."""

import re
from typing import Final, NamedTuple

__all__ = ["Text", "as_text", "file_names", "lines_end", "patch_end"]

_FILE: Final = b"\ndiff --git "
_HEAD: Final = re.compile(rb"^diff --git (.*)$", re.MULTILINE)
_NAMES: Final = 20
_REPLACED: Final = "\ufffd"


class Text(NamedTuple):
    """Bytes as text. ``replaced`` counts what is not UTF-8 and stands as U+FFFD; ``binary``: there is a NUL in it."""

    text: str
    replaced: int
    binary: bool


def as_text(data: bytes) -> Text:
    """Read bytes as text, and say how far that is true."""
    text = data.decode("utf-8", "replace")
    # What was U+FFFD before is not a replacement.
    return Text(text, text.count(_REPLACED) - data.count(_REPLACED.encode()), b"\0" in data)


def patch_end(patch: bytes, start: int, most: int) -> int:
    """Where a page of a patch that begins at ``start`` ends: before a file if one fits, else at the end of a line."""
    if len(patch) - start <= most:
        return len(patch)
    found = patch.rfind(_FILE, start, start + most + len(_FILE))
    return found + 1 if found >= start else lines_end(patch, start, most)


def lines_end(data: bytes, start: int, most: int) -> int:
    """Where a piece of at most ``most`` bytes ends: at the end of a line if one fits, else between two characters."""
    if len(data) - start <= most:
        return len(data)
    found = data.rfind(b"\n", start, start + most)
    if found >= start:
        return found + 1
    end = start + most
    # At most three bytes of a character follow its first one.
    for back in range(min(4, most)):
        if data[end - back] & 0xC0 != 0x80:
            return end - back
    return end


def file_names(patch: bytes, start: int) -> tuple[int, list[str]]:
    """Count the files that a patch has from ``start`` on, and name the first of them as the patch does."""
    heads = _HEAD.findall(patch, start)
    return len(heads), [_name(head.decode("utf-8", "replace")) for head in heads[:_NAMES]]


def _name(head: str) -> str:
    """The second name of ``a/NAME b/NAME``, each of which may be in quotes."""
    half = len(head) // 2
    if head[:half].replace("a/", "b/", 1) == head[half + 1 :]:
        second = head[half + 1 :]
    else:
        second = head[max(head.rfind(" b/"), head.rfind(' "b/')) + 1 :]
    return second.replace("b/", "", 1)
