"""The daemon's log: one line a request, never a file's content or a checkpoint's message."""

import logging
import logging.handlers
import os
import sys
import time
from types import TracebackType
from typing import Final

from ckpt_protocol import address

__all__ = ["LOG_BYTES", "LOG_FILES", "LOG_NAME", "Seldom", "configure", "request_line"]

LOG_NAME: Final = "ckptd.log"
LOG_BYTES: Final = 1_000_000
LOG_FILES: Final = 3
"""The log of now and two older ones, each of LOG_BYTES at most."""

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
_JOURNAL_FORMAT: Final = "%(levelname)s %(name)s %(message)s"

_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

_requests = logging.getLogger("ckptd.requests")


def configure(state_dir: str | None) -> None:
    """Send the log to ``ckptd.log`` in ``state_dir``, or to stderr where that is None or cannot be written.

    Calling it again replaces what was configured before.
    """
    # A full disk must not fail a request, nor fill the terminal with tracebacks of the logging module.
    logging.raiseExceptions = False
    problem: OSError | None = None
    handler: logging.Handler | None = None
    if state_dir is not None:
        try:
            handler = _file_handler(state_dir)
        except OSError as error:
            problem = error
    if handler is None:
        handler = _stderr_handler(plain=state_dir is None)
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    if problem is not None:
        logging.getLogger(__name__).warning("no log file, using stderr: %s", problem)


class _OneLine(logging.Formatter):
    """Keeps what is told to its own line: a name may hold line feeds and codes for terminals.

    A traceback has lines of its own, which are set in, so that none of them reads as an entry.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = super().formatMessage(record)
        return text if text.isprintable() else "".join(map(_spelt, text))

    def formatException(self, ei: _Raised) -> str:
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"    {''.join(map(_spelt, line))}" for line in lines)


def _spelt(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")


class Seldom:
    """Warns about what can happen a thousand times a second: once in ``every_s`` seconds, and how often since."""

    def __init__(self, logger: logging.Logger, every_s: float = 10.0) -> None:
        self._logger = logger
        self._every_s = every_s
        self._next = 0.0
        self._unsaid = 0

    def warn(self, message: str, *values: object) -> None:
        """Log a warning, or only count it where the last one is not long ago."""
        now = time.monotonic()
        if now < self._next:
            self._unsaid += 1
            return
        self._logger.warning(message, *values)
        if self._unsaid:
            self._logger.warning("the last kind of warning was left out %s times", self._unsaid)
        self._next, self._unsaid = now + self._every_s, 0


def request_line(method: str, worktree: str | None, seconds: float, outcome: str, error_id: str | None = None) -> None:
    """Log one finished request. ``outcome`` is ``ok`` or the kind of its error."""
    # repr keeps a name with line feeds or terminal codes from forging other lines.
    where = "-" if worktree is None else ascii(worktree)
    name = ascii(method[:64])[1:-1]
    suffix = "" if error_id is None else f" error_id={error_id}"
    level = logging.INFO if error_id is None else logging.ERROR
    _requests.log(level, "%s worktree=%s ms=%.1f outcome=%s%s", name, where, seconds * 1000, outcome, suffix)


def _file_handler(state_dir: str) -> logging.Handler:
    address.ensure_private(state_dir)
    handler = logging.handlers.RotatingFileHandler(
        os.path.join(state_dir, LOG_NAME),
        maxBytes=LOG_BYTES,
        backupCount=LOG_FILES - 1,
        encoding="utf-8",
        errors="backslashreplace",
    )
    handler.setFormatter(_OneLine(_FORMAT))
    return handler


def _stderr_handler(*, plain: bool) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(_JOURNAL_FORMAT if plain else _FORMAT))
    return handler
