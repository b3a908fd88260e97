"""Tables and colours by rich. Loaded only where something is rendered; rich may not be there."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

__all__ = ["RichTable", "print_changes", "rich_table"]

_STYLES = {"A": "green", "M": "yellow", "D": "red", "T": "magenta", "X": "cyan"}


class RichTable:
    """A table that is shown whole, once its widths are known. Cells are text, never markup."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def add(self, cells: Sequence[str]) -> None:
        """Take the next row."""
        from rich.text import Text

        self._table.add_row(*map(Text, cells))

    def end(self) -> None:
        """Show the table."""
        from rich.console import Console

        if self._table.row_count:
            Console(highlight=False).print(self._table)


def rich_table(headers: Sequence[str]) -> RichTable | None:
    """Begin a table; None without rich. The last column wraps, the others are never cut."""
    try:
        from rich import box
        from rich.table import Table
    except ImportError:
        return None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers[:-1]:
        table.add_column(header, no_wrap=True)
    table.add_column(headers[-1], overflow="fold")
    return RichTable(table)


def print_changes(lines: Sequence[str]) -> bool:
    """Print lines that begin with a letter of change in its colour; False without rich."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return False
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text(line, style=_STYLES.get(line[:1], "")))
    return True
