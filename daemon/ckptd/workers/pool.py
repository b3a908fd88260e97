"""The daemon's side of its workers: they are started for one scan, given jobs, and gone with it."""

import contextlib
import fcntl
import logging
import os
import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from ckpt_protocol.version import BUILD
from ckptd.errors import DomainError
from ckptd.shadow.objects.pack import TEMP_ENDS
from ckptd.shadow.scan.helpers import HashJob, HelperRun, HelpTerms
from ckptd.shadow.scan.reading import ReadResult
from ckptd.workers.message import Inbox, Plain, frame

__all__ = ["ProcessPool", "Spawn", "spawn", "worker_count"]

_logger = logging.getLogger(__name__)

_MOST_WORKERS: Final = 4
_AHEAD: Final = 4
"""So many jobs does a worker have at hand, so that it never waits for the next."""

_MOST_AHEAD: Final = 128
_MOST_AHEAD_BYTES: Final = 8 * 1024 * 1024
"""While very many wait, so many jobs and bytes of content: the daemon may have something else to do for a moment."""

_PIPE_BYTES: Final = 1 << 20

_READ_BYTES: Final = 1 << 18
_WAIT_S: Final = 0.05
_END_S: Final = 5.0

Spawn = Callable[[], "subprocess.Popen[bytes]"]


def worker_count() -> int:
    """Give how many workers are of use here: none where there is but one core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_WORKERS, cores) if cores > 1 else 0


def spawn(environ: Mapping[str, str] | None = None) -> "subprocess.Popen[bytes]":
    """Start a worker as the daemon itself was started; it has nothing of the daemon's but two pipes and stderr."""
    flags = [("-P", sys.flags.safe_path), ("-s", sys.flags.no_user_site), ("-E", sys.flags.ignore_environment)]
    command = [sys.executable, *(flag for flag, is_set in flags if is_set), "-m", "ckptd.workers"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, close_fds=True, env=environ
    )


def _widen(pipe: int) -> None:
    """Have a pipe take much at a time, where the system lets us: then nobody waits for who is busy."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


class ProcessPool:
    """Fulfils the scan's Helpers. ``start_one`` starts a process, wherever that has to be done."""

    def __init__(self, count: int, start_one: Spawn = spawn) -> None:
        self._count = count
        self._start_one = start_one

    def start(self, terms: HelpTerms) -> HelperRun | None:
        """Begin a run; None where no process could be started."""
        workers = [worker for _ in range(self._count) if (worker := self._start(terms)) is not None]
        return _Run(workers, terms) if workers else None

    def _start(self, terms: HelpTerms) -> "_Worker | None":
        try:
            return _Worker(self._start_one(), terms)
        except (OSError, RuntimeError) as error:
            _logger.warning("a worker could not be started: %s", error)
            return None


class _Worker:
    """One process, and what it has been given: ``at_hand`` are unanswered jobs, ``unsettled`` answered ones."""

    def __init__(self, process: "subprocess.Popen[bytes]", terms: HelpTerms) -> None:
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        self.process = process
        self.input: Final = process.stdin
        self.output: Final = process.stdout
        self.at_hand: deque[HashJob] = deque()
        self.ahead_bytes = 0
        self.unsettled: list[HashJob] = []
        self.is_settling = False
        self.stem: bytes | None = None
        self.waiting = bytearray()
        self.inbox = Inbox()
        for pipe in (self.input, self.output):
            os.set_blocking(pipe.fileno(), False)
            _widen(pipe.fileno())
        self.say(BUILD, terms.worktree, terms.pack_dir, terms.indexes, tuple(terms.suspects))

    def say(self, *values: Plain) -> None:
        """Send a message, now or when the pipe has room."""
        self.waiting += frame(*values)
        self.flush()

    def flush(self) -> None:
        """Send what the pipe has room for."""
        while self.waiting:
            try:
                del self.waiting[: os.write(self.input.fileno(), self.waiting)]
            except BlockingIOError:
                return
            except BrokenPipeError:
                # The end of its output will tell.
                self.waiting.clear()

    def end(self) -> None:
        """Close both pipes and wait for the end of the process."""
        for pipe in (self.input, self.output):
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.stem is not None:
            for ending in TEMP_ENDS:
                with contextlib.suppress(OSError):
                    os.unlink(self.stem + ending)


class _Run:
    """The help of one scan."""

    def __init__(self, workers: list[_Worker], terms: HelpTerms) -> None:
        self._terms = terms
        self._workers = workers
        self._queue: deque[HashJob] = deque()
        self._fresh: list[HashJob] = []
        self._done: list[HashJob] = []
        self._settled: list[HashJob] = []
        self._failure: DomainError | None = None
        self._selector = selectors.DefaultSelector()
        for worker in workers:
            self._selector.register(worker.output, selectors.EVENT_READ, worker)

    def submit(self, job: HashJob) -> None:
        """Queue a job."""
        self._queue.append(job)

    @property
    def busy(self) -> bool:
        """Whether any job has not been done."""
        return bool(self._queue) or any(worker.at_hand for worker in self._workers)

    def pump(self, *, wait: bool = False) -> list[HashJob]:
        """Hand out jobs, and take what has come."""
        self._exchange(_WAIT_S if wait else 0)
        fresh, self._fresh = self._fresh, []
        return fresh

    def settle(self) -> list[HashJob]:
        """Have what is done made durable. A worker goes on with what it has at hand once it has settled."""
        self._settle_workers()
        settled, self._settled = self._settled, []
        return settled

    def close(self) -> None:
        """End all workers."""
        self._selector.close()
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.end()

    def _settle_workers(self) -> None:
        for worker in self._workers:
            worker.is_settling = True
            worker.say("settle")
        while any(worker.is_settling for worker in self._workers):
            self._exchange(_WAIT_S)
        # Done without help, so in the scan's own pack: whoever settles the help settles that, too.
        self._settled += self._done
        self._done = []

    def _exchange(self, timeout_s: float) -> None:
        for worker in self._workers:
            worker.flush()
            while self._queue and self._has_room(worker):
                self._give(worker, self._queue.popleft())
        if not self._workers:
            self._work_alone()
            return
        for key, _ in self._selector.select(timeout_s):
            self._hear(key.data)
        if self._failure is not None:
            raise self._failure

    def _work_alone(self) -> None:
        while self._queue:
            job = self._queue.popleft()
            self._terms.read(job)
            self._fresh.append(job)
            self._done.append(job)

    def _has_room(self, worker: _Worker) -> bool:
        """Tell whether a worker can be given more. The fewer are left the fewer it gets: all are to end at once."""
        share = len(self._queue) // (2 * len(self._workers))
        if worker.ahead_bytes > _MOST_AHEAD_BYTES:
            share = 0
        return len(worker.at_hand) < max(_AHEAD, min(_MOST_AHEAD, share))

    @staticmethod
    def _give(worker: _Worker, job: HashJob) -> None:
        worker.at_hand.append(job)
        worker.ahead_bytes += job.content_bytes
        worker.say("read", job.directory, job.identity, job.now_ns, job.margin_ns, job.is_all, job.names)

    def _hear(self, worker: _Worker) -> None:
        try:
            data = os.read(worker.output.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        for verb, *values in worker.inbox.feed(data):
            self._take(worker, verb, values)
        if not data:
            self._lose(worker)

    def _take(self, worker: _Worker, verb: str, values: list[Any]) -> None:
        if verb == "done":
            job = worker.at_hand.popleft()
            worker.ahead_bytes -= job.content_bytes
            job.results = [result if isinstance(result, bytes) else ReadResult(*result) for result in values[0]]
            worker.unsettled.append(job)
            self._fresh.append(job)
        elif verb == "settled":
            oids, worker.stem = values
            worker.is_settling = False
            self._terms.pack.count_in(oids)
            self._settled += worker.unsettled
            worker.unsettled = []
        elif verb == "ready":
            (worker.stem,) = values
        else:
            kind, message, hint, paths = values
            self._failure = DomainError(kind, message, hint=hint, paths=paths)

    def _lose(self, worker: _Worker) -> None:
        """What a worker that died had stored is lost, so others have to do it again."""
        again = [*worker.unsettled, *worker.at_hand]
        _logger.warning("worker %s ended early; %s jobs are done again", worker.process.pid, len(again))
        self._selector.unregister(worker.output)
        self._workers.remove(worker)
        self._queue.extendleft(reversed(again))
        worker.end()
