"""What the kernel itself says of watches: which directories are watched, and how many there may be."""

import os
import re
from typing import Final

__all__ = ["inotify_limits", "instances", "watched_inodes"]

_WATCH: Final = re.compile(rb"^inotify wd:[0-9a-f]+ ino:([0-9a-f]+) ", re.MULTILINE)
_LIMITS: Final = "/proc/sys/fs/inotify/"


def instances() -> frozenset[int]:
    """Give the descriptors of this process that are inotify instances; none where the system does not say."""
    found = set()
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return frozenset()
    for name in names:
        try:
            if "inotify" in os.readlink(f"/proc/self/fd/{name}"):
                found.add(int(name))
        except OSError:
            # The listing's own descriptor, or one that another thread has closed.
            continue
    return frozenset(found)


def watched_inodes(instance: int) -> frozenset[int]:
    """Give the inodes that an inotify instance watches now; none where it is gone.

    A watch ends silently with its directory, and whoever makes it again often gets the same inode: only this list
    tells.
    """
    try:
        with open(f"/proc/self/fdinfo/{instance}", "rb") as file:
            return frozenset(int(number, 16) for number in _WATCH.findall(file.read()))
    except OSError:
        return frozenset()


def inotify_limits() -> tuple[int, int] | None:
    """Give how many instances and how many watches a user may have; None where there is no inotify."""
    try:
        return _number("max_user_instances"), _number("max_user_watches")
    except (OSError, ValueError):
        return None


def _number(name: str) -> int:
    with open(_LIMITS + name, "rb") as file:
        return int(file.read())
