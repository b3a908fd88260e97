"""The memory of the process: keeping it in one place, and giving it back after work that needed much for a moment."""

import ctypes
import gc
import sys
from collections.abc import Callable
from functools import cache
from typing import Final, cast

__all__ = ["give_back", "share_one_heap"]

_KEEP_BYTES: Final = 1024 * 1024
_M_ARENA_MAX: Final = -8


def share_one_heap() -> bool:
    """Let all threads that are still to be started allocate from one heap; False where the allocator has no such thing.

    The GNU allocator gives each thread one of its own, and can give back what is free at the end of the first one only.
    The interpreter's lock keeps the threads apart anyway.
    """
    limit = _function("mallopt", ctypes.c_int, ctypes.c_int)
    return limit is not None and limit(_M_ARENA_MAX, 1) == 1


def give_back() -> bool:
    """Let the allocator return what is free; False where it cannot be asked to. Other threads go on meanwhile.

    The GNU allocator keeps what was freed below something that is still in use: a third of a model's size after the
    first save of a hundred thousand files.
    """
    # What a scan has strewn is looked for seldom while others wait.
    gc.collect()
    trim = _function("malloc_trim", ctypes.c_size_t)
    return trim is not None and trim(_KEEP_BYTES) >= 0


@cache
def _function(name: str, *arguments: "type[ctypes._SimpleCData[int]]") -> Callable[..., int] | None:
    """Give a function of the GNU allocator's; None on other systems."""
    if not sys.platform.startswith("linux"):
        return None
    found = getattr(ctypes.CDLL(None), name, None)
    if found is None:
        return None
    found.argtypes = arguments
    return cast("Callable[..., int]", found)
