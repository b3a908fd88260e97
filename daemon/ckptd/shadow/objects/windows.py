"""How much libgit2 may keep of what it has read, in a process that lives for months."""

from typing import Final

import pygit2

__all__ = ["bound_windows"]

_WINDOW_BYTES: Final = 4 * 1024 * 1024
_MAPPED_BYTES: Final = 32 * 1024 * 1024
_CACHE_BYTES: Final = 16 * 1024 * 1024


def bound_windows() -> None:
    """Map packs in small windows, few at a time, and remember few objects; for the whole process.

    Left alone, a 64-bit libgit2 maps eight gigabytes of packs and remembers a quarter of one of commits and trees.
    """
    pygit2.settings.mwindow_size = _WINDOW_BYTES
    pygit2.settings.mwindow_mapped_limit = _MAPPED_BYTES
    pygit2.settings.cache_max_size(_CACHE_BYTES)
