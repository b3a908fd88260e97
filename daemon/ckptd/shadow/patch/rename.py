"""Renames: which of the deleted files are found again, whole or edited, among the created ones."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, cast

from msgspec.structs import replace

from ckptd.shadow.objects.pieces import Pieces, drained
from ckptd.shadow.patch.pair import Pair, Side, is_huge, is_regular
from ckptd.shadow.patch.similarity import MAX_SCORE, Fingerprint, fingerprint, score

__all__ = ["MAX_CHUNK_LOOKUPS", "MAX_FILE_BYTES", "MAX_TOTAL_BYTES", "find_origin", "find_renames", "finding_renames"]

MAX_FILE_BYTES: Final = 1 << 20
"""Files above this are found again only if they are the same."""
MAX_TOTAL_BYTES: Final = 16 << 20
"""How much content is compared in one call. Its fingerprints take a few times that in memory."""
MAX_CHUNK_LOOKUPS: Final = 2_000_000
"""How many chunks are looked up in one call (a second or two); the search for edited files ends there."""

_CANDIDATES: Final = 4
_AT_ONCE: Final = 500


class _Match(NamedTuple):
    points: int
    same_name: bool
    source: int
    target: int


def find_renames(pairs: Sequence[Pair], *, limit: int = 1000, similarity: float = 0.5) -> list[Pair]:
    """Join deletions and creations of regular files that are renames; the other pairs stay as they are.

    The same content comes first, then files of the same base name, then the most similar ones; as with git,
    edited files are looked for only while sources times targets is at most ``limit`` squared. A source is used
    once, so there are no copies. The order of ``pairs`` (by path) is kept; a rename stands at its new path.
    """
    return drained(finding_renames(pairs, limit=limit, similarity=similarity))


def finding_renames(pairs: Sequence[Pair], *, limit: int = 1000, similarity: float = 0.5) -> Pieces[list[Pair]]:
    """Do the same in pieces."""
    search = _Search(pairs, round(similarity * MAX_SCORE))
    yield from search.matching_same()
    yield from search.matching_base_names()
    if len(search.sources) * len(search.targets) <= limit * limit:
        yield from search.matching_similar()
    return list(_joined(pairs, search.found))


def find_origin(pairs: Sequence[Pair], path: bytes, *, limit: int = 1000, similarity: float = 0.5) -> bytes | None:
    """Tell under which path a created file was until now: as find_renames() does, but of this file alone.

    So one that was edited may be taken for one that find_renames() joins with another creation; a deletion whose
    content is found again elsewhere is none of them. At most ``limit`` deletions are compared.
    """
    search = _Search(pairs, round(similarity * MAX_SCORE))
    drained(search.matching_same())
    target = next((at for at, pair in enumerate(pairs) if pair.path == path), None)
    if target in search.targets:
        search.targets = {target: None}
        drained(search.matching_base_names())
        if search.targets and len(search.sources) <= limit:
            drained(search.matching_similar())
    return pairs[search.found[target]].path if target in search.found else None


def _joined(pairs: Sequence[Pair], found: dict[int, int]) -> Iterator[Pair]:
    used = set(found.values())
    for at, pair in enumerate(pairs):
        if at in found:
            source = pairs[found[at]]
            yield replace(pair, old=source.old, old_path=source.path)
        elif at not in used:
            yield pair


class _Search:
    """The sources and targets that are left, as positions in ``pairs``, and what was found: target to source."""

    def __init__(self, pairs: Sequence[Pair], minimum: int) -> None:
        self.pairs = pairs
        self.minimum = minimum
        # Numbers alone: of a hundred thousand sides in a dict, the collector would look at each while others wait.
        self.sources = dict.fromkeys(at for at, pair in enumerate(pairs) if _is_source(pair))
        self.targets = dict.fromkeys(at for at, pair in enumerate(pairs) if _is_target(pair))
        self.names = {at: pairs[at].path.rpartition(b"/")[2] for at in (*self.sources, *self.targets)}
        self.found: dict[int, int] = {}
        self._prints = _Prints()

    def matching_same(self) -> Pieces[None]:
        by_oid: dict[bytes, int | _Alike] = {}
        for number, at in enumerate(self.sources):
            oid = self._old(at).oid
            other = by_oid.setdefault(oid, at)
            if other != at:
                # Most contents are there once, and need no list.
                alike = other if isinstance(other, _Alike) else _Alike(other, self.names[other])
                alike.add(at, self.names[at])
                by_oid[oid] = alike
            if not number % _AT_ONCE:
                yield False
        for number, at in enumerate(list(self.targets)):
            oid = self._new(at).oid
            found = by_oid.get(oid)
            source = found.take(self.names[at]) if isinstance(found, _Alike) else by_oid.pop(oid, None)
            if isinstance(source, int):
                self._accept(source, at)
            if not number % _AT_ONCE:
                yield False

    def matching_base_names(self) -> Pieces[None]:
        """Match files whose base name is left once on either side, if they are clearly alike: cheap, mostly right."""
        enough = (self.minimum + MAX_SCORE) // 2
        targets = self._unique_names(self.targets)
        for name, source in self._unique_names(self.sources).items():
            target = targets.get(name)
            if target is not None and self._points(source, target) >= enough:
                self._accept(source, target)
            yield False

    def matching_similar(self) -> Pieces[None]:
        best: list[_Match] = []
        for target in self.targets:
            best += self._candidates(target)
            if self._prints.spent:
                break
            yield False
        for match in sorted(best, key=_rank):
            if match.source in self.sources and match.target in self.targets:
                self._accept(match.source, match.target)

    def _candidates(self, target: int) -> list[_Match]:
        name = self.names[target]
        scored = (_Match(self._points(at, target), self.names[at] == name, at, target) for at in self.sources)
        return sorted((match for match in scored if match.points >= max(self.minimum, 1)), key=_rank)[:_CANDIDATES]

    def _points(self, source: int, target: int) -> int:
        return self._prints.score((source, self._old(source)), (target, self._new(target)), self.minimum)

    def _old(self, at: int) -> Side:
        return cast("Side", self.pairs[at].old)

    def _new(self, at: int) -> Side:
        return cast("Side", self.pairs[at].new)

    def _unique_names(self, positions: Iterable[int]) -> dict[bytes, int]:
        positions = list(positions)
        counts = Counter(self.names[at] for at in positions)
        return {self.names[at]: at for at in positions if counts[self.names[at]] == 1}

    def _accept(self, source: int, target: int) -> None:
        self.found[target] = source
        del self.sources[source], self.targets[target]


class _Alike:
    """Sources of one content, in order; handed out once each, the same base name first."""

    def __init__(self, at: int, name: bytes) -> None:
        self._by_name: dict[bytes, dict[int, None]] = {}
        self._order: dict[int, bytes] = {}
        self.add(at, name)

    def add(self, at: int, name: bytes) -> None:
        self._by_name.setdefault(name, {})[at] = None
        self._order[at] = name

    def take(self, name: bytes) -> int | None:
        at = next(iter(self._by_name.get(name) or self._order), None)
        if at is not None:
            del self._by_name[self._order.pop(at)][at]
        return at


class _Prints:
    """Fingerprints, made when first needed, within what one call may read and compare."""

    def __init__(self) -> None:
        self._known: dict[int, Fingerprint | None] = {}
        self._bytes_left = MAX_TOTAL_BYTES
        self._lookups_left = MAX_CHUNK_LOOKUPS

    @property
    def spent(self) -> bool:
        """Tell whether nothing more is to be compared."""
        return self._lookups_left <= 0

    def score(self, old: tuple[int, Side], new: tuple[int, Side], minimum: int) -> int:
        if self.spent:
            return 0
        before, after = self._get(*old), self._get(*new)
        if before is None or after is None:
            return 0
        self._lookups_left -= min(len(before.chunks), len(after.chunks)) + 1
        return score(before, after, minimum)

    def _get(self, at: int, side: Side) -> Fingerprint | None:
        if at not in self._known:
            self._known[at] = self._make(side)
        return self._known[at]

    def _make(self, side: Side) -> Fingerprint | None:
        if self._bytes_left <= 0 or is_huge(side):
            return None
        data = side.content()
        if len(data) > MAX_FILE_BYTES:
            return None
        self._bytes_left -= len(data)
        return fingerprint(data)


def _is_source(pair: Pair) -> bool:
    return pair.new is None and is_regular(pair.old)


def _is_target(pair: Pair) -> bool:
    return pair.old is None and is_regular(pair.new)


def _rank(match: _Match) -> tuple[int, bool]:
    return -match.points, not match.same_name
