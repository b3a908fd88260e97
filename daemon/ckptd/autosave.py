"""What autosave is told by the options of a daemon and of a worktree."""

from typing import NamedTuple

__all__ = ["Autosave", "AutosaveWishes"]


class Autosave(NamedTuple):
    """Whether a worktree is saved by itself: after ``quiet_s`` without edits, at the latest after ``max_wait_s``."""

    on: bool = False
    quiet_s: float = 2.0
    max_wait_s: float = 30.0


class AutosaveWishes(NamedTuple):
    """What one source says of it; None where it says nothing."""

    on: bool | None = None
    quiet_s: float | None = None
    max_wait_s: float | None = None

    def over(self, other: Autosave) -> Autosave:
        """Give the options with these wishes above the others."""
        wait = other.max_wait_s if self.max_wait_s is None else self.max_wait_s
        quiet = other.quiet_s if self.quiet_s is None else self.quiet_s
        return Autosave(other.on if self.on is None else self.on, quiet, wait)
