"""Making sure that client and daemon mean the same directory."""

import os

from ckpt_protocol.structs import Worktree
from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, from_os_error

__all__ = ["check_identity", "check_real"]


def check_identity(path: bytes, place: Worktree) -> None:
    """Compare device and inode as the client sees them with what is at the path here.

    A client in a container, or behind a bind mount, may use the same name for another directory. Raises DomainError
    ``identity_mismatch``. A directory that neither side sees is no mismatch.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        here = None
    except OSError as error:
        raise from_os_error(error, "look at the worktree", path) from error
    else:
        here = (str(found.st_dev), str(found.st_ino))
    there = (place.dev, place.ino) if place.dev is not None and place.ino is not None else None
    if there is not None and here != there:
        raise DomainError(
            "identity_mismatch",
            f"{to_text(path)} is another directory for the daemon than for you",
            hint="are you in a container, or was it replaced just now? Run the daemon where the directory is",
            paths=(path,),
        )


def check_real(path: bytes) -> None:
    """Make sure that a path has no links in it; raises DomainError ``bad_path``.

    Two names of one directory would be two stores, and two actors writing into one worktree.
    """
    if os.path.realpath(path) != path:
        raise DomainError(
            "bad_path",
            f"{to_text(path)} is not a real path: a link is part of it",
            hint=f"use {to_text(os.path.realpath(path))}",
            paths=(path,),
        )
