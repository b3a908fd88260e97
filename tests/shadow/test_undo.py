"""Undo and redo: exactly the paths of one restore, as often as one likes, also after a crash in the middle."""

import os

import pytest

from ckptd.errors import DomainError
from support.plainworld import look
from support.restores import Copy, content, kept, left_out, names, refused, stats, untouched
from support.worktrees import Executable, Link, in_child, somebody

pytestmark = pytest.mark.core


def plant_some(desk) -> None:
    desk.plant(
        {
            b"a": b"old a",
            b"tool": Executable(b"#!"),
            b"link": Link(b"target"),
            b"d": {b"x": b"old x", b"hollow": {}, b"e": {b"y": b"old y"}},
        }
    )
    os.chmod(desk.path(b"d/x"), 0o600)
    os.chmod(desk.path(b"d/e"), 0o700)


def wreck(desk) -> None:
    desk.write(b"a", b"new a", 0o640)
    desk.remove(b"d")
    desk.link(b"d", b"elsewhere")
    desk.remove(b"link")
    desk.write(b"link/inside", b"new")
    desk.write(b"added/deep/z", b"new z", 0o600)
    os.chmod(desk.path(b"tool"), 0o700)


def nothing_left(call, kind: str) -> DomainError:
    with pytest.raises(DomainError) as caught:
        call()
    assert caught.value.kind == kind
    return caught.value


def test_undo_and_redo_bring_back_exactly_what_was_there(desk):
    plant_some(desk)
    saved = desk.save().id
    clean = Copy(desk)
    wreck(desk)
    wrecked = Copy(desk, b"wrecked")
    desk.reset(saved)
    for _ in range(2):
        result = desk.undo()
        assert wrecked.differences() == []
        assert (result.edited, result.conflicts) == ([], [])
        assert desk.redo().edited == []
        assert clean.differences() == []


def test_undo_twice_reverses_two_restores_and_redo_twice_brings_both_back(desk):
    desk.write(b"a", b"1")
    first = desk.save().id
    desk.write(b"a", b"2")
    second = desk.save().id
    desk.write(b"a", b"3")
    desk.reset(second)
    desk.reset(first)
    for verb, expected in [("undo", b"2"), ("undo", b"3"), ("redo", b"2"), ("redo", b"1"), ("undo", b"2")]:
        getattr(desk, verb)()
        assert content(desk, b"a") == expected
    desk.redo()
    nothing_left(desk.redo, "nothing_to_redo")


def test_a_new_restore_clears_redo_and_a_save_does_not(desk):
    desk.write(b"a", b"1")
    saved = desk.save().id
    desk.write(b"a", b"2")
    desk.reset(saved)
    desk.undo()
    desk.write(b"b", b"b")
    desk.save()
    desk.redo()
    assert content(desk, b"a") == b"1"
    desk.undo()
    desk.rollback(saved, b"a")
    nothing_left(desk.redo, "nothing_to_redo")


def test_a_restore_that_changed_nothing_is_not_what_undo_reverses(desk):
    desk.write(b"a", b"1")
    saved = desk.save().id
    desk.write(b"a", b"2")
    desk.reset(saved)
    desk.reset(saved)
    desk.rollback(saved, b"a")
    desk.undo()
    assert content(desk, b"a") == b"2"


def test_a_restore_that_could_change_nothing_is_not_what_undo_reverses(desk):
    with somebody():
        desk.write(b"a", b"1")
        desk.write(b"locked/b", b"1")
        os.chmod(desk.path(b"locked"), 0o555)
        saved = desk.save().id
        desk.write(b"a", b"2")
        desk.reset()
        desk.write(b"locked/b", b"2")
        result = desk.reset()
        assert (result.written, left_out(result.conflicts)) == ([], [(b"locked/b", "permission_denied")])
        assert desk.head() == saved
        desk.undo()
        assert (content(desk, b"a"), content(desk, b"locked/b")) == (b"2", b"2")
        os.chmod(desk.path(b"locked"), 0o755)
        desk.close()


def test_undo_names_what_was_edited_since_and_its_safety_checkpoint_holds_it(desk):
    desk.write(b"a", b"1")
    desk.write(b"b", b"1")
    saved = desk.save().id
    desk.write(b"a", b"2")
    desk.write(b"b", b"2")
    desk.reset(saved)
    desk.write(b"a", b"edited")
    desk.write(b"mine", b"mine")
    planned = desk.undo(dry_run=True)
    result = desk.undo(digest=planned.digest)
    assert names(planned.edited) == names(result.edited) == [b"a"]
    assert desk.cat(result.safety, b"a") == b"edited"
    assert (content(desk, b"a"), content(desk, b"b"), content(desk, b"mine")) == (b"2", b"2", b"mine")
    desk.redo()
    assert content(desk, b"a") == b"edited"


def test_undo_makes_the_directories_again_that_were_deleted_since(desk):
    desk.write(b"d/e/x", b"1")
    saved = desk.save().id
    desk.write(b"d/e/x", b"2")
    desk.rollback(saved, b"d/e/x")
    desk.remove(b"d")
    result = desk.undo()
    assert content(desk, b"d/e/x") == b"2"
    # The directories are no paths of what is undone.
    assert names(result.edited) == names(result.written) == [b"d/e/x"]


def test_undo_is_about_its_own_paths_alone(desk):
    plant_some(desk)
    saved = desk.save().id
    wreck(desk)
    desk.rollback(saved, b"a")
    desk.write(b"other", b"other")
    desk.write(b"tool", b"changed")
    before = stats(desk)
    result = desk.undo()
    after = stats(desk)
    assert {path for path in before | after if before.get(path) != after.get(path)} == {b"a"}
    assert (names(result.written), content(desk, b"a")) == ([b"a"], b"new a")


def test_undo_leaves_a_directory_that_it_would_delete_where_something_new_is_in_it(desk):
    desk.write(b"d/x", b"x")
    saved = desk.save().id
    desk.remove(b"d")
    desk.reset(saved)
    desk.write(b"d/mine", b"mine")
    result = desk.undo()
    assert set(look(desk.root)) == {b"d", b"d/mine"}
    assert names(result.deleted) == [b"d/x"]
    assert kept(result) == [b"d/mine"]


def test_undo_of_a_reset_moves_head_back_and_of_a_rollback_does_not_move_it(desk):
    desk.write(b"a", b"1")
    first = desk.save().id
    desk.write(b"a", b"2")
    second = desk.save().id
    assert desk.reset(first).head == first
    assert desk.undo().head == desk.head() == second
    assert desk.redo().head == desk.head() == first
    desk.undo()
    desk.rollback(first, b"a")
    assert desk.head() == second
    assert desk.undo().head == desk.head() == second
    desk.reopen()
    assert desk.head() == second


def test_undo_of_a_reset_that_only_moved_head(desk):
    desk.write(b"a", b"1")
    first = desk.save().id
    second = desk.save(meta={"k": "v"}).id
    assert second != first
    desk.reset(first)
    assert desk.head() == first
    with untouched(desk):
        assert desk.undo(dry_run=True).head == second
    assert desk.undo().head == desk.head() == second
    assert desk.redo().head == desk.head() == first


@pytest.mark.parametrize("verb", ["undo", "redo"])
def test_a_dry_run_changes_nothing(desk, verb):
    plant_some(desk)
    saved = desk.save().id
    wreck(desk)
    desk.reset(saved)
    if verb == "redo":
        desk.undo()
    call = getattr(desk, verb)
    with untouched(desk):
        planned = call(dry_run=True)
    desk.write(b"a", b"edited meanwhile")
    with refused(desk, "plan_changed"):
        call(digest=planned.digest)


@pytest.mark.parametrize("verb", ["undo", "redo"])
def test_a_retried_token_does_nothing_twice(desk, verb):
    for text in (b"1", b"2"):
        desk.write(b"a", text)
        desk.save()
    desk.write(b"a", b"3")
    desk.reset("#2")
    desk.reset("#1")
    if verb == "redo":
        desk.undo()
        desk.undo()
    token = desk.token()
    first = getattr(desk, verb)(token=token)
    with untouched(desk):
        assert getattr(desk, verb)(token=token) == first
    desk.reopen()
    assert getattr(desk, verb)(token=token) == first
    assert content(desk, b"a") == b"2"


def test_with_nothing_to_undo_it_says_what_has_changed_and_what_repairs_it(desk):
    desk.open()
    assert "no checkpoint yet" in nothing_left(desk.undo, "nothing_to_undo").message
    desk.write(b"a", b"1")
    saved = desk.save().id
    assert nothing_left(desk.undo, "nothing_to_undo").hint is None
    desk.write(b"a", b"2")
    assert "1 path differs" in nothing_left(desk.undo, "nothing_to_undo").message
    desk.write(b"d/e/b", b"2")
    error = nothing_left(desk.undo, "nothing_to_undo")
    assert "2 paths differ" in error.message
    assert len(desk.changes()) == 2
    assert error.hint == f"to go back to it: ckpt reset {saved[:12]}"
    nothing_left(desk.redo, "nothing_to_redo")


# -- what rules leave out


def test_captured_ignored_things_come_back_exactly(desk):
    desk.write(b"cache", b"a file")
    desk.write(b"x.log", b"old")
    saved = desk.save().id
    desk.remove(b"cache")
    desk.write(b".gitignore", b"cache/\n*.log\n")
    desk.write(b"cache/deep/x", b"x", 0o600)
    desk.mkdir(b"cache/hollow")
    desk.link(b"cache/link", b"nowhere")
    os.chmod(desk.path(b"cache/deep"), 0o750)
    os.chmod(desk.path(b"cache"), 0o700)
    desk.write(b"x.log", b"ignored", 0o640)
    before = Copy(desk)
    desk.reset(saved)
    assert set(look(desk.root)) == {b"cache", b"x.log"}
    result = desk.undo()
    assert before.differences() == []
    assert result.edited == []


def test_what_a_rollback_put_below_an_ignored_directory_goes_again(desk):
    desk.write(b"out/made/x", b"x")
    saved = desk.save().id
    desk.remove(b"out/made")
    desk.write(b"out/mine", b"mine", 0o600)
    os.chmod(desk.path(b"out"), 0o700)
    desk.write(b".gitignore", b"out/\n")
    before = Copy(desk)
    desk.rollback(saved, b"out/made/x")
    assert content(desk, b"out/made/x") == b"x"
    result = desk.undo()
    assert before.differences() == []
    assert (names(result.deleted), result.edited) == ([b"out/made/x"], [])
    assert desk.cat(result.safety, b"out/made/x") == b"x"
    desk.redo()
    assert content(desk, b"out/made/x") == b"x"


def test_an_ignored_file_edited_since_is_named_and_held(desk):
    desk.write(b"x.log", b"saved")
    saved = desk.save().id
    desk.write(b".gitignore", b"*.log\n")
    desk.write(b"x.log", b"before")
    desk.rollback(saved, b"x.log")
    desk.write(b"x.log", b"edited")
    result = desk.undo()
    assert names(result.edited) == [b"x.log"]
    assert content(desk, b"x.log") == b"before"
    assert desk.cat(result.safety, b"x.log") == b"edited"


def test_rules_that_a_reset_changed_are_undone_with_it(desk):
    desk.write(b".gitignore", b"*.tmp\n")
    desk.write(b"x.log", b"old")
    saved = desk.save().id
    desk.write(b".gitignore", b"*.log\n")
    desk.write(b"x.log", b"ignored")
    desk.write(b"y.log", b"ignored")
    desk.write(b"z.tmp", b"seen")
    before = Copy(desk)
    desk.reset(saved)
    assert content(desk, b"x.log") == b"old"
    assert os.path.exists(desk.path(b"z.tmp"))
    desk.undo()
    assert before.differences() == []


# -- what is in the way


def test_a_link_to_outside_on_the_way_is_a_conflict(desk):
    outside = os.path.join(desk.base, b"outside")
    os.mkdir(outside)
    desk.write(b"sub/f", b"1")
    desk.write(b"a", b"1")
    saved = desk.save().id
    desk.write(b"sub/f", b"2")
    desk.write(b"a", b"2")
    desk.reset(saved)
    desk.remove(b"sub")
    desk.link(b"sub", outside)
    with refused(desk, "conflicts", b"sub/f"):
        desk.undo()
    result = desk.undo(skip_conflicts=True)
    assert left_out(result.conflicts) == [(b"sub/f", "beyond_symlink")]
    assert content(desk, b"a") == b"2"
    assert os.listdir(outside) == []
    assert os.readlink(desk.path(b"sub")) == outside


def test_a_fifo_on_the_way_is_a_conflict(desk):
    desk.write(b"f", b"1")
    saved = desk.save().id
    desk.write(b"f", b"2")
    desk.reset(saved)
    desk.remove(b"f")
    os.mkfifo(desk.path(b"f"))
    with refused(desk, "conflicts", b"f"):
        desk.undo()


def test_the_target_of_what_is_undone_need_not_be_there_any_more(desk):
    """It only tells what was edited since; the safety checkpoint is all that an undo needs."""
    desk.damaged = True
    desk.write(b"a", b"1")
    saved = desk.save().id
    desk.write(b"a", b"2")
    desk.save()
    desk.reset(saved)
    packs = [os.path.join(desk.folder, b"objects/pack", name) for name in os.listdir(desk.folder + b"/objects/pack")]
    desk.git("update-ref", "-d", "refs/checkpoints/0000000001")
    wanted = {line.split()[0] for line in desk.git("rev-list", "--objects", "--all").splitlines()} - {saved.encode()}
    desk.git("pack-objects", "-q", desk.folder + b"/objects/pack/pack", data=b"\n".join(wanted) + b"\n")
    for path in packs:
        os.unlink(path)
    desk.reopen()
    desk.undo()
    assert content(desk, b"a") == b"2"


# -- cut off in the middle

POINTS = ["opened", "staged", "created", "exchanged", "aside", "mkdir", "before-verify", "verified", "before-unlink"]


def die(desk, call, point: str, nth: int) -> None:
    """Run an operation in a child that dies the nth time that the writer passes a point."""
    passed = 0

    def hook(name, _path):
        nonlocal passed
        passed += name == point
        if passed == nth:
            os._exit(9)

    desk.configure(hooks=hook)
    assert os.waitstatus_to_exitcode(in_child(call)) == 9
    desk.configure(hooks=lambda _name, _path: None)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("nth", [1, 2])
def test_after_a_crash_the_safety_checkpoint_is_shown_and_undo_brings_back_everything(desk, point, nth):
    plant_some(desk)
    for number in range(5):
        desk.write(b"many/%d" % number, b"old")
    saved = desk.save().id
    wreck(desk)
    desk.write(b"many/0", b"new")
    desk.write(b"many/1", b"new")
    desk.remove(b"many/2")
    desk.remove(b"many/3")
    desk.write(b"many/5", b"new")
    desk.write(b"many/new/6", b"new")
    desk.write(b"more/7", b"new")
    before = Copy(desk)
    die(desk, lambda: desk.reset(saved), point, nth)
    desk.open(create=False)
    safety = desk.status().interrupted
    assert safety in {one.id for one in desk.list(kind="safety").checkpoints}
    assert desk.save("saves go on").created
    assert desk.status().interrupted == safety
    desk.undo()
    assert before.differences() == []
    assert desk.status().interrupted is None


def test_a_retried_undo_that_was_cut_off_reverses_the_same_restore(desk):
    for text in (b"1", b"2"):
        desk.write(b"a", text)
        desk.write(b"b", text)
        desk.save()
    desk.write(b"a", b"3")
    desk.write(b"b", b"3")
    desk.reset("#2")
    desk.reset("#1")
    token = desk.token()
    die(desk, lambda: desk.undo(token=token), "exchanged", 1)
    desk.undo(token=token)
    assert (content(desk, b"a"), content(desk, b"b")) == (b"2", b"2")
    desk.undo()
    assert (content(desk, b"a"), content(desk, b"b")) == (b"3", b"3")


def test_a_reset_after_a_crash_supersedes_it(desk):
    plant_some(desk)
    saved = desk.save().id
    clean = Copy(desk)
    wreck(desk)
    wrecked = Copy(desk, b"wrecked")
    die(desk, lambda: desk.reset(saved), "exchanged", 1)
    desk.open(create=False)
    desk.reset(saved)
    assert clean.differences() == []
    assert desk.status().interrupted is None
    desk.undo()
    desk.undo()
    assert wrecked.differences() == []


def test_a_restore_whose_safety_checkpoint_gets_no_ref_is_given_up(desk):
    """Its plan is in the log already, but nothing has been written: there is nothing to undo, now or later."""
    desk.write(b"a", b"1")
    saved = desk.save().id
    desk.write(b"a", b"2")
    in_the_way = os.path.join(desk.folder, b"refs/checkpoints/0000000002")
    os.makedirs(in_the_way + b"/x")
    before = stats(desk)
    with pytest.raises(DomainError):
        desk.rollback(saved, b"a")
    os.removedirs(in_the_way + b"/x")
    assert stats(desk) == before
    for _ in range(2):
        assert desk.status().interrupted is None
        nothing_left(desk.undo, "nothing_to_undo")
        desk.reopen()
    desk.rollback(saved, b"a")
    assert content(desk, b"a") == b"1"
