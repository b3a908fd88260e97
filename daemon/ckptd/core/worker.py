"""One operating-system thread that runs jobs for the event loop, one after the other."""

import asyncio
import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, TypeVar

from ckptd.core.lanes import Lanes
from ckptd.errors import DomainError

__all__ = ["Worker"]

R = TypeVar("R")

_HINT: Final = "try again when less is going on, or raise the limit of processes (ulimit -u)"


class Worker:
    """A thread with a queue. Made, used and closed in the event loop; the thread starts with the first job.

    A pool would do with fewer threads, but git's objects and the locks of libgit2 want one owner, and a job that
    hangs on a dead network mount must hold up nobody else.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs = Lanes()
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def is_running(self) -> bool:
        """Whether there has been a job, and may be another."""
        return self._thread is not None and not self._closed

    def is_wanted(self) -> bool:
        """Whether a job waits for the one that runs; for any thread."""
        return self._jobs.is_any_waiting()

    def submit(self, job: Callable[[], R], owner: Hashable = None, *, last: bool = False) -> asyncio.Future[R]:
        """Queue a job and give the future of its result or exception; cancelling it leaves the job alone.

        Jobs of several owners take turns, those of one keep their order; ``last`` comes after those of all.
        What is no Exception (SystemExit, KeyboardInterrupt) would end the event loop, and a future cannot hold
        StopIteration: both come back as RuntimeError. Where no thread can be started the future has the DomainError
        ``too_many_requests``, and the next job tries again. Raises RuntimeError after close().
        """
        if self._closed:
            raise RuntimeError(f"{self._name} is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        try:
            self._start(loop)
        except RuntimeError as error:
            refusal = DomainError("too_many_requests", "the system lets the daemon start no more threads", hint=_HINT)
            refusal.__cause__ = error
            future.set_exception(refusal)
            return future
        work = partial(_perform, loop, future, job)
        if last:
            self._jobs.put_last(work)
        else:
            self._jobs.put(work, owner)
        return future

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread unless it runs; raises RuntimeError where the system has no more, and then can try again."""
        if self._thread is None:
            ended: asyncio.Future[None] = loop.create_future()
            thread = threading.Thread(target=self._work, args=(loop, ended), name=self._name)
            thread.start()
            self._thread, self._ended = thread, ended

    async def run(self, job: Callable[[], R]) -> R:
        """Run a job on the thread; a caller that is cancelled stops waiting, the job goes on."""
        return await self.submit(job)

    async def close(self) -> None:
        """Let the thread finish what is queued, and wait for its end. May be called again."""
        if not self._closed:
            self._closed = True
            self._jobs.end()
        if self._thread is not None and self._ended is not None:
            # Shielded: one of several callers may be cancelled.
            await asyncio.shield(self._ended)
            self._thread.join()

    def _work(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        job = self._jobs.get()
        while job is not None:
            job()
            # What an ended job refers to must not live until the next one comes.
            del job
            job = self._jobs.get()
        _tell(loop, partial(_settle, ended, None))


def _perform(loop: asyncio.AbstractEventLoop, future: asyncio.Future[R], job: Callable[[], R]) -> None:
    try:
        result = job()
    except BaseException as error:
        # Handed on, not swallowed: whatever ended the job, somebody waits for it, and the thread has other jobs.
        _tell(loop, partial(_fail, future, _bearable(error)))
    else:
        _tell(loop, partial(_settle, future, result))


def _bearable(error: BaseException) -> Exception:
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"a job ended with {type(error).__name__}")
    wrapped.__cause__ = error
    return wrapped


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        # The loop is closed: nobody is left who could want to know.
        return


def _settle(future: asyncio.Future[R], result: R) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[R], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
