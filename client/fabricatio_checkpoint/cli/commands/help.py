"""``help``, ``--help`` and ``--version``."""

from __future__ import annotations

from ckpt_protocol.version import BUILD, PROTOCOL_VERSION
from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.cli.grammar import COMMANDS, GLOBALS, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabricatio_checkpoint.cli.session import Session

__all__ = ["help_", "tell_help", "tell_version"]


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
    lines = list(_text(name))
    if session.out.json:
        session.out.document({"help": "\n".join(lines)})
    else:
        for line in lines:
            session.out.line(line)
    return 0


def _text(name: str) -> Iterator[str]:
    group = [command for command in COMMANDS.values() if command.name.startswith(f"{name} ")]
    if not name:
        yield from _overview()
    elif name in COMMANDS:
        yield from _explained(COMMANDS[name])
    elif group:
        yield from _listed(group)
    else:
        raise UsageError(f"there is no command {name!r}", "ckpt help lists the commands")


def _overview() -> Iterator[str]:
    yield "usage: ckpt [-w DIR] [--json] COMMAND"
    yield ""
    yield "Undo for a directory: checkpoints of all its files, kept outside of it."
    yield ""
    yield from _listed(list(COMMANDS.values()))
    yield ""
    yield from _options(GLOBALS)
    yield ""
    yield "An ID is an id, its first digits (4 or more), a tag, #SEQ, HEAD, HEAD~N or @{TIME}."
    yield "Relative paths are relative to the worktree. ckpt help COMMAND says more."


def _listed(commands: list[Command]) -> Iterator[str]:
    for command in commands:
        yield f"  {command.name:<18}{command.summary}"


def _explained(command: Command) -> Iterator[str]:
    yield f"usage: {_usage(command)}"
    yield ""
    yield f"{command.summary[0].upper()}{command.summary[1:]}."
    yield ""
    yield from _options(command.options + GLOBALS)
    yield ""
    yield f"example: {command.example}"
    if command.details:
        yield ""
        yield from command.details


def _usage(command: Command) -> str:
    parts = ["ckpt", command.name]
    for word in command.words:
        name = word.name if word.most == 1 else f"{word.name}..."
        parts.append(name if word.least else f"[{name}]")
    if command.dashed is not None:
        parts.append(f"[-- {command.dashed}...]")
    if command.rest is not None:
        parts.append(f"[{command.rest}...]")
    parts += [f"[{_spelled(option)}]" + ("..." if option.many else "") for option in command.options]
    return " ".join(parts)


def _spelled(option: Option) -> str:
    return f"--{option.name} {option.metavar}" if option.metavar else f"--{option.name}"


def _options(options: tuple[Option, ...]) -> Iterator[str]:
    for option in options:
        letter = f"-{option.letter}, " if option.letter else "    "
        yield f"  {letter + _spelled(option):<22}{option.help}"
