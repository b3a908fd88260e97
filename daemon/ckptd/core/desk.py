"""The threads for what concerns a checkpoint directory as a whole."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from ckpt_protocol.wirepath import to_text
from ckptd.core.worker import Worker

__all__ = ["Claim", "Desk"]

R = TypeVar("R")

Claim = Callable[[bytes, bool], bool]
"""Takes or re-checks the data lock of a checkpoint directory, which is made where the flag says so.

Gives False where another directory than before has been locked: the stores that are open below it have to be closed.
Raises DomainError, which means the same.
"""


class Desk:
    """Two threads of one checkpoint directory: a slow file system holds up nobody who uses another one.

    One is for chores, which may take long; taking the data lock must not queue behind that.
    """

    def __init__(self, checkpoint_dir: bytes, claim: Claim) -> None:
        self.waiting = 0
        """How many wait for one of the threads: none where it can be closed."""
        self._chores = Worker(f"ckptd-chores {to_text(checkpoint_dir)}")
        self._claims = Worker(f"ckptd-claim {to_text(checkpoint_dir)}")
        self._checkpoint_dir = checkpoint_dir
        self._take = claim

    async def claim(self, *, make: bool, then: Callable[[], bool] = lambda: True) -> tuple[bool, bool]:
        """Take the data lock, or look whether it is still ours; raises DomainError where it is not.

        Gives whether it is the lock that was held before, and what ``then`` says, asked in the same thread.
        """
        return await self._run(self._claims, lambda: (self._take(self._checkpoint_dir, make), then()))

    async def chore(self, job: Callable[[], R], owner: Hashable = None) -> R:
        """List or delete; chores of several owners take turns."""
        return await self._run(self._chores, job, owner)

    async def _run(self, worker: Worker, job: Callable[[], R], owner: Hashable = None) -> R:
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
