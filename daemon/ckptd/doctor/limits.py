"""The limits of the system that the daemon runs into first."""

import resource
from collections.abc import Iterator
from typing import Final

from ckptd.doctor.finding import Case, Finding

__all__ = ["check"]

_LEAST_FILES: Final = 1024
_INOTIFY: Final = (("max_user_watches", 8192), ("max_user_instances", 32))


def check(_case: Case) -> Iterator[Finding]:
    """Look at the limits of open files and of watched directories; raising them is root's business."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _LEAST_FILES:
        problem = f"a process may open {hard} files, the daemon wants {_LEAST_FILES}"
        yield Finding("limits", None, problem, "raise the limit (ulimit -Hn, /etc/security/limits.conf)")
    for name, least in _INOTIFY:
        found = _number(f"/proc/sys/fs/inotify/{name}")
        if found is not None and found < least:
            problem = f"fs.inotify.{name} is {found}, the daemon wants {least}"
            yield Finding("limits", None, problem, f"as root: sysctl fs.inotify.{name}={least}")


def _number(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
