"""What a process has in memory, as the system tells it (Linux)."""

import itertools
import os
import re
from pathlib import Path

import pytest

__all__ = ["heaps", "needs_maps", "resident_bytes"]

_HEAP_BYTES = 64 * 1024 * 1024
_LINE = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)")

needs_maps = pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="nobody tells what is in memory")


def resident_bytes(path: bytes) -> int:
    """Give how much of a file this process has mapped and in memory."""
    found, is_meant = 0, False
    for line in Path("/proc/self/smaps").read_bytes().splitlines():
        mapping = _LINE.fullmatch(line)
        if mapping is not None:
            is_meant = mapping[4] == path
        elif is_meant and line.startswith(b"Rss:"):
            found += int(line.split()[1]) * 1024
    return found


def heaps(pid: int | str = "self") -> int:
    """Count the heaps that the GNU allocator has made for threads: each lies at a multiple of its largest size."""
    mappings = [
        (int(match[1], 16), int(match[2], 16), match[3], match[4])
        for match in map(_LINE.fullmatch, Path(f"/proc/{pid}/maps").read_bytes().splitlines())
        if match is not None
    ]
    return sum(
        start % _HEAP_BYTES == 0 and access == b"rw-p" and not path and (rest, reserved) == (end, b"---p")
        for (start, end, access, path), (rest, _, reserved, _) in itertools.pairwise(mappings)
    )
