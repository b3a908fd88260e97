"""A daemon that is killed again and again, and a plain client that never starts one by itself.

``Mortal(base)``: ``ws`` and ``checkpoint_dir`` below it. ``start()`` spawns ``dying_ckptd``; ``arm(step, nth)`` says
where it dies, ``disarm()`` takes that back; ``kill()`` ends it now. ``call(method, ws=None, **params)`` gives a result,
or raises ``Died`` where the daemon went away before it answered, ``Refused`` where it answered with an error.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from support import dying_ckptd, isolation, poll
from support.cli_run import ROOT

__all__ = ["Died", "Mortal", "Refused", "token"]

_PATIENCE_S = 60.0
_OF_A_WORKTREE = ("worktree.status", "worktree.resume", "worktree.forget", "store.gc", "store.thin", "store.verify")


class Died(Exception):
    """The daemon is gone, and has not answered."""


class Refused(Exception):
    """The daemon has answered with an error of this kind."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def token() -> str:
    """Make a request's token."""
    return os.urandom(16).hex()


class Mortal:
    """See the module."""

    def __init__(self, base: str) -> None:
        self.base = Path(base)
        self.environ = isolation.private_environment(base, os.environ)
        self.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / name) for name in ("protocol", "daemon", "tests"))
        self.checkpoint_dir = Path(self.environ["HOME"]) / ".fabricatio-checkpoint"
        self.ws = Path(self.environ["HOME"]) / "ws"
        self.ws.mkdir()
        self._socket = str(Path(self.environ["XDG_RUNTIME_DIR"]) / "d.sock")
        self._orders = str(self.base / "orders")
        self._serial = 0
        self.started_s = 0.0
        """When the daemon that lives was started, in seconds since the epoch."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the daemon, and wait until it can be connected to."""
        self.started_s = time.time()
        words = [sys.executable, dying_ckptd.__file__, self._socket, self._orders]
        self._process = subprocess.Popen(
            words, env=self.environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        poll.until(self._listens, _PATIENCE_S)

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the daemon did not come up: {self.log()[-2000:]}"
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(self._socket)
            except OSError:
                return False
        return True

    def log(self) -> str:
        """The daemon's log."""
        path = Path(self.environ["XDG_STATE_HOME"]) / "fabricatio-checkpoint" / "ckptd.log"
        return path.read_text() if path.exists() else ""

    def arm(self, step: str, nth: int = 1) -> None:
        """Let the daemon die when it reaches a step the n-th time."""
        self._serial += 1
        temp = self._orders + ".new"
        # The serial number makes it a new order each time.
        Path(temp).write_text(f"{step} {nth} {self._serial}")
        os.replace(temp, self._orders)

    def disarm(self) -> None:
        """Let it live."""
        Path(self._orders).unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill the daemon, if it lives, and wait until it is gone."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def end(self) -> None:
        """Let the daemon end as it should."""
        if self._process is not None:
            self._process.terminate()
            assert self._process.wait(_PATIENCE_S) in (0, -signal.SIGKILL)
            self._process = None

    def call(self, method: str, ws: Path | None = None, **params: Any) -> dict[str, Any]:
        """Ask, and wait for the answer."""
        place = ws or self.ws
        found = os.stat(place) if place.exists() else None
        told = {"path": str(place), **({"dev": str(found.st_dev), "ino": str(found.st_ino)} if found else {})}
        own: dict[str, Any] = {"checkpoint_dir": str(self.checkpoint_dir)}
        if method.startswith("checkpoint.") or method in _OF_A_WORKTREE:
            own["worktree"] = told
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**own, **params}}
        return self._result(self._exchange(json.dumps(request).encode() + b"\n"))

    def _exchange(self, frame: bytes) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(_PATIENCE_S)
            try:
                link.connect(self._socket)
                link.sendall(frame)
                with link.makefile("rb") as lines:
                    while line := lines.readline():
                        answer = json.loads(line)
                        if "id" in answer:
                            return answer
            except (ConnectionError, FileNotFoundError) as error:
                raise Died from error
        raise Died

    @staticmethod
    def _result(answer: dict[str, Any]) -> dict[str, Any]:
        if "error" in answer:
            error = answer["error"]
            raise Refused((error.get("data") or {}).get("kind", "?"), error["message"])
        return answer["result"]
