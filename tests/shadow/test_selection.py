"""Which differences a restore of some paths is about."""

import pytest

from ckptd.errors import DomainError
from ckptd.shadow.restore.selection import select_exactly, select_paths
from support.memory_view import FakeDisk, directory, file, link, view

pytestmark = pytest.mark.core

OLD, NEW = file(b"old"), file(b"new")


def paths(given, now, target, *, delete=False, disk=None, left_out=()):
    found = select_paths(
        given,
        view(now),
        view(target),
        "0123",
        delete=delete,
        standing=FakeDisk(disk).kind,
        says_absent=lambda path, is_dir: (path, is_dir) not in left_out,
    )
    return {path: (old, new) for path, old, new in found}


def exactly(given, now, target, disk=None):
    found, staying = select_exactly(given, view(now), view(target), FakeDisk(disk).kind)
    return {path: (old, new) for path, old, new in found}, staying


def test_only_the_given_path_is_selected():
    assert paths([b"a"], {b"a": OLD, b"b": OLD}, {b"a": NEW, b"b": NEW}) == {b"a": (OLD, NEW)}


def test_an_equal_path_selects_nothing():
    assert paths([b"a"], {b"a": OLD}, {b"a": OLD}) == {}


def test_a_directory_selects_what_differs_below_it():
    found = paths([b"d"], {b"d/same": OLD, b"d/go": OLD, b"x": OLD}, {b"d/same": OLD, b"d/e/come": NEW})
    assert found == {b"d/go": (OLD, None), b"d/e": (None, directory()), b"d/e/come": (None, NEW)}


def test_overlapping_paths_select_each_difference_once():
    now, target = {b"d/x": OLD, b"d/y": OLD}, {b"d/x": NEW, b"d/y": NEW}
    assert paths([b"d", b"d/x"], now, target) == paths([b"d"], now, target)


def test_missing_directories_above_are_selected_with_their_own_permissions():
    found = paths([b"p/q/x"], {b"z": OLD}, {b"p": directory(0o700), b"p/q/x": NEW, b"p/other": NEW})
    assert found == {b"p": (None, directory(0o700)), b"p/q": (None, directory()), b"p/q/x": (None, NEW)}


def test_a_directory_above_that_only_rules_hide_is_left_as_it_is():
    found = paths([b"p/x"], {}, {b"p/x": NEW}, disk={b"p": directory(0o700)})
    assert found == {b"p/x": (None, NEW)}


@pytest.mark.parametrize(("thing", "kind"), [(link(), "beyond_symlink"), (OLD, "bad_path")])
@pytest.mark.parametrize("hidden", [False, True])
def test_what_is_no_directory_above_the_path_is_refused(thing, kind, hidden):
    there = {b"p": thing}
    with pytest.raises(DomainError) as caught:
        paths([b"p/q/x"], {} if hidden else there, {b"p/q/x": NEW}, disk=there if hidden else None)
    assert (caught.value.kind, caught.value.paths) == (kind, (b"p/q/x",))


def test_the_link_itself_can_be_given_with_what_is_below_it():
    found = paths([b"p", b"p/x"], {b"p": link()}, {b"p/x": NEW})
    assert found == {b"p": (link(), directory()), b"p/x": (None, NEW)}


@pytest.mark.parametrize("now", [{}, {b"a": OLD}])
def test_a_path_that_the_checkpoint_lacks_is_an_error(now):
    with pytest.raises(DomainError, match="not in checkpoint 0123") as caught:
        paths([b"a"], now, {b"b": NEW})
    assert caught.value.kind == "path_not_in_checkpoint"
    assert ("--delete" in caught.value.hint) == bool(now)


@pytest.mark.parametrize(("now", "is_dir"), [({}, False), ({b"a": OLD}, False), ({b"a": directory()}, True)])
@pytest.mark.parametrize("hidden", [False, True])
def test_nobody_is_told_to_delete_what_the_checkpoint_only_left_out(now, is_dir, hidden):
    with pytest.raises(DomainError, match="not in checkpoint 0123") as caught:
        paths([b"a"], {} if hidden else now, {b"b": NEW}, disk=now if hidden else None, left_out={(b"a", is_dir)})
    assert "--delete" not in caught.value.hint
    assert "kept it out" in caught.value.hint


@pytest.mark.parametrize("now", [{}, {b"d/l": link()}, {b"d/l/a": OLD}])
@pytest.mark.parametrize("path", [b"d/l/a", b"d/l/e/a"])
def test_what_the_checkpoint_has_behind_a_link_is_told_from_what_it_lacks(now, path):
    with pytest.raises(DomainError, match="beyond a symbolic link: d/l is one in checkpoint 0123") as caught:
        paths([path], now, {b"d/l": link(), b"d/e/a": OLD})
    assert (caught.value.kind, caught.value.paths) == ("beyond_symlink", (path,))


@pytest.mark.parametrize("delete", [False, True])
def test_a_path_through_a_link_of_the_worktree_is_told_as_such(delete):
    with pytest.raises(DomainError, match="beyond a symbolic link: l is one now") as caught:
        paths([b"l/a"], {b"l": link(), b"d/a": OLD}, {b"d/a": OLD}, delete=delete)
    assert (caught.value.kind, caught.value.paths) == ("beyond_symlink", (b"l/a",))


def test_with_delete_such_a_path_goes_with_all_that_is_below_it():
    found = paths([b"d", b"b"], {b"d/e/x": OLD, b"b": OLD}, {b"b": NEW}, delete=True)
    assert found == {
        b"b": (OLD, NEW),
        b"d": (directory(), None),
        b"d/e": (directory(), None),
        b"d/e/x": (OLD, None),
    }


def test_exactly_is_those_paths_and_nothing_below_them():
    found, staying = exactly([b"d"], {b"d/x": OLD, b"d/e/y": OLD}, {})
    assert found == {b"d": (directory(), None)}
    assert sorted(staying) == [b"d/e", b"d/e/y", b"d/x"]


def test_exactly_holds_nothing_back_that_is_given_too():
    found, staying = exactly([b"d", b"d/x"], {b"d/x": OLD}, {})
    assert found == {b"d": (directory(), None), b"d/x": (OLD, None)}
    assert staying == []


def test_exactly_gives_a_path_that_neither_side_has_because_rules_may_hide_it():
    assert exactly([b"a"], {}, {})[0] == {b"a": (None, None)}


def test_exactly_makes_directories_above_but_changes_nothing_that_stands_there():
    assert exactly([b"p/x"], {}, {b"p/x": NEW})[0] == {b"p": (None, directory()), b"p/x": (None, NEW)}
    assert exactly([b"p/x"], {b"p": link()}, {b"p/x": NEW})[0] == {b"p/x": (None, NEW)}
