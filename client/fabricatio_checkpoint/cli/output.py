"""The two streams of a command: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys

from fabricatio_checkpoint.cli.text import broken
from fabricatio_checkpoint.errors import error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

__all__ = ["ClosedOutputError", "Output", "columns_of", "is_terminal"]

_COLUMNS = 80
_ALARM = "\x1b[1;31mckpt:\x1b[m"


class ClosedOutputError(Exception):
    """Whoever read our stdout has gone (``ckpt ls | head``)."""


class Output:
    """Where a command writes. With ``json`` stdout gets exactly one document.

    ``for_people``: stdout is a terminal; ``colour``: its user has not asked for plain text either. Both are what they
    were at the beginning: a pager in between changes nothing of it.
    """

    def __init__(self, json: bool) -> None:
        self.json = json
        self.for_people: bool = not json and is_terminal(sys.stdout)
        self._plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "dumb") == "dumb"
        self.colour: bool = self.for_people and not self._plain

    def line(self, text: str) -> None:
        """Write one line of the result; raises ClosedOutputError, and StorageError where stdout cannot be written."""
        self.raw((text + "\n").encode(_open_stdout().encoding or "utf-8", "backslashreplace"))

    def raw(self, data: bytes) -> None:
        """Write bytes of the result as they are; raises as line() does."""
        stdout = _open_stdout()
        try:
            stdout.flush()
            stdout.buffer.write(data)
        except OSError as error:
            raise self._unwritable(error) from error

    def document(self, value: Mapping[str, object]) -> None:
        """Write the JSON document; raises as line() does."""
        import json

        text = json.dumps(value, ensure_ascii=False)
        if not text.isprintable():
            text = "".join(char if char.isprintable() else _escaped(char) for char in text)
        self.raw(text.encode() + b"\n")

    def note(self, text: str) -> None:
        """Write a line to stderr under our name; on a terminal it is broken between words."""
        self.remark(_fitting(f"ckpt: {text}"))

    def alarm(self, text: str) -> None:
        """Write an error to stderr, as note() does, so that it is seen."""
        told = _fitting(f"ckpt: {text}")
        self.remark(_ALARM + told.removeprefix("ckpt:") if self.colours_notes() else told)

    def remark(self, text: str) -> None:
        """Write a line to stderr; one that cannot be written is lost, as there is nowhere left to say so."""
        stderr: TextIO | None = sys.stderr
        if stderr is None:
            return
        try:
            encoding = stderr.encoding or "utf-8"
            stderr.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            stderr.flush()
        except OSError:
            pass

    def shows_progress(self) -> bool:
        """Whether a person watches who wants to know how far a long command is."""
        return not self.json and is_terminal(sys.stderr)

    def colours_notes(self) -> bool:
        """Whether what goes to stderr may be in colour."""
        return not (self.json or self._plain) and is_terminal(sys.stderr)

    def flush(self) -> None:
        """Send what is buffered; raises as line() does."""
        stdout: TextIO | None = sys.stdout
        if stdout is None:
            return
        try:
            stdout.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def wait(self, seconds: float) -> None:
        """Wait, and notice meanwhile that whoever read our stdout has gone: raises ClosedOutputError."""
        import select
        import time

        try:
            poll = select.poll()
            poll.register(_open_stdout().fileno(), 0)
        except (OSError, ValueError):
            # It has no descriptor, as under somebody else's streams: nothing can be noticed.
            time.sleep(seconds)
            return
        events = poll.poll(seconds * 1000)
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in events):
            _abandon_stdout()
            raise ClosedOutputError
        if events:
            time.sleep(seconds)

    def _unwritable(self, error: OSError) -> Exception:
        _abandon_stdout()
        if isinstance(error, BrokenPipeError):
            return ClosedOutputError()
        return error_of("io_error", f"cannot write to stdout: {error.strerror or error}")


def _escaped(char: str) -> str:
    """Spell a character as JSON may: those that steer a terminal stand in strings only."""
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _open_stdout() -> TextIO:
    """The interpreter has None where the shell closed stdout (``>&-``)."""
    stdout: TextIO | None = sys.stdout
    if stdout is None:
        raise error_of("io_error", "cannot write to stdout: it is closed")
    return stdout


def _abandon_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush has nothing to complain about."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass


def _fitting(text: str) -> str:
    """Break text between words where it is too long for the terminal that stderr leads to, if it is one."""
    if not is_terminal(sys.stderr):
        return text
    columns = columns_of(sys.stderr)
    lines = (broken(line, columns, "      ") if len(line) > columns else [line] for line in text.split("\n"))
    return "\n".join(part for parts in lines for part in parts)


def columns_of(stream: TextIO) -> int:
    """Give the width of the terminal that a stream leads to: ``COLUMNS``, else what it says, else 80.

    Where a pager stands in between, the other standard streams still know.
    """
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    for fileno in (stream.fileno, lambda: 0, lambda: 2):
        try:
            return os.get_terminal_size(fileno()).columns or _COLUMNS
        except (OSError, ValueError):
            continue
    return _COLUMNS


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person sits at a stream; a closed or missing one has nobody."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False
