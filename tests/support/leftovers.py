"""Looks for daemons that a test session started and left behind."""

import os
import signal
import time

__all__ = ["daemons_of", "kill", "wait_until_gone"]


def daemons_of(place: str) -> dict[int, str]:
    """Give pid and command line of every ``ckptd`` process that was started with ``place`` in its environment.

    Looks at ``/proc``; where there is none, nothing is found.
    """
    found = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if not name.isdigit() or int(name) == os.getpid():
            continue
        command = _read(f"/proc/{name}/cmdline")
        if b"ckptd" not in command:
            continue
        if place.encode() in command or place.encode() in _read(f"/proc/{name}/environ"):
            found[int(name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def wait_until_gone(place: str, seconds: float) -> dict[int, str]:
    """Wait until none is left, at most so long; give those that are."""
    deadline = time.monotonic() + seconds
    while (found := daemons_of(place)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def kill(found: dict[int, str]) -> None:
    """End processes that were found, so that one bad test does not leave them for ever."""
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
