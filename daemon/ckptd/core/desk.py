"""The threads for what concerns a checkpoint directory as a whole."""

from collections.abc import Callable
from typing import Final

from ckpt_protocol.wirepath import to_text
from ckptd.core.worker import Worker

__all__ = ["Claim", "Desk"]

Claim = Callable[[bytes, bool], bool]
"""Takes or re-checks the data lock of a checkpoint directory, which is made where the flag says so.

Gives False where another directory than before has been locked: the stores that are open below it have to be closed.
Raises DomainError, which means the same.
"""


class Desk:
    """Two threads of one checkpoint directory: a slow file system holds up nobody who uses another one.

    ``chores`` lists and deletes, which may take long; taking the data lock must not queue behind that.
    """

    def __init__(self, checkpoint_dir: bytes, claim: Claim) -> None:
        self.chores: Final = Worker(f"ckptd-chores {to_text(checkpoint_dir)}")
        self._claims = Worker(f"ckptd-claim {to_text(checkpoint_dir)}")
        self._checkpoint_dir = checkpoint_dir
        self._take = claim

    async def claim(self, *, make: bool, then: Callable[[], bool] = lambda: True) -> tuple[bool, bool]:
        """Take the data lock, or look whether it is still ours; raises DomainError where it is not.

        Gives whether it is the lock that was held before, and what ``then`` says, asked in the same thread.
        """
        return await self._claims.run(lambda: (self._take(self._checkpoint_dir, make), then()))

    async def close(self) -> None:
        """Wait for both threads to finish what is queued."""
        await self._claims.close()
        await self.chores.close()
