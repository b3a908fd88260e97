"""What the engine is told by the daemon's configuration."""

from typing import NamedTuple

__all__ = ["Settings"]


class Settings(NamedTuple):
    """``home`` is the user's home directory, ``git_excludes_path`` their global excludes file where one counts.

    ``exclude`` holds patterns in the syntax of ignore files, anchored at the worktree.
    """

    home: bytes
    temporary: bytes = b"/tmp"
    max_file_bytes: int = 100 * 1024 * 1024
    one_file_system: bool = True
    exclude: tuple[bytes, ...] = ()
    git_excludes_path: bytes | None = None
