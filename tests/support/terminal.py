"""A terminal of a given size for one command, and what stands on it afterwards."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence

from support.poll import until

__all__ = ["Terminal"]

_LINES = 40


class Terminal:
    """Runs commands with all three streams on a pseudo terminal of ``columns``; ``environ`` is theirs."""

    def __init__(self, columns: int, environ: Mapping[str, str], cwd: str | os.PathLike[str]) -> None:
        self.columns = columns
        self.environ = {**environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
        self.cwd = cwd

    def run(self, words: Sequence[str], answer: bytes = b"", wait_for: bytes = b"") -> tuple[int, bytes]:
        """Run a command to its end, typing ``answer`` after ``wait_for``; give its exit code and all that it said."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, self.columns, 0, 0))
        child = subprocess.Popen(
            words, cwd=self.cwd, env=self.environ, stdin=theirs, stdout=theirs, stderr=theirs
        )  # fmt: skip
        os.close(theirs)
        said = bytearray()
        reader = threading.Thread(target=_read, args=(ours, said))
        reader.start()
        if answer:
            until(lambda: wait_for in said or child.poll() is not None)
            os.write(ours, answer)
        code = child.wait(120)
        reader.join(10)
        os.close(ours)
        return code, bytes(said).replace(b"\r\n", b"\n")


def _read(terminal: int, said: bytearray) -> None:
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            return
        if not data:
            return
        said.extend(data)
