"""Who else is at work in a store: git programs that somebody runs in it by hand, most likely.

Our own processes are kept apart by the data lock. Git's leave marks that say nothing of whether they live, so a mark is
left over only once it is known that no process has to do with the store; its age proves nothing.
"""

import os
from collections.abc import Iterator

__all__ = ["can_tell", "user_of"]

_PROC = b"/proc"


def can_tell() -> bool:
    """Whether this system tells what its processes do."""
    return os.path.isdir(b"/proc/self/fd")


def user_of(folder: bytes) -> int | None:
    """Give another process that works in a folder, None where there is none (or the system does not tell).

    It does if it has something in the folder open, stands in it, or has the folder's name in its arguments or in its
    environment. Processes of other users are not seen: they have no business in a store that is private.
    """
    name = os.path.basename(folder)
    for pid in filter(bytes.isdigit, os.listdir(_PROC) if can_tell() else []):
        if int(pid) != os.getpid() and (_stands_in(pid, folder + b"/") or _is_git_of(pid, name)):
            return int(pid)
    return None


def _stands_in(pid: bytes, place: bytes) -> bool:
    return any(link.startswith(place) for link in _links(os.path.join(_PROC, pid)))


def _links(process: bytes) -> Iterator[bytes]:
    try:
        links = [process + b"/cwd", *(process + b"/fd/" + fd for fd in os.listdir(process + b"/fd"))]
    except OSError:
        return
    for link in links:
        try:
            yield os.readlink(link) + b"/"
        except OSError:
            continue


def _is_git_of(pid: bytes, name: bytes) -> bool:
    """Git closes its lock long before it lets go of it: then only its words tell where it works."""
    return _read(pid, b"comm").startswith(b"git") and any(name in _read(pid, what) for what in (b"cmdline", b"environ"))


def _read(pid: bytes, what: bytes) -> bytes:
    try:
        with open(os.path.join(_PROC, pid, what), "rb") as file:
            return file.read()
    except OSError:
        return b""
