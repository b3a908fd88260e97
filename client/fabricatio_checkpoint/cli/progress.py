"""The line on a terminal that says how far a long command is. Loaded when there is something to say."""

from __future__ import annotations

import time

from fabricatio_checkpoint.cli.output import columns_of
from fabricatio_checkpoint.cli.text import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

__all__ = ["Line", "bar", "text"]

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
    "list": "looking",
    "weigh": "weighing",
    "holders": "looking for what else holds it",
}
_NO_FILES = frozenset({"packs", "history", "collect", "weigh", "holders"})
"""What these count is not worth a word to a person, but how much of it is left is."""

_NOUNS = {"search": "checkpoint", "list": "checkpoint"}
"""What is counted, where it is no files."""

_MEGABYTE = 1_000_000
_LEAST_BAR = 10
_MOST_BAR = 30
_PULSE = 4
_STYLES = ("\x1b[32m", "\x1b[2m", "\x1b[m")
"""What is done, what is not, and neither."""


class Line:
    """Overwrites itself on ``stream``; the first notification, after a moment, is not worth one yet."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic, *, colour: bool = False) -> None:
        self._stream = stream
        self._clock = clock
        self._colour = colour
        self._lines = "utf" in (getattr(stream, "encoding", None) or "").lower()
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
            self._show(told, text(told, now - since, done, size))

    def clear(self) -> None:
        """Leave nothing behind on the terminal."""
        if self._width:
            self._put("", 0)

    def _show(self, told: dict[str, Any], line: str) -> None:
        columns = columns_of(self._stream) - 1
        width = min(_MOST_BAR, columns - len(line) - 1)
        if width < _LEAST_BAR:
            line = line[:columns]
            self._put(line, len(line))
            return
        done, total = int(told.get("done", 0)), int(told.get("total", 0))
        self._put(f"{self._drawn(bar(done, total, width, self._count))} {line}", width + 1 + len(line))

    def _drawn(self, parts: tuple[int, int, int]) -> str:
        """Draw the parts of a bar: what is not, what is done, what is not."""
        full, rest = ("━", "─") if self._lines else ("#", "-")
        before, done, after = parts
        if not self._colour:
            return rest * before + full * done + rest * after
        good, dim, end = _STYLES
        return f"{dim}{rest * before}{end}{good}{full * done}{end}{dim}{rest * after}{end}"

    def _put(self, line: str, width: int) -> None:
        blanks = " " * max(0, self._width - width)
        try:
            self._stream.write("\r" + line + blanks + ("" if line else "\r"))
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody looks any more; the command itself goes on.
            return
        self._width = width


def bar(done: int, total: int, width: int, tick: int) -> tuple[int, int, int]:
    """Divide ``width`` columns into before, done and after.

    Without a total, or before the first one of it, a piece wanders with each tick.
    """
    if total and done:
        filled = min(width, width * done // total)
        return 0, filled, width - filled
    way = width - _PULSE
    place = tick % (2 * way)
    place = place if place <= way else 2 * way - place
    return place, _PULSE, way - place


def text(told: dict[str, Any], seconds: float, done_before: int = 0, bytes_before: int = 0) -> str:
    """Say how far it is; ``seconds`` is how long the phase has lasted, since which counts were as given."""
    phase, done, total = str(told.get("phase")), int(told.get("done", 0)), int(told.get("total", 0))
    size = int(told.get("bytes", 0))
    parts = [_PHASES.get(phase, phase), *_counts(phase, done, total)]
    if size:
        parts.append(f"{size / _MEGABYTE:.1f} MB")
    if seconds > 0 and size > bytes_before:
        parts.append(f"{(size - bytes_before) / seconds / _MEGABYTE:.1f} MB/s")
    elif seconds > 0 and done > done_before and phase not in _NO_FILES:
        parts.append(counted(round((done - done_before) / seconds), _NOUNS.get(phase, "file")) + "/s")
    if seconds > 0 and total > done > done_before:
        left = round((total - done) * seconds / (done - done_before))
        parts.append(f"{left // 60}:{left % 60:02d} left")
    return ", ".join(parts)


def _counts(phase: str, done: int, total: int) -> list[str]:
    if phase in _NO_FILES:
        return [f"{100 * min(done, total) // total} %"] if total else []
    noun = _NOUNS.get(phase, "file")
    if total:
        return [f"{done}/{counted(total, noun)}"]
    return [counted(done, noun)] if done else []
