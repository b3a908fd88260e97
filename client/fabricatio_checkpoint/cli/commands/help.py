"""``help``, ``--help`` and ``--version``."""

from __future__ import annotations

from shutil import get_terminal_size
from textwrap import wrap

from ckpt_protocol.version import BUILD, PROTOCOL_VERSION
from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.cli.grammar import COMMANDS, GLOBALS, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["help_", "tell_help", "tell_version"]

Line = tuple[str, int]

_TIED = "\N{NO-BREAK SPACE}"
_ROOMY, _LEAST_INDENT = 60, 8
_LEAST_COLUMNS, _MOST_COLUMNS = 40, 80
_FIRST_STEPS = ('ckpt save "before the agent"', "ckpt status", "ckpt diff", "ckpt reset", "ckpt undo")


def help_(session: Session) -> int:
    """Explain the command that is named, else list all."""
    return _tell(session, " ".join(session.arguments.all_words("COMMAND")))


def tell_help(session: Session) -> int:
    """Explain the command, or the group of commands, that ``--help`` was given to."""
    command = session.arguments.command
    return _tell(session, command.name if command else " ".join(session.arguments.all_words("COMMAND")))


def tell_version(session: Session) -> int:
    """Print the version of the program."""
    if session.out.json:
        session.out.document({"version": BUILD, "protocol": PROTOCOL_VERSION})
    else:
        session.out.line(f"ckpt {BUILD}")
    return 0


def _tell(session: Session, name: str) -> int:
    lines = [line for text, indent in _text(name) for line in _wrapped(text, indent)]
    if session.out.json:
        session.out.document({"help": "\n".join(lines)})
    else:
        for line in lines:
            session.out.line(line)
    return 0


def _wrapped(text: str, indent: int) -> list[str]:
    """Break a line for the terminal, never beyond 80 columns; the later parts are indented."""
    columns = max(_LEAST_COLUMNS, min(_MOST_COLUMNS, get_terminal_size().columns))
    pieces = wrap(
        text,
        columns,
        subsequent_indent=" " * (indent if columns >= _ROOMY else min(indent, _LEAST_INDENT)),
        break_on_hyphens=False,
        break_long_words=False,
        replace_whitespace=False,
    )
    return [piece.replace(_TIED, " ") for piece in pieces] or [""]


def _text(name: str) -> Iterator[Line]:
    """Give lines, and how far the rest of each is indented where it has to be broken."""
    group = [command for command in COMMANDS.values() if command.name.startswith(f"{name} ")]
    if not name:
        yield from _overview()
    elif name in COMMANDS:
        yield from _explained(COMMANDS[name])
    elif group:
        yield from _listed(group)
    else:
        raise UsageError(f"there is no command {name!r}", "ckpt help lists the commands")


def _overview() -> Iterator[Line]:
    yield "usage: ckpt [-w DIR] [--json] COMMAND", 0
    yield "", 0
    yield "Undo for a directory: checkpoints of all its files, kept outside of it.", 0
    yield "", 0
    yield from _listed(list(COMMANDS.values()))
    yield "", 0
    yield from _options(GLOBALS)
    yield "", 0
    yield "An ID is an id, its first digits (4 or more), a tag, #SEQ, HEAD, HEAD~N or @{TIME}.", 0
    yield "Relative paths are relative to the worktree. ckpt help COMMAND says more.", 0
    yield "", 0
    yield from _examples(_FIRST_STEPS)


def _listed(commands: list[Command]) -> Iterator[Line]:
    for command in commands:
        yield f"  {command.name:<18}{command.summary}", 20


def _explained(command: Command) -> Iterator[Line]:
    usage = _usage(command)
    yield f"usage: {usage}", len("usage: ckpt ") + len(command.name) + 1
    yield "", 0
    yield f"{command.summary[0].upper()}{command.summary[1:]}.", 0
    yield "", 0
    yield from _options(command.options + GLOBALS)
    yield "", 0
    yield from _examples((command.example, *command.more))
    if command.details:
        yield "", 0
        yield from ((line, 4) for line in command.details)
    if command.appendix is not None:
        from importlib import import_module

        yield "", 0
        lines = import_module(f"fabricatio_checkpoint.{command.appendix}").help_lines()
        yield from ((line, 12) for line in lines)


def _examples(lines: tuple[str, ...]) -> Iterator[Line]:
    yield "examples:" if len(lines) > 1 else "example:", 0
    for line in lines:
        yield f"  {line}", 4


def _usage(command: Command) -> str:
    parts = ["ckpt", command.name]
    for word in command.words:
        name = "|".join(word.choices) or (word.name if word.most == 1 else f"{word.name}...")
        parts.append(name if word.least else f"[{name}]")
    if command.dashed is not None:
        parts.append(f"[-- {command.dashed}...]")
    if command.rest is not None:
        parts.append(f"[{command.rest}...]")
    parts += [f"[{_spelled(option)}]" + ("..." if option.many else "") for option in command.options]
    return " ".join(part.replace(" ", _TIED) for part in parts)


def _spelled(option: Option) -> str:
    return f"--{option.name} {option.metavar}" if option.metavar else f"--{option.name}"


def _options(options: tuple[Option, ...]) -> Iterator[Line]:
    for option in options:
        letter = f"-{option.letter}, " if option.letter else "    "
        yield f"  {letter + _spelled(option):<22}{option.help}", 24
