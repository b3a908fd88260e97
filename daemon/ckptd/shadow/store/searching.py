"""Looking for a text in what checkpoints changed, in small steps beside everything else.

A checkpoint is compared as ``show`` compares it. It adds or removes the text where the number of occurrences differs
between the two sides of a path, as for ``git log -S``; a file that only has another name now is no hit.
"""

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ckpt_protocol.checkpoint import Occurrences, SearchHit, SearchParams, SearchResult
from ckpt_protocol.structs import CheckpointRecord, from_wire, to_wire
from ckptd.errors import DomainError
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.patch.needle import Needle, Tally
from ckptd.shadow.record.lookup import Lookup, Recent
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.stepping import go_on
from ckptd.shadow.trees.compare import Delta, compare
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import LINK
from ckptd.shadow.trees.view import DirectoryView, find_state, find_view

__all__ = ["Counts", "Searching", "needle_of"]

_WITH_HITS_S: Final = 0.25
"""How long a result waits for more hits: whoever asked wants to see the first ones."""
_WITHOUT_HITS_S: Final = 30.0
_LONGEST_TEXT_BYTES: Final = 4096
_LISTED_PATHS: Final = 1000
_REMEMBERED: Final = 50_000
_PIECE_BYTES: Final = 1 << 17
"""What is looked through at once: it holds the interpreter's lock."""
_DAMAGE: Final = frozenset({"object_missing", "store_damaged"})


def needle_of(params: SearchParams) -> Needle:
    """Give what a request looks for; raises DomainError ``bad_option`` for an empty text and one that is too long."""
    text = from_wire(params.text)
    if not 0 < len(text) <= _LONGEST_TEXT_BYTES:
        raise DomainError("bad_option", f"a text to search for has 1 to {_LONGEST_TEXT_BYTES} bytes, not {len(text)}")
    return Needle(text, ignore_case=params.ignore_case)


class Counts:
    """How often a text is in contents, by blob id; None: it could not be read. Those looked at first are forgotten."""

    def __init__(self, needle: Needle) -> None:
        self.needle: Final = needle
        self._known: dict[bytes, int | None] = {}

    def __contains__(self, oid: bytes) -> bool:
        return oid in self._known

    def __getitem__(self, oid: bytes) -> int | None:
        return self._known[oid]

    def note(self, oid: bytes, count: int | None) -> None:
        """Remember the count of a content."""
        if len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[oid] = count


class _Found(NamedTuple):
    """A path with a file or link on at least one side, and how often the text is in each."""

    path: bytes
    old: State | None
    new: State | None
    before: int
    after: int


class Searching:
    """One search under way; step() goes on with it. Used by one thread at a time.

    It ends some moments after the first hit, so that it can be seen, and its result says where to go on.
    """

    is_waiting: Final = False

    def __init__(
        self, lookup: Lookup, objects: ObjectStore, params: SearchParams, counts: Counts, asker: Asker
    ) -> None:
        self._lookup = lookup
        self._recent: Final = Recent(lookup)
        self._objects = objects
        self._params = params
        self._paths = _outermost([from_wire(path) for path in params.paths])
        self._counts = counts
        self._asker = asker
        self._begun_s = time.monotonic()
        self._hits: list[SearchHit] = []
        self._next_seq: int | None = None
        self._searched = self._damaged = self._unread = self._bytes = 0
        self._at = (0, 0)
        self._run: Final = self._look()

    def step(self) -> SearchResult | None:
        """Go on for a moment; give the result once it is there. Raises DomainError ``cancelled``."""
        try:
            is_done = go_on(self._run, self._asker, "search")
            self._asker.tell("search", *self._at, self._bytes)
            if not is_done:
                return None
        except BaseException:
            self.close()
            raise
        return SearchResult(
            hits=self._hits,
            head=self._lookup.names().head,
            next_seq=self._next_seq,
            searched=self._searched,
            damaged=self._damaged,
            unread=self._unread,
        )

    def close(self) -> None:
        """Let go of all files."""
        self._run.close()

    def _look(self) -> Generator[None, None, None]:
        by_seq, before = self._lookup.listed(), self._params.before_seq
        tags = self._lookup.tags_by_id()
        oldest = min(by_seq, default=0)
        for number, seq in enumerate(sorted(by_seq, reverse=True)):
            if before is not None and seq >= before:
                continue
            self._at = (number, len(by_seq))
            yield
            self._searched += 1
            yield from self._look_at(by_seq[seq], tags.get(by_seq[seq], []))
            if seq != oldest and self._is_full():
                self._next_seq = seq
                return

    def _is_full(self) -> bool:
        """Tell whether it is time for a result."""
        if not self._hits:
            return time.monotonic() - self._begun_s > _WITHOUT_HITS_S
        return len(self._hits) >= self._params.limit or time.monotonic() - self._begun_s > _WITH_HITS_S

    def _look_at(self, checkpoint_id: str, tags: list[str]) -> Iterator[None]:
        try:
            record = self._lookup.load(checkpoint_id).record(tags)
            if self._is_wanted(record):
                found: list[_Found] = []
                yield from self._compare(checkpoint_id, found)
                self._add(record, _without_renames(found))
        except DomainError as error:
            if error.kind not in _DAMAGE:
                raise
            self._damaged += 1

    def _is_wanted(self, record: CheckpointRecord) -> bool:
        if self._params.kind not in (None, record.kind):
            return False
        return all(record.meta.get(key) == value for key, value in self._params.meta.items())

    def _compare(self, checkpoint_id: str, found: list[_Found]) -> Iterator[None]:
        loaded = self._recent.open(checkpoint_id)
        base = self._lookup.before(loaded.checkpoint)
        old_root = self._recent.open(base).root if base is not None else None
        for path, old, new in _deltas(old_root, loaded.root, self._paths):
            yield
            one, other = _file(old), _file(new)
            if (one and one.oid) == (other and other.oid):
                continue
            before = yield from self._count(one)
            after = yield from self._count(other)
            if before is None or after is None:
                self._unread += 1
            elif before != after:
                found.append(_Found(path, one, other, before, after))

    def _count(self, state: State | None) -> Generator[None, None, int | None]:
        """Give how often the text is in a file; None where that cannot be known. Each content is looked at once."""
        if state is None:
            return 0
        if state.oid not in self._counts:
            self._counts.note(state.oid, (yield from self._read(state.oid)))
        return self._counts[state.oid]

    def _read(self, oid: bytes) -> Generator[None, None, int | None]:
        tally = Tally(self._counts.needle)
        try:
            for chunk in self._objects.chunks(oid):
                for at in range(0, len(chunk), _PIECE_BYTES):
                    tally.add(chunk[at : at + _PIECE_BYTES])
                    yield
                self._bytes += len(chunk)
        except DomainError as error:
            if error.kind not in _DAMAGE:
                raise
            return None
        return tally.total()

    def _add(self, record: CheckpointRecord, found: list[_Found]) -> None:
        if not found:
            return
        listed = [
            Occurrences(path=to_wire(one.path), before=one.before, after=one.after)
            for one in sorted(found)[:_LISTED_PATHS]
        ]
        self._hits.append(SearchHit(checkpoint=record, paths=listed, left_out=len(found) - len(listed)))


def _deltas(old: DirectoryView | None, new: DirectoryView, paths: Sequence[bytes]) -> Iterator[Delta]:
    """Give what differs, at and below ``paths``; without any, everywhere. No more is read than that needs."""
    if not paths:
        yield from compare(old, new)
    for path in paths:
        yield Delta(path, None if old is None else find_state(old, path), find_state(new, path))
        yield from compare(None if old is None else find_view(old, path), find_view(new, path), path)


def _outermost(paths: Iterable[bytes]) -> list[bytes]:
    """Leave out paths that lie below others, which would be looked at twice."""
    found: list[bytes] = []
    for path in sorted(set(paths), key=lambda one: one.split(b"/")):
        if not found or not path.startswith(found[-1] + b"/"):
            found.append(path)
    return found


def _file(state: State | None) -> State | None:
    return None if state is None or state.is_dir else state


def _without_renames(found: list[_Found]) -> list[_Found]:
    """Leave out files that were only renamed: each that went pairs with one of the same content that came."""
    gone: dict[tuple[bytes, bool], list[_Found]] = {}
    for one in found:
        if one.new is None and one.old is not None:
            gone.setdefault(_content(one.old), []).append(one)
    renamed: set[bytes] = set()
    for one in found:
        if one.old is None and one.new is not None and gone.get(_content(one.new)):
            renamed |= {one.path, gone[_content(one.new)].pop().path}
    return [one for one in found if one.path not in renamed]


def _content(state: State) -> tuple[bytes, bool]:
    """A link and a file of the same bytes are not the same."""
    return state.oid, state.mode == LINK
