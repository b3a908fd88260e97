"""How far a call is, for whoever wants to know while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Progress", "ProgressCallback", "Watch", "notice_of"]


class Progress(NamedTuple):
    """How far a call is, told at least twice a second; the same again means that it is alive.

    ``phase`` is ``waiting`` (others are first), of a save ``scan``, ``hash``, ``write``, of a restore ``plan``,
    ``safety``, ``write``, of a status or diff ``scan``, ``hash``, ``compare`` or ``render``. ``done`` counts files,
    ``total`` how many there will be (0: not known), ``bytes`` what was read.
    """

    phase: str
    done: int
    total: int
    bytes: int


ProgressCallback = Callable[[Progress], None]
"""Called in the thread that makes the call; what it raises calls the request off and comes out of the call."""


class Watch(NamedTuple):
    """Who is told how far a call is, and how long it may take."""

    progress: ProgressCallback | None = None
    deadline_s: float | None = None


def notice_of(callback: ProgressCallback | None) -> Callable[[dict[str, Any]], None] | None:
    """Give what takes notifications and passes on those of progress; None where nobody wants to know."""
    if callback is None:
        return None

    def tell(notice: dict[str, Any]) -> None:
        told = notice.get("params")
        if notice.get("method") == "$/progress" and isinstance(told, dict):
            callback(Progress(str(told.get("phase")), *(int(told.get(name, 0)) for name in ("done", "total", "bytes"))))

    return tell
