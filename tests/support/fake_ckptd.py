"""The daemon as a program, whole but for its git side: ``python fake_ckptd.py SOCKET``.

What a save does depends on its message: ``process`` tells of the process, ``big`` has a big answer, ``wait PATH``
makes ``PATH.begun`` and waits for ``PATH``, ``hang PATH`` makes ``PATH.begun`` and never ends, anything else is done
at once. ``FAKE_PATIENCE`` is how many seconds a drain may take without progress.
"""

import os
import resource
import sys
import threading
import time

import msgspec

from ckpt_protocol.checkpoint import SaveParams, SaveResult
from ckpt_protocol.structs import Worktree
from ckptd.__main__ import Options, run_daemon
from ckptd.core.ports import Caller, OpenedStore
from support.opened import Opened
from support.wire_samples import SAMPLES

BIG = 5_000_000
"""Characters in the answer to a big save: more than a socket holds."""

_WAIT_S = 30.0


class FakeSide:
    """Both sides of a store."""

    def save(self, params: SaveParams, caller: Caller) -> SaveResult:
        notes = [f"client {caller.client}"]
        if params.message == "process":
            notes = _process()
        elif params.message == "big":
            notes = ["x" * BIG]
        elif params.message and params.message.startswith("wait "):
            _wait(params.message.removeprefix("wait "))
        elif params.message and params.message.startswith("hang "):
            _hang(params.message.removeprefix("hang "))
        return SaveResult(
            id="a" * 40, seq=1, created=True, complete=True, skipped=[], excluded=[], files=0, notes=notes
        )

    def status(self, params: object, caller: Caller) -> object:
        return SAMPLES["worktree.status"].result

    def check_place(self, place: Worktree) -> None:
        return

    def close(self) -> None:
        return


class FakeCatalog:
    """Has a store for every worktree, without a file of its own."""

    def open(self, checkpoint_dir: bytes, place: Worktree, *, create: bool, force: bool) -> OpenedStore:
        return Opened(os.path.join(checkpoint_dir, b"store"), False, FakeSide(), FakeSide())

    def watched(self, checkpoint_dir: bytes) -> list[bytes]:
        return []


class BrokenCatalog:
    """Cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("this catalog is broken")


def _process() -> list[str]:
    umask = os.umask(0)
    os.umask(umask)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    facts = {
        "environment": sorted(os.environ),
        "cwd": os.getcwd(),
        "umask": oct(umask),
        "files_raised": soft == hard,
        "switch_interval": sys.getswitchinterval(),
        "fd3": os.get_inheritable(3),
    }
    return [msgspec.json.encode(facts).decode()]


def _wait(path: str) -> None:
    with open(path + ".begun", "w"):
        deadline = time.monotonic() + _WAIT_S
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.01)


def _hang(path: str) -> None:
    with open(path + ".begun", "w"):
        never = threading.Event()
    never.wait()


if __name__ == "__main__":
    catalog = BrokenCatalog if "--broken" in sys.argv else FakeCatalog
    patience_s = float(os.environ.get("FAKE_PATIENCE", "60"))
    sys.exit(run_daemon(Options(sys.argv[1] or None, "--stderr" in sys.argv), catalog, patience_s))
