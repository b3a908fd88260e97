"""What this process runs, and what lies on the disk by now: the two differ after an upgrade under a living daemon."""

import importlib
import pkgutil
import re
import sys
from typing import Final

import ckpt_protocol
import ckpt_protocol.version
import ckptd

__all__ = ["build_on_disk", "load_all"]

_CHILDREN: Final = (
    "ckptd.__main__",
    "ckptd.doctor",
    "ckptd.install",
    "ckptd.watch.child",
    "ckptd.watch.lookout",
    "ckptd.workers.__main__",
)
"""What runs as a process of its own, by name: never in the daemon."""

_HAS_INOTIFY: Final = sys.platform.startswith("linux")
_LATE: Final = ("concurrent.futures.thread", "encodings.idna", "stringprep")
"""What the event loop would only import when it needs it."""
_BUILD_LINE: Final = re.compile(r'^BUILD = "([^"]+)"', re.MULTILINE)


def load_all() -> None:
    """Import everything that the daemon can ever need, so that no answer depends on what is installed later."""
    for package in (ckpt_protocol, ckptd):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.startswith(_CHILDREN) and (_HAS_INOTIFY or not found.name.startswith("ckptd.exact.")):
                importlib.import_module(found.name)
    for name in _LATE:
        importlib.import_module(name)


def build_on_disk() -> str | None:
    """Give the build that a start would run now; None where it cannot be told."""
    try:
        with open(ckpt_protocol.version.__file__, encoding="utf-8") as file:
            found = _BUILD_LINE.search(file.read())
    except OSError:
        return None
    return found and found.group(1)
