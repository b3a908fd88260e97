"""Long results through the user's pager, where a person looks at a terminal."""

from __future__ import annotations

import os
import sys

from fabricatio_checkpoint.cli.output import is_terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import Popen
    from types import TracebackType

    from fabricatio_checkpoint.cli.output import Output

__all__ = ["Paged"]

_DEFAULTS = {"LESS": "FRX", "LV": "-c"}
"""As git sets them: end at once where all fits on the screen, let colours through, leave the screen as it is."""


class Paged:
    """A ``with`` block whose results go through a pager; without a terminal, or a pager, they go where they went.

    The pager is ``CKPT_PAGER``, else ``PAGER``, else ``less``; an empty one or ``cat`` is none.
    """

    def __init__(self, out: Output) -> None:
        self._out = out
        self._pager: Popen[bytes] | None = None
        self._stdout = -1

    def __enter__(self) -> None:
        command = _command() if _wanted(self._out) else None
        if command is None:
            return
        self._out.flush()
        self._pager = _start(command)
        assert self._pager.stdin is not None
        self._stdout = os.dup(1)
        os.dup2(self._pager.stdin.fileno(), 1)
        self._pager.stdin.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pager is None:
            return
        try:
            self._out.flush()
        finally:
            # The end of the pipe is what the pager waits for; a message of ours must not come before its last line.
            os.dup2(self._stdout, 1)
            os.close(self._stdout)
            _wait(self._pager)


def _wanted(out: Output) -> bool:
    return not out.json and is_terminal(sys.stdout) and os.environ.get("TERM", "dumb") != "dumb"


def _command() -> str | None:
    for name in ("CKPT_PAGER", "PAGER"):
        if name in os.environ:
            command = os.environ[name].strip()
            return command if command not in ("", "cat") else None
    from shutil import which

    return "less" if which("less") else None


def _start(command: str) -> Popen[bytes]:
    import subprocess

    # It is a command line of the user's own shell, as everywhere else that this variable is read.
    return subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env={**_DEFAULTS, **os.environ})


def _wait(pager: Popen[bytes]) -> None:
    """Ctrl-C is the pager's: to us it would mean that the terminal is left to two readers at once."""
    import signal

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pager.wait()
    finally:
        signal.signal(signal.SIGINT, before)
