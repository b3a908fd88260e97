"""The daemon's progress as MCP wants it: a number that only grows, and words. Pure."""

from typing import Any, NamedTuple

__all__ = ["Pace", "Told"]


class Told(NamedTuple):
    """``progress`` is more than it was the last time."""

    progress: float
    message: str


class Pace:
    """Follows one request. The daemon counts anew in each phase, and says the same again to show that it is alive."""

    def __init__(self) -> None:
        self._phase = ""
        self._before = 0
        self._done = 0
        self._last = 0.0

    def told(self, notice: dict[str, Any]) -> Told | None:
        """Read a notification; None for one that is not about progress."""
        found = notice.get("params")
        if notice.get("method") != "$/progress" or not isinstance(found, dict):
            return None
        phase, done, total, read = (found[name] for name in ("phase", "done", "total", "bytes"))
        if phase != self._phase:
            self._before += self._done
            self._phase = phase
        self._done = done
        at = float(self._before + done)
        self._last = at if at > self._last else self._last + 0.001
        noun = "checkpoints" if phase in ("list", "search") else "files"
        of = f" of {total}" if total else ""
        return Told(self._last, f"{phase}: {done}{of} {noun}, {read} bytes")
