"""What lies over the timeline for a moment: a plan to agree to, a line to type, the keys."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Static

from fabricatio_checkpoint.ui.keys import key_lines
from fabricatio_checkpoint.ui.preview import Preview
from fabricatio_checkpoint.ui.span import Line

__all__ = ["Ask", "Help", "Question", "content"]


def content(lines: tuple[Line, ...]) -> Content:
    """Put lines together as text that is never read as markup; a role is a class of the style sheet."""
    parts: list[tuple[str, str] | str] = []
    for number, line in enumerate(lines):
        if number:
            parts.append("\n")
        parts += [(span.text, _STYLES.get(span.role, "")) if span.text else "" for span in line]
    return Content.assemble(*parts)


_STYLES = {
    "added": "$text-success",
    "deleted": "$text-error",
    "modified": "$text-warning",
    "error": "$text-error bold",
    "warning": "$text-warning",
    "head": "bold",
    "strong": "bold",
    "dim": "$text-muted",
}


class Question(ModalScreen[str]):
    """Shows a plan; its result is ``cancel``, which is what every doubt means, ``go``, or ``skip`` the conflicts."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('go')", show=False),
        Binding("n,escape,q", "answer('cancel')", show=False),
        Binding("x", "answer('skip')", show=False),
        Binding("left", "app.focus_previous", show=False),
        Binding("right", "app.focus_next", show=False),
    ]

    def __init__(self, preview: Preview) -> None:
        super().__init__()
        self.preview = preview

    def compose(self) -> ComposeResult:
        """Lay it out."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(self.preview.title)
            yield Static(content(self.preview.lines), classes="text")
            with Horizontal(classes="buttons"):
                yield Button("Cancel (n)", id="cancel", compact=True)
                if self.preview.skip:
                    yield Button("All but the conflicts (x)", id="skip", compact=True, variant="warning")
                if self.preview.go is not None:
                    yield Button(f"{self.preview.go} (y)", id="go", compact=True, variant="primary")

    def on_mount(self) -> None:
        """Let Enter alone do nothing."""
        self.query_one("#cancel", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Take the answer."""
        self.action_answer(event.button.id or "cancel")

    def action_answer(self, answer: str) -> None:
        """Take the answer, if it is one that was offered."""
        offered = {"cancel": True, "go": self.preview.go is not None, "skip": self.preview.skip}
        if offered[answer]:
            self.dismiss(answer)


class Ask(ModalScreen[str | None]):
    """Asks for a line of text; its result is None where nothing is wanted after all."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, title: str, hint: str) -> None:
        super().__init__()
        self._title = title
        self._hint = hint

    def compose(self) -> ComposeResult:
        """Lay it out."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(self._title)
            yield Input()
            yield Static(Content(self._hint), classes="hint")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the text."""
        self.dismiss(event.value)


class Help(ModalScreen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,f1,enter", "dismiss", show=False)]

    def compose(self) -> ComposeResult:
        """Lay it out."""
        with VerticalScroll(classes="dialog help") as dialog:
            dialog.border_title = Content("Keys")
            dialog.border_subtitle = Content("Esc closes this")
            yield Label(Content("\n".join(key_lines())))

    def on_mount(self) -> None:
        """Let the arrows scroll it, where it does not fit."""
        self.query_one(VerticalScroll).focus()
