"""How the panes share the screen, by its size."""

from __future__ import annotations

from enum import Enum

__all__ = ["PANES", "Fold", "Pane", "dialog_size", "fold", "neighbour"]


class Pane(Enum):
    """A part of the screen that can have the focus; the value is its widget's id."""

    TIMELINE = "timeline"
    FILES = "files"
    PATCH = "patch"


class Fold(Enum):
    """WIDE: patch beside the rest; STACKED: timeline above files and patch; SINGLE: only the pane with the focus."""

    WIDE = "wide"
    STACKED = "stacked"
    SINGLE = "single"


PANES = (Pane.TIMELINE, Pane.FILES, Pane.PATCH)

_WIDE_COLUMNS = 110
_STACKED_COLUMNS, _STACKED_ROWS = 60, 16
_DIALOG_COLUMNS, _DIALOG_ROWS = 76, 30
_FRAME = 4


def fold(columns: int, rows: int) -> Fold:
    """Choose the arrangement in which each pane that is shown has room for what it says."""
    if columns < _STACKED_COLUMNS or rows < _STACKED_ROWS:
        return Fold.SINGLE
    return Fold.WIDE if columns >= _WIDE_COLUMNS else Fold.STACKED


def neighbour(pane: Pane, step: int) -> Pane:
    """Give the pane that is so many after this one, or before it; after the last comes the first."""
    return PANES[(PANES.index(pane) + step) % len(PANES)]


def dialog_size(columns: int, rows: int) -> tuple[int, int]:
    """Give the columns and rows that the text of a dialog may take."""
    return max(20, min(columns, _DIALOG_COLUMNS) - _FRAME - 2), max(4, min(rows, _DIALOG_ROWS) - _FRAME - 2)
