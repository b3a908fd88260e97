"""The checkpoints that are known so far, newest first: how pages and news are put together, what a filter leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fabricatio_checkpoint.record import CheckpointRecord

__all__ = ["NOW", "Timeline", "cursor_after", "page_size", "wants_page"]

NOW = None
"""What stands for the worktree as it is now, in the first row."""

Row = CheckpointRecord | None

_PAGE, _PAGE_OF_A_SEARCH = 200, 1000
_ID_DIGITS = 4
_AHEAD = 100
"""So many rows below the last one on the screen are there before anybody scrolls to them."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Checkpoints, newest first, without a gap; ``more`` tells whether the store has older ones."""

    records: tuple[CheckpointRecord, ...] = ()
    more: bool = True

    def extended(self, page: Sequence[CheckpointRecord], *, more: bool) -> Timeline:
        """Add a page of older ones at the end."""
        last = self.records[-1].seq if self.records else None
        older = tuple(record for record in page if last is None or record.seq < last)
        return Timeline(self.records + older, more)

    def renewed(self, page: Sequence[CheckpointRecord], *, more: bool) -> Timeline:
        """Take the newest page as it is now: what is new comes on top, and what has gone goes.

        Where it does not reach down to what was known, something may be missing in between, and the rest is read again
        when it is needed.
        """
        if not more or not page:
            return Timeline(tuple(page), more)
        oldest = page[-1].seq
        if not self.records or self.records[0].seq < oldest:
            return Timeline(tuple(page), True)
        below = tuple(record for record in self.records if record.seq < oldest)
        return Timeline((*page, *below), self.more if below else True)

    def rows(self, query: str) -> tuple[Row, ...]:
        """Give what is shown: now, then the checkpoints that a filter leaves.

        Each of its words has to be in the message or a tag, or to begin the kind, the ``#number`` or (four digits of it
        at least, as everywhere) the id.
        """
        words = query.casefold().split()
        if not words:
            return (NOW, *self.records)
        return (NOW, *(record for record in self.records if _matches(record, words)))


def _matches(record: CheckpointRecord, words: list[str]) -> bool:
    texts = [(record.message or "").casefold(), *(tag.casefold() for tag in record.tags)]
    starts = (record.kind, f"#{record.seq}")
    return all(
        any(word in text for text in texts)
        or any(start.startswith(word) for start in starts)
        or (len(word) >= _ID_DIGITS and record.id.startswith(word))
        for word in words
    )


def cursor_after(before: Sequence[Row], cursor: int, after: Sequence[Row]) -> int:
    """Say where the cursor goes when rows change: to the same checkpoint, else to the next older one that is left."""
    old = before[cursor] if 0 <= cursor < len(before) else NOW
    if old is NOW:
        return 0
    for index, row in enumerate(after):
        if row is not NOW and row.seq <= old.seq:
            return index
    return len(after) - 1


def wants_page(timeline: Timeline, shown: int, last_visible: int) -> bool:
    """Tell whether a further page is to be read: fewer rows than one may scroll to are left."""
    return timeline.more and shown - last_visible < _AHEAD


def page_size(query: str) -> int:
    """Give how many checkpoints to read at once: a filter leaves few of them."""
    return _PAGE_OF_A_SEARCH if query.strip() else _PAGE
