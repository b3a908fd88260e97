"""Rows of a result: aligned text, or a table by rich where a person looks at a terminal that wants one."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from fabricatio_checkpoint.cli.output import Output
    from fabricatio_checkpoint.cli.render import RichTable

__all__ = ["Table", "open_table"]


class Table:
    """Aligned text, written row by row; ``widths`` are the least ones, the last column is as long as it is.

    ``relative`` tells whether times are shown as ages: where programs read, they must not change by themselves.
    """

    relative = False

    def __init__(self, out: Output, widths: Sequence[int]) -> None:
        self._out = out
        self._widths = widths

    def add(self, cells: Sequence[str]) -> None:
        """Take the next row."""
        self._out.line(self.text(cells))

    def text(self, cells: Sequence[str]) -> str:
        """Give a row as its line."""
        padded = [cell.ljust(width) for cell, width in zip(cells[:-1], self._widths, strict=False)]
        return "  ".join([*padded, cells[-1]]).rstrip()

    def end(self) -> None:
        """Show what was not shown yet."""


def open_table(out: Output, headers: Sequence[str], widths: Sequence[int]) -> Table | RichTable:
    """Begin a table in the form that fits stdout; without rich it is plain everywhere."""
    if out.colour:
        from fabricatio_checkpoint.cli.render import rich_table

        rich = rich_table(out, headers)
        if rich is not None:
            return rich
    return Table(out, widths)
