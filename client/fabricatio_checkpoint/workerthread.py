"""Runs blocking calls in worker threads for an event loop, asyncio's or trio's. Imports anyio: load it when needed."""

from collections.abc import Callable
from typing import Final, TypeVar

from anyio import CancelScope, CapacityLimiter, current_time, get_cancelled_exc_class, sleep, to_thread
from anyio.lowlevel import RunVar

from fabricatio_checkpoint.interruption import Interruption

__all__ = ["run", "run_shielded"]

_T = TypeVar("_T")

_THREADS: Final = 64
_PATIENCE_S: Final = 0.5
_LOOK_S: Final = 0.005

# One for each event loop, and of our own: waiting saves must not use up the threads of the rest of the program.
_limiters: RunVar[CapacityLimiter] = RunVar("fabricatio_checkpoint_threads")


async def run(function: Callable[[], _T]) -> _T:
    """Run a blocking call in a worker thread.

    Cancelled, it asks the daemon to give the request up, waits half a second at most for the daemon's word that it
    is over, and lets go. What the daemon had already begun to write may then still be going on; the next request for
    the same worktree comes after it.
    """
    interruption = Interruption()

    def work() -> _T:
        with interruption:
            return function()

    try:
        return await to_thread.run_sync(work, abandon_on_cancel=True, limiter=_limiter())
    except get_cancelled_exc_class():
        try:
            await _call_off(interruption)
        finally:
            interruption.hang_up()
        raise


async def run_shielded(function: Callable[[], _T]) -> _T:
    """Run a blocking call that must be made although the caller is being cancelled, and wait for its end."""
    with CancelScope(shield=True):
        result = await run(function)
    return result


async def _call_off(interruption: Interruption) -> None:
    interruption.ask()
    # Looked at, not waited for with an event: a thread cannot wake a loop that may have ended in the meantime.
    with CancelScope(shield=True, deadline=current_time() + _PATIENCE_S):
        while interruption.begun and not interruption.ended:  # noqa: ASYNC110 - for that reason
            await sleep(_LOOK_S)


def _limiter() -> CapacityLimiter:
    try:
        return _limiters.get()
    except LookupError:
        limiter = CapacityLimiter(_THREADS)
        _limiters.set(limiter)
        return limiter
