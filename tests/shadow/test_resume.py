"""A restore that was cut off: what is told of it, and both ways to end it."""

import os

import pytest

from ckpt_protocol.structs import from_wire
from support.restores import Copy, content, names, refused, untouched
from support.worktrees import in_child

pytestmark = pytest.mark.core

FILES = [b"%d/%d" % (folder, number) for folder in range(3) for number in range(2)]


def die(desk, call, point="unlinked", nth=1):
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
    desk.open(create=False)


def everywhere(desk, text):
    for name in FILES:
        desk.write(name, text)


def cut_off(desk, nth=1):
    """A reset from ``mine`` to ``old`` that died; give the target and a copy of what was there before."""
    everywhere(desk, b"old")
    saved = desk.save().id
    everywhere(desk, b"mine")
    desk.write(b"extra/deep", b"mine")
    before = Copy(desk)
    die(desk, lambda: desk.reset(saved), nth=nth)
    return saved, before


def contents(desk):
    return {content(desk, name) for name in FILES}


def told(desk):
    found = desk.status().interruption
    return found.before, found.after, found.other


def safeties(desk):
    return [record.id for record in desk.list(kind="safety").checkpoints]


# -- what is told


def test_a_status_tells_the_operation_its_paths_and_nothing_once_it_has_ended(desk):
    assert desk.status().interruption is None
    saved, _ = cut_off(desk, nth=4)
    found = desk.status().interruption
    assert (found.verb, found.target, found.client, found.safety) == ("reset", saved, "test", safeties(desk)[-1])
    assert found.time.endswith("Z")
    assert found.before + found.after == len(FILES) + 1
    assert found.after > 0
    desk.write(b"2/1", b"by hand")
    assert (sum(told(desk)), told(desk)[2]) == (len(FILES) + 1, 1)
    assert desk.status().interruption.others == [b"2/1".decode()]
    desk.resume("finish")
    assert (desk.status().interruption, desk.status().interrupted) == (None, None)


def test_what_rules_hide_is_looked_at_too(desk):
    desk.write(b"x.log", b"old")
    desk.write(b"z", b"old")
    saved = desk.save().id
    desk.write(b".gitignore", b"*.log\n")
    desk.write(b"x.log", b"ignored by now")
    desk.write(b"z", b"mine")
    die(desk, lambda: desk.reset(saved), "opened")
    assert told(desk) == (3, 0, 0)
    desk.write(b"x.log", b"by hand")
    os.unlink(desk.path(b"z"))
    os.mkfifo(desk.path(b"z"))
    assert told(desk) == (1, 0, 2)
    assert desk.status().interruption.others == ["x.log", "z"]
    os.unlink(desk.path(b"z"))


def test_where_a_checkpoint_of_it_cannot_be_read_nobody_is_told_a_wrong_number(desk):
    desk.damaged = True
    folder = os.path.join(desk.checkpoint_dir, b"%s/objects/pack")
    everywhere(desk, b"old")
    saved = desk.save().id
    first = os.listdir(folder % os.path.basename(desk.folder))
    everywhere(desk, b"mine")
    die(desk, lambda: desk.reset(saved))
    everywhere(desk, b"third")
    desk.save()
    desk.close()
    for name in first:
        os.unlink(os.path.join(folder % os.path.basename(desk.folder), name))
    desk.open(create=False)
    found = desk.status().interruption
    assert (found.verb, found.before, found.after, found.other) == ("reset", None, None, None)
    with refused(desk, "object_missing"):
        desk.resume("finish")
    # What stood there before is in the safety checkpoint, whatever has become of the target.
    desk.resume("undo")
    assert contents(desk) == {b"mine"}


def test_none_interrupted_is_said(desk):
    for action in ("finish", "undo"):
        desk.write(b"f", b"1")
        desk.save()
        with refused(desk, "nothing_to_resume"):
            desk.resume(action)
        desk.write(b"f", b"2")
        desk.reset()
        with refused(desk, "nothing_to_resume"):
            desk.resume(action, dry_run=True)


# -- finish


@pytest.mark.parametrize("nth", [1, 3, 7])
def test_finish_ends_it_with_its_first_safety_checkpoint_and_one_undo_brings_back_what_was_there(desk, nth):
    saved, before = cut_off(desk, nth)
    safety = desk.status().interrupted
    with untouched(desk):
        plan = desk.resume("finish", dry_run=True)
    result = desk.resume("finish", digest=plan.digest)
    assert (contents(desk), result.safety, result.head, result.target) == ({b"old"}, safety, saved, saved)
    assert not os.path.exists(desk.path(b"extra"))
    assert {*plan.written} <= {*result.written}
    assert {from_wire(path) for path in result.written} == {*FILES}
    assert (result.edited, desk.head()) == ([], saved)
    desk.reopen()
    assert desk.head() == saved
    desk.undo()
    assert before.differences() == []
    with refused(desk, "nothing_to_resume"):
        desk.resume("finish")


def test_what_was_edited_since_is_named_and_in_another_safety_checkpoint(desk):
    _, before = cut_off(desk)
    desk.write(b"2/0", b"by hand")
    plan = desk.resume("finish", dry_run=True)
    assert names(plan.edited) == [b"2/0"]
    result = desk.resume("finish")
    second = safeties(desk)[0]
    assert names(result.edited) == [b"2/0"]
    assert any(second[:12] in note and "2/0" in note for note in result.notes)
    assert (contents(desk), desk.cat(second, b"2/0")) == ({b"old"}, b"by hand")
    desk.undo()
    assert before.differences() == []


def test_what_was_made_since_at_other_paths_stays(desk):
    cut_off(desk)
    desk.write(b"new", b"by hand")
    desk.write(b"extra/new", b"by hand")
    result = desk.resume("finish")
    assert (contents(desk), content(desk, b"new"), content(desk, b"extra/new")) == ({b"old"}, b"by hand", b"by hand")
    assert not os.path.exists(desk.path(b"extra/deep"))
    assert b"new" not in names(result.deleted)


def test_finish_of_a_reset_moves_head_as_the_reset_would_have(desk):
    everywhere(desk, b"old")
    saved = desk.save().id
    everywhere(desk, b"mine")
    head = desk.save().id
    die(desk, lambda: desk.reset(saved))
    assert desk.head() == head
    assert desk.resume("undo", dry_run=True).head == head
    assert (desk.resume("finish").head, desk.head()) == (saved, saved)
    assert desk.undo().head == head


def test_finish_of_a_rollback_is_about_its_paths_and_leaves_head(desk):
    everywhere(desk, b"old")
    saved = desk.save().id
    everywhere(desk, b"mine")
    head = desk.save().id
    die(desk, lambda: desk.rollback(saved, b"0", b"1"))
    result = desk.resume("finish")
    assert (result.head, desk.head()) == (head, head)
    assert [content(desk, name) for name in FILES] == [b"old"] * 4 + [b"mine"] * 2


def test_finish_of_an_undo_and_of_a_redo(desk):
    everywhere(desk, b"1")
    saved = desk.save().id
    everywhere(desk, b"2")
    desk.reset(saved)
    die(desk, desk.undo)
    assert desk.status().interruption.verb == "undo"
    desk.resume("finish")
    assert contents(desk) == {b"2"}
    die(desk, desk.redo)
    assert desk.status().interruption.verb == "redo"
    desk.resume("finish")
    assert contents(desk) == {b"1"}
    desk.undo()
    assert contents(desk) == {b"2"}


def test_a_conflict_stops_it_and_can_be_left_out(desk):
    cut_off(desk)
    os.unlink(desk.path(b"2/1"))
    os.mkfifo(desk.path(b"2/1"))
    with refused(desk, "conflicts", b"2/1"):
        desk.resume("finish")
    assert desk.status().interruption.other == 1
    result = desk.resume("finish", skip_conflicts=True)
    assert [(from_wire(one.path), one.reason) for one in result.conflicts] == [(b"2/1", "special")]
    assert desk.status().interruption is None
    os.unlink(desk.path(b"2/1"))


# -- undo


@pytest.mark.parametrize("nth", [1, 3, 7])
def test_undo_brings_back_what_was_there_before(desk, nth):
    _, before = cut_off(desk, nth)
    safety, head = desk.status().interrupted, desk.head()
    with untouched(desk):
        plan = desk.resume("undo", dry_run=True)
    result = desk.resume("undo", digest=plan.digest)
    assert (before.differences(), result.target, result.head) == ([], safety, head)
    assert (result.edited, result.written) == ([], plan.written)
    assert desk.status().interruption is None
    with refused(desk, "nothing_to_undo"):
        desk.undo()


def test_undo_names_what_was_edited_since_and_holds_it(desk):
    _, before = cut_off(desk, nth=7)
    desk.write(b"0/0", b"by hand")
    result = desk.resume("undo")
    assert (names(result.edited), before.differences()) == ([b"0/0"], [])
    assert desk.cat(result.safety, b"0/0") == b"by hand"


def test_undo_of_an_undo_that_was_cut_off_is_as_if_it_had_not_begun(desk):
    everywhere(desk, b"1")
    saved = desk.save().id
    everywhere(desk, b"2")
    desk.reset(saved)
    die(desk, desk.undo)
    desk.resume("undo")
    assert contents(desk) == {b"1"}
    desk.undo()
    assert contents(desk) == {b"2"}
    die(desk, desk.redo)
    desk.resume("undo")
    assert contents(desk) == {b"2"}


# -- again


@pytest.mark.parametrize("action", ["finish", "undo"])
def test_cut_off_itself_and_sent_again_it_goes_the_same_way(desk, action):
    _, before = cut_off(desk, nth=3)
    token = desk.token()
    die(desk, lambda: desk.resume(action, token=token))
    result = desk.resume(action, token=token)
    if action == "finish":
        assert contents(desk) == {b"old"}
        desk.undo()
    assert before.differences() == []
    desk.reopen()
    state = Copy(desk, b"after")
    assert desk.resume(action, token=token) == result
    assert state.differences() == []


def test_the_plan_must_be_the_one_that_was_seen(desk):
    cut_off(desk)
    for action in ("finish", "undo"):
        digest = desk.resume(action, dry_run=True).digest
        desk.write(b"0/0", b"by hand " + action.encode())
        with refused(desk, "plan_changed"):
            desk.resume(action, digest=digest)


def test_saves_go_on_meanwhile_and_another_restore_supersedes_it(desk):
    saved, _ = cut_off(desk)
    half = desk.save("half").id
    assert desk.status().interruption is not None
    desk.write(b"0/0", b"new")
    desk.rollback(half, b"0/0")
    with refused(desk, "nothing_to_resume"):
        desk.resume("finish")
    assert desk.reset(saved).head == saved


def test_a_request_that_was_superseded_is_not_taken_for_a_new_one(desk):
    saved, _ = cut_off(desk)
    token = desk.token()
    die(desk, lambda: desk.resume("undo", token=token))
    desk.reset(saved)
    everywhere(desk, b"later")
    die(desk, lambda: desk.reset(saved))
    with refused(desk, "nothing_to_resume"):
        desk.resume("undo", token=token)
