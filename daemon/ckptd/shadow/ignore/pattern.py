"""One line of an ignore file, read as git reads it."""

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from ckptd.shadow.ignore.wildmatch import Mark, NeverMatchesError, Token, parse_glob, to_regex

__all__ = ["Kind", "Pattern", "read_patterns"]

_BOM: Final = b"\xef\xbb\xbf"
_WILD: Final = (Mark.STAR, Mark.REST)
_CROSSING: Final = (Mark.SLASH, Mark.DIRECTORIES)


class Kind(Enum):
    """What a pattern is compared with, and how."""

    ALL = "every path"
    NAME = "a name, byte for byte"
    ENDING = "the end of a name, byte for byte"
    PATH = "a path relative to the file's directory, byte for byte"
    NAME_GLOB = "a name, by a regular expression"
    PATH_GLOB = "a path relative to the file's directory, by a regular expression"


class Pattern(NamedTuple):
    """A rule. ``text`` is the literal or the regular expression; ``least`` the fewest bytes that can match."""

    kind: Kind
    text: bytes
    least: int
    negated: bool
    directories_only: bool


def read_patterns(data: bytes) -> Iterator[Pattern]:
    """Give the rules of an ignore file in their order, without the lines that can match nothing."""
    for line in data.removeprefix(_BOM).split(b"\n"):
        if line and not line.startswith(b"#"):
            pattern = _read(_trim(line.removesuffix(b"\r").partition(b"\0")[0]))
            if pattern is not None:
                yield pattern


def _trim(line: bytes) -> bytes:
    """Cut the spaces at the end, but not one that a backslash protects."""
    kept = line.rstrip(b" ")
    if kept == line:
        return line
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if backslashes % 2 else kept


def _read(line: bytes) -> Pattern | None:
    glob = line.removeprefix(b"!")
    negated = glob != line
    directories_only = glob.endswith(b"/")
    glob = glob[:-1] if directories_only else glob
    try:
        tokens = parse_glob(glob.removeprefix(b"/"))
    except NeverMatchesError:
        return None
    if not tokens:
        return None
    kind, tokens = _classify(tokens, anchored=b"/" in glob)
    least = sum(not isinstance(token, Mark) or token is Mark.SLASH for token in tokens)
    return Pattern(kind, _text(kind, tokens), least, negated, directories_only)


def _classify(tokens: list[Token], *, anchored: bool) -> tuple[Kind, list[Token]]:
    """Choose the cheapest way to compare, and give the tokens that are left to be compared."""
    last = tokens[1:]
    if last and tokens[0] is Mark.DIRECTORIES and not any(token in _CROSSING for token in last):
        # `**/x` asks for the name alone, as `x` does.
        anchored, tokens = False, last
    literal = all(isinstance(token, int) or token is Mark.SLASH for token in tokens)
    if anchored and tokens[0] is not Mark.REST:
        return (Kind.PATH if literal else Kind.PATH_GLOB), tokens
    if literal:
        return Kind.NAME, tokens
    if len(tokens) == 1 and tokens[0] in _WILD:
        return Kind.ALL, tokens
    if tokens[0] is Mark.STAR and all(isinstance(token, int) for token in tokens[1:]):
        return Kind.ENDING, tokens[1:]
    return Kind.NAME_GLOB, tokens


def _text(kind: Kind, tokens: list[Token]) -> bytes:
    if kind in (Kind.NAME_GLOB, Kind.PATH_GLOB):
        return to_regex(tokens)
    return bytes([token if isinstance(token, int) else ord("/") for token in tokens if token not in _WILD])
