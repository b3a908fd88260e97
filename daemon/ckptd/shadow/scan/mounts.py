"""What kind of file system a worktree lies on, and what is mounted in it."""

import os
import re
from typing import Final

__all__ = ["clock_margin_ns", "file_system_of", "is_local", "mounts_below", "mounts_in"]

_LOCAL: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "zfs", "jfs", "reiserfs"}
    | {"tmpfs", "ramfs", "overlay", "apfs", "hfs", "ufs"}
)

_LOCAL_MARGIN_NS: Final = 100_000_000
_OTHER_MARGIN_NS: Final = 2_000_000_000


def file_system_of(device: int, mountinfo: bytes) -> str | None:
    """Give the type of the file system with a device number, from the text of ``/proc/self/mountinfo``."""
    wanted = b"%d:%d" % (os.major(device), os.minor(device))
    for line in mountinfo.splitlines():
        fields = line.split(b" ")
        if len(fields) > 6 and fields[2] == wanted and b"-" in fields:
            return fields[fields.index(b"-") + 1].decode("ascii", "replace")
    return None


def mounts_in(root: bytes, mountinfo: bytes) -> frozenset[bytes]:
    """Give the mount points below a real path, relative to it, from the text of ``/proc/self/mountinfo``.

    A device number does not tell a bind mount of the same file system from a directory; this does.
    """
    start = root.rstrip(b"/") + b"/"
    points = [line.split(b" ")[4] for line in mountinfo.splitlines() if line.count(b" ") > 4]
    plain = [re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), point) for point in points]
    return frozenset(point[len(start) :] for point in plain if point.startswith(start))


def mounts_below(root: bytes) -> frozenset[bytes]:
    """Give the mount points below a real path, relative to it; none where the system does not tell."""
    return mounts_in(root, _mountinfo())


def clock_margin_ns(device: int) -> int:
    """Give how far a file's ctime must lie behind the clock before it counts as settled.

    A known local file system stamps with this machine's clock, a tick late at most; any other may have a clock
    and a granularity of its own.
    """
    return _LOCAL_MARGIN_NS if is_local(device) else _OTHER_MARGIN_NS


def is_local(device: int) -> bool:
    """Tell whether a file system is known to be this machine's own: nobody else changes what is on it."""
    return file_system_of(device, _mountinfo()) in _LOCAL


def _mountinfo() -> bytes:
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            return file.read()
    except OSError:
        return b""
