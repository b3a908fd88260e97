"""A place with real processes for each test that asks for one."""

from collections.abc import Iterator

import pytest

from support.live import Place, open_place


@pytest.fixture
def place() -> Iterator[Place]:
    """A home, an empty worktree in it, and the command; see support/live.py."""
    with open_place() as opened:
        yield opened
