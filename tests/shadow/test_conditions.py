"""What callers make a condition of, and two agents in one worktree."""

import hashlib
import os

import pytest

from ckpt_protocol import checkpoint as wire
from ckpt_protocol.structs import from_wire, to_wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from support.restores import Copy, content, left_out, names, refused, untouched

pytestmark = pytest.mark.core


def blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def expecting(**paths):
    """``name=content`` (None: nothing there); a double underscore is a slash."""
    return [
        wire.Expected(path=name.replace("__", "/"), oid="absent" if data is None else blob(data))
        for name, data in paths.items()
    ]


class Agent:
    """Works on a desk under a session of its own."""

    def __init__(self, desk, session):
        self._desk = desk
        self._caller = lambda: Caller(session or "nobody", session)

    def save(self, message=None, **fields):
        return self._desk.save(message, caller=self._caller(), **fields).id

    def reset(self, id, **fields):
        return self._desk.writer.restore(wire.RestoreParams(**self._params(id=id, **fields)), self._caller())

    def rollback(self, id, *paths, **fields):
        return self.reset(id, paths=[to_wire(path) for path in paths], **fields)

    def undo(self, **fields):
        return self._desk.writer.undo(wire.StepParams(**self._params(**fields)), self._caller())

    def redo(self, **fields):
        return self._desk.writer.redo(wire.StepParams(**self._params(**fields)), self._caller())

    def _params(self, **fields):
        return {**self._desk.common(), "token": self._desk.token(), **fields}


@pytest.fixture
def ada(desk):
    return Agent(desk, "ada")


@pytest.fixture
def bob(desk):
    return Agent(desk, "bob")


# -- expect_head


def test_somebody_elses_checkpoint_refuses_whatever_is_asked(desk, ada, bob):
    desk.write(b"f", b"1")
    seen = ada.save()
    desk.write(b"f", b"2")
    newer = bob.save("by bob")
    desk.write(b"f", b"3")
    for ask in (
        lambda: ada.save(expect_head=seen),
        lambda: ada.reset(seen, expect_head=seen),
        lambda: ada.reset(seen, expect_head=seen, dry_run=True),
        lambda: ada.rollback(seen, b"f", expect_head=seen),
    ):
        with refused(desk, "precondition_failed") as caught:
            ask()
        assert newer[:12] in caught.value.message
        assert "bob" in caught.value.message
    assert ada.reset(seen, expect_head=newer).written == ["f"]


def test_autosaves_and_the_callers_own_do_not_count(desk, ada, bob):
    desk.write(b"f", b"1")
    seen = bob.save()
    desk.write(b"f", b"2")
    bob.save(kind="auto")
    desk.write(b"f", b"3")
    own = ada.save(expect_head=seen)
    desk.write(b"f", b"4")
    ada.reset(own, expect_head=seen)
    ada.undo(expect_head=seen)
    ada.redo(expect_head=own)
    with pytest.raises(DomainError, match=r"^precondition_failed"):
        bob.save(expect_head=seen)
    with pytest.raises(DomainError, match=r"^precondition_failed"):
        bob.undo(expect_head=seen)


def test_a_restore_of_somebody_else_counts_by_its_safety_checkpoint(desk, ada, bob):
    desk.write(b"f", b"1")
    seen = ada.save()
    desk.write(b"f", b"2")
    bob.reset(seen)
    with refused(desk, "precondition_failed"):
        ada.reset(seen, expect_head=seen)


def test_callers_without_a_session_are_not_each_other(desk):
    desk.write(b"f", b"1")
    seen = desk.save().id
    desk.write(b"f", b"2")
    desk.save()
    with refused(desk, "precondition_failed"):
        desk.reset(expect_head=seen)
    desk.reset(expect_head="HEAD")


def test_a_head_that_is_no_checkpoint_is_said(desk, ada):
    desk.write(b"f", b"1")
    ada.save()
    with refused(desk, "unknown_checkpoint"):
        ada.reset("HEAD", expect_head="0123456789")


def test_a_log_that_has_lost_who_it_was_takes_nobody_for_the_caller(desk, ada):
    desk.write(b"f", b"1")
    seen = ada.save()
    desk.write(b"f", b"2")
    ada.save()
    desk.close()
    os.unlink(os.path.join(desk.folder, b"ckpt/log"))
    with refused(desk, "precondition_failed"):
        ada.reset(seen, expect_head=seen)


# -- expect


def test_paths_are_compared_by_content_and_a_mismatch_changes_nothing(desk, ada):
    desk.write(b"a", b"1")
    desk.write(b"d/b", b"1")
    desk.link(b"l", b"target")
    saved = ada.save()
    desk.write(b"a", b"2")
    fine = expecting(a=b"2", d__b=b"1", l=b"target", gone=None, d__gone=None, a__below=None)
    with refused(desk, "precondition_failed", b"a", b"d", b"l", b"new") as caught:
        ada.reset(saved, expect=expecting(a=b"1", d=None, l=b"other", new=b"", d__b=b"1"))
    assert "a, d, l and 1 more" in caught.value.message
    with untouched(desk):
        ada.reset(saved, expect=fine, dry_run=True)
    assert names(ada.reset(saved, expect=fine).written) == [b"a"]
    with refused(desk, "precondition_failed", b"a"):
        ada.undo(expect=expecting(a=b"2"))
    with refused(desk, "precondition_failed", b"a"):
        ada.save(expect=expecting(a=b"2"))
    ada.undo(expect=expecting(a=b"1"))
    with refused(desk, "precondition_failed", b"a"):
        ada.redo(expect=expecting(a=b"1"))


def test_ignored_and_special_things_are_looked_at(desk, ada):
    desk.write(b".gitignore", b"*.log\n")
    saved = ada.save()
    desk.write(b"x.log", b"hidden")
    os.mkfifo(desk.path(b"pipe"))
    ada.reset(saved, expect=expecting(**{"x.log": b"hidden"}))
    with refused(desk, "precondition_failed", b"pipe", b"x.log"):
        ada.reset(saved, expect=expecting(**{"x.log": None}, pipe=None))
    os.unlink(desk.path(b"pipe"))


def test_what_was_accepted_goes_on_after_a_crash(desk):
    from support.worktrees import in_child

    desk.write(b"a", b"1")
    desk.write(b"b/b", b"1")
    saved = desk.save().id
    desk.write(b"a", b"2")
    desk.write(b"b/b", b"2")
    token, expected = desk.token(), expecting(a=b"2", b__b=b"2")
    desk.configure(hooks=lambda name, _path: os._exit(9) if name == "unlinked" else None)
    in_child(lambda: desk.reset(saved, token=token, expect=expected, expect_head=saved))
    desk.configure(hooks=lambda _name, _path: None)
    desk.open(create=False)
    assert {from_wire(path) for path in desk.reset(saved, token=token, expect=expected).written} == {b"a", b"b/b"}
    assert (content(desk, b"a"), content(desk, b"b/b")) == (b"1", b"1")


def test_a_worktree_that_is_to_be_made_again_holds_nothing(desk, ada):
    desk.write(b"a", b"1")
    saved = ada.save()
    os.unlink(desk.path(b"a"))
    os.rmdir(desk.root)
    with pytest.raises(DomainError, match=r"^precondition_failed"):
        ada.reset(saved, recreate=True, dry_run=True, expect=expecting(a=b"1"))
    assert not os.path.exists(desk.root)
    ada.reset(saved, recreate=True, expect=expecting(a=None))
    assert content(desk, b"a") == b"1"


def test_an_undo_that_only_moves_head_has_conditions_too(desk, ada, bob):
    desk.write(b"a", b"1")
    first = ada.save()
    desk.write(b"a", b"2")
    ada.save()
    desk.write(b"a", b"1")
    ada.reset(first)
    with refused(desk, "precondition_failed", b"a"):
        ada.undo(expect=expecting(a=b"2"))
    desk.write(b"a", b"3")
    bob.save()
    with refused(desk, "precondition_failed"):
        ada.undo(expect_head=first)


# -- sessions


def test_two_agents_undo_their_own_work_and_leave_the_others(desk, ada, bob):
    desk.write(b"a", b"0")
    desk.write(b"b", b"0")
    first = desk.save().id
    desk.write(b"a", b"ada")
    desk.write(b"b", b"bob")
    ada.rollback(first, b"a")
    bob.rollback(first, b"b")
    assert ada.undo(session="ada").written == ["a"]
    assert (content(desk, b"a"), content(desk, b"b")) == (b"ada", b"0")
    assert ada.redo(session="ada").written == ["a"]
    assert bob.undo(session="bob").written == ["b"]
    assert (content(desk, b"a"), content(desk, b"b")) == (b"0", b"bob")
    for kind, step in (("nothing_to_redo", ada.redo), ("nothing_to_undo", bob.undo)):
        with refused(desk, kind):
            step(session="ada" if kind == "nothing_to_redo" else "bob")


def test_what_others_changed_since_is_in_conflict(desk, ada, bob):
    desk.write(b"a", b"0")
    desk.write(b"b", b"0")
    first = desk.save().id
    desk.write(b"a", b"1")
    desk.write(b"b", b"1")
    ada.reset(first)
    desk.write(b"b", b"by bob")
    bob.save()
    with refused(desk, "conflicts", b"b"):
        ada.undo(session="ada")
    plan = ada.undo(session="ada", skip_conflicts=True, dry_run=True)
    assert (plan.written, left_out(plan.conflicts), plan.edited) == (["a"], [(b"b", "edited")], [])
    ada.undo(session="ada", skip_conflicts=True, digest=plan.digest)
    assert (content(desk, b"a"), content(desk, b"b")) == (b"1", b"by bob")


def test_an_undo_of_which_everything_was_left_out_is_still_to_be_done(desk, ada, bob):
    desk.write(b"a", b"0")
    first = desk.save().id
    desk.write(b"a", b"1")
    ada.reset(first)
    desk.write(b"a", b"by bob")
    for _ in range(2):
        result = ada.undo(session="ada", skip_conflicts=True)
        assert (result.written, left_out(result.conflicts), result.safety) == ([], [(b"a", "edited")], None)
    assert content(desk, b"a") == b"by bob"
    desk.write(b"a", b"0")
    assert ada.undo(session="ada").written == ["a"]


def test_without_a_session_the_newest_is_taken_back_whoever_it_was(desk, ada, bob):
    desk.write(b"a", b"0")
    first = desk.save().id
    desk.write(b"a", b"1")
    before = Copy(desk)
    bob.reset(first)
    ada.undo()
    assert before.differences() == []


def test_who_acts_for_a_session_acts_as_that_session(desk, ada):
    desk.write(b"a", b"0")
    first = desk.save().id
    desk.write(b"a", b"1")
    ada.reset(first)
    desk.undo(session="ada")
    desk.redo(session="ada")
    assert content(desk, b"a") == b"0"
    with refused(desk, "nothing_to_undo"):
        desk.undo(session="bob")
