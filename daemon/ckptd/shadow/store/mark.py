"""What tells a directory from every other, also after it was moved."""

import os
from typing import NamedTuple

from ckptd.shadow.store.birth import birth_of

__all__ = ["Mark", "mark_of"]


class Mark(NamedTuple):
    """All in decimal. ``birth`` is in nanoseconds, None where it is not known: the number alone is soon given again.

    ``dev`` counts in one run of the system; ``fsid`` is the file system's own, "0" where it has none.
    """

    ino: str
    birth: str | None
    dev: str
    fsid: str


def mark_of(path: bytes) -> Mark:
    """Look at a directory; raises OSError."""
    found = os.stat(path)
    return Mark(str(found.st_ino), birth_of(path, found), str(found.st_dev), str(os.statvfs(path).f_fsid))
