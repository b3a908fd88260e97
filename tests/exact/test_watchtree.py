"""Which directory a watch stands for, while directories move."""

import pytest

from ckptd.exact.watchtree import WatchTree

pytestmark = pytest.mark.core


def planted() -> WatchTree:
    tree = WatchTree()
    for wd, path in enumerate((b"", b"a", b"a/b", b"a/b/c", b"d"), 1):
        tree.put(path, wd)
    return tree


def test_paths():
    tree = planted()
    assert [tree.by_wd(wd).path for wd in range(1, 6)] == [b"", b"a", b"a/b", b"a/b/c", b"d"]
    assert tree.by_wd(9) is None
    assert tree.is_watched(b"a/b")
    assert not tree.is_watched(b"a/x")
    assert len(tree) == 5


def test_what_is_cut_takes_all_below_along():
    tree = planted()
    assert sorted(tree.cut(tree.find(b"a"), b"b")) == [3, 4]
    assert tree.by_wd(4) is None
    assert not tree.is_watched(b"a/b/c")
    assert tree.cut(tree.root, b"nothing") == []


def test_a_directory_that_is_met_elsewhere_belongs_there():
    tree = planted()
    tree.put(b"d/b", 3)
    assert tree.by_wd(3).path == b"d/b"
    # The notice that it has left its old place comes later, and must not take the watch away.
    assert tree.cut(tree.find(b"a"), b"b") == [4]
    assert tree.by_wd(3).path == b"d/b"


def test_a_path_that_has_become_another_directory():
    tree = planted()
    tree.put(b"d", 9)
    assert tree.by_wd(5) is None
    assert tree.by_wd(9).path == b"d"


def test_an_ended_watch_is_forgotten():
    tree = planted()
    tree.forget(5)
    tree.forget(77)
    assert not tree.is_watched(b"d")
    assert tree.find(b"d") is not None
