"""A queue between threads in which the owners of jobs take turns, and the jobs of each keep their order."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

__all__ = ["Lanes"]

Job = Callable[[], None]


class Lanes:
    """Jobs by owner. Putting never waits. All that was put is given before None, which is the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there = threading.Semaphore(0)
        # In the order in which the owners are served next.
        self._waiting: OrderedDict[Hashable, deque[Job]] = OrderedDict()
        self._last: deque[Job] = deque()

    def put(self, job: Job, owner: Hashable = None) -> None:
        """Queue a job behind those of the same owner."""
        with self._lock:
            self._waiting.setdefault(owner, deque()).append(job)
        self._there.release()

    def is_any_waiting(self) -> bool:
        """Tell whether there is a job by now; nothing is locked for that."""
        return bool(self._waiting or self._last)

    def put_last(self, job: Job) -> None:
        """Queue a job behind those of all owners, also those that come later."""
        with self._lock:
            self._last.append(job)
        self._there.release()

    def end(self) -> None:
        """Let the end come after everything that was put."""
        self._there.release()

    def get(self) -> Job | None:
        """Wait for the next job: the first of the owner that was served longest ago."""
        self._there.acquire()
        with self._lock:
            if not self._waiting:
                return self._last.popleft() if self._last else None
            owner, jobs = self._waiting.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self._waiting[owner] = jobs
            return job
