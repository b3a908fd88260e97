"""What a person sees before files are written: the plan of a restore in words, and afterwards what was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from fabricatio_checkpoint.cli.text import counted, first_line, quoted, visible
from fabricatio_checkpoint.record import CheckpointRecord, LeftOut, RestoreResult
from fabricatio_checkpoint.ui.span import Line, Span, cut_path, fitted

__all__ = ["Preview", "Verb", "Wish", "done", "is_empty", "named", "nothing", "preview", "shares"]


class Verb(Enum):
    """A kind of restore; the value is how it is called while it is under way."""

    RESET = "restoring the tree"
    ROLLBACK = "restoring files"
    UNDO = "undoing"
    REDO = "redoing"


@dataclass(frozen=True, slots=True)
class Wish:
    """A restore that somebody asks for. ``name`` is the checkpoint as a person knows it."""

    verb: Verb
    id: str = ""
    name: str = ""
    paths: tuple[str, ...] = ()
    recreate: bool = False

    def title(self) -> str:
        """Ask the question."""
        match self.verb:
            case Verb.RESET:
                return f"Restore the whole tree to {self.name}?"
            case Verb.ROLLBACK:
                return f"Restore {_files(self.paths)} from {self.name}?"
            case Verb.UNDO:
                return "Undo the last restore?"
            case Verb.REDO:
                return "Redo what was undone?"


class Preview(NamedTuple):
    """A question. ``go`` is the word for yes, None where the plan can't be carried out; ``skip``: a part can."""

    title: str
    lines: tuple[Line, ...]
    go: str | None
    skip: bool


_GO = {Verb.RESET: "Restore", Verb.ROLLBACK: "Restore", Verb.UNDO: "Undo", Verb.REDO: "Redo"}
_GROUPS = (("conflict", "error"), ("delete", "deleted"), ("edited", "warning"), ("write", "added"), ("keep", "dim"))
_NAMES = 10
_OTHER_LINES = 6


def named(record: CheckpointRecord) -> str:
    """Name a checkpoint: its number, and its message if it has one."""
    number = f"0.3.6 {record.id[:10]}" if record.legacy else f"#{record.seq}"
    return f"{number} ({first_line(record.message)})" if record.message else number


def is_empty(plan: RestoreResult) -> bool:
    """Tell whether a plan has nothing to write, to delete, or to be asked about."""
    return not (plan.written or plan.deleted or plan.conflicts)


def nothing(wish: Wish) -> str:
    """Say that there is nothing to do."""
    if wish.verb is Verb.ROLLBACK:
        return f"nothing to restore: {_files(wish.paths)} as in {wish.name} already"
    return f"nothing to restore: everything is as in {wish.name} already" if wish.name else "there is nothing to change"


def preview(plan: RestoreResult, wish: Wish, size: tuple[int, int], *, again: bool, skipping: bool) -> Preview:
    """Make the question of a plan that is not empty, for a dialog of so many columns and rows.

    ``again``: the plan that was agreed to is out of date, and this is the new one. ``skipping``: without its conflicts.
    """
    columns, rows = size
    lines: list[Line] = []
    if again:
        lines += [(Span("Something has changed in between. This is the plan now:", "warning"),)]
    if wish.recreate:
        lines += [(Span("The worktree is gone; its directory is made again.", "warning"),)]
    lines += [_counts(plan), ()]
    lines += _listed(plan, columns, rows - len(lines) - _OTHER_LINES)
    stuck = bool(plan.conflicts) and not skipping
    lines += [(), *_closing(plan, wish, stuck=stuck)]
    changes = bool(plan.written or plan.deleted)
    go = None if stuck or not changes else _GO[wish.verb]
    return Preview(wish.title(), tuple(fitted(line, columns) for line in _squeezed(lines, rows)), go, stuck and changes)


def _squeezed(lines: list[Line], rows: int) -> list[Line]:
    """Leave out what can be missed most easily, blank lines first: the smallest screen needs room for an answer."""
    if len(lines) > rows:
        lines = [line for line in lines if line]
    return lines[:rows]


def _counts(plan: RestoreResult) -> Line:
    conflicts = len(plan.conflicts)
    return (
        Span(f"{len(plan.written)} to write", "added" if plan.written else "dim"),
        Span(f"   {len(plan.deleted)} to delete", "deleted" if plan.deleted else "dim"),
        Span(f"   {len(plan.kept)} to keep", "" if plan.kept else "dim"),
        Span(f"   {counted(conflicts, 'conflict') if conflicts else 'no conflicts'}", "error" if conflicts else "dim"),
    )


def _listed(plan: RestoreResult, columns: int, room: int) -> list[Line]:
    groups = {
        "conflict": [_left_out(each) for each in plan.conflicts],
        "delete": [quoted(path) for path in plan.deleted],
        "edited": [quoted(path) for path in plan.edited],
        "write": [quoted(path) for path in plan.written],
        "keep": [quoted(path) for path in plan.kept],
    }
    given = shares([len(groups[name]) for name, _ in _GROUPS], room)
    lines: list[Line] = []
    for (name, role), shown in zip(_GROUPS, given, strict=True):
        label = Span(f"{name:<{_NAMES}}", role)
        lines += [(label, Span(cut_path(text, columns - _NAMES))) for text in groups[name][:shown]]
        if shown < len(groups[name]):
            lines.append((label, Span(f"and {len(groups[name]) - shown} more", "dim")))
    return lines


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """Give each list its part of so many rows; one that is not shown whole needs a row to say so."""
    given = [0] * len(wanted)
    left = room - sum(1 for number in wanted if number)
    while left > 0 and (open_ := [index for index, number in enumerate(wanted) if given[index] < number]):
        for index in open_[:left]:
            given[index] += 1
        left -= min(left, len(open_))
    # The row that would say "and 1 more" says instead what that one is.
    return [number if number - shown == 1 else shown for number, shown in zip(wanted, given, strict=True)]


def _closing(plan: RestoreResult, wish: Wish, *, stuck: bool) -> list[Line]:
    lines: list[Line] = []
    if stuck:
        lines.append((Span("What is in conflict cannot be kept safe, so nothing is done with it.", "error"),))
    if plan.weak:
        lines.append((Span("This file system cannot exchange files: an edit just then could be lost.", "warning"),))
    lines += [(Span(visible(note), "warning"),) for note in plan.notes]
    back = "u" if wish.verb is not Verb.UNDO else "U"
    lines.append((Span("A safety checkpoint keeps all that is overwritten or deleted;", "dim"),))
    lines.append((Span(f"{back} takes this back.", "dim"),))
    return lines


def done(result: RestoreResult, wish: Wish) -> tuple[str, bool]:
    """Say what a restore did, and whether all of it was done."""
    words = {Verb.RESET: f"restored to {wish.name}", Verb.ROLLBACK: f"restored {_files(wish.paths)} from {wish.name}"}
    words |= {Verb.UNDO: "undone", Verb.REDO: "redone"}
    counts = f"{len(result.written)} written, {len(result.deleted)} deleted, {len(result.kept)} kept"
    text = f"{words[wish.verb]}: {counts}"
    if result.conflicts:
        text += f"; {counted(len(result.conflicts), 'conflict')} left alone: {_left_out(result.conflicts[0])}"
    text += "".join(f"; {visible(note)}" for note in result.notes)
    if result.safety is not None:
        text += f". {'U' if wish.verb is Verb.UNDO else 'u'} takes it back"
    return text, not result.conflicts


def _files(paths: tuple[str, ...]) -> str:
    return quoted(paths[0]) if len(paths) == 1 else counted(len(paths), "file")


def _left_out(entry: LeftOut) -> str:
    detail = f": {visible(entry.detail)}" if entry.detail else ""
    return f"{quoted(entry.path)} ({visible(entry.reason)}{detail})"
