"""Giving memory back to the system after work that needed much of it for a moment."""

import ctypes
import gc
import sys
from collections.abc import Callable
from functools import cache
from typing import Final, cast

__all__ = ["give_back"]

_KEEP_BYTES: Final = 1024 * 1024


def give_back() -> bool:
    """Let the allocator return what is free; False where it cannot be asked to. Other threads go on meanwhile.

    The GNU allocator keeps what was freed below something that is still in use: a third of a model's size after the
    first save of a hundred thousand files.
    """
    # What a scan has strewn is looked for seldom while others wait.
    gc.collect()
    trim = _trim()
    return trim is not None and bool(trim(_KEEP_BYTES) >= 0)


@cache
def _trim() -> "Callable[[int], int] | None":
    if not sys.platform.startswith("linux"):
        return None
    found = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if found is None:
        return None
    found.argtypes = [ctypes.c_size_t]
    return cast("Callable[[int], int]", found)
