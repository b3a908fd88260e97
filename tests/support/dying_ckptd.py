"""The daemon as a program, whole, but that it dies at a named step: ``python dying_ckptd.py SOCKET ORDERS``.

Where the file ORDERS holds ``STEP N SERIAL``, the daemon kills itself when it reaches that step (see ``failpoint``)
for the N-th time since it was given another serial number. Without the file it is the daemon as it is, but that it
cuts its log early, and does nothing that nobody asked for: on a slow machine that would come before the steps at which
a save is to die. Its restores have helpers from the beginning.
"""

import os
import signal
import sys
import threading

from ckptd.__main__ import Options, _shadow_catalog, run_daemon
from ckptd.core.tending import Tender
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.record.logtrim import Bounds
from ckptd.shadow.record.thinning import Keep
from ckptd.shadow.restore.crew import Crew
from ckptd.shadow.store import carrying
from ckptd.shadow.store.catalog import ShadowCatalog

_PATIENCE_S = 60.0


class Orders:
    """Looks into the file at each step."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._given = ""
        self._left = 0
        self._lock = threading.Lock()

    def __call__(self, name: str, _path: bytes) -> None:
        try:
            with open(self._path) as file:
                given = file.read()
        except FileNotFoundError:
            return
        step, count, _serial = given.split(" ")
        with self._lock:
            if given != self._given:
                self._given, self._left = given, int(count)
            if step != name:
                return
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def catalog() -> ShadowCatalog:
    """The real one, whose logs are cut after a hundred operations, and which keeps two automatic checkpoints."""
    real = _shadow_catalog()
    keep = Keep(last=2, hourly=0, daily=0, weekly=0)
    real._settings = real._settings._replace(log_bounds=Bounds(100, 1 << 20, 20, 1 << 18), keep=keep)
    return real


if __name__ == "__main__":
    Tender.at_rest = lambda _self: None
    carrying.new_crew = lambda: Crew(2, 0)
    listen(Orders(sys.argv[2]))
    sys.exit(run_daemon(Options(sys.argv[1], False), catalog, _PATIENCE_S))
