"""Reads a command line by the grammar's table. Pure; argparse would cost more than the hot commands do."""

from __future__ import annotations

from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.cli.grammar import COMMANDS, GLOBALS, SYNONYMS, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Arguments", "parse", "wants_json"]


class Arguments:
    """A command line that was understood; ``command`` is None where only ``--help`` or ``--version`` was given."""

    def __init__(self) -> None:
        self.command: Command | None = None
        self.flags: set[str] = set()
        self.values: dict[str, list[str]] = {}
        self.words: dict[str, list[str]] = {}

    def flag(self, name: str) -> bool:
        """Whether a flag was given."""
        return name in self.flags

    def value(self, name: str) -> str | None:
        """The value of an option that is given once."""
        return self.values[name][-1] if name in self.values else None

    def number(self, name: str) -> int | None:
        """The value of an option that takes a number."""
        return int(self.values[name][-1]) if name in self.values else None

    def pairs(self, name: str) -> dict[str, str]:
        """The ``K=V`` values of an option, as a mapping; raises UsageError for other forms and a key given twice."""
        found: dict[str, str] = {}
        for text in self.values.get(name, ()):
            key, equals, value = text.partition("=")
            if not key or not equals:
                raise UsageError(f"--{name} takes KEY=VALUE, not {text!r}")
            if key in found:
                raise UsageError(f"--{name} gives {key!r} twice")
            found[key] = value
        return found

    def word(self, name: str) -> str | None:
        """A positional argument that is there once or not at all."""
        found = self.words.get(name)
        return found[0] if found else None

    def all_words(self, name: str) -> list[str]:
        """Every positional argument of a name."""
        return self.words.get(name, [])


def wants_json(argv: Iterable[str]) -> bool:
    """Whether the answer to a command line is JSON, even if it can't be understood."""
    for text in argv:
        if text == "--":
            return False
        if text == "--json":
            return True
    return False


def parse(argv: list[str]) -> Arguments:
    """Read a command line (without the program's name); raises UsageError."""
    return _Parser(argv).parse()


class _Parser:
    """One pass over the words; ``found`` fills up as it goes."""

    def __init__(self, argv: list[str]) -> None:
        self.rest = list(reversed(argv))
        self.found = Arguments()
        self.words: list[str] = []
        self.dashed: list[str] = []

    def parse(self) -> Arguments:
        while self.rest:
            self.step(self.rest.pop())
        command = self.found.command
        if self.found.flag("help") or self.found.flag("version"):
            if command is None:
                self.found.words["COMMAND"] = self.words
            return self.found
        if command is None and self.words:
            raise UsageError(f"{self.words[0]} needs a command", f"see ckpt help {self.words[0]}")
        if command is None:
            raise UsageError("no command", _overview())
        if command.rest is None:
            self.share_out(command)
        return self.found

    def step(self, text: str) -> None:
        if text == "--":
            self.after_dashes()
        elif text.startswith("--"):
            self.long(text)
        elif text.startswith("-") and text != "-":
            self.letters(text)
        elif self.found.command is None:
            self.choose(text)
        elif not self.words and f"{self.found.command.name} {text}" in COMMANDS:
            self.found.command = COMMANDS[f"{self.found.command.name} {text}"]
        else:
            self.words.append(text)

    def after_dashes(self) -> None:
        command = self.found.command
        while self.rest:
            text = self.rest.pop()
            if command is None:
                self.choose(text)
                command = self.found.command
            elif command.dashed is not None:
                self.dashed.append(text)
            else:
                self.words.append(text)

    def choose(self, text: str) -> None:
        name = f"{self.words[0]} {text}" if self.words else text
        command = COMMANDS.get(name)
        if command is not None:
            self.words.clear()
            self.found.command = command
            if command.rest is not None:
                self.found.words[command.rest] = self.rest[::-1]
                self.rest.clear()
        elif not self.words and any(known.startswith(f"{text} ") for known in COMMANDS):
            self.words.append(text)
        else:
            raise UsageError(f"there is no command {name!r}", _guess(name, COMMANDS, "{}") or _overview())

    def long(self, text: str) -> None:
        name, equals, value = text[2:].partition("=")
        option = self.known(name)
        if option is None:
            raise UsageError(f"unknown option --{name}", self.option_hint(name))
        if option.metavar is None and equals:
            raise UsageError(f"--{name} takes no value")
        if option.metavar is None:
            self.found.flags.add(name)
        else:
            self.take(option, value if equals else self.next_value(option))

    def letters(self, text: str) -> None:
        for index, letter in enumerate(text[1:], 2):
            option = next((option for option in self.options() if option.letter == letter), None)
            if option is None:
                raise UsageError(f"unknown option -{letter}", self.see_help())
            if option.metavar is not None:
                self.take(option, text[index:] or self.next_value(option))
                return
            self.found.flags.add(option.name)

    def next_value(self, option: Option) -> str:
        """The word after an option. One that looks like an option is more likely a forgotten value."""
        if not self.rest:
            raise UsageError(f"--{option.name} needs a value: --{option.name} {option.metavar}")
        if self.rest[-1].startswith("-") and self.rest[-1] != "-":
            raise UsageError(
                f"--{option.name} needs a value, and {self.rest[-1]!r} looks like an option",
                f"write --{option.name}={self.rest[-1]} if it is the value",
            )
        return self.rest.pop()

    def take(self, option: Option, value: str) -> None:
        given = self.found.values.setdefault(option.name, [])
        if given and not option.many and not option.last:
            raise UsageError(f"--{option.name} is given twice")
        if option.number and not _is_count(value):
            raise UsageError(f"--{option.name} takes a number from 1 on, not {value!r}")
        if not value and option.name != "meta":
            raise UsageError(f"--{option.name} needs a value that is not empty")
        given.append(value)

    def options(self) -> tuple[Option, ...]:
        return GLOBALS + (self.found.command.options if self.found.command else ())

    def known(self, name: str) -> Option | None:
        return next((option for option in self.options() if option.name == name), None)

    def option_hint(self, name: str) -> str:
        if self.found.command is None and any(name == o.name for c in COMMANDS.values() for o in c.options):
            return f"it belongs after the command: ckpt COMMAND --{name}"
        return _guess(name, [option.name for option in self.options()], "--{}") or self.see_help()

    def see_help(self) -> str:
        return f"see ckpt help {self.found.command.name}" if self.found.command else _overview()

    def share_out(self, command: Command) -> None:
        """Give the words to the positional arguments in their order."""
        left = self.words
        for word in command.words:
            most = len(left) if word.most is None else word.most
            self.found.words[word.name], left = left[:most], left[most:]
            if len(self.found.words[word.name]) < word.least:
                raise UsageError(f"{command.name} needs {word.name}", f"for example: {command.example}")
        if left:
            raise UsageError(f"{command.name} does not take {left[0]!r} as well", self.too_many(command))
        if command.dashed is not None:
            self.found.words[command.dashed] = self.dashed

    def too_many(self, command: Command) -> str:
        if command.dashed is not None:
            return f"paths go after --, for example: {command.example}"
        if command.name == "save":
            return "put a message of several words in quotes"
        return self.see_help()


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0


def _overview() -> str:
    return "ckpt help lists the commands"


def _guess(text: str, among: Iterable[str], form: str) -> str | None:
    """Say what was probably meant; difflib is loaded only once something is wrong."""
    import difflib

    close = difflib.get_close_matches(text, list(among), 1, 0.6)
    meant = SYNONYMS.get(text) if among is COMMANDS and text in SYNONYMS else (close[0] if close else None)
    return f"did you mean {form.format(meant)}?" if meant else None
