"""The plan of a restore: what is written, deleted, kept, captured, and what is in the way."""

import pytest

from ckptd.shadow.restore.plan import digest_of, make_plan
from ckptd.shadow.trees.compare import Delta, compare
from ckptd.shadow.trees.step import Step
from support.memory_view import FakeDisk, directory, executable, file, link, view

pytestmark = pytest.mark.core

OLD, NEW = file(b"old"), file(b"new")


def plan(now, target, disk=None, absent=lambda _path, _is_dir: True, left_alone=()):
    return make_plan(compare(view(now), view(target)), FakeDisk(disk), absent, left_alone)


def steps(made):
    return {step.path: (step.before, step.after) for step in made.steps}


def test_equal_sides_make_an_empty_plan():
    made = plan({b"a": OLD, b"d/x": NEW}, {b"a": OLD, b"d/x": NEW})
    assert made == ([], [], [], {})


def test_steps_are_what_differs_in_order():
    made = plan({b"b": OLD, b"c": OLD, b"same": OLD}, {b"a": NEW, b"b": NEW, b"same": OLD})
    assert made.steps == [Step(b"a", None, NEW), Step(b"b", OLD, NEW), Step(b"c", OLD, None)]
    assert made.captured == {}


@pytest.mark.parametrize("target", [file(b"old", 0o600), executable(b"old"), link(b"old")])
def test_permissions_and_types_alone_make_a_step(target):
    assert steps(plan({b"a": OLD}, {b"a": target})) == {b"a": (OLD, target)}


def test_permissions_that_nobody_recorded_are_no_difference():
    assert plan({b"a": OLD, b"d": directory(0o700)}, {b"a": OLD._replace(perm=None), b"d": directory(None)}).steps == []


def test_what_was_not_surely_absent_is_kept():
    made = plan({b"a": OLD, b"b": OLD}, {}, absent=lambda path, _is_dir: path == b"b")
    assert steps(made) == {b"b": (OLD, None)}
    assert made.kept == [b"a"]


def test_a_directory_that_was_left_out_then_is_kept_whole_and_listed_once():
    made = plan({b"d/x": OLD, b"d/e/y": OLD}, {}, absent=lambda path, is_dir: not (path == b"d" and is_dir))
    assert made.steps == []
    assert made.kept == [b"d/"]


def test_the_directories_above_something_kept_stay_and_the_rest_of_them_goes():
    made = plan({b"d/e/keep": OLD, b"d/e/go": OLD, b"d/f/go": OLD}, {}, absent=lambda path, _dir: path != b"d/e/keep")
    assert steps(made).keys() == {b"d/e/go", b"d/f", b"d/f/go"}
    assert made.kept == [b"d/e/keep"]


@pytest.mark.parametrize("left", [b"d/e/ignored", b"d/e/ignored/", b"d/e/.git"])
def test_the_directories_above_what_the_scan_left_out_stay(left):
    made = plan({b"d/e/x": OLD}, {}, left_alone=[left])
    assert steps(made) == {b"d/e/x": (OLD, None)}
    assert made.kept == ([] if left.endswith(b".git") else [left])


def test_what_the_scan_left_out_is_captured_where_the_target_has_a_file():
    made = plan({}, {b"a": NEW}, {b"a": OLD}, left_alone=[b"a"])
    assert steps(made) == {b"a": (OLD, NEW)}
    assert made.captured == {b"a": OLD}
    assert made.kept == []


def test_what_the_scan_left_out_and_is_as_the_target_has_it_is_not_touched():
    made = plan({}, {b"a": OLD}, {b"a": OLD}, left_alone=[b"a"])
    assert (made.steps, made.kept, made.captured) == ([], [], {})


def test_an_ignored_directory_in_the_way_of_a_file_is_captured_and_goes():
    disk = {b"a": directory(0o700), b"a/x": OLD, b"a/e": directory(), b"a/e/y": link()}
    made = plan({}, {b"a": NEW}, disk, left_alone=[b"a/"])
    assert steps(made) == {
        b"a": (disk[b"a"], NEW),
        b"a/e": (disk[b"a/e"], None),
        b"a/e/y": (disk[b"a/e/y"], None),
        b"a/x": (OLD, None),
    }
    assert made.captured == disk


def test_a_saved_directory_in_the_way_of_a_link_goes_with_the_ignored_things_in_it():
    disk = {b"a": directory(), b"a/x": OLD, b"a/ignored": NEW}
    made = plan({b"a/x": OLD}, {b"a": link()}, disk, left_alone=[b"a/ignored"])
    assert steps(made) == {b"a": (directory(), link()), b"a/ignored": (NEW, None), b"a/x": (OLD, None)}
    assert made.kept == []


@pytest.mark.parametrize("problem", ["special", "unreadable", "git_dir", "other_mount", "store"])
def test_what_no_checkpoint_can_hold_is_a_conflict(problem):
    made = plan({}, {b"a": NEW, b"b": NEW}, {b"a": problem}, left_alone=[b"a"])
    assert [(one.path, one.reason) for one in made.conflicts] == [(b"a", problem)]
    assert steps(made).keys() == {b"b"}
    assert made.kept == []


@pytest.mark.parametrize("problem", ["special", "unreadable", "git_dir"])
def test_a_directory_that_holds_such_a_thing_is_a_conflict_as_a_whole(problem):
    disk = {b"a": directory(), b"a/x": OLD, b"a/y": problem}
    made = plan({b"a/x": OLD}, {b"a": NEW}, disk)
    assert [(one.path, one.reason) for one in made.conflicts] == [(b"a", problem)]
    assert made.conflicts[0].detail.startswith("a/y in it")
    assert made.steps == []


def test_nothing_is_planned_below_a_conflict():
    made = plan({}, {b"a/b/x": NEW}, {b"a": "special"}, left_alone=[b"a"])
    assert [one.path for one in made.conflicts] == [b"a"]
    assert made.steps == []


def test_below_a_directory_that_takes_the_place_of_something_the_disk_is_not_asked():
    # On disk, a link of this name leads to where there are files.
    made = plan({b"a": link()}, {b"a/x": NEW}, {b"a/x": OLD})
    assert steps(made) == {b"a": (link(), directory()), b"a/x": (None, NEW)}


def test_an_ignored_link_in_the_way_of_a_directory_is_captured():
    made = plan({}, {b"a/x": NEW}, {b"a": link()}, left_alone=[b"a"])
    assert steps(made) == {b"a": (link(), directory()), b"a/x": (None, NEW)}
    assert made.captured == {b"a": link()}


def test_an_ignored_directory_where_the_target_has_one_gets_its_permissions_alone():
    made = plan({}, {b"a": directory(0o755)}, {b"a": directory(0o700), b"a/x": OLD}, left_alone=[b"a/"])
    assert steps(made) == {b"a": (directory(0o700), directory(0o755))}
    assert made.captured == {b"a": directory(0o700)}


def test_the_directories_around_what_is_captured_keep_their_permissions_in_the_safety_checkpoint():
    disk = {b"p": directory(0o700), b"p/q": directory(0o750), b"p/q/x": OLD}
    made = plan({}, {b"p/q/x": NEW, b"p": directory(0o700), b"p/q": directory(0o750)}, disk, left_alone=[b"p/"])
    assert made.captured == disk
    assert steps(made) == {b"p/q/x": (OLD, NEW)}


def leftover(disk, *paths, left_alone=()):
    deltas = [Delta(path, None, None) for path in paths]
    return make_plan(deltas, FakeDisk(disk), lambda _path, _is_dir: True, left_alone)


def test_what_is_to_go_and_the_scan_does_not_see_is_captured():
    made = leftover({b"p": directory(0o700), b"p/x": OLD}, b"p/x", b"p/gone", left_alone=[b"p/"])
    assert steps(made) == {b"p/x": (OLD, None)}
    assert made.captured == {b"p": directory(0o700), b"p/x": OLD}


def test_a_directory_that_the_scan_does_not_see_goes_only_with_all_that_is_in_it():
    disk = {b"p": directory(), b"p/q": directory(), b"p/q/x": OLD}
    made = leftover(disk, b"p", b"p/q", b"p/q/x", left_alone=[b"p/"])
    assert steps(made).keys() == {b"p", b"p/q", b"p/q/x"}
    made = leftover({**disk, b"p/mine": NEW}, b"p", b"p/q", b"p/q/x", left_alone=[b"p/"])
    assert steps(made).keys() == {b"p/q", b"p/q/x"}
    assert made.kept == [b"p/"]


def test_what_no_checkpoint_can_hold_is_never_to_go():
    made = leftover({b"x": "special"}, b"x", left_alone=[b"x"])
    assert made.steps == []
    assert made.kept == [b"x"]


def test_the_digest_is_of_paths_and_both_sides():
    one = [Step(b"a", OLD, NEW), Step(b"b", None, NEW)]
    assert digest_of(one) == digest_of(reversed(one))
    others = [
        [Step(b"a", OLD, NEW)],
        [Step(b"a", NEW, OLD), Step(b"b", None, NEW)],
        [Step(b"a", OLD._replace(perm=0o600), NEW), Step(b"b", None, NEW)],
        [Step(b"a", OLD, NEW), Step(b"b", None, None)],
        [Step(b"c", OLD, NEW), Step(b"b", None, NEW)],
    ]
    assert len({digest_of(one), *map(digest_of, others)}) == len(others) + 1
