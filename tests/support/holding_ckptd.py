"""The daemon as a program, whole, but that a test can hold a save in its middle: ``python holding_ckptd.py SOCKET``.

A save with the message ``hold PATH`` makes ``PATH.begun`` in the midst of its scan, and goes on when there is ``PATH``
or when it is called off.
"""

import os
import sys
import threading
import time
from typing import Any

from ckpt_protocol.checkpoint import SaveParams, SaveResult
from ckpt_protocol.structs import Worktree
from ckptd.__main__ import Options, _shadow_catalog, run_daemon
from ckptd.core.ports import Caller, OpenedStore, Writer
from support.opened import Opened

HOLD = "hold "

_PATIENCE_S = 60.0
_STEP_S = 0.005


class Held(threading.Event):
    """The event that the scan looks at between files; looking at it takes as long as the test wants."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def is_set(self) -> bool:
        with open(self._path + ".begun", "w"):
            deadline = time.monotonic() + _PATIENCE_S
        while not (os.path.exists(self._path) or super().is_set()) and time.monotonic() < deadline:
            time.sleep(_STEP_S)
        return super().is_set()


class HoldingWriter:
    """The real one, with callers that may hold it up."""

    def __init__(self, real: Writer) -> None:
        self._real = real

    def save(self, params: SaveParams, caller: Caller) -> SaveResult:
        if params.message and params.message.startswith(HOLD):
            caller.cancelled = Held(params.message.removeprefix(HOLD))
        return self._real.save(params, caller)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class HoldingCatalog:
    """The real one, with such writers."""

    def __init__(self) -> None:
        self._real = _shadow_catalog()

    def open(self, checkpoint_dir: bytes, place: Worktree, *, create: bool, force: bool) -> OpenedStore:
        opened = self._real.open(checkpoint_dir, place, create=create, force=force)
        return Opened(opened.folder, opened.created, HoldingWriter(opened.writer), opened.reader, opened.autosave)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


if __name__ == "__main__":
    sys.exit(run_daemon(Options(sys.argv[1], False), HoldingCatalog, _PATIENCE_S))
