"""What every test gets: a home and runtime directory of its own, and a check that no daemon outlives the tests."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from support import effort, isolation, leftovers

settings.register_profile("ckpt", derandomize=True, deadline=None, database=None)
settings.load_profile("ckpt")

# A shell has what it starts in the background ignore Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SECONDS_TO_END = 10.0
_LONG_TIMEOUT_S = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests without a timeout of their own a longer one in a long run; the usual one is in the settings."""
    if not effort.LONG:
        return
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_LONG_TIMEOUT_S))


@pytest.fixture(scope="session", autouse=True)
def private_place() -> Iterator[Path]:
    """Point home, XDG and temporary directories into a short private directory, and remove it at the end.

    Fails at the end where a daemon started from here is still running.
    """
    before = dict(os.environ)
    place = isolation.short_directory()
    _replace_environment(isolation.private_environment(place, before))
    try:
        yield Path(place)
        left = leftovers.wait_until_gone(place, _SECONDS_TO_END)
        leftovers.kill(left)
        assert not left, f"daemons left running by this session: {left}"
    finally:
        _replace_environment(before)
        isolation.remove(place)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name, whatever the test is called."""
    place = isolation.short_directory("cks")
    yield Path(place)
    isolation.remove(place)


def _replace_environment(wanted: dict[str, str]) -> None:
    for name in set(os.environ) - set(wanted):
        del os.environ[name]
    os.environ.update(wanted)
