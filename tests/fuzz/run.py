"""Fuzzes a real daemon over its real socket. Run by hand for long, by the tests for some seconds.

    python3 tests/fuzz/run.py [--frames N] [--seed N] [--keep]

The daemon is a process of its own in an environment of its own, its worktrees and stores are the run's. Prints what
was sent and what came back, the daemon's memory on the way, and every fault. Exit code 1 where there is one: the
daemon ended, something was not answered within two minutes, an answer was "internal", the log holds an unexpected
error, a store does not pass git's check, a file outside the worktrees was touched.
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "daemon"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "protocol"))

from fuzz.frames import Frames
from fuzz.ground import Ground
from fuzz.talk import HungError, Session, pester
from support import isolation, poll
from support.worktrees import verify

__all__ = ["Fuzz", "main"]

_ROOT = Path(__file__).resolve().parents[2]
_BURST = 40
_COUNTED = ("frames", "answers", "results", "closed by the daemon", "reconnects", "pests", "stores", "crashes", "hangs")
_SAMPLE_EVERY = 4000
_GROWTH_BYTES = 64 << 20
"""What the memory may be higher in the last quarter of the run than in the second: caches of stores and history."""


class Fuzz:
    """One run. ``faults`` says what went wrong, ``counts`` what happened, ``memory`` is (frames, resident bytes)."""

    def __init__(self, seed: int) -> None:
        self.base = isolation.short_directory("ckf")
        self.environ = isolation.private_environment(self.base, os.environ)
        self.environ["PYTHONPATH"] = os.pathsep.join(str(_ROOT / name) for name in ("protocol", "daemon", "client"))
        self.ground = Ground(self.base)
        self.socket = os.path.join(self.base, "r", "f.sock")
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.memory: list[tuple[int, int]] = []
        self.talks = False
        """Whether to say on the way how far it is."""
        self._rng = random.Random(seed)
        self._frames = Frames(self.ground, self._rng)
        self._pests: list[socket.socket] = []
        self._daemon = self._start()

    def run(self, frames: int) -> None:
        """Send about so many frames, then look whether all is well."""
        before = self.ground.outside()
        over = threading.Event()
        swapper = threading.Thread(target=self._swap, args=(over,))
        swapper.start()
        try:
            self._send(frames)
        finally:
            over.set()
            swapper.join()
        self._stop()
        after = self.ground.outside()
        touched = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        self.faults += [f"touched outside: {name}: {before.get(name)} {after.get(name)}" for name in touched]
        self.faults += [f"something new at {path}" for path in self.ground.strangers()]
        self._check_log()
        self._check_stores()
        self._check_memory()

    def _send(self, frames: int) -> None:
        session = Session(self.socket)
        try:
            while self.counts["frames"] < frames and self._lives():
                session = self._burst(session)
                self._sample()
        except HungError as error:
            self.counts["hangs"] += 1
            self.faults.append(f"hung: {error}")
        except OSError as error:
            self.faults.append(f"the socket: {error}")
        session.close()

    def _swap(self, over: threading.Event) -> None:
        rng = random.Random(self.counts["frames"])
        while not over.wait(0.005):
            self.ground.swap(rng)

    def close(self, *, keep: bool = False) -> None:
        """End the daemon and remove everything."""
        for pest in self._pests:
            pest.close()
        if self._daemon.poll() is None:
            self._daemon.kill()
        self._daemon.wait()
        if not keep:
            isolation.remove(self.base)

    # -- the run

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-P", "-m", "ckptd", "--socket", self.socket]
        with open(os.path.join(self.base, "stderr"), "wb") as stderr:
            daemon = subprocess.Popen(command, env=self.environ, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
        poll.until(lambda: os.path.exists(self.socket))
        return daemon

    def _lives(self) -> bool:
        code = self._daemon.poll()
        if code is not None:
            self.counts["crashes"] += 1
            self.faults.append(f"the daemon ended with {code}: {Path(self.base, 'stderr').read_text()[-2000:]}")
        return code is None

    def _burst(self, session: Session) -> Session:
        frames = [self._frames.make() for _ in range(self._rng.randrange(1, _BURST))]
        if self._rng.random() < 0.1:
            self._pester(frames)
        if self._rng.random() < 0.5:
            self.ground.stir(self._rng)
        self.counts["bursts"] += 1
        done = session.exchange(frames, f"end {self.counts['bursts']}")
        self.counts["frames"] += len(frames)
        for answer in done.answers:
            self._note(answer, frames)
        # After a hello that was refused there is nothing more to learn.
        refused = any(
            answer.get("error", {}).get("data", {}).get("kind") == "protocol_mismatch" for answer in done.answers
        )
        if not done.closed and not refused and self._rng.random() > 0.02:
            return session
        self.counts["closed by the daemon" if done.closed else "reconnects"] += 1
        session.close()
        return Session(self.socket)

    def _pester(self, frames: list[bytes]) -> None:
        self.counts["pests"] += 1
        pest = pester(self.socket, self._rng, frames)
        if pest is not None:
            self._pests.append(pest)
        if len(self._pests) > 60:
            self._pests.pop(self._rng.randrange(60)).close()

    def _note(self, answer: Any, frames: list[bytes]) -> None:
        self.counts["answers"] += 1
        kind = _kind(answer)
        if kind is None:
            self.counts["results"] += 1
            self._frames.learn(answer)
            return
        error = answer["error"]
        self.kinds[kind] += 1
        self.examples[kind] = error["message"]
        if kind == "internal":
            meant = [frame for frame in frames if json.dumps(answer["id"]).encode() in frame]
            self.faults.append(f"internal {error['data']['error_id']}: {[frame[:600] for frame in meant[:2]]}")

    def _sample(self) -> None:
        sent = self.counts["frames"]
        if not self.memory or sent - self.memory[-1][0] >= _SAMPLE_EVERY:
            self.memory.append((sent, _resident_bytes(self._daemon.pid)))
            if self.talks:
                print(f"{sent} frames, {self.memory[-1][1] >> 20} MiB, {len(self.faults)} faults", flush=True)

    def _stop(self) -> None:
        if self._daemon.poll() is not None:
            return
        self.memory.append((self.counts["frames"], _resident_bytes(self._daemon.pid)))
        self._daemon.terminate()
        try:
            code = self._daemon.wait(60)
        except subprocess.TimeoutExpired:
            self.counts["hangs"] += 1
            self.faults.append("it did not end within a minute")
            return
        if code != 0:
            self.counts["crashes"] += 1
            self.faults.append(f"it ended with {code}")

    # -- afterwards

    def log(self) -> str:
        """All of the daemon's log that there is."""
        folder = Path(self.environ["XDG_STATE_HOME"], "fabricatio-checkpoint")
        return "".join(path.read_text() for path in sorted(folder.glob("ckptd.log*"), reverse=True))

    def _check_log(self) -> None:
        bad = [line for line in self.log().splitlines() if " ERROR " in line or " CRITICAL " in line]
        self.faults += [f"log: {line}" for line in bad[:20]]
        stderr = Path(self.base, "stderr").read_text()
        if stderr:
            self.faults.append(f"stderr: {stderr[-2000:]}")

    def _check_stores(self) -> None:
        for head in Path(self.base).rglob("HEAD"):
            if (head.parent / "ckpt").is_dir():
                self.counts["stores"] += 1
                try:
                    verify(os.fsencode(head.parent))
                except AssertionError as error:
                    self.faults.append(f"{head.parent}: {error}")

    def _check_memory(self) -> None:
        numbers = [resident for _, resident in self.memory]
        quarter = len(numbers) // 4
        if quarter:
            growth = statistics.median(numbers[-quarter:]) - statistics.median(numbers[quarter : 2 * quarter])
            if growth > _GROWTH_BYTES:
                self.faults.append(f"the memory grew by {growth / (1 << 20):.0f} MiB")

    def report(self) -> str:
        """What happened, for people."""
        wanted = (
            "frames",
            "answers",
            "results",
            "closed by the daemon",
            "reconnects",
            "pests",
            "stores",
            "crashes",
            "hangs",
        )
        lines = [f"{name}: {self.counts[name]}" for name in wanted]
        lines.append("errors: " + ", ".join(f"{kind} {number}" for kind, number in self.kinds.most_common()))
        lines.append(
            "memory (MiB): " + " ".join(f"{sent}:{resident / (1 << 20):.0f}" for sent, resident in self.memory)
        )
        lines += [f"  {kind}: {text[:200]!a}" for kind, text in sorted(self.examples.items())]
        return "\n".join([*lines, *[f"FAULT {fault}" for fault in self.faults[:40]], f"faults: {len(self.faults)}"])


def _kind(answer: Any) -> str | None:
    return answer["error"]["data"]["kind"] if "error" in answer else None


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        # No /proc, or no process any more.
        return 0


def main() -> int:
    """Run by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the daemon's files, and say where")
    options = parser.parse_args()
    fuzz = Fuzz(options.seed)
    fuzz.talks = True
    began = time.monotonic()
    try:
        fuzz.run(options.frames)
    finally:
        fuzz.close(keep=options.keep)
    print(fuzz.report())
    print(f"seconds: {time.monotonic() - began:.0f}")
    if options.keep:
        print(f"kept: {fuzz.base}")
    return 1 if fuzz.faults else 0


if __name__ == "__main__":
    sys.exit(main())
