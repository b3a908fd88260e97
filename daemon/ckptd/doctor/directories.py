"""The directories: whose they are, who else can enter them, and whether there is room."""

import os
import stat
from collections.abc import Iterator
from typing import Final

from ckpt_protocol.address import file_of
from ckpt_protocol.wirepath import to_text
from ckptd.doctor.finding import Case, Finding

__all__ = ["check"]

_LEAST_BYTES: Final = 100 * 1024 * 1024
_LEAST_FILES: Final = 1000


def check(case: Case) -> Iterator[Finding]:
    """Look at the directories of the state, the socket and the stores; those that are not there are no fault."""
    places = dict.fromkeys((os.fsencode(case.state_dir), os.fsencode(os.path.dirname(file_of(case.socket)))))
    for place in places:
        yield from _private(place)
    yield from _private(case.checkpoint_dir)
    yield from _room(case.checkpoint_dir)


def _private(path: bytes) -> Iterator[Finding]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        yield Finding("permissions", path, f"cannot look at {to_text(path)}: {error.strerror}", "check who made it")
        return
    if not stat.S_ISDIR(found.st_mode):
        yield Finding("permissions", path, f"{to_text(path)} is not a directory", "move it away")
    elif found.st_uid != os.getuid():
        problem = f"{to_text(path)} belongs to user {found.st_uid}, this is user {os.getuid()}"
        yield Finding("permissions", path, problem, "run as that user, or give the directory back with chown")
    elif found.st_mode & 0o077:
        problem = f"{to_text(path)} is open to others (mode {stat.S_IMODE(found.st_mode):04o})"
        yield Finding("permissions", path, problem, "chmod 700", lambda: os.chmod(path, 0o700))
    elif not found.st_mode & stat.S_IWUSR or not found.st_mode & stat.S_IXUSR:
        problem = f"{to_text(path)} cannot be written to (mode {stat.S_IMODE(found.st_mode):04o})"
        yield Finding("permissions", path, problem, "chmod 700", lambda: os.chmod(path, 0o700))


def _room(path: bytes) -> Iterator[Finding]:
    try:
        found = os.statvfs(path)
    except OSError:
        # Not there yet, or told by the other check.
        return
    free = found.f_bavail * found.f_frsize
    if found.f_flag & os.ST_RDONLY:
        yield Finding("disk", path, f"the file system of {to_text(path)} is mounted read-only", "mount it writable")
    elif free < _LEAST_BYTES:
        problem = f"{free // 1024 // 1024} MiB are left for {to_text(path)}"
        yield Finding("disk", path, problem, "free some space; ckpt prune deletes stores of worktrees that are gone")
    elif found.f_files and found.f_favail < _LEAST_FILES:
        yield Finding("disk", path, f"{found.f_favail} files more fit where {to_text(path)} is", "delete some files")
