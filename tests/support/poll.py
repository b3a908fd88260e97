"""Waiting for a condition, with a deadline: the only place where tests sleep."""

import asyncio
import time
from collections.abc import Callable

__all__ = ["eventually", "until"]

DEADLINE_S = 60.0
STEP_S = 0.002


def until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Block until the condition holds; fails when it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"still not true after {deadline_s} s"
        time.sleep(STEP_S)


async def eventually(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Let the event loop run until the condition holds; fails when it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"still not true after {deadline_s} s"
        await asyncio.sleep(STEP_S)
