"""Which worktree a command is about."""

from __future__ import annotations

import os

from fabricatio_checkpoint.errors import error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["current_directory", "innermost_tracked", "is_whole"]


def current_directory() -> bytes:
    """The real path of the current directory; raises StateError where it was deleted under our feet."""
    try:
        return os.path.realpath(os.getcwdb())
    except FileNotFoundError as error:
        raise error_of(
            "worktree_missing",
            "the current directory does not exist any more",
            hint="say which worktree is meant: ckpt -w DIR",
        ) from error


def innermost_tracked(start: bytes, is_tracked: Callable[[bytes], bool]) -> bytes | None:
    """Find the tracked directory that is ``start`` or, of those above it, the nearest; None where none is tracked."""
    path = start
    while not is_tracked(path):
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above
    return path


def is_whole(worktree: bytes, argument: str) -> bool:
    """Whether a path of the command line means the worktree itself."""
    return bool(argument) and os.path.normpath(os.path.join(worktree, os.fsencode(argument))) == worktree
