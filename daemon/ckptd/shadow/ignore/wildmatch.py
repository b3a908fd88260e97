"""Git's glob patterns (its ``wildmatch``), translated to regular expressions whose matching time is bounded."""

import re
from enum import Enum
from itertools import groupby
from typing import Final

__all__ = ["Mark", "NeverMatchesError", "Token", "parse_glob", "to_regex"]


class Mark(Enum):
    """What a token stands for that is neither a byte nor a set of bytes."""

    STAR = "any bytes of one component"
    SLASH = "the end of a component"
    DIRECTORIES = "any number of components, each with its slash"
    REST = "any bytes up to the end"


Token = int | bytes | Mark
"""One byte; or the regular expression of a set of bytes, never of a slash; or a mark."""


class NeverMatchesError(Exception):
    """A pattern that git accepts and that matches no path: an open bracket, an unknown class, a last backslash."""


_STAR, _SLASH, _BACKSLASH, _QUESTION, _OPEN, _CLOSE, _DASH, _COLON = b"*/\\?[]-:"
_SPECIAL: Final = re.compile(rb"[*?\[\\]")
_STARS: Final = re.compile(rb"\*+")
_ANY: Final = b"[^/]"
_BYTES: Final = frozenset(range(1, 256))

_UPPER: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz")
_DIGIT: Final = frozenset(b"0123456789")
# These are git's own classes, whatever the locale: ASCII alone, and neither \v nor \f counts as space.
_CLASSES: Final = {
    b"alnum": _UPPER | _LOWER | _DIGIT,
    b"alpha": _UPPER | _LOWER,
    b"blank": frozenset(b" \t"),
    b"cntrl": frozenset(range(1, 32)) | {127},
    b"digit": _DIGIT,
    b"graph": frozenset(range(33, 127)),
    b"lower": _LOWER,
    b"print": frozenset(range(32, 127)),
    b"punct": frozenset(range(33, 127)) - _UPPER - _LOWER - _DIGIT,
    b"space": frozenset(b" \t\n\r"),
    b"upper": _UPPER,
    b"xdigit": _DIGIT | frozenset(b"abcdefABCDEF"),
}


def parse_glob(pattern: bytes) -> list[Token]:
    """Read a pattern without NUL, without ``!``, a leading or a trailing slash.

    Raises NeverMatchesError where no path can match.
    """
    return _merged(_Parser(pattern).tokens())


def to_regex(tokens: list[Token]) -> bytes:
    """Give a regular expression (to be compiled with DOTALL and followed by ``\\Z``) for what ``parse_glob`` gave.

    A component has one place where it can end, and so has a run of components between two ``**``; the leftmost
    match of every part but the last is therefore kept for good (``(?>``), and nothing is tried again: the time is
    at most proportional to the product of the two lengths, where plain backtracking would be exponential.
    """
    first, *others = _split(tokens, Mark.DIRECTORIES)
    regex = [_components(first)]
    regex += [b"(?>(?:[^/]*/)*?%s)" % _components(run) for run in others[:-1]]
    regex += [b"(?:[^/]*/)*?%s" % _components(run) for run in others[-1:]]
    return b"".join(regex)


def _split(tokens: list[Token], mark: Mark) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token is mark:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _components(tokens: list[Token]) -> bytes:
    return b"/".join([_component(part) for part in _split(tokens, Mark.SLASH)])


def _component(tokens: list[Token]) -> bytes:
    if tokens and tokens[-1] is Mark.REST:
        return _component(tokens[:-1]) + b".*"
    first, *others = [_text(part) for part in _split(tokens, Mark.STAR)]
    middle = [b"(?>[^/]*?%s)" % text for text in others[:-1]]
    last = [b"[^/]*%s" % text for text in others[-1:]]
    return b"".join([first, *middle, *last])


def _text(tokens: list[Token]) -> bytes:
    sets_and_bytes = [token for token in tokens if not isinstance(token, Mark)]
    return b"".join([re.escape(bytes([token])) if isinstance(token, int) else token for token in sets_and_bytes])


def _merged(tokens: list[Token]) -> list[Token]:
    """Drop the marks that add nothing to the mark behind or before them."""
    merged: list[Token] = []
    for token in tokens:
        if merged and merged[-1] is Mark.DIRECTORIES and token in (Mark.DIRECTORIES, Mark.REST):
            merged.pop()
        merged.append(token)
    return merged


class _Parser:
    """Reads one pattern from left to right; NUL ends the text, as in git's own reading of it."""

    def __init__(self, pattern: bytes) -> None:
        special = _SPECIAL.search(pattern)
        self._text = pattern + b"\0"
        self._prefix = special.start() if special else len(pattern)
        self._at = 0
        self._close = -1

    def tokens(self) -> list[Token]:
        tokens: list[Token] = []
        while byte := self._text[self._at]:
            if byte == _STAR:
                tokens += self._stars()
            elif byte == _OPEN:
                tokens.append(self._bracket())
            elif byte == _QUESTION:
                self._at += 1
                tokens.append(_ANY)
            else:
                literal = self._literal()
                tokens.append(Mark.SLASH if literal == _SLASH else literal)
        return tokens

    def _literal(self) -> int:
        """Take one byte, or the one behind a backslash."""
        if self._text[self._at] == _BACKSLASH:
            self._at += 1
        byte = self._text[self._at]
        if not byte:
            raise NeverMatchesError
        self._at += 1
        return byte

    def _stars(self) -> list[Token]:
        start = self._at
        stars = _STARS.match(self._text, start)
        self._at = stars.end() if stars else start
        # Git compares the text before the first special byte by itself, so that `**` right behind it stands at
        # the start of what is left: in `a/b**/c` it crosses slashes, in `?/b**/c` it does not.
        free = start == self._prefix or self._text[start - 1] == _SLASH
        return self._crossing() if free and self._at - start > 1 else [Mark.STAR]

    def _crossing(self) -> list[Token]:
        """Take what follows ``**`` at the start of a component."""
        after = self._text[self._at]
        if not after:
            return [Mark.REST]
        if after == _SLASH:
            self._at += 1
            return [Mark.DIRECTORIES]
        if self._text.startswith(rb"\/", self._at):
            # Git lets `**/` match nothing at all, but not `**\/`.
            self._at += 2
            return [Mark.STAR, Mark.SLASH, Mark.DIRECTORIES]
        return [Mark.STAR]

    def _bracket(self) -> Token:
        self._at += 1
        negated = self._text[self._at] in b"!^"
        self._at += negated
        members: set[int] = set()
        previous = self._member(0, members)
        while self._text[self._at] != _CLOSE:
            previous = self._member(previous, members)
        self._at += 1
        return _set_token((_BYTES - members if negated else members) - {_SLASH})

    def _member(self, previous: int, members: set[int]) -> int:
        """Take one byte, range or class; give the byte that a range can start with, 0 for none."""
        text, at = self._text, self._at
        if text[at] == _DASH and previous and text[at + 1] not in (0, _CLOSE):
            self._at += 1
            members.update(range(previous, self._literal() + 1))
            return 0
        if text.startswith(b"[:", at) and self._class(members):
            return 0
        byte = self._literal()
        members.add(byte)
        return byte

    def _class(self, members: set[int]) -> bool:
        """Take ``[:name:]``; false where there is no ``:]``, so that the bracket is an ordinary byte."""
        start = self._at + 2
        # The place is kept, since a long line of `[:` would otherwise be searched to its end each time.
        if self._close < start:
            self._close = self._text.find(b"]", start)
        if self._close < 0:
            raise NeverMatchesError
        if self._close == start or self._text[self._close - 1] != _COLON:
            return False
        named = _CLASSES.get(self._text[start : self._close - 1])
        if named is None:
            raise NeverMatchesError
        members.update(named)
        self._at = self._close + 1
        return True


def _set_token(members: set[int] | frozenset[int]) -> Token:
    if not members:
        raise NeverMatchesError
    if len(members) == 1:
        return next(iter(members))
    if len(members) == len(_BYTES) - 1:
        return _ANY
    runs = [[byte for _, byte in run] for _, run in groupby(enumerate(sorted(members)), lambda item: item[1] - item[0])]
    return b"[%s]" % b"".join([b"\\x%02x-\\x%02x" % (run[0], run[-1]) for run in runs])
