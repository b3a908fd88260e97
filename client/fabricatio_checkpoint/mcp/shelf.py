"""Patches that are being read page by page: what a cursor points to stays as it was."""

import os
from threading import Lock
from typing import Final, NamedTuple

from fabricatio_checkpoint.errors import error_of

__all__ = ["Kept", "Shelf"]

_MOST: Final = 4


class Kept(NamedTuple):
    """A text, whole but for ``missing_bytes`` at its end, which were more than is kept."""

    text: bytes
    missing_bytes: int


class Shelf:
    """Keeps the last few. Safe for threads."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        self._lock = Lock()

    def put(self, kept: Kept) -> str:
        """Keep one, and give the key that a cursor begins with."""
        key = os.urandom(4).hex()
        with self._lock:
            while len(self._kept) >= _MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = kept
        return key

    def find(self, cursor: str) -> tuple[str, Kept, int]:
        """Give the key, what was kept, and the offset that a cursor names; raises StateError ``expired_cursor``."""
        key, _, offset = cursor.partition(":")
        with self._lock:
            kept = self._kept.get(key)
        if kept is None or not offset.isdecimal() or int(offset) > len(kept.text):
            raise error_of("expired_cursor", "this diff is no longer kept", hint="ask for it again, without cursor")
        return key, kept, int(offset)
