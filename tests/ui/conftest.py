"""The timeline needs Textual; where it is not installed its tests are skipped and say so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import isolation


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A slow machine draws slowly."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture
def anyio_backend() -> str:
    """Textual runs on asyncio."""
    return "asyncio"


@pytest.fixture
def resident() -> Iterator[object]:
    """A daemon in this process, and an empty worktree; see support/resident.py."""
    from support.resident import Resident

    base = isolation.short_directory("cku")
    daemon = Resident(Path(base))
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.close()
        isolation.remove(base)
