"""Paths that a scan leaves out, and why."""

from typing import Final, NamedTuple

from ckpt_protocol.structs import LeftOut, to_wire
from ckptd.errors import spelled

__all__ = ["LARGE", "NAME", "OTHER_MOUNT", "SPECIAL", "STORE", "UNREADABLE", "UNSTABLE", "Exclusion"]

# By policy: a checkpoint without these is complete.
LARGE: Final = "large"
NAME: Final = "name"
OTHER_MOUNT: Final = "other_mount"
SPECIAL: Final = "special"
STORE: Final = "store"

# By failure: a checkpoint without these is not.
UNREADABLE: Final = "unreadable"
UNSTABLE: Final = "unstable"


class Exclusion(NamedTuple):
    """A path that is not (or not surely as it is) in a tree; ``detail`` for people."""

    path: bytes
    reason: str
    detail: str | None = None

    def left_out(self) -> LeftOut:
        """Give the form that answers and info commits have."""
        detail = None if self.detail is None else spelled(self.detail)
        return LeftOut(path=to_wire(self.path), reason=self.reason, detail=detail)
