"""The threads for what concerns a checkpoint directory as a whole."""

from collections.abc import Callable
from typing import Final

from ckpt_protocol.wirepath import to_text
from ckptd.core.worker import Worker

__all__ = ["Desk"]


class Desk:
    """Two threads of one checkpoint directory: a slow file system holds up nobody who uses another one.

    ``chores`` lists and deletes, which may take long; taking the data lock must not queue behind that.
    """

    def __init__(self, checkpoint_dir: bytes, claim: Callable[[bytes], None]) -> None:
        self.chores: Final = Worker(f"ckptd-chores {to_text(checkpoint_dir)}")
        self._claims = Worker(f"ckptd-claim {to_text(checkpoint_dir)}")
        self._checkpoint_dir = checkpoint_dir
        self._take = claim

    async def claim(self) -> None:
        """Take the data lock, or look whether it is still ours; raises DomainError where it is not."""
        await self._claims.run(lambda: self._take(self._checkpoint_dir))

    async def close(self) -> None:
        """Wait for both threads to finish what is queued."""
        await self._claims.close()
        await self.chores.close()
