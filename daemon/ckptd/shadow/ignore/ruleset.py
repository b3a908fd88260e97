"""The rules of one ignore file, arranged so that the last one that matches is found fast."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import Final

from ckptd.shadow.ignore.pattern import Kind, Pattern, read_patterns

__all__ = ["RuleSet", "rules_of"]

_BATCH: Final = 64
_LONG_PATTERN: Final = 1024
_CACHED_BYTES: Final = 1 << 16

_Numbered = tuple[int, Pattern]


class RuleSet:
    """The rules of an ignore file, wherever it lies."""

    def __init__(self, data: bytes) -> None:
        self._patterns: Final = tuple(read_patterns(data))
        self._ignores: Final = tuple(not pattern.negated for pattern in self._patterns)

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def verdict(self, path: bytes, name: bytes, is_dir: bool) -> bool | None:
        """Tell what the last matching rule says: true to ignore, false to re-include; None where no rule matches.

        ``path`` is relative to the directory of the file, ``name`` its last component.
        """
        number = (self._directories if is_dir else self._files).last(path, name)
        return None if number < 0 else self._ignores[number]

    @cached_property
    def _files(self) -> "_Table":
        return _Table([item for item in enumerate(self._patterns) if not item[1].directories_only])

    @cached_property
    def _directories(self) -> "_Table":
        if any(pattern.directories_only for pattern in self._patterns):
            return _Table(list(enumerate(self._patterns)))
        return self._files


class _Table:
    """Rules with their numbers; the highest number that matches wins."""

    def __init__(self, rules: list[_Numbered]) -> None:
        # A rule that matches everything makes all rules above it void.
        self._all: Final = max((number for number, rule in rules if rule.kind is Kind.ALL), default=-1)
        left = [item for item in rules if item[0] > self._all]
        self._names: Final = _literals(left, Kind.NAME)
        self._paths: Final = _literals(left, Kind.PATH)
        self._endings: Final = _literals(left, Kind.ENDING)
        self._ending_sizes: Final = tuple(sorted({len(ending) for ending in self._endings}))
        self._name_globs: Final = tuple(_batches(left, Kind.NAME_GLOB))
        self._path_globs: Final = tuple(_batches(left, Kind.PATH_GLOB))

    def last(self, path: bytes, name: bytes) -> int:
        """Give the number of the last rule that matches, or -1."""
        found = self._names.get(name, self._all)
        if self._paths:
            found = max(found, self._paths.get(path, -1))
        if self._endings:
            found = max(found, self._last_ending(name))
        for globs in self._name_globs:
            if globs.newest > found:
                found = max(found, globs.last(name))
        for globs in self._path_globs:
            if globs.newest > found:
                found = max(found, globs.last(path))
        return found

    def _last_ending(self, name: bytes) -> int:
        found, length = -1, len(name)
        for size in self._ending_sizes:
            if size > length:
                break
            number = self._endings.get(name[length - size :], -1)
            if number > found:
                found = number
        return found


class _Globs:
    """Some regular expressions as one. Its alternatives stand newest first: the first that matches is the last rule."""

    def __init__(self, newest_first: Sequence[_Numbered]) -> None:
        self.newest: Final = newest_first[0][0]
        self._least: Final = min(rule.least for _, rule in newest_first)
        self._numbers: Final = (-1, *(number for number, _ in newest_first))
        self._source: Final = b"|".join([rb"%s\Z()" % rule.text for _, rule in newest_first])

    def last(self, text: bytes) -> int:
        """Give the number of the last rule that matches the whole text, or -1."""
        found = self._regex.match(text) if len(text) >= self._least else None
        return self._numbers[found.lastindex or 0] if found else -1

    @cached_property
    def _regex(self) -> re.Pattern[bytes]:
        return re.compile(self._source, re.DOTALL)


def _literals(rules: list[_Numbered], kind: Kind) -> dict[bytes, int]:
    return {rule.text: number for number, rule in rules if rule.kind is kind}


def _batches(rules: list[_Numbered], kind: Kind) -> Iterator[_Globs]:
    """Put globs together, newest first; a pattern longer than nearly every path waits alone, and is not compiled."""
    newest_first = [item for item in reversed(rules) if item[1].kind is kind]
    usual = iter([item for item in newest_first if item[1].least <= _LONG_PATTERN])
    while batch := list(islice(usual, _BATCH)):
        yield _Globs(batch)
    for item in newest_first:
        if item[1].least > _LONG_PATTERN:
            yield _Globs([item])


_cached: Final = lru_cache(maxsize=512)(RuleSet)


def rules_of(data: bytes) -> RuleSet:
    """Give the rules of a file's content; those of a file of ordinary size are kept for the next scan."""
    return _cached(data) if len(data) <= _CACHED_BYTES else RuleSet(data)
