"""How often things are done that nobody asked for: looking for changes, and trying to reach the daemon again."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pace"]


@dataclass(frozen=True, slots=True)
class Pace:
    """Times in seconds. A look at the worktree takes no more than one part in ``share`` of the time.

    ``may_start``: a daemon that does not come back by itself is started.
    """

    look_s: float = 4.0
    share: int = 25
    first_retry_s: float = 0.25
    last_retry_s: float = 10.0
    may_start: bool = True
    patience: int = 3

    def until_next_look(self, took_s: float) -> float:
        """Say how long to wait before the worktree is looked at again, after a look that took so long."""
        return max(self.look_s, took_s * self.share)

    def retry(self, attempt: int) -> tuple[float, bool]:
        """Say how long to wait before this attempt (from 0 on) to reach the daemon, and whether it may start one.

        First the one that went has time to come back: whoever replaces it must not be got ahead of.
        """
        return min(self.first_retry_s * 2**attempt, self.last_retry_s), self.may_start and attempt >= self.patience
