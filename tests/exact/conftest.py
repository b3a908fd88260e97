"""A worktree with a store for each test that asks for one."""

from collections.abc import Iterator

import pytest

from support.worktrees import Desk, desk_fixture


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A worktree and an empty checkpoint directory; every store in it must be sound at the end."""
    yield from desk_fixture()
