"""Panes of lines that are drawn when they are seen, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from fabricatio_checkpoint.ui.span import Line, width

__all__ = ["Lines", "Rows"]

_ROLES = (
    "added", "deleted", "modified", "dim", "error", "head", "hunk",
    "note", "number", "size", "strong", "tag", "warning",
)  # fmt: skip
_MARK, _NO_MARK = "> ", "  "


class Lines(ScrollView, can_focus=True):
    """Lines of text to scroll through. ``show()`` replaces them."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines--{role}" for role in _ROLES}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "scroll_up", show=False),
        Binding("j", "scroll_down", show=False),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Line] = ()

    @property
    def lines(self) -> Sequence[Line]:
        """What is shown, seen or not."""
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Show other lines, from the first one on."""
        self._lines = lines
        self.virtual_size = Size(max(map(width, lines), default=0), len(lines))
        self.scroll_to(0, 0, animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw one row of the screen."""
        left, top = self.scroll_offset
        index = top + y
        columns = self.scrollable_content_region.width
        if index >= len(self._lines):
            return Strip.blank(columns, self.rich_style)
        strip = self._strip(self._lines[index])
        return strip.crop_extend(left, left + columns, self.rich_style)

    def _strip(self, line: Line) -> Strip:
        return Strip([Segment(span.text, self._style(span.role)) for span in line])

    def _style(self, role: str) -> Style:
        return self.get_component_rich_style(f"lines--{role}") if role in _ROLES else self.rich_style


class Rows(Lines):
    """Rows with a cursor. ``draw(index, columns)`` makes the line of a row when it is seen."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"lines--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home,g", "go(0)", show=False),
        Binding("end,G", "go(-1)", show=False),
    ]

    cursor: reactive[int] = reactive(0, init=False)

    class _Told(Message):
        def __init__(self, rows: Rows) -> None:
            super().__init__()
            self.rows = rows

        @property
        def control(self) -> Rows:
            """The pane."""
            return self.rows

    class Moved(_Told):
        """The cursor stands on another row, or the rows were replaced."""

    class Chosen(_Told):
        """A row was clicked that already had the cursor."""

    class Seen(_Told):
        """Other rows are on the screen."""

    def __init__(self, draw: Callable[[int, int], Line], *, id: str) -> None:
        super().__init__(id=id)
        self._draw = draw
        self._count = 0

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self._count

    def fill(self, count: int, cursor: int) -> None:
        """Have so many rows, and the cursor on one of them. The first one on the screen stays there if it can."""
        self._count = count
        self.virtual_size = Size(0, count)
        self.set_reactive(Rows.cursor, max(0, min(cursor, count - 1)))
        self.call_after_refresh(self._settle)
        self.refresh()
        self.post_message(self.Moved(self))

    def visible_rows(self) -> range:
        """The rows that are on the screen."""
        top = round(self.scroll_y)
        return range(top, min(self._count, top + max(1, self.scrollable_content_region.height)))

    def validate_cursor(self, cursor: int) -> int:
        """Keep the cursor on a row."""
        return max(0, min(cursor, self._count - 1))

    def watch_cursor(self) -> None:
        """Follow the cursor."""
        self._settle()
        self.refresh()
        self.post_message(self.Moved(self))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Tell that other rows are seen."""
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Seen(self))

    def on_resize(self) -> None:
        """Keep the cursor on the screen, and tell that other rows are seen."""
        self._settle()
        self.post_message(self.Seen(self))

    def action_move(self, step: int) -> None:
        """Move the cursor by rows."""
        self.cursor += step

    def action_page(self, step: int) -> None:
        """Move the cursor by a screen."""
        self.cursor += step * max(1, self.scrollable_content_region.height - 1)

    def action_go(self, index: int) -> None:
        """Move the cursor to the first row, or the last."""
        self.cursor = index if index >= 0 else self._count - 1

    def on_click(self, event: events.Click) -> None:
        """Select the row that was clicked; another click there goes on from it."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        index = round(self.scroll_y) + offset.y
        if not 0 <= index < self._count:
            return
        if index == self.cursor:
            self.post_message(self.Chosen(self))
        else:
            self.cursor = index

    def render_line(self, y: int) -> Strip:
        """Draw one row of the screen; the cursor has a mark that needs no colour to be seen."""
        columns = self.scrollable_content_region.width
        index = round(self.scroll_y) + y
        if index >= self._count:
            return Strip.blank(columns, self.rich_style)
        line = self._draw(index, columns - len(_MARK))
        if index != self.cursor:
            strip = self._strip(line)
            return Strip([Segment(_NO_MARK, self.rich_style), *strip]).adjust_cell_length(columns, self.rich_style)
        style = self.get_component_rich_style("lines--cursor")
        text = _MARK + "".join(span.text for span in line)
        return Strip([Segment(text, style)]).adjust_cell_length(columns, style)

    def _settle(self) -> None:
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, force=True)
