"""The worktree's own directory: whether it is there, and whether it is still the one that was looked at."""

import os
import stat
from collections.abc import Callable
from typing import NamedTuple

from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.store.repository import Repository

__all__ = ["Place", "is_missing", "open_root", "place_of", "require_place", "stays_at"]


class Place(NamedTuple):
    """What tells the worktree's own directory from any other."""

    dev: int
    ino: int


def open_root(repo: Repository) -> int:
    """Open the worktree's own directory; raises DomainError."""
    try:
        return os.open(repo.worktree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise from_os_error(error, "open the worktree", repo.worktree) from error


def place_of(repo: Repository) -> Place | None:
    """Tell which directory the worktree is; None where there is none."""
    try:
        found = os.lstat(repo.worktree)
    except OSError:
        return None
    return Place(found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def require_place(repo: Repository, place: Place | None) -> None:
    """Make sure that the worktree is still that directory; raises DomainError ``worktree_replaced``."""
    if place_of(repo) != place:
        raise DomainError(
            "worktree_replaced",
            f"{to_text(repo.worktree)} was moved away or replaced just now; nothing was changed",
            hint="see what is there now, then try again",
            paths=(repo.worktree,),
        )


def stays_at(repo: Repository, place: Place | None, root_fd: int) -> Callable[[], bool]:
    """Give what tells whether the open directory is that one, and still the worktree, as often as it is asked."""
    held = os.fstat(root_fd)
    # Which directory is open never changes, and while it is, no other can have its inode.
    is_that = Place(held.st_dev, held.st_ino) == place
    return lambda: is_that and place_of(repo) == place


def is_missing(repo: Repository) -> bool:
    """Tell whether there is nothing where the worktree was; raises DomainError where that cannot be known."""
    try:
        os.lstat(repo.worktree)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        raise from_os_error(error, "look at the worktree", repo.worktree) from error
    return False
