"""What a tool is, what a call of one comes with, and the fields that several tools have."""

from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from ckpt_protocol.structs import Part, Result, WirePath
from fabricatio_checkpoint.mcp.answer import Answer
from fabricatio_checkpoint.mcp.desk import Desk, Notice
from fabricatio_checkpoint.mcp.field import Field
from fabricatio_checkpoint.mcp.page import MOST

__all__ = ["AFTER_PATH", "COUNTS", "HINT", "MAX_BYTES", "NEXT_PATH", "PATHS", "Call", "Tool", "limit"]

_LARGEST: Final = 60_000

PATHS: Final = "Only these files and directories: relative to the worktree, or absolute and inside of it."

AFTER_PATH: Final = Field("after_path", WirePath, "Show only paths after this one, in byte order.")
MAX_BYTES: Final = Field(
    "max_bytes", Annotated[int, msgspec.Meta(ge=1000, le=_LARGEST)], "How much to show at once.", 16_000
)
COUNTS: Final = Field("counts", dict[str, int], "How many entries each list has in all; fewer may be shown.", {})
NEXT_PATH: Final = Field("next_after_path", WirePath, "There is more: pass this as after_path.")
HINT: Final = Field("hint", str, "What can be done next.")


def limit(default: int) -> Field:
    """Make the field that says how many paths, or checkpoints, are shown at once."""
    return Field("limit", Annotated[int, msgspec.Meta(ge=1, le=MOST)], "How many to show at once.", default)


class Call(NamedTuple):
    """``arguments`` are as the tool's Struct has them, in plain values; ``agent`` is what the client calls itself."""

    desk: Desk
    arguments: dict[str, Any]
    agent: str | None
    tell: Notice | None

    def some(self, *names: str) -> dict[str, Any]:
        """Pick arguments that the daemon takes as they are."""
        return {name: self.arguments[name] for name in names if name in self.arguments}


class Tool(NamedTuple):
    """One tool. ``text`` is all that a model knows of it.

    ``run`` blocks, and raises CheckpointError. ``writes``: it changes something; ``destroys``: something that was
    there may be gone from the worktree; ``repeatable``: a second call of the same changes nothing more.
    """

    name: str
    title: str
    text: str
    arguments: type[Part]
    result: type[Result]
    run: Callable[[Call], Answer]
    writes: bool = False
    destroys: bool = False
    repeatable: bool = False
