"""Paths that a tree lacks are put into it, with their permissions, and nothing else of it changes."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ckptd.shadow.objects.blob import EMPTY_TREE, hash_object
from ckptd.shadow.objects.pack import HashOnly
from ckptd.shadow.trees.compare import compare
from ckptd.shadow.trees.graft import graft
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.view import StoredTree
from support.effort import examples
from support.memory_view import directory, executable, file, link, view

pytestmark = pytest.mark.core


class Objects(HashOnly):
    """A store in memory."""

    def __init__(self) -> None:
        self.by_id = {}

    def add(self, kind, data):
        oid = hash_object(kind, data)
        self.by_id[oid] = (kind, data)
        return oid

    def read(self, oid, kind):
        found, data = self.by_id[oid]
        assert found == kind
        return data

    def tree(self, key) -> StoredTree:
        return StoredTree(self, *key)


def stored(objects, states) -> StoredTree:
    """Write a tree as a graft onto nothing."""
    return objects.tree(graft(objects.tree((EMPTY_TREE, None)), states, objects))


def flat(root, prefix=b""):
    found = {prefix + name: state for name, state in root.files().items()}
    for name, child in root.dirs().items():
        found[prefix + name] = child.state()
        found.update(flat(child, prefix + name + b"/"))
    return found


def grafted(before, additions):
    objects = Objects()
    return flat(objects.tree(graft(stored(objects, before), additions, objects)))


def test_nothing_to_add_changes_nothing():
    objects = Objects()
    root = stored(objects, {b"a": file(b"x", 0o600)})
    assert graft(root, {}, objects) == root.key


def test_a_file_stands_beside_what_is_there():
    before = {b"a": file(b"a", 0o600), b"d": directory(0o700), b"d/x": executable(b"x", 0o711), b"l": link()}
    assert grafted(before, {b"d/y": file(b"y", 0o640)}) == {**before, b"d/y": file(b"y", 0o640)}


def test_directories_that_are_missing_are_made_with_the_permissions_given():
    added = {b"p": directory(0o700), b"p/q/x": file(b"x", 0o600)}
    assert grafted({}, added) == {**added, b"p/q": directory()}


def test_an_empty_directory_can_be_added():
    assert grafted({b"a": link()}, {b"d": directory(0o750)}) == {b"a": link(), b"d": directory(0o750)}


def test_a_directory_that_is_there_can_be_given_other_permissions():
    before = {b"d": directory(0o700), b"d/x": file(b"x")}
    assert grafted(before, {b"d": directory(0o755)}) == {**before, b"d": directory(0o755)}


def test_a_file_takes_the_place_of_a_directory_and_the_reverse():
    before = {b"d": directory(0o700), b"d/x": file(b"x", 0o600), b"f": file(b"f", 0o600)}
    assert grafted(before, {b"d": link(), b"f/x": file()}) == {b"d": link(), b"f": directory(), b"f/x": file()}


def test_permission_bits_beyond_the_usual_are_kept():
    added = {b"a": executable(b"a", 0o4755), b"d": directory(0o1777), b"b": file(b"b", 0)}
    assert grafted({}, added) == added


NAMES = st.sampled_from([b"a", b"b", b"=", b"+a", b"\xff\n"])
LEAVES = st.one_of(
    st.builds(file, st.binary(max_size=2), st.sampled_from([0o644, 0o600, 0o4644])),
    st.builds(executable, st.binary(max_size=2), st.sampled_from([0o755, 0o700])),
    st.just(link()),
    st.builds(directory, st.sampled_from([0o755, 0o700, 0o1777])),
)


def whole(paths: dict[bytes, State]) -> dict[bytes, State]:
    """Drop what could not stand beside what is above it, and say which directories there are."""
    kept: dict[bytes, State] = {}
    for path in sorted(paths):
        above = path.rpartition(b"/")[0]
        if not above or (above in kept and kept[above].is_dir):
            kept[path] = paths[path]
    return kept


PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
TREES = st.dictionaries(PATHS, LEAVES, max_size=12).map(whole)


@given(TREES, TREES)
@hypothesis_settings(max_examples=examples(150))
def test_the_result_is_the_tree_with_the_additions_over_it(before, additions):
    hidden = {one for one, state in additions.items() if not state.is_dir}
    expected = {
        path: state
        for path, state in before.items()
        if not any(path == one or path.startswith(one + b"/") for one in hidden)
        and not (path in additions and additions[path].is_dir and not state.is_dir)
    }
    assert grafted(before, additions) == {**expected, **additions}


@given(TREES, TREES)
@hypothesis_settings(max_examples=examples(150))
def test_comparing_tells_exactly_what_differs(one, other):
    objects = Objects()
    for left, right in ((view(one), view(other)), (stored(objects, one), stored(objects, other))):
        found = {delta.path: (delta.old, delta.new) for delta in compare(left, right)}
        expected = {
            path: (one.get(path), other.get(path))
            for path in one.keys() | other.keys()
            if one.get(path) != other.get(path)
        }
        assert found == expected
