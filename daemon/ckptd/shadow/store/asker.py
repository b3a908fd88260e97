"""Who asks for an operation, as the engine needs to know it."""

import threading
from collections.abc import Callable
from typing import Protocol

__all__ = ["Asker", "AskerLike"]


class AskerLike(Protocol):
    """What the core hands in with each operation."""

    client: str
    session: str | None
    cancelled: threading.Event
    progress: Callable[[str, int, int, int], None]


class Asker:
    """``client`` and ``session`` for the record; whether it was called off; where progress goes."""

    def __init__(self, caller: AskerLike) -> None:
        self.client = caller.client
        self.session = caller.session
        self.is_cancelled = caller.cancelled.is_set
        self._progress = caller.progress

    def progress_of(self, phase: str) -> Callable[[int, int], None]:
        """Give what takes files and bytes done in a phase."""

        def tell(files: int, done_bytes: int) -> None:
            self._progress(phase, files, 0, done_bytes)

        return tell
