"""Signs of life from inside a long piece of work, and the place where it hears that it was called off."""

import time
from collections.abc import Callable
from typing import Final

from ckptd.errors import DomainError

__all__ = ["Pulse"]

_EVERY_S: Final = 0.1


class Pulse:
    """Counts files and bytes, and tells of them about ten times a second (and of the first), however often it beats.

    ``cancelled`` is asked at each beat; ``message`` is what the DomainError ``cancelled`` then says.
    """

    def __init__(
        self,
        cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda _files, _bytes: None,
        message: str = "the scan was cancelled",
    ) -> None:
        self._cancelled = cancelled
        self._progress = progress
        self._message = message
        self._due_s = 0.0
        self.files = 0
        self.bytes = 0

    def beat(self, read_bytes: int = 0) -> None:
        """Go on by so many bytes; raises DomainError ``cancelled``."""
        self.bytes += read_bytes
        if self._cancelled():
            raise DomainError("cancelled", self._message)
        now_s = time.monotonic()
        if now_s >= self._due_s or self.files == 1:
            self._due_s = now_s + _EVERY_S
            self._progress(self.files, self.bytes)
