"""Runs ``ckpt`` in this process or as a real one, and says what came out."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["ROOT", "Outcome", "as_process", "command", "environment", "in_process"]

ROOT = Path(__file__).resolve().parents[2]


class Outcome(NamedTuple):
    """Exit code and both streams of one run."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def out(self) -> str:
        """stdout as text."""
        return self.stdout.decode()

    @property
    def document(self) -> Any:
        """stdout as the one JSON document it has to be."""
        assert self.out.endswith("\n")
        assert self.out.count("\n") == 1
        return json.loads(self.out)


def environment(**changes: str) -> dict[str, str]:
    """The environment of a real run: the tests' own, with the three source roots."""
    roots = os.pathsep.join(str(ROOT / name) for name in ("protocol", "daemon", "client"))
    # Whoever runs the tests may have unbuffered streams; users have buffered ones, which fail at the last flush.
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**usual, "PYTHONPATH": roots, **changes}


def command(*argv: str) -> list[str]:
    """The command line of a real run."""
    return [sys.executable, "-m", "fabricatio_checkpoint.cli", *argv]


def in_process(capture: Any, *argv: str) -> Outcome:
    """Run ``main`` here; ``capture`` is pytest's ``capfdbinary`` or ``capsysbinary``."""
    from fabricatio_checkpoint.cli.__main__ import main

    capture.readouterr()
    code = main(list(argv))
    sys.stdout.flush()
    out, err = capture.readouterr()
    return Outcome(code, out, err.decode())


def as_process(*argv: str, cwd: str | Path | None = None, **changes: str) -> Outcome:
    """Run it as a process of its own, without a terminal."""
    done = subprocess.run(command(*argv), cwd=cwd, env=environment(**changes), capture_output=True, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr.decode())
