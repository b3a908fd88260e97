"""What is compared with what for the selected row, and the words for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from fabricatio_checkpoint.cli.text import counted, quoted
from fabricatio_checkpoint.record import Change, CheckpointRecord, RestoreResult, ShowResult, StatusResult
from fabricatio_checkpoint.ui.span import Line, Span, cut_path

__all__ = ["Comparison", "Mode", "Size", "of_plan", "of_show", "of_status", "size_of"]

_LETTERS = {
    "added": ("A", "added"),
    "modified": ("M", "modified"),
    "deleted": ("D", "deleted"),
    "type": ("T", "modified"),
    "mode": ("X", "modified"),
    "differs": ("M", "modified"),
}
_MARKED = "*"


class Mode(Enum):
    """What a checkpoint is compared with: BEFORE, what it changed; SINCE, what has changed since it was made."""

    BEFORE = "before"
    SINCE = "since"

    def other(self) -> Mode:
        """Give the other one."""
        return Mode.SINCE if self is Mode.BEFORE else Mode.BEFORE


@dataclass(frozen=True, slots=True)
class Size:
    """How many paths a checkpoint added, changed and deleted."""

    added: int
    changed: int
    deleted: int

    @property
    def total(self) -> int:
        """All of them together."""
        return self.added + self.changed + self.deleted


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes from ``from_id`` to ``to_id``; None is nothing at all there, and the worktree here.

    ``target`` is the checkpoint that its files are restored from, None where there is none yet.
    """

    title: str
    target: str | None
    from_id: str | None
    to_id: str | None
    changes: tuple[Change, ...]

    def line(self, index: int, columns: int, *, marked: bool) -> Line:
        """Draw one change: a mark if it is chosen, a letter, and the path, whose end stays where it is long."""
        change = self.changes[index]
        letter, role = _LETTERS.get(change.change, ("?", ""))
        name = quoted(change.path) + ("/" if change.dir else "")
        mark = Span(_MARKED if marked else " ", "strong")
        return mark, Span(letter, role), Span(" "), Span(cut_path(name, columns - 3), "strong" if marked else "")

    def words(self) -> str:
        """Say how many there are."""
        return counted(len(self.changes), "change") if self.changes else "no changes"


def of_status(status: StatusResult) -> Comparison:
    """Compare head with the worktree."""
    if status.head is None:
        return Comparison("now", None, None, None, ())
    number = f"#{status.head_record.seq}" if status.head_record is not None else "head"
    return Comparison(f"now, since {number}", status.head, status.head, None, status.changes)


def of_show(shown: ShowResult) -> Comparison:
    """Compare a checkpoint with the one that it was made after."""
    record = shown.checkpoint
    return Comparison(f"in {_name(record)}", record.id, shown.base, record.id, shown.changes)


def of_plan(record: CheckpointRecord, plan: RestoreResult) -> Comparison:
    """Compare a checkpoint with the worktree: all that a reset to it would touch."""
    paths = dict.fromkeys(plan.written, "differs") | dict.fromkeys(plan.deleted, "added")
    for left in plan.conflicts:
        paths.setdefault(left.path, "differs")
    changes = tuple(Change(path, paths[path]) for path in sorted(paths))
    return Comparison(f"since {_name(record)}", record.id, record.id, None, changes)


def size_of(changes: tuple[Change, ...]) -> Size:
    """Count changes."""
    kinds = Counter(change.change for change in changes)
    return Size(kinds["added"], len(changes) - kinds["added"] - kinds["deleted"], kinds["deleted"])


def _name(record: CheckpointRecord) -> str:
    return "legacy" if record.legacy else f"#{record.seq}"
