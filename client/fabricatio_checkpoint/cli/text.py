"""Names, messages and numbers as a terminal may show them."""

from __future__ import annotations

from ckpt_protocol.wirepath import decode, to_bytes

__all__ = ["MANY", "broken", "counted", "first_line", "quoted", "short", "size", "visible", "wire_text"]

MANY = 20
"""How many paths a summary lists before it only counts the rest."""

_SHORT_DIGITS = 10
_LETTERS = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}


def short(checkpoint_id: str) -> str:
    """The digits of an id that lists show."""
    return checkpoint_id[:_SHORT_DIGITS]


def wire_text(path: object) -> str:
    """Show a path of an answer, as quoted() does."""
    return _quoted_bytes(decode(path))


def quoted(path: str) -> str:
    """Show a path (as ``os.fsdecode`` gives it) on one line.

    Git's C quoting, with UTF-8 left readable: a name with control or invisible characters, quotes, backslashes or
    bytes that are not UTF-8 is put in quotes and those are escaped.
    """
    return _quoted_bytes(to_bytes(path))


def _quoted_bytes(path: bytes) -> str:
    text = path.decode("utf-8", "surrogateescape")
    if text.isprintable() and '"' not in text and "\\" not in text:
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    letter = _LETTERS.get(ord(char))
    if letter is not None:
        return "\\" + letter
    if char.isprintable():
        return char
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))


def visible(text: str) -> str:
    """Show text on one line without letting it steer the terminal: what is not printable is escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def first_line(message: str | None) -> str:
    """Show the first line of a message; ``-`` where there is none."""
    if not message or not message.strip():
        return "-"
    return visible(message.strip().splitlines()[0].rstrip())


def broken(text: str, columns: int, indent: str) -> list[str]:
    """Break text between words, so that a line has at most so many columns if its words let it."""
    parts: list[str] = []
    for word in text.split(" "):
        if parts and len(parts[-1]) + 1 + len(word) <= columns:
            parts[-1] += f" {word}"
        else:
            parts.append(indent + word if parts else word)
    return parts


def counted(number: int, noun: str) -> str:
    """Give a number and its noun: ``1 file``, ``2 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(number: float) -> str:
    """Give a number of bytes in a unit that reads well (powers of 1024)."""
    if number < 1024:
        return f"{number:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        number /= 1024
        if number < 1024:
            return f"{number:.1f} {unit}"
    return f"{number / 1024:.1f} TiB"
