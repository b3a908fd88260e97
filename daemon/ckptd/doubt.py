"""Why everything is looked at although somebody watches a worktree."""

from typing import NamedTuple

from ckpt_protocol.worktree import FallBackKind

__all__ = ["Doubt"]


class Doubt(NamedTuple):
    """``kind`` is counted, ``text`` is for people."""

    kind: FallBackKind
    text: str
