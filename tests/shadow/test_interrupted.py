"""Restores that were stopped in the middle: whatever one does next, nothing is lost, and one undo takes it back."""

import itertools
import os

import msgspec
import pytest

from ckpt_protocol import checkpoint as wire
from ckpt_protocol import worktree as worktree_wire
from ckpt_protocol.structs import from_wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from support.restores import Copy, content, left_out, names, refused
from support.worktrees import in_child

pytestmark = pytest.mark.core

FILES = [b"%d/%d" % (folder, number) for folder in range(3) for number in range(2)]
"""In more than one directory, which are written one after the other."""


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


def reset_cancelled(desk, target, when):
    """Reset, cancelled at the first hook of which ``when`` is true."""
    return _cancelled(desk, lambda fields, caller: desk.writer.restore(_restore(fields, target), caller), when)


def reset_called_off(desk, target, when):
    """Reset, cancelled likewise, and taken back: raises DomainError ``cancelled``."""
    _call_off(desk, lambda fields, caller: desk.writer.restore(_restore(fields, target), caller), when)


def _restore(fields, target):
    return wire.RestoreParams(**fields, id=target)


def undo_cancelled(desk, when):
    return _cancelled(desk, lambda fields, caller: desk.writer.undo(wire.StepParams(**fields), caller), when)


def _cancelled(desk, call, when):
    """Cancel an operation where it cannot be taken back either; give the outcome on record."""
    with pytest.raises(DomainError) as caught:
        _call_off(desk, call, when, take_back=False)
    assert caught.value.kind == "restore_incomplete"
    assert "no space for the test" in caught.value.message
    outcome = desk.repo.log.outcomes[next(reversed(desk.repo.log.intents))]
    return msgspec.json.decode(outcome.result, type=wire.RestoreResult)


def _call_off(desk, call, when, take_back=True):
    caller = Caller("test")

    def hook(name, path):
        if when(name, path):
            caller.cancelled.set()
        if name == "before-take-back" and not take_back:
            raise DomainError("no_space", "no space for the test")

    desk.configure(hooks=hook)
    try:
        call({**desk.common(), "token": desk.token()}, caller)
    finally:
        desk.configure(hooks=lambda _name, _path: None)


def everywhere(desk, text):
    for name in FILES:
        desk.write(name, text)


def old_and_mine(desk):
    """Save ``old``, then write what nobody saves; give the checkpoint."""
    everywhere(desk, b"old")
    saved = desk.save().id
    everywhere(desk, b"mine")
    return saved


def contents(desk):
    return {content(desk, name) for name in FILES}


def paths(items):
    return {from_wire(item) for item in items}


# -- the same request again


@pytest.mark.parametrize("point", ["staged", "exchanged", "verified", "unlinked"])
def test_a_reset_sent_again_goes_on_and_one_undo_brings_back_what_was_there_first(desk, point):
    saved = old_and_mine(desk)
    desk.write(b"extra/deep", b"mine")
    head = desk.head()
    before = Copy(desk)
    token = desk.token()
    die(desk, lambda: desk.reset(saved, token=token), point)
    safety = desk.status().interrupted
    result = desk.reset(saved, token=token)
    assert (result.safety, contents(desk)) == (safety, {b"old"})
    assert (paths(result.written), paths(result.deleted)) == ({*FILES}, {b"extra/deep"})
    assert desk.status().interrupted is None
    desk.reopen()
    assert desk.reset(saved, token=token) == result
    assert desk.undo().head == head
    assert before.differences() == []
    with pytest.raises(DomainError, match=r"^nothing_to_undo: "):
        desk.undo()
    desk.redo()
    assert contents(desk) == {b"old"}
    desk.undo()
    assert before.differences() == []


def test_cut_off_twice_and_again_when_nothing_is_left_to_write(desk):
    saved = old_and_mine(desk)
    token = desk.token()
    before = Copy(desk)
    for _ in range(3):
        die(desk, lambda: desk.reset(saved, token=token))
    assert contents(desk) == {b"old"}
    safety = desk.status().interrupted
    result = desk.reset(saved, token=token)
    assert (result.safety, result.head, paths(result.written)) == (safety, saved, {*FILES})
    desk.undo()
    assert before.differences() == []


def test_edits_between_the_crash_and_the_second_pass_are_in_the_second_safety_checkpoint(desk):
    saved = old_and_mine(desk)
    before = Copy(desk)
    token = desk.token()
    die(desk, lambda: desk.reset(saved, token=token), nth=1)
    desk.write(b"0/1", b"edited meanwhile")
    desk.write(b"new/file", b"new meanwhile")
    result = desk.reset(saved, token=token)
    assert contents(desk) == {b"old"}
    (note,) = [note for note in result.notes if "cut off" in note]
    assert "0/1" in note
    second = desk.list(kind="safety").checkpoints[0].id
    assert second[:12] in note
    assert result.safety != second
    assert desk.cat(second, b"0/1") == b"edited meanwhile"
    desk.undo()
    # What is new stands in nobody's way, and comes back too.
    assert content(desk, b"new/file") == b"new meanwhile"
    desk.remove(b"new")
    assert before.differences() == []


def test_what_nobody_planned_and_the_first_safety_checkpoint_has_comes_back_from_there(desk):
    desk.write(b"same/x", b"same")
    saved = old_and_mine(desk)
    before = Copy(desk)
    token = desk.token()
    die(desk, lambda: desk.reset(saved, token=token))
    desk.remove(b"same")
    desk.reset(saved, token=token)
    assert content(desk, b"same/x") == b"same"
    desk.undo()
    assert before.differences() == []


def test_what_was_put_where_no_directory_was_stays_in_its_checkpoint(desk):
    desk.write(b"d/x", b"old")
    saved = old_and_mine(desk)
    desk.remove(b"d")
    desk.write(b"d", b"a file now")
    before = Copy(desk)
    token = desk.token()
    die(desk, lambda: desk.reset(saved, token=token), "unlinked", 2)
    os.makedirs(desk.path(b"d"), exist_ok=True)
    desk.write(b"d/mine", b"new meanwhile")
    desk.reset(saved, token=token)
    assert content(desk, b"d/x") == b"old"
    desk.undo()
    assert before.differences() == []
    assert desk.cat(desk.list(kind="safety").checkpoints[1].id, b"d/mine") == b"new meanwhile"


def test_a_directory_that_the_reset_made_goes_with_what_was_put_there_meanwhile(desk):
    desk.write(b"d/x", b"old")
    saved = old_and_mine(desk)
    desk.remove(b"d")
    before = Copy(desk)
    token = desk.token()
    die(desk, lambda: desk.reset(saved, token=token), "unlinked", len(FILES) + 2)
    assert content(desk, b"d/x") == b"old"
    desk.write(b"d/mine", b"new meanwhile")
    desk.reset(saved, token=token)
    result = desk.undo()
    assert (result.conflicts, before.differences()) == ([], [])


def test_files_that_only_the_second_pass_sees_come_back(desk):
    desk.write(b".gitignore", b"")
    desk.write(b"zz", b"old")
    saved = desk.save().id
    desk.write(b".gitignore", b"*.log\n")
    desk.write(b"zz", b"mine")
    desk.write(b"x.log", b"ignored by then")
    before = Copy(desk)
    token = desk.token()
    die(desk, lambda: desk.reset(saved, token=token), "unlinked", 1)
    desk.reset(saved, token=token)
    desk.undo()
    assert before.differences() == []


def test_after_another_restore_the_request_is_a_new_one(desk):
    saved = old_and_mine(desk)
    token = desk.token()
    die(desk, lambda: desk.reset(saved, token=token))
    everywhere(desk, b"later")
    desk.save()
    desk.write(b"0/1", b"edited")
    desk.rollback("HEAD", b"0/1")
    state = Copy(desk)
    first = desk.list(kind="safety").checkpoints[-1].id
    assert desk.reset(saved, token=token).safety != first
    desk.undo()
    assert state.differences() == []


def test_a_save_between_does_not_decide_about_head(desk):
    saved = old_and_mine(desk)
    head = desk.save("mine").id
    token = desk.token()
    die(desk, lambda: desk.reset(saved, token=token))
    desk.save("half")
    assert desk.reset(saved, token=token).head == saved
    desk.reopen()
    assert desk.head() == saved
    assert desk.undo().head == head
    assert contents(desk) == {b"mine"}


def test_a_rollback_sent_again_goes_on(desk):
    saved = old_and_mine(desk)
    token = desk.token()
    die(desk, lambda: desk.rollback(saved, *FILES, token=token))
    half = desk.save("half").id
    result = desk.rollback(saved, *FILES, token=token)
    assert (paths(result.written), result.head) == ({*FILES}, half)
    assert desk.undo().head == half
    assert contents(desk) == {b"mine"}


def test_the_plan_of_a_request_sent_again_need_not_be_the_first_one(desk):
    saved = old_and_mine(desk)
    digest = desk.reset(saved, dry_run=True).digest
    token = desk.token()
    die(desk, lambda: desk.reset(saved, token=token, digest=digest))
    desk.reset(saved, token=token, digest=digest)
    assert contents(desk) == {b"old"}
    with refused(desk, "plan_changed"):
        desk.undo(digest=digest)


def test_a_second_pass_without_a_safety_checkpoint_leaves_the_first_to_be_undone(desk):
    saved = old_and_mine(desk)
    token = desk.token()
    die(desk, lambda: desk.reset(saved, token=token))
    safety = desk.status().interrupted
    in_the_way = os.path.join(desk.folder, b"refs/checkpoints/0000000003")
    os.makedirs(in_the_way + b"/x")
    with pytest.raises(DomainError):
        desk.reset(saved, token=token)
    os.removedirs(in_the_way + b"/x")
    assert desk.status().interrupted == safety
    desk.reopen()
    assert desk.status().interrupted == safety
    desk.undo()
    assert contents(desk) == {b"mine"}


# -- undo and redo, cut off


def two_resets(desk):
    everywhere(desk, b"1")
    first = desk.save().id
    everywhere(desk, b"2")
    second = desk.save().id
    everywhere(desk, b"3")
    desk.reset(first)
    everywhere(desk, b"4")
    desk.reset(second)


@pytest.mark.parametrize("stop", ["cut off", "cancelled"])
def test_the_next_undo_finishes_one_that_was_stopped_before_it_reverses_anything_older(desk, stop):
    two_resets(desk)
    if stop == "cut off":
        die(desk, desk.undo)
    else:
        undo_cancelled(desk, lambda name, _path: name == "unlinked")
    assert contents(desk) == {b"2", b"4"}
    planned = desk.undo(dry_run=True)
    assert 0 < len(planned.written) < len(FILES)
    result = desk.undo(digest=planned.digest)
    assert (contents(desk), result.edited, paths(result.written)) == ({b"4"}, [], {*FILES})
    desk.redo()
    assert contents(desk) == {b"2"}
    desk.undo()
    desk.undo()
    assert contents(desk) == {b"3"}


@pytest.mark.parametrize("stop", ["cut off", "cancelled"])
def test_redo_takes_back_an_undo_that_was_stopped(desk, stop):
    two_resets(desk)
    if stop == "cut off":
        die(desk, desk.undo)
    else:
        undo_cancelled(desk, lambda name, _path: name == "unlinked")
    desk.redo()
    assert contents(desk) == {b"2"}
    desk.undo()
    assert contents(desk) == {b"4"}


def test_a_redo_that_was_cut_off_is_finished_by_redo_and_taken_back_by_undo(desk):
    two_resets(desk)
    desk.undo()
    die(desk, desk.redo)
    desk.redo()
    assert contents(desk) == {b"2"}
    desk.undo()
    die(desk, desk.redo)
    desk.undo()
    assert contents(desk) == {b"4"}
    desk.undo()
    assert contents(desk) == {b"3"}


def test_the_undo_of_a_reset_of_two_passes_is_finished_too(desk):
    saved = old_and_mine(desk)
    token = desk.token()
    die(desk, lambda: desk.reset(saved, token=token))
    desk.write(b"new", b"new meanwhile")
    desk.reset(saved, token=token)
    die(desk, desk.undo)
    desk.undo()
    assert (contents(desk), content(desk, b"new")) == ({b"mine"}, b"new meanwhile")
    desk.redo()
    assert (contents(desk), os.path.exists(desk.path(b"new"))) == ({b"old"}, False)


def test_a_step_sent_again_under_either_token_is_answered_once(desk):
    two_resets(desk)
    first, second = desk.token(), desk.token()
    die(desk, lambda: desk.undo(token=first))
    result = desk.undo(token=second)
    desk.reopen()
    assert desk.undo(token=first) == desk.undo(token=second) == result
    assert contents(desk) == {b"4"}


# -- half done


def test_a_cancelled_reset_keeps_head_and_one_undo_brings_back_its_paths(desk):
    saved = old_and_mine(desk)
    head = desk.save("mine").id
    everywhere(desk, b"unsaved")
    result = reset_cancelled(desk, saved, lambda name, _path: name == "unlinked")
    assert contents(desk) == {b"old", b"unsaved"}
    assert {reason for _, reason in left_out(result.conflicts)} == {"cancelled"}
    assert result.head == desk.head() == head
    assert any("undo" in note for note in result.notes)
    desk.reopen()
    assert desk.head() == head
    desk.undo()
    assert (contents(desk), desk.head()) == ({b"unsaved"}, head)


def test_a_reset_that_was_cancelled_before_it_wrote_anything_is_not_what_undo_reverses(desk):
    saved = old_and_mine(desk)
    desk.reset(saved)
    everywhere(desk, b"newer")
    with pytest.raises(DomainError, match=r"^cancelled: "):
        reset_called_off(desk, saved, lambda name, _path: name == "opened")
    assert contents(desk) == {b"newer"}
    desk.undo()
    assert contents(desk) == {b"mine"}


@pytest.mark.parametrize("written", [1, 2, 3])
def test_a_reset_that_is_cancelled_is_taken_back_and_says_so(desk, written):
    saved = old_and_mine(desk)
    head = desk.save("mine").id
    everywhere(desk, b"unsaved")
    os.chmod(desk.path(FILES[0]), 0o600)
    before = Copy(desk)
    count = itertools.count(1)
    with pytest.raises(DomainError, match=r"changed \d paths; they were put back") as caught:
        reset_called_off(desk, saved, lambda name, _path: name == "unlinked" and next(count) == written)
    assert caught.value.kind == "cancelled"
    assert (before.differences(), desk.head()) == ([], head)
    assert caught.value.message.split()[-1] in {record.id for record in desk.list().checkpoints}
    assert desk.status().interrupted is None


@pytest.mark.parametrize("step", ["undo", "redo"])
def test_an_undo_or_redo_that_is_cancelled_counts_as_never_begun(desk, step):
    two_resets(desk)
    if step == "redo":
        desk.undo()
    before, token = Copy(desk), desk.token()

    def call(fields, caller):
        return getattr(desk.writer, step)(wire.StepParams(**{**fields, "token": token}), caller)

    with pytest.raises(DomainError, match=r"^cancelled: "):
        _call_off(desk, call, lambda name, _path: name == "unlinked")
    assert before.differences() == []
    with pytest.raises(DomainError, match=r"^cancelled: "):
        getattr(desk, step)(token=token)
    getattr(desk, step)()
    assert contents(desk) == ({b"4"} if step == "undo" else {b"2"})


def test_what_somebody_wrote_meanwhile_outlives_the_taking_back(desk):
    saved = old_and_mine(desk)
    everywhere(desk, b"unsaved")
    done = []

    def when(name, path):
        if name == "before-take-back":
            desk.write(done[0], b"meanwhile")
        if name == "unlinked":
            done.append(path)
        return name == "unlinked"

    with pytest.raises(DomainError) as caught:
        reset_called_off(desk, saved, when)
    assert caught.value.kind == "cancelled"
    assert contents(desk) == {b"unsaved"}
    assert desk.cat(caught.value.message.split()[-1], done[0]) == b"meanwhile"


def test_a_restore_that_is_cancelled_before_its_first_write_leaves_no_trace_in_the_worktree(desk):
    saved = old_and_mine(desk)
    before = Copy(desk)
    caller = Caller("test", progress=lambda phase, *_: caller.cancelled.set() if phase == "safety" else None)
    params = _restore({**desk.common(), "token": desk.token()}, saved)
    with pytest.raises(DomainError, match="nothing was changed"):
        desk.writer.restore(params, caller)
    assert before.differences() == []
    assert [record.kind for record in desk.list().checkpoints] == ["manual"]
    desk.writer.restore(params, Caller("test"))
    assert contents(desk) == {b"old"}


def file_to_directory(desk):
    desk.write(b"P/x", b"old inside")
    saved = desk.save().id
    desk.remove(b"P")
    desk.write(b"P", b"precious", 0o640)
    return saved


def directory_to_file(desk):
    desk.write(b"P", b"old")
    saved = desk.save().id
    desk.remove(b"P")
    desk.write(b"P/deep/x", b"precious", 0o640)
    return saved


@pytest.mark.parametrize("turn", [file_to_directory, directory_to_file])
def test_what_was_removed_before_a_reset_was_cancelled_comes_back(desk, turn):
    saved = turn(desk)
    before = Copy(desk)
    result = reset_cancelled(desk, saved, lambda name, path: (name, path) == ("unlinked", b"P"))
    assert not os.path.exists(desk.path(b"P"))
    (told,) = [item for item in result.conflicts if from_wire(item.path) == b"P"]
    assert (told.reason, told.detail) == ("cancelled", "what stood there was removed; undo brings it back")
    desk.reopen()
    desk.undo()
    assert before.differences() == []


def test_what_was_removed_before_the_disk_was_full_comes_back(desk):
    saved = file_to_directory(desk)
    before = Copy(desk)

    def hook(name, _path):
        if name == "before-mkdir":
            raise OSError(28, "No space left on device")

    desk.configure(hooks=hook)
    result = desk.reset(saved)
    desk.configure(hooks=lambda _name, _path: None)
    assert (b"P", "no_space") in left_out(result.conflicts)
    desk.undo()
    assert before.differences() == []


def test_a_new_directory_whose_permissions_could_not_be_set_goes_again(desk):
    desk.write(b"d/x", b"old")
    os.chmod(desk.path(b"d"), 0o500)
    saved = desk.save().id
    os.chmod(desk.path(b"d"), 0o700)
    desk.remove(b"d")
    before = Copy(desk)
    result = reset_cancelled(desk, saved, lambda name, path: (name, path) == ("created", b"d/x"))
    assert names(result.written) == [b"d/x"]
    desk.undo()
    assert before.differences() == []


def test_damaged_content_is_found_before_the_directory_in_its_place_goes(desk):
    desk.damaged = True
    desk.write(b"D", os.urandom(40_000))
    saved = desk.save().id
    folder = os.path.join(desk.folder, b"objects/pack")
    (pack,) = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(b".pack")]
    desk.remove(b"D")
    desk.mkdir(b"D")
    desk.save()
    desk.close()
    os.chmod(pack, 0o600)
    with open(pack, "r+b") as file:
        file.seek(9000)
        byte = file.read(1)
        file.seek(9000)
        file.write(bytes([byte[0] ^ 1]))
    with refused(desk, "store_damaged", b"D"):
        desk.reset(saved)
    assert os.path.isdir(desk.path(b"D"))


def test_whoever_opens_the_store_sees_what_was_cut_off(desk):
    saved = old_and_mine(desk)
    assert desk.open().interrupted is None
    die(desk, lambda: desk.reset(saved))
    safety = desk.status().interrupted
    assert safety is not None
    assert desk.open().interrupted == safety
    desk.undo()
    desk.reopen()
    assert desk.open().interrupted is None


@pytest.mark.parametrize("nth", [1, 2])
def test_a_resumed_reset_that_is_cancelled_is_taken_back_to_before_its_first_pass(desk, nth):
    saved = old_and_mine(desk)
    before, count = Copy(desk), itertools.count(1)
    die(desk, lambda: desk.reset(saved), nth=2)
    assert before.differences() != []

    def call(fields, caller):
        return desk.writer.resume(worktree_wire.ResumeParams(**fields, action="finish"), caller)

    with pytest.raises(DomainError, match=r"^cancelled: "):
        _call_off(desk, call, lambda name, _path: name == "unlinked" and next(count) == nth)
    assert (before.differences(), desk.status().interrupted) == ([], None)
    with refused(desk, "nothing_to_undo"):
        desk.undo()


def everything_turns(desk):
    """A checkpoint from which everything differs now: files, links, modes, directories, and kinds of things."""
    for name in (b"f", b"d/f", b"d/e/g", b"turns/x", b"gone/deep/x", b"locked/x"):
        desk.write(name, b"old " + name)
    desk.link(b"link", b"old target")
    desk.write(b"becomes a directory", b"old")
    desk.mkdir(b"empty")
    os.chmod(desk.path(b"locked"), 0o500)
    saved = desk.save().id
    os.chmod(desk.path(b"locked"), 0o700)
    for name in (b"f", b"d/f", b"d/e/g", b"locked/x"):
        desk.write(name, b"mine " + name, 0o600)
    for name in (b"turns/x", b"gone/deep/x", b"link", b"becomes a directory"):
        desk.remove(name)
    for folder in (b"turns", b"gone/deep", b"gone", b"empty"):
        os.rmdir(desk.path(folder))
    desk.write(b"turns", b"a file now")
    desk.write(b"link", b"no link now")
    desk.write(b"becomes a directory/y", b"mine")
    desk.link(b"new link", b"mine")
    desk.write(b"new/deep/z", b"mine")
    desk.mkdir(b"new/empty")
    os.chmod(desk.path(b"d"), 0o750)
    return saved


@pytest.mark.parametrize("point", range(1, 140, 6))
def test_wherever_a_reset_is_cancelled_all_is_as_it_was_or_all_is_done(desk, point):
    """Some 130 steps of the writer are passed, half of them before the last file is final."""
    saved = everything_turns(desk)
    before, head = Copy(desk), desk.save("mine").id
    count = itertools.count(1)
    refusal = None
    try:
        reset_called_off(desk, saved, lambda _name, _path: next(count) == point)
    except DomainError as error:
        refusal = error
    assert point > 60 or refusal is not None
    if refusal is not None:
        assert refusal.kind == "cancelled"
        assert before.differences() == []
        assert desk.head() == head
        assert desk.status().interrupted is None
        desk.reset(saved)
    assert content(desk, b"turns/x") == b"old turns/x"
    desk.undo()
    assert before.differences() == []
