"""Which worktree a directory without a store may be: one that was moved."""

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from ckptd.errors import DomainError
from ckptd.shadow.store.mark import Mark, mark_of
from ckptd.shadow.store.metadata import Metadata

__all__ = ["Claim", "claims_on", "is_gone", "is_proved", "only_proved"]


class Claim(NamedTuple):
    """A store whose worktree the directory may be, and whether that is ``proved``."""

    folder: bytes
    metadata: Metadata
    proved: bool


def claims_on(path: bytes, stores: Iterable[tuple[bytes, Metadata | DomainError]]) -> list[Claim]:
    """Give the stores whose worktree may now be at a path."""
    here = _mark(path)
    if here is None:
        return []
    found = []
    for folder, metadata in stores:
        if isinstance(metadata, Metadata) and metadata.path != path:
            proved = is_proved(metadata, here, path)
            if proved is not None:
                found.append(Claim(folder, metadata, proved))
    return found


def only_proved(claims: list[Claim]) -> Claim | None:
    """Give the claim that needs no question: where there is another, nobody but a person can tell."""
    return claims[0] if len(claims) == 1 and claims[0].proved else None


def is_gone(old: bytes, path: bytes) -> bool | None:
    """Tell whether no other directory than the one at ``path`` is at the old path; None where that cannot be seen."""
    try:
        os.lstat(old)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return None
    # Somebody has left a link that leads to the new place.
    return os.path.realpath(old) == path


def is_proved(recorded: Metadata, here: Mark, path: bytes) -> bool | None:
    """Compare what was recorded with a directory; None where it is another one for all that can be known."""
    if recorded.ino != here.ino:
        return None
    gone = is_gone(recorded.path, path)
    if recorded.birth is None or here.birth is None:
        return None if gone is False else False
    if recorded.birth != here.birth:
        # The number of a directory that was deleted, given again.
        return None
    same_system = recorded.dev == here.dev or recorded.fsid == here.fsid != "0"
    return gone is True and same_system


def _mark(path: bytes) -> Mark | None:
    try:
        return mark_of(path) if stat.S_ISDIR(os.lstat(path).st_mode) else None
    except OSError:
        return None
