"""Starting processes from the main thread, whichever thread asks for them."""

import asyncio
import subprocess
from concurrent.futures import Future
from typing import Final

from ckptd.workers.pool import spawn

__all__ = ["MAIN_THREAD", "MainThread"]

_PATIENCE_S: Final = 10.0


class MainThread:
    """The thread of the event loop, once that runs: what a thread starts may be bound to the thread's life."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self) -> None:
        """Take the running event loop; called in it."""
        self._loop = asyncio.get_running_loop()

    def spawn(self) -> "subprocess.Popen[bytes]":
        """Start a worker there, and wait for it; raises OSError, or RuntimeError where the loop has ended."""
        if self._loop is None:
            return spawn()
        started: Future[subprocess.Popen[bytes]] = Future()
        self._loop.call_soon_threadsafe(_start, started)
        return started.result(_PATIENCE_S)


def _start(started: "Future[subprocess.Popen[bytes]]") -> None:
    try:
        started.set_result(spawn())
    except OSError as error:
        started.set_exception(error)


MAIN_THREAD: Final = MainThread()
"""The one of this process."""
