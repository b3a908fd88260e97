"""The end of a daemon that cannot end by itself: a thread that hangs must not keep the process for ever.

What ends is safe: a store survives ``kill -9`` at any moment, and this is nothing else.
"""

import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

__all__ = ["EXIT_HUNG", "Deadline"]

EXIT_HUNG: Final = 70
_LONGEST_S: Final = 3600.0
_STEPS: Final = 60
_MERCY: Final = 2.0

_logger = logging.getLogger(__name__)


class Deadline:
    """Ends the process when it has drained ``patience_s`` seconds without progress, or an hour in any case.

    Progress is that any thread but the event loop's and this object's runs: one that waits for a dead network mount
    does not. ``last_words`` is called before the end.
    """

    def __init__(self, patience_s: float, last_words: Callable[[], None] = lambda: None) -> None:
        self._patience_s = patience_s
        self._last_words = last_words
        self._started = False

    def start(self) -> None:
        """Begin to count, in a thread of its own, which ends with the process. May be called again."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._watch, name="ckptd-deadline", daemon=True).start()

    def _watch(self) -> None:
        ours = {str(os.getpid()), str(threading.get_native_id())}
        begun = moved = time.monotonic()
        before = _work(ours)
        while True:
            if sys.stderr is not None:
                # For the thread that hangs with the interpreter's lock: this one needs none, and exits with 1.
                faulthandler.dump_traceback_later(_MERCY * self._patience_s, exit=True)
            time.sleep(self._patience_s / _STEPS)
            now, work = time.monotonic(), _work(ours)
            # A thread that ends takes its numbers with it: less is progress as well.
            if work != before:
                before, moved = work, now
            if now - moved > self._patience_s or now - begun > _LONGEST_S:
                self._end(now - begun)

    def _end(self, seconds: float) -> None:
        stuck = [thread.name for thread in threading.enumerate() if not thread.daemon]
        _logger.error("draining for %.0f s without an end, so the process ends now; threads: %s", seconds, stuck)
        self._last_words()
        logging.shutdown()
        # Not sys.exit: it would wait for the very threads that hang.
        os._exit(EXIT_HUNG)


def _work(but: set[str]) -> int:
    """A number that moves while some thread, those of ``but`` aside, does anything."""
    try:
        # By the file system: the C library's clock of a thread that has just ended is a crash.
        return sum(_work_of(task) for task in set(os.listdir("/proc/self/task")) - but)
    except OSError:
        return int(time.process_time() * 100)


def _work_of(task: str) -> int:
    """Ticks of the processor, and how often it was taken up, of one thread; 0 where it has just ended."""
    ticks = _read(f"/proc/self/task/{task}/stat").rpartition(b")")[2].split()[11:13]
    turns = [line.split()[1] for line in _read(f"/proc/self/task/{task}/status").splitlines() if b"ctxt_" in line]
    return sum(map(int, ticks + turns))


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
