"""The engine's side of autosave: what is never saved by itself, what a restore has left, what is worth watching."""

import os
import shutil

import msgspec
import pytest

from ckpt_protocol.checkpoint import SaveParams
from ckpt_protocol.structs import Worktree, to_wire
from ckptd.autosave import Autosave, AutosaveWishes
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.store.metadata import read_metadata
from ckptd.shadow.store.settings import Overrides

pytestmark = pytest.mark.core


def autosave(desk):
    params = SaveParams(
        checkpoint_dir=to_wire(desk.checkpoint_dir),
        worktree=Worktree(path=to_wire(desk.root)),
        token=os.urandom(16).hex(),
        kind="auto",
    )
    return desk.writer.autosave(params, Caller("ckptd"))


def kind_of(desk):
    with pytest.raises(DomainError) as caught:
        autosave(desk)
    return caught.value.kind


@pytest.fixture
def saved(desk):
    for name in (b"a", b"src/b", b"src/deep/c", b"doc/d"):
        desk.write(name, name)
    desk.save()
    return desk


def test_an_autosave_is_a_checkpoint_where_something_has_changed(saved):
    assert not autosave(saved).created
    saved.write(b"a", b"2")
    made = autosave(saved)
    assert made.created
    record = saved.show(made.id).checkpoint
    assert (record.kind, record.client) == ("auto", "ckptd")
    assert saved.head() == made.id
    assert not autosave(saved).created


def test_what_a_rollback_has_left_is_not_saved_and_an_edit_beside_it_is(saved):
    first = saved.head()
    saved.write(b"src/b", b"2")
    saved.remove(b"doc/d")
    saved.write(b"src/new/x", b"2")
    autosave(saved)
    saved.rollback(first, b"src/b", b"doc")
    assert not autosave(saved).created
    saved.reopen()
    assert not autosave(saved).created
    saved.write(b"a", b"somebody")
    assert autosave(saved).created


@pytest.mark.parametrize("edit", ["beside", "over", "mkdir", "delete"])
def test_an_edit_between_a_restore_and_the_look_is_saved(saved, edit):
    first = saved.head()
    saved.write(b"src/b", b"2")
    autosave(saved)
    saved.rollback(first, b"src/b")
    if edit == "beside":
        saved.write(b"a", b"somebody")
    elif edit == "over":
        saved.write(b"src/b", b"somebody")
    elif edit == "mkdir":
        saved.mkdir(b"empty")
    else:
        saved.remove(b"src/b")
    assert autosave(saved).created


def test_resets_undos_and_redos_leave_nothing_to_save(saved):
    first = saved.head()
    saved.write(b"src/b", b"2")
    saved.mkdir(b"empty")
    shutil.rmtree(saved.path(b"doc"))
    autosave(saved)
    for step in (lambda: saved.reset(first), saved.undo, saved.redo, saved.undo):
        step()
        assert not autosave(saved).created


def test_an_older_state_that_a_restore_had_left_is_saved_when_somebody_makes_it_again(saved):
    first = saved.head()
    saved.write(b"a", b"2")
    autosave(saved)
    saved.rollback(first, b"a")
    assert not autosave(saved).created
    saved.write(b"a", b"3")
    autosave(saved)
    saved.write(b"a", b"a")
    assert autosave(saved).created


def test_a_restore_with_ignored_files_in_it_leaves_nothing_to_save(saved):
    saved.write(b"x.log", b"1")
    with_log = saved.save().id
    saved.write(b".gitignore", b"*.log\n")
    autosave(saved)
    saved.write(b"x.log", b"2")
    saved.rollback(with_log, b"x.log")
    assert not autosave(saved).created


def test_a_replaced_worktree_is_not_saved_until_somebody_does(saved):
    os.rename(saved.root, saved.root + b".old")
    os.mkdir(saved.root)
    saved.write(b"a", b"of another")
    assert kind_of(saved) == "worktree_replaced"
    saved.save()
    saved.write(b"a", b"2")
    assert autosave(saved).created
    saved.reopen()
    assert not autosave(saved).created
    shutil.rmtree(saved.root + b".old")


def test_one_that_was_given_the_same_inode_is_another_all_the_same(saved):
    """File systems give the number of a directory that is gone to the next one that is made."""
    metadata = saved.repo.metadata
    assert metadata.birth is not None
    saved.repo.metadata = msgspec.structs.replace(metadata, birth=str(int(metadata.birth) - 1))
    assert kind_of(saved) == "worktree_replaced"
    (told,) = saved.status().notes
    assert "another directory" in told
    assert told in saved.save().notes
    assert saved.status().notes == []
    saved.write(b"a", b"2")
    assert autosave(saved).created


def test_one_that_comes_right_before_the_scan_is_not_saved(saved):
    before = saved.list().checkpoints
    looked = saved.repo.is_replaced

    def look_too_early() -> bool:
        found = looked()
        os.rename(saved.root, saved.root + b".old")
        os.mkdir(saved.root)
        saved.write(b"a", b"of another")
        return found

    saved.write(b"a", b"2")
    saved.repo.is_replaced = look_too_early
    assert kind_of(saved) == "worktree_replaced"
    saved.repo.is_replaced = looked
    assert saved.list().checkpoints == before
    shutil.rmtree(saved.root + b".old")


def test_a_missing_or_emptied_worktree_is_not_saved(saved):
    for name in (b"a", b"src", b"doc"):
        path = saved.path(name)
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    assert kind_of(saved) == "worktree_empty"
    os.rename(saved.root, saved.root + b".old")
    assert kind_of(saved) == "worktree_missing"
    os.rename(saved.root + b".old", saved.root)


def test_rules_that_drop_most_are_not_followed_until_somebody_agrees(saved):
    saved.write(b".gitignore", b"src/\ndoc/\n")
    assert kind_of(saved) == "rules_drop"
    assert kind_of(saved) == "rules_drop"
    saved.writer.set_autosave(True)
    assert autosave(saved).created
    saved.write(b".gitignore", b"")
    autosave(saved)
    saved.write(b".gitignore", b"src/\ndoc/\n")
    assert kind_of(saved) == "rules_drop"
    saved.save()
    assert not autosave(saved).created


def test_the_store_remembers_whether_it_is_wanted(saved):
    assert saved.writer.set_autosave(True) == Autosave(True, 2.0, 30.0)
    assert read_metadata(saved.folder).autosave is True
    saved.configure(autosave=Autosave(False, 1.0, 9.0))
    assert saved.repo.autosave() == Autosave(True, 1.0, 9.0)
    saved.writer.set_autosave(False)
    wishes = AutosaveWishes(True, 0.5, None)
    saved.configure(overrides_of=lambda _root: Overrides(autosave=wishes))
    assert saved.repo.autosave() == Autosave(False, 0.5, 9.0)


def test_a_store_of_before_follows_the_options(saved):
    assert read_metadata(saved.folder).autosave is None
    saved.configure(autosave=Autosave(True, 1.0, 9.0))
    assert saved.repo.autosave().on


def test_what_is_worth_watching_is_what_a_scan_walks(saved):
    saved.write(b".gitignore", b"out/\n*.o\n")
    saved.write(b"out/deep/x", b"1")
    saved.write(b"src/b.o", b"1")
    saved.write(b".git/config", b"1")
    saved.mkdir(b"empty")
    saved.save()
    plan = saved.writer.watch_plan()
    assert sorted(plan.directories) == [b"", b"doc", b"empty", b"src", b"src/deep"]
    for path in (b"out", b"out/deep/y", b"src/b.o", b".git", b".git/index"):
        assert plan.leaves_out(path), path
    for path in (b"", b"a", b"src", b"src/new.c", b"new", b"src/deep/new/x", b"a/below-a-file"):
        assert not plan.leaves_out(path), path
    assert [path for path in (b"", b"src", b"src/deep", b"a", b"gone", b"a/x") if plan.is_directory(path)] == [
        b"",
        b"src",
        b"src/deep",
    ]


def test_before_the_first_scan_there_is_the_root_to_watch(desk):
    desk.open()
    plan = desk.writer.watch_plan()
    assert list(plan.directories) == [b""]
    assert not plan.leaves_out(b"anything")


def test_the_same_is_said_of_large_files_with_and_without_autosave(saved):
    saved.configure(max_file_bytes=10)
    saved.write(b"big", b"x" * 11)
    by_itself = autosave(saved)
    by_hand = saved.save()
    assert [item.path for item in by_itself.excluded] == [item.path for item in by_hand.excluded] == ["big"]
