"""What a scan needs of somebody who has watched the worktree since the last one."""

from collections.abc import Callable, Iterable
from typing import Protocol

from ckptd.doubt import Doubt

__all__ = ["Witness", "WitnessMaker"]


class Witness(Protocol):
    """Watches a worktree. One thread calls it."""

    @property
    def place(self) -> tuple[int, int]:
        """Device and inode of the directory that is watched."""
        ...

    @property
    def broken(self) -> Doubt | None:
        """Why it can tell nothing any more, for good; None while it can."""
        ...

    @property
    def lost_for(self) -> Doubt:
        """Why the last look() gave None, where it did."""
        ...

    def start(self, folders: Iterable[bytes]) -> None:
        """Begin to watch directories, given by their paths in the worktree; returns at once."""
        ...

    def look(self) -> dict[bytes, set[bytes]] | None:
        """Give names by directory that may have changed since the last adopted(), up to this moment.

        An empty name is the directory itself. None where that is not known.
        """
        ...

    def adopted(self, folders: Callable[[], Iterable[bytes]], *, whole: bool) -> None:
        """The scan that began with the last look() counts; ``whole`` says that it looked at everything.

        ``folders`` gives the directories that it has listed, all of them or those that it had to, parents first: each
        must be watched from now on, whatever was thought of it when it appeared.
        """
        ...

    def doubt(self, reason: Doubt) -> None:
        """Forget what is known, as it has been found wrong: the next look() gives None."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


WitnessMaker = Callable[[bytes, bytes, frozenset[tuple[int, int]], Callable[[bytes], bool]], Witness]
"""Makes one for a worktree; further: a folder for its own files, (device, inode) of directories that are never entered,
and what tells of a directory's path whether rules leave it out, which may be asked by another thread."""
