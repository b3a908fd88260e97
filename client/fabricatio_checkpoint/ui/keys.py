"""The keys of ``ckpt ui``: what each does, in the program, in its footer, and in its help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["KEYS", "Key", "State", "help_lines", "key_lines", "refusal"]


class Key(NamedTuple):
    """``keys`` are names as Textual has them, ``shown`` as people do; with a ``label`` it stands in the footer."""

    keys: str
    shown: str
    action: str
    text: str
    label: str = ""


KEYS = (
    Key("r", "r", "restore_tree", "restore the whole tree to the selected checkpoint", "Restore"),
    Key("f", "f", "restore_files", "restore the marked files, or the one under the cursor", "File"),
    Key("space", "space", "mark", "mark a file, or take its mark away"),
    Key("u", "u", "undo", "undo the last restore", "Undo"),
    Key("U", "U", "redo", "redo what was undone"),
    Key("s", "s", "save", "save a checkpoint, with a message", "Save"),
    Key("t", "t", "tag", "give the selected checkpoint a tag", "Tag"),
    Key("c", "c", "compare", "compare with what was before it, or with now", "Compare"),
    Key("slash", "/", "filter", "filter by message, tag, kind, id or #number; Esc ends it", "Filter"),
    Key("enter", "Enter", "enter", "go on, from a checkpoint to its files, to their diff"),
    Key("escape", "Esc", "leave", "go back; end the filter"),
    Key("tab", "Tab", "pane(1)", "go to the next pane, Shift+Tab to the one before"),
    Key("shift+tab", "", "pane(-1)", ""),
    Key("f5,ctrl+r", "F5", "refresh", "look again"),
    Key("question_mark,f1", "?", "help", "show the keys", "Help"),
    Key("q", "q", "quit", "quit; so does Ctrl+C", "Quit"),
    Key("ctrl+c", "", "quit", ""),
)
"""Moving (arrows, Page Up and Down, Home, End) belongs to the panes themselves."""

_MOVING = ("arrows", "move, as PgUp, PgDn, Home, End do; in a diff: scroll")
_NEEDS_DAEMON = frozenset({"restore_tree", "restore_files", "undo", "redo", "save", "tag"})
_NEEDS_TARGET = frozenset({"restore_tree", "restore_files", "tag"})
_KEY_COLUMNS = 10


class State(NamedTuple):
    """What decides whether a key can do its work. ``busy`` names the change that is going on, if one is."""

    connected: bool = True
    busy: str | None = None
    has_target: bool = True
    files: int = 0


def refusal(action: str, state: State) -> str | None:
    """Say why an action cannot be done now, None where it can."""
    if action not in _NEEDS_DAEMON:
        return None
    if state.busy is not None:
        return f"wait: {state.busy}"
    if not state.connected:
        return "the daemon cannot be reached; it is tried again and again"
    if action in _NEEDS_TARGET and not state.has_target:
        return "there is no checkpoint yet: s saves one"
    if action == "restore_files" and not state.files:
        return "there is no file to restore here; r restores the whole tree"
    return None


def help_lines() -> Iterator[str]:
    """Explain the keys on the command line."""
    yield "keys:"
    yield from key_lines()


def key_lines() -> Iterator[str]:
    """List the keys, one a line."""
    for shown, text in (_MOVING, *((key.shown, key.text) for key in KEYS if key.text)):
        yield f"  {shown:<{_KEY_COLUMNS}}{text}"
