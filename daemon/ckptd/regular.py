"""Reading files by names that anybody may have given to something else."""

import os
import stat

__all__ = ["read_regular"]


def read_regular(path: bytes | str, limit: int) -> bytes | None:
    """Read a regular file, at most ``limit`` bytes of it; None where there is none. Raises OSError.

    A worktree is anybody's: a FIFO in the place of a file must not be waited for.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with open(fd, "rb") as file:
        return file.read(limit) if stat.S_ISREG(os.fstat(fd).st_mode) else None
