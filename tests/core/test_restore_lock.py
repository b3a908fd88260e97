"""Who waits for whom among restores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptd.core.restore_lock import RestoreLocks

pytestmark = pytest.mark.core


def granted(*tickets):
    return [ticket.granted.done() and not ticket.granted.cancelled() for ticket in tickets]


@pytest.mark.parametrize("other", [b"/a", b"/a/b", b"/a/b/c", b"/"])
async def test_worktrees_that_contain_one_another_take_turns(other):
    locks = RestoreLocks()
    first, second = locks.acquire(b"/a/b"), locks.acquire(other)
    assert granted(first, second) == [True, False]
    locks.release(first)
    assert granted(second) == [True]


@pytest.mark.parametrize("other", [b"/a/bc", b"/a/c", b"/b", b"/a/b.d/x"])
async def test_others_do_not(other):
    locks = RestoreLocks()
    assert granted(locks.acquire(b"/a/b"), locks.acquire(other)) == [True, True]


async def test_no_one_is_overtaken_and_unrelated_ones_go_on():
    locks = RestoreLocks()
    child, parent, sibling, far = (locks.acquire(path) for path in (b"/a/b", b"/a", b"/a/c", b"/z"))
    assert granted(child, parent, sibling, far) == [True, False, False, True]
    locks.release(child)
    assert granted(parent, sibling) == [True, False]
    locks.release(parent)
    assert granted(sibling) == [True]


async def test_withdrawn_ticket_lets_the_next_one_in():
    locks = RestoreLocks()
    first, second, third = locks.acquire(b"/a/b"), locks.acquire(b"/a"), locks.acquire(b"/a/c")
    locks.release(second)
    assert second.granted.cancelled()
    assert granted(third) == [True]
    locks.release(second)
    locks.release(first)


PATHS = [b"/", b"/a", b"/a/b", b"/a/b/c", b"/a/bc", b"/d", b"/d/e"]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(PATHS), st.integers(0, 5)), max_size=30))
async def test_any_order_excludes_and_ends(steps):
    locks, alive = RestoreLocks(), []
    for release, path, which in steps:
        if release and alive:
            locks.release(alive.pop(which % len(alive)))
        else:
            alive.append(locks.acquire(path))
        held = [ticket.path.rstrip(b"/") + b"/" for ticket in alive if granted(ticket)[0]]
        assert not [(a, b) for i, a in enumerate(held) for b in held[i + 1 :] if a.startswith(b) or b.startswith(a)]
    while alive:
        running = [ticket for ticket in alive if granted(ticket)[0]]
        assert running, "a deadlock"
        locks.release(running[-1])
        alive.remove(running[-1])
