"""Crowds of clients against a real daemon, one with few descriptors and one with many; its memory meanwhile."""

import contextlib
import json
import os
import resource
import socket
import sys
import time
from pathlib import Path

import pytest

from support.live import Place
from support.poll import until

pytestmark = pytest.mark.e2e

STATUS = b'{"jsonrpc":"2.0","method":"daemon.status","id":1}\n'
LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
os.execv(sys.executable, [sys.executable, "-P", "-m", "ckptd", "--socket", sys.argv[2]])
"""


def start(place: Place, descriptors: int) -> int:
    """Start a daemon that may have no more descriptors; give its pid."""
    Path(place.socket).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    child = place.spawn([sys.executable, "-c", LIMITED, str(descriptors), place.socket], place.environ)
    until(lambda: place.ckpt("daemon", "status").code == 0)
    return child.pid


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def connect(place: Place) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    # Only one without a time limit waits where the backlog is full.
    client.connect(place.socket)
    client.settimeout(10)
    return client


@contextlib.contextmanager
def crowd(place: Place, number: int):
    """So many clients that connect and say nothing; some the daemon hangs up on."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(10)
            # A full backlog is a refusal like any other.
            with contextlib.suppress(OSError):
                client.connect(place.socket)
        yield


def served(place: Place, name: str) -> None:
    """Assert that another client's work is done."""
    (place.ws / name).write_text(name)
    first = place.save(name)
    (place.ws / name).unlink()
    place.done("rollback", first, name)
    assert (place.ws / name).read_text() == name


@pytest.mark.parametrize("descriptors", [64, 256])
def test_a_daemon_with_few_descriptors_serves_beside_a_crowd(place: Place, descriptors: int):
    pid = start(place, descriptors)
    served(place, "before")
    with crowd(place, 400):
        # Whoever rests makes room after a second.
        time.sleep(1.1)
        for number in range(3):
            served(place, f"beside {number}")
    served(place, "after")
    assert place.pid() == pid
    assert "unexpected" not in place.log
    assert " ERROR " not in place.log


def test_a_daemon_with_few_descriptors_closes_stores_that_nobody_uses(place: Place):
    pid = start(place, 64)
    for number in range(12):
        root = place.home / f"worktree {number}"
        root.mkdir()
        for text in ("one", "two"):
            (root / "f").write_text(text)
            place.save(cwd=root)
    assert place.pid() == pid


def test_thousands_come_and_go(place: Place):
    place.save()
    pid = place.pid()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3000:
        pytest.skip("this process may not have so many connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    try:
        with crowd(place, 2000):
            time.sleep(1.1)
            served(place, "beside")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for _ in range(3000):
        with connect(place) as client:
            client.sendall(STATUS[:20])
    served(place, "after")
    assert place.pid() == pid
    until(lambda: place.json("daemon", "status")["connections"] <= 2)
    # The log has other things to say.
    assert len(place.log) < 100_000


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc, to see the memory of a process")
def test_memory_stays_bounded_whatever_is_asked_and_not_fetched(place: Place):
    for number in range(300):
        (place.ws / f"file {number} {'x' * 150}").write_text("")
    place.save("x" * 100_000)
    pid = place.pid()
    before = resident_mib(pid)
    found = os.stat(place.ws)
    params = {
        "checkpoint_dir": str(place.checkpoint_dir),
        "worktree": {"path": str(place.ws), "dev": str(found.st_dev), "ino": str(found.st_ino)},
    }
    call = {"jsonrpc": "2.0", "method": "checkpoint.show", "params": {**params, "id": "HEAD"}, "id": 1}
    line = json.dumps(call).encode() + b"\n"
    with contextlib.ExitStack() as stack:
        for _ in range(25):
            deaf = stack.enter_context(connect(place))
            deaf.setblocking(False)
            with contextlib.suppress(OSError):
                for _ in range(250):
                    deaf.sendall(line)
        # Frames of many mebibytes that never end.
        for _ in range(15):
            endless = stack.enter_context(connect(place))
            endless.settimeout(0.5)
            with contextlib.suppress(OSError):
                endless.sendall(b" " * (7 << 20))
        served(place, "beside")
        highest = resident_mib(pid)
    assert highest - before < 700
    served(place, "after")
    assert place.pid() == pid
