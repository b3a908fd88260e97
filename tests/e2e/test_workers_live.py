"""The workers of a real daemon: they come for a large first save, and outlive neither it nor their daemon."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ckptd.workers.pool import worker_count
from support.live import Place
from support.poll import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(worker_count() == 0, reason="one core: no workers"),
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc"),
]

FILES = 9000
ROUNDS = 5
"""Workers live for a moment: it may be missed."""


def plant(place: Place, number: int) -> Path:
    root = place.ws / f"round {number}"
    for index in range(FILES):
        if index % 100 == 0:
            folder = root / f"{index // 100}"
            folder.mkdir(parents=True)
        (folder / f"f{index}").write_text(f"round {number} file {index}\n" * 20)
    return root


def workers_of(daemon: int) -> list[int]:
    """The children of a daemon that are workers by now."""
    found = []
    for task in Path(f"/proc/{daemon}/task").glob("*/children"):
        try:
            found += [int(word) for word in task.read_text().split()]
        except OSError:
            continue
    return [pid for pid in found if is_worker(pid)]


def is_worker(pid: int) -> bool:
    try:
        return b"ckptd.workers" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def saving_with_workers(place: Place) -> tuple["subprocess.Popen[bytes]", list[int]]:
    """Begin a save of a new part of the worktree; give it, and workers that are at it."""
    daemon = place.pid()
    for number in range(ROUNDS):
        plant(place, number)
        child = place.start("save", "large")
        while child.poll() is None:
            pids = workers_of(daemon)
            if pids:
                return child, pids
            time.sleep(0)
    pytest.fail("no worker was seen")


@pytest.fixture
def ready(place: Place) -> Place:
    """A daemon that runs already."""
    (place.ws / "f").write_text("one\n")
    place.save("first")
    return place


def test_a_daemon_that_is_killed_takes_its_workers_along(ready: Place):
    daemon = ready.pid()
    child, pids = saving_with_workers(ready)
    os.kill(daemon, signal.SIGKILL)
    until(lambda: not any(map(is_worker, pids)))
    # The client connects to a new daemon and sends its request again.
    child.wait(60)
    ready.save("after")
    assert ready.json("status")["changes"] == []
    ready.verify()


def test_a_worker_that_is_killed_is_not_missed(ready: Place):
    child, pids = saving_with_workers(ready)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    assert child.wait(60) == 0
    assert ready.json("status")["changes"] == []
    assert workers_of(ready.pid()) == []
    ready.verify()
