"""The core needs asyncio; its tests run in asyncio's debug mode, and fail on what the loop had to report."""

import logging
import threading
from collections.abc import Iterator

import pytest

from support import poll


@pytest.fixture
def anyio_backend():
    return ("asyncio", {"debug": True})


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Every thread of a worktree ends with its test."""
    yield
    poll.until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("ckptd-")])


@pytest.fixture(autouse=True)
def clean_loop(caplog) -> Iterator[None]:
    """Nothing was lost in the loop, such as an exception that nobody saw. A slow machine is no fault."""
    with caplog.at_level(logging.WARNING, logger="asyncio"):
        yield
    for record in caplog.get_records("setup") + caplog.get_records("call"):
        assert record.name != "asyncio" or record.getMessage().startswith("Executing"), record.getMessage()
