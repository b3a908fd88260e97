"""Paths that a scan leaves out, and why."""

from typing import Final, NamedTuple

__all__ = ["LARGE", "NAME", "OTHER_MOUNT", "SPECIAL", "UNREADABLE", "UNSTABLE", "Exclusion"]

# By policy: a checkpoint without these is complete.
LARGE: Final = "large"
NAME: Final = "name"
OTHER_MOUNT: Final = "other_mount"
SPECIAL: Final = "special"

# By failure: a checkpoint without these is not.
UNREADABLE: Final = "unreadable"
UNSTABLE: Final = "unstable"


class Exclusion(NamedTuple):
    """A path that is not (or not surely as it is) in a tree; ``detail`` for people."""

    path: bytes
    reason: str
    detail: str | None = None
