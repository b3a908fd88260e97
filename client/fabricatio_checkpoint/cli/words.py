"""Pieces of text that several commands share."""

from __future__ import annotations

from fabricatio_checkpoint.cli.text import MANY, first_line, short, visible, wire_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from fabricatio_checkpoint.cli.output import Output

__all__ = ["change_line", "left_out", "named", "print_changes", "tell_left_out"]

_LETTERS = {"added": "A", "modified": "M", "deleted": "D", "type": "T", "mode": "X"}


def change_line(change: dict[str, Any]) -> str:
    """One change as a letter and a name; a directory listed because it is empty ends in a slash."""
    name = wire_text(change["path"])
    return f"{_LETTERS.get(change['change'], '?')} {name}{'/' if change.get('dir') else ''}"


def print_changes(out: Output, lines: Sequence[str]) -> None:
    """Print lines of the result; those that begin with a word for a change are in its colour where colours are."""
    if lines and out.colour:
        from fabricatio_checkpoint.cli import render

        if render.print_changes(out, lines):
            return
    for line in lines:
        out.line(line)


def left_out(entry: dict[str, Any]) -> str:
    """One skipped or excluded path or a conflict, with its reason."""
    detail = f": {visible(entry['detail'])}" if entry.get("detail") else ""
    return f"{wire_text(entry['path'])} ({visible(entry['reason'])}{detail})"


def tell_left_out(out: Output, what: str, entries: Sequence[dict[str, Any]]) -> None:
    """List paths that were left out on stderr, the first of many."""
    for entry in entries[:MANY]:
        out.note(f"{what}: {left_out(entry)}")
    if len(entries) > MANY:
        out.note(f"{what}: and {len(entries) - MANY} more (--json lists all)")


def named(record: dict[str, Any]) -> str:
    """Name a checkpoint: short id, sequence number, message."""
    return f"{short(record['id'])} #{record['seq']} {first_line(record['message'])}"
