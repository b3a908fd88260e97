"""The ``ckpt`` command."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from fabricatio_checkpoint.cli.arguments import parse, wants_json
from fabricatio_checkpoint.cli.failure import report, report_interrupt
from fabricatio_checkpoint.cli.output import ClosedOutputError, Output
from fabricatio_checkpoint.cli.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fabricatio_checkpoint.cli.arguments import Arguments

__all__ = ["main", "run"]


def main(argv: list[str] | None = None) -> int:
    """Run one command line (``sys.argv`` by default) and return the exit code. Nothing is raised."""
    words = sys.argv[1:] if argv is None else argv
    out = Output(wants_json(words))
    try:
        return _told(words, out)
    except ClosedOutputError:
        # Whoever read our output has seen enough; what the command did is done.
        return 0


def run() -> None:
    """Be the program ``ckpt``: run the process's command line and end the process with its exit code.

    What the command has written is flushed by then. Where nobody has asked to be told of the end and no thread runs,
    there is nothing else to wait for: taking the interpreter apart would cost a sixth of its start.
    """
    code = main()
    if "atexit" not in sys.modules and "threading" not in sys.modules and _flushed():
        os._exit(code)
    sys.exit(code)


def _flushed() -> bool:
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return False
    return True


def _told(words: list[str], out: Output) -> int:
    try:
        code = _run(words, out)
        out.flush()
    except ClosedOutputError:
        raise
    except KeyboardInterrupt as interrupt:
        code = report_interrupt(interrupt, out)
    # The last line of defence: a bug becomes one line and an exit code, never a traceback.
    except Exception as error:
        code = report(error, out)
    return code


def _run(words: list[str], out: Output) -> int:
    session = Session(parse(words), out)
    try:
        module, _, function = _handler(session.arguments).partition(".")
        run = getattr(import_module(f"fabricatio_checkpoint.cli.commands.{module}"), function)
        return int(run(session))
    finally:
        session.close()


def _handler(arguments: Arguments) -> str:
    if arguments.flag("help"):
        return "help.tell_help"
    if arguments.flag("version"):
        return "help.tell_version"
    # The parser lets a line without a command through only with one of those two.
    assert arguments.command is not None
    return arguments.command.handler


if __name__ == "__main__":
    run()
