"""What an operation has read of trees goes with its end, and need not be looked for among all there is."""

import gc
import weakref
from collections import Counter
from collections.abc import Callable

import pytest

from ckptd.core.ports import Caller
from ckptd.shadow.trees.tree import TreeEntry
from ckptd.shadow.trees.view import StoredTree
from support.worktrees import Desk

pytestmark = pytest.mark.core

OPERATIONS: dict[str, Callable[[Desk], object]] = {
    "show": lambda desk: desk.show("#2"),
    "list": lambda desk: desk.list(paths=[b"d1/f1"], follow=[]),
    "diff": lambda desk: desk.diff(from_id="#1", to_id="#2"),
    "status": lambda desk: desk.status(),
    "save": lambda desk: desk.save("again"),
    "plan": lambda desk: desk.reset("#1", dry_run=True),
    "reset": lambda desk: desk.reset("#1"),
    "rollback": lambda desk: desk.rollback("#1", b"d1"),
    "undo": lambda desk: desk.undo(),
}


def trees() -> Counter[str]:
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, (StoredTree, TreeEntry)))


@pytest.fixture
def wide(desk: Desk) -> Desk:
    for text in (b"one", b"two"):
        for number in range(200):
            desk.write(b"d%d/f%d" % (number % 10, number), text)
        desk.save(text.decode())
    desk.write(b"d1/f1", b"edited")
    desk.reset("#1")
    desk.write(b"d1/f1", b"edited again")
    return desk


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_tree_outlives_its_operation(wide: Desk, name: str):
    gc.collect()
    gc.disable()
    try:
        before = trees()
        OPERATIONS[name](wide)
        assert trees() - before == Counter()
    finally:
        gc.enable()


def test_a_caller_is_no_garbage_to_be_looked_for():
    gc.disable()
    try:
        caller = Caller("test")
        caller.progress("scan", 1, 2, 3)
        assert caller.at == ("scan", 1, 2, 3)
        # Nobody else has it, so that it goes with its caller.
        cancelled = weakref.ref(caller.cancelled)
        del caller
        assert cancelled() is None
    finally:
        gc.enable()
