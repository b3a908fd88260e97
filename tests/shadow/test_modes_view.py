"""Permission bits beside the tree, and checkpoints' directories as they are seen through both."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as effort_settings
from hypothesis import strategies as st

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.trees.compare import compare
from ckptd.shadow.trees.modes import OWN_NAME, child_name, format_exceptions, is_exception, modes_tree, parse_exceptions
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import DIRECTORY, EXECUTABLE, LINK, REGULAR, TreeEntry, format_tree, storable
from ckptd.shadow.trees.view import UNRECORDED, StoredTree, find_state, find_states, find_view
from support.bare import Bare
from support.effort import examples
from support.worktrees import Desk, names

pytestmark = pytest.mark.core

PERMS = st.integers(0, 0o7777)


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(os.fsencode(tmp_path))


@given(st.dictionaries(names(), PERMS))
@effort_settings(max_examples=examples(200))
def test_exceptions_come_back(perms: dict[bytes, int]):
    data = format_exceptions(perms)
    assert parse_exceptions(data) == perms
    assert format_exceptions(dict(reversed(perms.items()))) == data


@pytest.mark.parametrize(
    "data",
    [
        b"644 a",
        b"644\0",
        b"644 \0",
        b"8 a\0",
        b"-1 a\0",
        b" a\0",
        b"0o644 a\0",
        b"77777 a\0",
        b"6_4 a\0",
        b"\0",
        b"644 a\0x",
    ],
)
def test_a_malformed_record_is_damage(data: bytes):
    with pytest.raises(DomainError, match="store_damaged"):
        parse_exceptions(data)


@pytest.mark.parametrize(
    ("mode", "perm", "expected"),
    [
        (REGULAR, 0o644, False),
        (REGULAR, 0o600, True),
        (REGULAR, 0o4644, True),
        (EXECUTABLE, 0o755, False),
        (EXECUTABLE, 0o700, True),
        (DIRECTORY, 0o755, False),
        (DIRECTORY, 0o1777, True),
        (LINK, 0o777, False),
    ],
)
def test_what_has_to_be_recorded(mode: int, perm: int, expected: bool):
    assert is_exception(mode, perm) is expected


@given(names(), names())
def test_no_name_meets_another_in_the_tree_of_exceptions(one: bytes, other: bytes):
    assert child_name(one) != OWN_NAME
    assert (child_name(one) == child_name(other)) == (one == other)
    assert storable(child_name(one))


def stored(bare: Bare, tree: dict[bytes, object]) -> tuple[bytes, bytes | None]:
    """Store {name: (mode, perm, content) or a dict of the same}; give the ids of content and exceptions."""
    entries, perms, below = {}, {}, {}
    for name, node in tree.items():
        if isinstance(node, dict):
            oid, modes = stored(bare, node)
            entries[name] = TreeEntry(DIRECTORY, oid)
            if modes is not None:
                below[name] = modes
        else:
            mode, perm, content = node
            oid = stored(bare, content)[0] if mode == DIRECTORY else bare.put(content)[0]
            entries[name] = TreeEntry(mode, oid)
            if is_exception(mode, perm):
                perms[name] = perm
    blob = bare.put(format_exceptions(perms))[0] if perms else None
    beside = modes_tree(blob, below)
    return (
        bare.put(format_tree(entries), kind=b"tree")[0],
        bare.put(format_tree(beside), kind=b"tree")[0] if beside else None,
    )


TREE = {
    b"plain": (REGULAR, 0o644, b"1"),
    b"secret": (REGULAR, 0o600, b"2"),
    b"run": (EXECUTABLE, 0o755, b"3"),
    b"link": (LINK, 0o777, b"plain"),
    b"private": (DIRECTORY, 0o700, {}),
    b"d": {b"=": (REGULAR, 0o400, b"4"), b"+d": {b"+": (EXECUTABLE, 0o711, b"5")}, b"\xff\n ": (REGULAR, 0o644, b"6")},
}


def test_states_with_their_bits(bare: Bare):
    tree, modes = stored(bare, TREE)
    root = StoredTree(bare.objects(), tree, modes)
    assert {name: state.perm for name, state in root.files().items()} == {
        b"plain": 0o644,
        b"secret": 0o600,
        b"run": 0o755,
        b"link": None,
    }
    assert {name: view.state().perm for name, view in root.dirs().items()} == {b"private": 0o700, b"d": 0o755}
    found = {path: find_state(root, path) for path in (b"d/=", b"d/+d/+", b"d/\xff\n ", b"secret", b"d", b"private")}
    assert {path: state and (state.mode, state.perm) for path, state in found.items()} == {
        b"d/=": (REGULAR, 0o400),
        b"d/+d/+": (EXECUTABLE, 0o711),
        b"d/\xff\n ": (REGULAR, 0o644),
        b"secret": (REGULAR, 0o600),
        b"d": (DIRECTORY, 0o755),
        b"private": (DIRECTORY, 0o700),
    }
    assert root.file(b"d") is None
    assert root.dir(b"plain") is None
    assert root.dir(b"none") is root.file(b"none") is None


def test_marks_are_equal_where_states_are(desk: Desk):
    """Of a worktree and of checkpoints, in any order: the marks decide which files are looked at more closely."""
    variants = [(b"1", 0o644), (b"1", 0o600), (b"1", 0o755), (b"1", 0o700), (b"2", 0o644), (b"2", 0o755)]
    saved = []
    for data, perm in variants:
        desk.write(b"f", data, perm)
        desk.write(b"same", b"same", 0o640)
        desk.link(b"link", data)
        saved.append((desk.repo.lookup.open(desk.save().id).root, desk.repo.model))
        desk.remove(b"link")
    views = [view for both in saved for view in both if view is not None]
    assert len(views) == len(variants) * 2
    for number, one in enumerate(views):
        assert one.marks().keys() == one.files().keys() == {b"f", b"same", b"link"}
        for other_number, other in enumerate(views):
            for name, mark in one.marks().items():
                assert (mark == other.marks()[name]) == (one.file(name) == other.file(name))
            differing = {delta.path for delta in compare(one, other)}
            assert (b"f" in differing) == (number // 2 != other_number // 2)


def test_bits_that_nobody_recorded_are_unknown(bare: Bare):
    tree, modes = stored(bare, TREE)
    objects = bare.objects()
    known, unknown = StoredTree(objects, tree, modes), StoredTree(objects, tree, UNRECORDED)
    for path in (b"plain", b"secret", b"d/=", b"d/+d/+", b"private"):
        state = find_state(unknown, path)
        assert state is not None
        assert state.perm is None
    # They are equal to any: a restore changes none of them.
    assert list(compare(known, unknown)) == []
    plain = StoredTree(objects, tree, None)
    assert {delta.path for delta in compare(known, plain)} == {b"secret", b"private", b"d/=", b"d/+d/+"}


def test_looking_up_paths(bare: Bare):
    root = StoredTree(bare.objects(), *stored(bare, TREE))
    for path in (b"none", b"d/none", b"plain/x", b"link/x", b"d/+d/+/x", b"none/none/none"):
        assert find_state(root, path) is None
    assert find_view(root, b"") is root
    paths = [b"d/=", b"d/none", b"d/+d/+", b"d/+d/none", b"d", b"none/x", b"none/y", b"plain", b"plain/x", b"d/="]
    assert list(find_states(root, paths)) == [find_state(root, path) for path in paths]
    assert find_view(root, b"d/+d") is not None
    assert find_view(root, b"d/=") is find_view(root, b"plain") is find_view(root, b"none/none") is None
    with pytest.raises(DomainError, match="bad_path"):
        find_state(root, b"")


def test_the_empty_tree_need_not_be_stored(bare: Bare):
    root = StoredTree(bare.objects(), EMPTY_TREE, None)
    assert (root.files(), root.dirs(), root.state()) == ({}, {}, State(DIRECTORY, b"", None))


def test_what_cannot_be_read_is_never_taken_for_nothing(bare: Bare):
    objects = bare.objects()
    tree = bare.put(format_tree({b"d": TreeEntry(DIRECTORY, b"\1" * 20)}), kind=b"tree")[0]
    with pytest.raises(DomainError, match="object_missing"):
        find_state(StoredTree(objects, tree, None), b"d/x")
    with pytest.raises(DomainError, match="object_missing"):
        find_state(StoredTree(objects, tree, b"\2" * 20), b"d")
    junk = bare.put(b"junk", kind=b"tree")[0]
    with pytest.raises(DomainError, match="store_damaged"):
        StoredTree(objects, junk, None).files()
    blob = bare.put(b"junk")[0]
    modes = bare.put(format_tree({OWN_NAME: TreeEntry(REGULAR, blob)}), kind=b"tree")[0]
    with pytest.raises(DomainError, match="store_damaged"):
        find_state(StoredTree(objects, tree, modes), b"d")


def test_only_directories_along_a_path_are_read(bare: Bare):
    tree = {b"a": {b"b": {b"f": (REGULAR, 0o600, b"1")}}, b"other": {b"x": (REGULAR, 0o644, b"2")}}
    root = StoredTree(bare.objects(), *stored(bare, tree))
    other = stored(bare, tree[b"other"])[0]
    # The tree beside the path is damaged: nobody looks at it.
    objects = bare.objects()
    objects.distrust(other)
    state = find_state(root, b"a/b/f")
    assert state is not None
    assert state.perm == 0o600


def test_a_save_records_every_bit(desk: Desk):
    wanted = {b"a": 0o600, b"b": 0o755, b"d/c": 0o4711, b"d/e": 0o000 if os.geteuid() == 0 else 0o400, b"n": 0o644}
    for name, perm in wanted.items():
        desk.write(name, name, perm)
    desk.mkdir(b"d", 0o2750)
    desk.mkdir(b"d/empty", 0o1777)
    root = desk.repo.lookup.open(desk.save("m").id).root
    found = {path: find_state(root, path) for path in [*wanted, b"d", b"d/empty"]}
    assert {path: state and state.perm for path, state in found.items()} == {**wanted, b"d": 0o2750, b"d/empty": 0o1777}
