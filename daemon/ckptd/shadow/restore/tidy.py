"""After a crash in the middle of a restore: what its temporary files are, and which of them may go."""

import os
import stat
from collections.abc import Callable, Iterable

from ckptd.errors import from_os_error
from ckptd.shadow.restore.change import Spot, make_visible
from ckptd.shadow.restore.exchange import Renamer
from ckptd.shadow.restore.handle import Blocked, Directory, parts_of, walk
from ckptd.shadow.restore.look import Refused, describe
from ckptd.shadow.restore.stage import TEMPORARY, is_unfinished
from ckptd.shadow.trees.step import State

__all__ = ["tidy"]


def tidy(root_fd: int, root_dev: int, directories: Iterable[bytes], holds: Callable[[State], bool]) -> list[bytes]:
    """Clear the temporary files of a restore that died from the directories that its plan names.

    A half-written one goes. Any other may be what a user had at the path and nobody has compared yet: it goes only
    if ``holds`` tells that its content is in the store, else it gets a name that people see. Gives the paths of
    what was kept so. No other restore may be at work in the worktree; a second call finds nothing more to do.

    Raises DomainError where a directory can't be read or changed, and what ``holds`` raises.
    """
    kept = []
    for path in dict.fromkeys(directories):
        try:
            kept += _tidy_directory(root_fd, root_dev, path, holds)
        except Blocked:
            # It is gone, or something else now: there is no way to it that is safe.
            continue
        except OSError as error:
            raise from_os_error(error, "clear the temporary files of a restore from", path) from error
    return kept


def _tidy_directory(root_fd: int, root_dev: int, path: bytes, holds: Callable[[State], bool]) -> list[bytes]:
    kept = []
    with walk(root_fd, parts_of(path), root_dev) as here:
        spot = Spot(here.fd, here.dev, Renamer())
        for name in _temporaries(here):
            if _may_go(spot, name, holds):
                spot.unlink(name)
            else:
                visible = make_visible(spot, name)
                kept.append(path + b"/" + visible if path else visible)
    return kept


def _temporaries(here: Directory) -> list[bytes]:
    fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here.fd)
    try:
        return sorted(name for name in map(os.fsencode, os.listdir(fd)) if TEMPORARY.fullmatch(name))
    finally:
        os.close(fd)


def _may_go(spot: Spot, name: bytes, holds: Callable[[State], bool]) -> bool:
    if is_unfinished(name) and stat.S_ISREG(os.lstat(name, dir_fd=spot.fd).st_mode):
        return True
    try:
        state = describe(spot.fd, name)
    except Refused:
        return False
    return state is not None and holds(state)
