"""The steps of a restore, as the plan lists them and the writer carries them out."""

from typing import NamedTuple

from ckptd.shadow.trees.tree import DIRECTORY

__all__ = ["State", "Step"]


class State(NamedTuple):
    """What stands at a path: a mode of git's, a blob id (empty for a directory), and permission bits if known."""

    mode: int
    oid: bytes
    perm: int | None = None

    @property
    def is_dir(self) -> bool:
        """Tell whether this is a directory."""
        return self.mode == DIRECTORY

    def same_content(self, other: "State | None") -> bool:
        """Tell whether the two differ at most in permission bits."""
        return other is not None and self.mode == other.mode and self.oid == other.oid


class Step(NamedTuple):
    """One path that differs. ``before`` is what the safety checkpoint holds there, None for nothing."""

    path: bytes
    before: State | None
    after: State | None
