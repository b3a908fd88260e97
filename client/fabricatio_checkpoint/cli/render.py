"""Tables and colours by rich. Loaded only where something is rendered; rich may not be there."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal

    from rich.table import Table
    from rich.text import Text as RichText

    from fabricatio_checkpoint.cli.output import Output

__all__ = ["RichTable", "print_changes", "print_styled", "rich_table"]

_NUMBERS = frozenset({"#", "size", "files", "manual", "auto", "safety"})
_LABEL = "bold green"
# Yellow cannot be read on a light terminal.
_STYLES = {
    "A": "green",
    "M": "magenta",
    "D": "red",
    "T": "bold magenta",
    "X": "cyan",
    "written": "green",
    "deleted": "red",
    "kept": "dim",
    "conflict": "magenta",
}


class RichTable:
    """A table that is shown whole, once its widths are known. Cells are text, never markup."""

    relative = True

    def __init__(self, out: Output, table: Table, styles: Mapping[str, str]) -> None:
        self._out = out
        self._table = table
        self._styles = styles

    def add(self, cells: Sequence[str], label: str = "") -> None:
        """Take the next row; ``label`` stands behind its last cell."""
        from rich.text import Text

        *texts, last = [Text(cell, style=self._styles.get(cell, "")) for cell in cells]
        self._table.add_row(*texts, last.append(label, style=_LABEL))

    def end(self) -> None:
        """Show the table."""
        if self._table.row_count:
            self._out.line(_rendered(self._table))


def rich_table(out: Output, headers: Sequence[str], styles: Mapping[str, str]) -> RichTable | None:
    """Begin a table; None without rich. The last column wraps, the others are never cut."""
    try:
        from rich.table import Table
    except ImportError:
        return None
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for header in headers[:-1]:
        justify: Literal["left", "right"] = "right" if header in _NUMBERS else "left"
        table.add_column(header, no_wrap=True, style=styles.get(header), justify=justify)
    table.add_column(headers[-1], overflow="fold")
    return RichTable(out, table, styles)


def print_changes(out: Output, lines: Sequence[str]) -> bool:
    """Print lines that begin with a word for a change in its colour, and others as they are; False without rich."""
    return print_styled(out, [(line, _STYLES.get((line.split(maxsplit=1) or [""])[0], "")) for line in lines])


def print_styled(out: Output, lines: Sequence[tuple[str, str]]) -> bool:
    """Print lines, each with its style; False without rich."""
    try:
        from rich.text import Text
    except ImportError:
        return False
    for line, style in lines:
        out.line(_rendered(Text(line, style=style, overflow="ignore", no_wrap=True)))
    return True


def _rendered(what: Table | RichText) -> str:
    """Render to text: what is printed goes out by the same road as everything else, whoever closes its other end."""
    from rich.console import Console
    from rich.text import Text

    # A pager may stand between us and the terminal, which is still the one that stdin or stderr leads to.
    console = Console(highlight=False, force_terminal=True)
    with console.capture() as captured:
        # A line that is too long is the terminal's to wrap; a table that is too wide has to be cut.
        console.print(what, soft_wrap=isinstance(what, Text))
    return captured.get().strip("\n")
