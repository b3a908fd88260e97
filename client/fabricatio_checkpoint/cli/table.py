"""Rows of a result: aligned text, or a table by rich where a person looks at a terminal that wants one."""

from __future__ import annotations

import sys

from fabricatio_checkpoint.cli.output import columns_of
from fabricatio_checkpoint.cli.text import broken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fabricatio_checkpoint.cli.output import Output
    from fabricatio_checkpoint.cli.render import RichTable

__all__ = ["StackedTable", "Table", "open_table"]

_NARROW = 60
"""On fewer columns a table would be one word a line."""


class Table:
    """Aligned text, written row by row; ``widths`` are the least ones, the last column is as long as it is.

    ``relative`` tells whether times are shown as ages: where programs read, they must not change by themselves.
    """

    relative = False

    def __init__(self, out: Output, widths: Sequence[int]) -> None:
        self._out = out
        self._widths = widths

    def add(self, cells: Sequence[str], label: str = "") -> None:
        """Take the next row; ``label`` stands behind its last cell."""
        self._out.line(self.text(cells, label))

    def text(self, cells: Sequence[str], label: str = "") -> str:
        """Give a row as its line."""
        cells = [*cells[:-1], cells[-1] + label]
        padded = [cell.ljust(width) for cell, width in zip(cells[:-1], self._widths, strict=False)]
        return "  ".join([*padded, cells[-1]]).rstrip()

    def end(self) -> None:
        """Show what was not shown yet."""


class StackedTable:
    """Rows of a narrow terminal, below one another: what is short on one line, the last column on the next ones."""

    relative = True

    def __init__(self, out: Output, headers: Sequence[str], columns: int) -> None:
        self._out = out
        self._headers = headers
        self._columns = columns

    def add(self, cells: Sequence[str], label: str = "") -> None:
        """Take the next row."""
        short = zip(cells[:-1], self._headers, strict=False)
        self._out.line("  ".join(f"{cell} {header}" if cell.isdigit() else cell for cell, header in short))
        for part in broken(f"  {cells[-1]}{label}", self._columns, "  "):
            self._out.line(part)

    def end(self) -> None:
        """Show nothing more."""


def open_table(
    out: Output, headers: Sequence[str], widths: Sequence[int], styles: Mapping[str, str] | None = None
) -> Table | StackedTable | RichTable:
    """Begin a table in the form that fits stdout; without rich it is plain everywhere.

    ``styles`` are those of whole columns, by their headers, and of single cells, by their text.
    """
    if out.for_people and (columns := columns_of(sys.stdout)) < _NARROW:
        return StackedTable(out, headers, columns)
    if out.colour:
        from fabricatio_checkpoint.cli.render import rich_table

        rich = rich_table(out, headers, styles or {})
        if rich is not None:
            return rich
    return Table(out, widths)
