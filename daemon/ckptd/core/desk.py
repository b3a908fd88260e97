"""The threads for what concerns a checkpoint directory as a whole."""

from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, TypeVar

from ckpt_protocol.wirepath import to_text
from ckptd.core.worker import Worker
from ckptd.errors import DomainError

__all__ = ["MAX_WAITING", "Claim", "Claimed", "Desk", "RealPath", "Release"]

R = TypeVar("R")

MAX_WAITING: Final = 2048
"""Requests that may wait for the threads of one checkpoint directory: on a dead network mount none ever ends."""

Claim = Callable[[bytes, bool], bool]
"""Takes or re-checks the data lock of a checkpoint directory, which is made where the flag says so.

Gives False where another directory than before has been locked: the stores that are open below it have to be closed.
Raises DomainError, which means the same.
"""

RealPath = Callable[[bytes], bytes]
"""Gives the real path of a checkpoint directory; it may wait for the file system as long as that likes."""

Release = Callable[[bytes], None]
"""Gives back the data lock that was taken for a checkpoint directory by this name, if any was."""


class Claimed(NamedTuple):
    """What a claim has found. Where ``real`` is another name than the one claimed, nothing else was looked at.

    ``kept``: it is the lock that was held before; ``whole`` is what ``then`` said.
    """

    real: bytes
    kept: bool
    whole: bool


class Desk:
    """Two threads of one checkpoint directory: a slow file system holds up nobody who uses another one.

    One is for chores, which may take long; taking the data lock must not queue behind that. The directory is as a
    client names it: a name that leads through a link has a desk of its own, for the link may lie on a dead mount.
    """

    def __init__(self, checkpoint_dir: bytes, claim: Claim, real_path: RealPath, release: Release) -> None:
        self.waiting = 0
        """How many wait for one of the threads: none where it can be closed."""
        self._chores = Worker(f"ckptd-chores {to_text(checkpoint_dir)}")
        self._claims = Worker(f"ckptd-claim {to_text(checkpoint_dir)}")
        self._checkpoint_dir = checkpoint_dir
        self._take = claim
        self._real_path = real_path
        self._release = release

    async def claim(self, *, make: bool, then: Callable[[], bool] = lambda: True) -> Claimed:
        """Take the data lock, or look whether it is still ours; raises DomainError where it is not.

        ``then`` is asked in the same thread, as is at each call whether the name is the directory's own: two names
        must not become two owners of the same stores, and a link may be turned between one request and the next.
        """

        def job() -> Claimed:
            real = self._real_path(self._checkpoint_dir)
            if real != self._checkpoint_dir:
                return Claimed(real, True, True)
            return Claimed(real, self._take(real, make), then())

        return await self._run(self._claims, job)

    async def leave(self) -> None:
        """Give the data lock back."""
        await self._run(self._claims, lambda: self._release(self._checkpoint_dir))

    async def real(self) -> bytes:
        """Give the directory's real path, and touch nothing else."""
        return await self._run(self._claims, lambda: self._real_path(self._checkpoint_dir))

    async def chore(self, job: Callable[[], R], owner: Hashable = None) -> R:
        """List or delete; chores of several owners take turns."""
        return await self._run(self._chores, job, owner)

    async def _run(self, worker: Worker, job: Callable[[], R], owner: Hashable = None) -> R:
        if self.waiting >= MAX_WAITING:
            raise DomainError(
                "too_many_requests",
                f"{self.waiting} requests are waiting for {to_text(self._checkpoint_dir)} already",
                hint="look whether its file system answers (ls)",
                paths=(self._checkpoint_dir,),
            )
        ended = worker.submit(job, owner)
        self.waiting += 1
        ended.add_done_callback(self._one_less)
        return await ended

    def _one_less(self, _ended: object) -> None:
        self.waiting -= 1

    async def close(self) -> None:
        """Wait for both threads to finish what is queued."""
        await self._claims.close()
        await self._chores.close()
