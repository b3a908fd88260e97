"""The real thing for end-to-end tests: ``ckpt`` as processes, the daemon that they start, a home of its own.

``Place``: ``base`` (short), ``home``, ``ws`` (an empty directory in the home), ``checkpoint_dir``.
``ckpt(*words, cwd=None, **environ)`` runs the command in ``ws`` and gives an Outcome; ``done(...)`` also asserts that
it ended with 0, ``json(...)`` gives its document. ``start(...)`` gives a Popen; ``is_busy()`` tells whether the daemon
works for ``ws``, ``heavy(mebibytes)`` gives it enough to do. ``service()`` is the API in this process.
``stores()`` are the store folders. ``verify()`` lets git look at each of them; the fixture does so at the end of each
test, unless ``damaged`` is set. No process is left behind: what was started from here and still runs fails the test.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt_protocol.address import socket_path
from fabricatio_checkpoint.service import CheckpointService
from support import isolation, leftovers, poll
from support.cli_run import ROOT, Outcome
from support.worktrees import verify

__all__ = ["Place", "open_place", "snapshot"]

_SECONDS_TO_END = 20.0

# -P as in an installed program: what lies in the current directory is not imported.
_COMMAND = [sys.executable, "-P", "-m", "fabricatio_checkpoint.cli"]
_NO_PRIVILEGES = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"]


class Place:
    """See the module."""

    def __init__(self, base: str) -> None:
        self.base = Path(base)
        self.environ = isolation.private_environment(base, os.environ)
        self.environ.pop("PYTHONUNBUFFERED", None)
        self.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / name) for name in ("protocol", "daemon", "client"))
        self.home = Path(self.environ["HOME"])
        self.checkpoint_dir = self.home / ".fabricatio-checkpoint"
        self.ws = self.home / "ws"
        self.ws.mkdir()
        self.damaged = False
        self.prefix: list[str] = []
        self._services: list[CheckpointService] = []
        self._children: list[subprocess.Popen[bytes]] = []

    # -- the command

    def ckpt(self, *words: str | bytes, cwd: str | Path | None = None, **environ: str) -> Outcome:
        """Run it to its end, without a terminal."""
        done = subprocess.run(
            [*self.prefix, *_COMMAND, *words], cwd=cwd or self.ws, env={**self.environ, **environ},
            stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=90,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr.decode())

    def done(self, *words: str | bytes, cwd: str | Path | None = None, **environ: str) -> Outcome:
        """Run it, and expect exit code 0."""
        outcome = self.ckpt(*words, cwd=cwd, **environ)
        assert outcome.code == 0, (words, outcome)
        return outcome

    def json(self, *words: str | bytes, cwd: str | Path | None = None, code: int = 0) -> Any:
        """Run it with ``--json``; give the document."""
        outcome = self.ckpt("--json", *words, cwd=cwd)
        assert outcome.code == code, (words, outcome)
        return outcome.document

    def save(self, *words: str, cwd: str | Path | None = None) -> str:
        """Save; give the id."""
        return self.done("save", *words, cwd=cwd).out.strip()

    def start(self, *words: str, cwd: str | Path | None = None, **options: Any) -> "subprocess.Popen[bytes]":
        """Begin to run it. Both streams are pipes, unless said otherwise."""
        environ = {**self.environ, **options.pop("environ", {})}
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return self.spawn([*self.prefix, *_COMMAND, *words], environ, cwd=cwd or self.ws, **options)

    def spawn(self, words: list[str], environ: dict[str, str], **options: Any) -> "subprocess.Popen[bytes]":
        """Begin to run any program, which is killed at the end if it still runs."""
        child = subprocess.Popen(words, env=environ, **{"stdin": subprocess.DEVNULL, **options})
        self._children.append(child)
        return child

    def python(self, code: str, *words: str, cwd: str | Path | None = None, **environ: str) -> Outcome:
        """Run a program that uses the API as a process of its own."""
        done = subprocess.run(
            [*self.prefix, sys.executable, "-c", code, *words], cwd=cwd or self.base, env={**self.environ, **environ},
            stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=90,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr.decode())

    def obey_permissions(self) -> None:
        """From now on permissions count for what is started, also where this is root."""
        if os.geteuid() == 0:
            if shutil.which("setpriv") is None:
                pytest.skip("root may do everything, and there is no setpriv")
            self.prefix = _NO_PRIVILEGES

    # -- the API

    def service(self, **options: Any) -> CheckpointService:
        """A service in this process, closed at the end."""
        made = CheckpointService(options.pop("stores_root", self.checkpoint_dir), socket=self.socket, **options)
        self._services.append(made)
        return made

    # -- the daemon

    @property
    def socket(self) -> str:
        """Where the daemon listens."""
        return socket_path(self.environ)

    @property
    def log(self) -> str:
        """The daemon's log."""
        return (Path(self.environ["XDG_STATE_HOME"]) / "fabricatio-checkpoint" / "ckptd.log").read_text()

    def daemons(self) -> list[int]:
        """The pids of the daemons that were started from here."""
        return sorted(leftovers.daemons_of(str(self.base)))

    def pid(self) -> int:
        """The pid of the daemon that answers."""
        return int(self.json("daemon", "status")["pid"])

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End every daemon, and wait until it is gone."""
        for pid in self.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        poll.until(lambda: not self.daemons())

    def is_busy(self) -> bool:
        """Whether the daemon, if there is one yet, works for ``ws``."""
        stores = json.loads(self.ckpt("--json", "daemon", "status").out)["stores"]
        return any(store["worktree"] == str(self.ws) and store["state"] == "BUSY" for store in stores)

    def heavy(self, mebibytes: int = 96, name: str = "heavy") -> None:
        """Give ``ws`` content whose first save takes a while: much of it, and none that compresses."""
        chance = random.Random(name)
        for number in range(mebibytes):
            (self.ws / f"{name} {number}").write_bytes(chance.randbytes(1 << 20))

    # -- the stores

    def stores(self, checkpoint_dir: Path | None = None) -> list[Path]:
        """The store folders."""
        folder = checkpoint_dir or self.checkpoint_dir
        return sorted(path for path in folder.glob("*") if (path / "HEAD").is_file()) if folder.is_dir() else []

    def verify(self) -> None:
        """Assert that git finds no fault in any store below the place."""
        for path in [head.parent for head in self.base.rglob("HEAD") if (head.parent / "ckpt").is_dir()]:
            verify(os.fsencode(path))

    def close(self) -> list[str]:
        """End what runs; give what would not end by itself."""
        for service in self._services:
            service.close()
        for child in self._children:
            _end(child)
        for pid in self.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        left = leftovers.wait_until_gone(str(self.base), _SECONDS_TO_END)
        leftovers.kill(left)
        return list(left.values())


@contextlib.contextmanager
def open_place() -> Iterator[Place]:
    """The body of the fixture ``place``."""
    base = isolation.short_directory("cke")
    place = Place(base)
    ours, before = dict(place.environ), dict(os.environ)
    os.environ.update(ours)
    try:
        yield place
        left = place.close()
        assert not left, f"did not end by itself: {left}"
        if not place.damaged:
            place.verify()
    finally:
        place.close()
        for name in ours:
            # One by one: other names are the test runner's, which changes them meanwhile.
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]
        isolation.remove(base)


def snapshot(root: str | bytes | Path) -> dict[bytes, tuple[int, int, int, int]]:
    """Inode, mtime, mode and size of every path below a directory: what changes where something was touched."""
    found = {}
    top = os.fsencode(root)
    for folder, folders, names in os.walk(top):
        for name in [*folders, *names]:
            path = os.path.join(folder, name)
            seen = os.lstat(path)
            mtime = 0 if name in folders and not os.path.islink(path) else seen.st_mtime_ns
            found[os.path.relpath(path, top)] = (seen.st_ino, mtime, seen.st_mode, seen.st_size)
    return found


def _end(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is None:
        child.kill()
    child.wait()
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()
