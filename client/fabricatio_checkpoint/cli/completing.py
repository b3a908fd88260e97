"""What may come next on a command line that is being typed. Pure; the shell itself completes file names."""

from __future__ import annotations

from fabricatio_checkpoint.cli.grammar import COMMANDS, GLOBALS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fabricatio_checkpoint.cli.grammar import Command, Option, Word

__all__ = ["SHELLS", "Typed", "candidates", "understand"]

SHELLS = ("bash", "zsh", "fish")

_CHECKPOINTS = ("ID", "FROM", "TO", "expect-head")
"""Positional arguments and options that name a checkpoint."""

_TAKES_TAGS = "untag"
_VALUES = {"kind": ("manual", "auto", "safety")}

Candidates = list[tuple[str, str]]
"""Words and what they are."""


class Typed:
    """A command line up to its last word, ``current``, which is not finished.

    ``count`` positional arguments come before it. ``option`` is the one whose value ``current`` is.
    """

    def __init__(self) -> None:
        self.command: Command | None = None
        self.group = ""
        self.workspace: str | None = None
        self.count = 0
        self.option: Option | None = None
        self.dashes = False
        self.current = ""


def understand(words: Sequence[str]) -> Typed:
    """Read a line as far as it makes sense; what does not is passed over."""
    typed = Typed()
    typed.current = words[-1] if words else ""
    for word in words[:-1]:
        _take(typed, word)
    return typed


def _take(typed: Typed, word: str) -> None:
    if typed.option is not None:
        if typed.option.name == "workspace":
            typed.workspace = word
        typed.option = None
    elif word == "--":
        typed.dashes = True
    elif word.startswith("-") and not typed.dashes:
        _take_option(typed, word)
    elif typed.command is not None:
        typed.count += 1
    else:
        name = f"{typed.group} {word}".strip()
        typed.command = COMMANDS.get(name)
        typed.group = name


def _take_option(typed: Typed, word: str) -> None:
    name, equals, value = word.lstrip("-").partition("=")
    for option in _options(typed):
        if name not in (option.name, option.letter) or option.metavar is None:
            continue
        if not equals:
            typed.option = option
        elif option.name == "workspace":
            typed.workspace = value


def candidates(typed: Typed, checkpoints: Callable[[], Candidates]) -> Candidates:
    """Give what ``current`` can become, with what it is; nothing where file names are wanted.

    ``checkpoints`` gives tags and ids; it is only asked where one may stand.
    """
    return [(word, text) for word, text in _possible(typed, checkpoints) if word.startswith(typed.current)]


def _possible(typed: Typed, checkpoints: Callable[[], Candidates]) -> Iterable[tuple[str, str]]:
    if typed.option is not None and typed.option.name in _CHECKPOINTS:
        return checkpoints()
    if typed.option is not None:
        return [(value, "") for value in _VALUES.get(typed.option.name, ())]
    if typed.current.startswith("-") and not typed.dashes:
        return [(f"--{option.name}", option.help) for option in _options(typed)]
    if typed.command is None:
        return _commands(typed.group)
    word = _word(typed, typed.command)
    if word is None:
        return []
    if word.name in _CHECKPOINTS:
        return checkpoints()
    if typed.command.name == _TAKES_TAGS:
        return [(name, text) for name, text in checkpoints() if _is_tag(name)]
    return _commands("") if word.name == "COMMAND" else [(value, "") for value in word.choices]


def _is_tag(name: str) -> bool:
    """Whether a name of a checkpoint is a tag, which is neither HEAD nor like an id."""
    return name != "HEAD" and not (4 <= len(name) <= 40 and set(name) <= set("0123456789abcdefABCDEF"))


def _commands(group: str) -> Candidates:
    """Give the words that begin a command, or go on with a group of them."""
    start = f"{group} " if group else ""
    found: dict[str, str] = {}
    for name, command in COMMANDS.items():
        first, _, more = name.removeprefix(start).partition(" ")
        if name.startswith(start) and first:
            found.setdefault(first, f"{first} {more.split()[0]} ..." if more else command.summary)
    return list(found.items())


def _options(typed: Typed) -> tuple[Option, ...]:
    return (typed.command.options if typed.command is not None else ()) + GLOBALS


def _word(typed: Typed, command: Command) -> Word | None:
    """Give the positional argument that ``current`` is; None where it is none of the table's."""
    if typed.dashes and command.dashed is not None:
        return None
    left = typed.count
    for word in command.words:
        if word.most is None or left < word.most:
            return word
        left -= word.most
    return None
