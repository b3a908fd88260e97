"""The desks of the checkpoint directories that are asked for."""

import asyncio
from typing import Final

from ckptd.core.desk import Claim, Desk, RealPath, Release
from ckptd.errors import DomainError

__all__ = ["MAX_BUSY", "Desks"]

_MAX_UNUSED: Final = 16
"""Desks whose threads are kept; in the next moment others start."""

MAX_BUSY: Final = 64
"""So many may be waited for at once: each that lies on a dead network mount holds a thread for good."""


class Desks:
    """By the names of their directories. Used in the event loop only."""

    def __init__(self, claim: Claim, real_path: RealPath, release: Release) -> None:
        self._claim = claim
        self._real_path = real_path
        self._release = release
        # In the order of their last use, the longest unused first.
        self._desks: dict[bytes, Desk] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, checkpoint_dir: bytes) -> Desk:
        """Give a directory's desk; raises DomainError ``too_many_requests`` where many others hang."""
        desk = self._desks.pop(checkpoint_dir, None)
        if desk is None:
            self._close_unused()
            self._refuse_where_many_hang(checkpoint_dir)
            desk = Desk(checkpoint_dir, self._claim, self._real_path, self._release)
        self._desks[checkpoint_dir] = desk
        return desk

    async def close(self) -> None:
        """Wait for all threads to finish what is queued."""
        if self._closing:
            await asyncio.wait(self._closing)
        for desk in self._desks.values():
            await desk.close()

    def _close_unused(self) -> None:
        """Let threads go that nobody waits for, those first that were used longest ago: any path can be asked for."""
        unused = [name for name, desk in self._desks.items() if not desk.waiting]
        for name in unused[: max(0, len(self._desks) - _MAX_UNUSED + 1)]:
            closing = asyncio.get_running_loop().create_task(self._desks.pop(name).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _refuse_where_many_hang(self, checkpoint_dir: bytes) -> None:
        busy = sum(desk.waiting > 0 for desk in self._desks.values())
        if busy >= MAX_BUSY:
            raise DomainError(
                "too_many_requests",
                f"{busy} other checkpoint directories are being waited for",
                hint="look whether their file systems answer (ls)",
                paths=(checkpoint_dir,),
            )
