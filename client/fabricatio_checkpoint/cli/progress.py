"""The line on a terminal that says how far a long command is. Loaded when there is something to say."""

from __future__ import annotations

import os
import time

from fabricatio_checkpoint.cli.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

__all__ = ["Line", "text"]

_PHASES = {
    "waiting": "waiting for others",
    "scan": "looking",
    "hash": "reading",
    "write": "writing",
    "plan": "planning",
    "safety": "saving what is there",
    "compare": "comparing",
    "render": "comparing",
    "export": "writing",
    "packs": "checking packs",
    "history": "checking the history",
    "collect": "collecting",
    "search": "searching",
}
_NO_FILES = frozenset({"packs", "history", "collect"})
"""What these count is not worth a word to a person."""

_NOUNS = {"search": "checkpoint"}
"""What is counted, where it is no files."""

_MEGABYTE = 1_000_000
_COLUMNS = 80


class Line:
    """Overwrites itself on ``stream``; the first notification, after a moment, is not worth one yet."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._count = 0
        self._width = 0
        self._begun: tuple[str, float, int, int] = ("", 0.0, 0, 0)

    def tell(self, notice: dict[str, Any]) -> None:
        """Show a notification of progress."""
        told = notice.get("params")
        if notice.get("method") != "$/progress" or not isinstance(told, dict):
            return
        self._count += 1
        now, phase = self._clock(), str(told.get("phase"))
        if phase != self._begun[0]:
            self._begun = (phase, now, int(told.get("done", 0)), int(told.get("bytes", 0)))
        if self._count > 1:
            _, since, done, size = self._begun
            self._show(text(told, now - since, done, size))

    def clear(self) -> None:
        """Leave nothing behind on the terminal."""
        if self._width:
            self._show("")

    def _show(self, line: str) -> None:
        line = line[: _columns(self._stream) - 1]
        try:
            self._stream.write("\r" + line.ljust(self._width) + ("" if line else "\r"))
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody looks any more; the command itself goes on.
            return
        self._width = len(line)


def text(told: dict[str, Any], seconds: float, done_before: int = 0, bytes_before: int = 0) -> str:
    """Say how far it is; ``seconds`` is how long the phase has lasted, since which counts were as given."""
    phase, done, total = str(told.get("phase")), int(told.get("done", 0)), int(told.get("total", 0))
    size = int(told.get("bytes", 0))
    parts = [_PHASES.get(phase, phase)]
    if phase in _NO_FILES:
        done = done_before = total = 0
    noun = _NOUNS.get(phase, "file")
    if total:
        parts.append(f"{done}/{counted(total, noun)}")
    elif done:
        parts.append(counted(done, noun))
    if size:
        parts.append(f"{size / _MEGABYTE:.1f} MB")
    if seconds > 0 and size > bytes_before:
        parts.append(f"{(size - bytes_before) / seconds / _MEGABYTE:.1f} MB/s")
    if seconds > 0 and total > done > done_before:
        left = round((total - done) * seconds / (done - done_before))
        parts.append(f"{left // 60}:{left % 60:02d} left")
    return ", ".join(parts)


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS
