"""What kind of file system a worktree lies on, as far as the scan has to know."""

import os
from typing import Final

__all__ = ["clock_margin_ns", "file_system_of"]

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


def clock_margin_ns(device: int) -> int:
    """Give how far a file's ctime must lie behind the clock before it counts as settled.

    A known local file system stamps with this machine's clock, a tick late at most; any other may have a clock
    and a granularity of its own.
    """
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            kind = file_system_of(device, file.read())
    except OSError:
        return _OTHER_MARGIN_NS
    return _LOCAL_MARGIN_NS if kind in _LOCAL else _OTHER_MARGIN_NS
