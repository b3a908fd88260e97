"""What a row of the timeline says, in so many columns."""

from __future__ import annotations

from fabricatio_checkpoint.cli.clock import epoch, local
from fabricatio_checkpoint.cli.text import counted, first_line, short, visible
from fabricatio_checkpoint.record import CheckpointRecord, StatusResult
from fabricatio_checkpoint.ui.comparison import Size
from fabricatio_checkpoint.ui.span import Line, Span, fitted, padded

__all__ = ["about", "ago", "now_line", "number_columns", "record_line", "size_text"]

_NOW = "now"

_UNITS = ((86400 * 365, "y"), (86400 * 7, "w"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_AGE, _KIND, _SIZE = 4, 6, 11
_ROOM_FOR_SIZES = 50
_ROLES = {"manual": "", "auto": "dim", "safety": "dim"}


def ago(stamp: str, now: float) -> str:
    """Say how long ago a time was, in at most four characters; a time to come is now."""
    passed = now - epoch(stamp)
    for length, unit in _UNITS:
        if passed >= length:
            return f"{int(passed // length)}{unit}"
    return "now"


def size_text(size: Size | None) -> str:
    """Say the size of a change: paths added, changed, deleted, or their sum where that is too long; ``…``: unknown."""
    if size is None:
        return "…"
    if not size.total:
        return "-"
    counts = ((size.added, "+"), (size.changed, "~"), (size.deleted, "-"))
    parts = " ".join(f"{sign}{_short(number)}" for number, sign in counts if number)
    return parts if len(parts) <= _SIZE else f"{_short(size.total)} files"


def number_columns(newest: CheckpointRecord | None) -> int:
    """Give the width of the column of numbers: that of the highest."""
    return max(len(_NOW), 0 if newest is None else len(f"#{newest.seq}"))


def record_line(
    record: CheckpointRecord, size: Size | None, columns: int, *, number: int, head: str | None, now: float
) -> Line:
    """Draw a checkpoint: number (in so many columns), age, kind, size of the change, tags and message."""
    name = "-" if record.legacy else f"#{record.seq}"
    line = (
        Span(padded(name, number, right=True) + " ", "number"),
        Span(padded(ago(record.time, now), _AGE, right=True) + "  ", "dim"),
        Span(padded(record.kind, _KIND) + "  ", _ROLES.get(record.kind, "")),
        # On a narrow screen the message needs the room.
        *([Span(padded(size_text(size), _SIZE) + " ", "size")] if columns >= _ROOM_FOR_SIZES else []),
        *_labels(record, head),
        Span(first_line(record.message), "" if record.message else "dim"),
    )
    return fitted(line, columns)


def _labels(record: CheckpointRecord, head: str | None) -> list[Span]:
    labels = [Span("HEAD", "head"), Span(" ")] if record.id == head else []
    for tag in record.tags:
        labels += [Span(f"[{visible(tag)}]", "tag"), Span(" ")]
    if not record.complete:
        labels += [Span("incomplete", "warning"), Span(" ")]
    if record.legacy:
        labels += [Span("0.3.6", "dim"), Span(" ")]
    return labels


def now_line(status: StatusResult | None, trouble: str | None, columns: int, *, number: int) -> Line:
    """Draw the first row: how the worktree differs from head; ``trouble`` is why that cannot be said."""
    start = Span(padded(_NOW, number, right=True) + "  ", "head")
    return fitted((start, *_now(status, trouble)), columns)


def _now(status: StatusResult | None, trouble: str | None) -> Line:
    if trouble is not None:
        return (Span(trouble, "error"),)
    if status is None:
        return (Span("looking …", "dim"),)
    if status.head is None:
        return (Span("no checkpoint yet: s saves one", "warning"),)
    record = status.head_record
    since = "since head" if record is None else f"since #{record.seq}"
    words = f"{counted(len(status.changes), 'change') if status.changes else 'no changes'} {since}"
    line = [Span(words, "modified" if status.changes else "")]
    if status.interrupted:
        line.append(Span("; a restore was cut off: ckpt resume", "error"))
    elif record is not None and record.kind == "auto":
        manual = status.last_manual
        last = f"the last manual one is #{manual.seq}" if manual else "none is manual"
        line.append(Span(f"; head is an autosave, {last}", "warning"))
    return tuple(line)


def about(record: CheckpointRecord) -> str:
    """Say in one line what the row has no room for."""
    facts = [local(record.time), short(record.id)]
    if record.client:
        facts.append(f"by {visible(record.client)}")
    facts += [f"{visible(key)}={visible(value)}" for key, value in sorted(record.meta.items())]
    return "  ".join(facts)


def _short(number: int) -> str:
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 10_000 else f"{number // 1000}k"
