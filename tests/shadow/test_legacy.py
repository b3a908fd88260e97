"""Checkpoints of version 0.3.6: found, listed, compared and restored from a folder that stays as it was."""

import os
import shutil

import pytest

from ckpt_protocol.checkpoint import RestoreParams
from ckpt_protocol.structs import from_wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.record.legacyfolder import config_values, legacy_folders
from support.legacy_store import LegacyStore
from support.worktrees import Desk, git_tree, run_git

pytestmark = pytest.mark.core


@pytest.fixture
def old(desk: Desk):
    """Three old checkpoints, of which a reset has taken two out of the history, and a fourth after it.

    Whatever a test does, the folder is as it was at the end, unless the test has removed it.
    """
    store = LegacyStore(desk.checkpoint_dir, desk.root)
    desk.write(b".gitignore", b"*.log\n")
    desk.write(b"a.txt", b"one\n")
    desk.write(b"sub/run.sh", b"#!/bin/sh\n", 0o755)
    desk.link(b"link", b"a.txt")
    desk.write(b"x.log", b"ignored\n")
    store.first = store.save("first")
    desk.write(b"a.txt", b"two\n")
    store.second = store.save("second\n\nwith a body")
    desk.write(b"a.txt", b"three\n")
    desk.write(b"new.txt", b"new\n")
    store.third = store.save()
    store.reset(store.first)
    desk.write(b"a.txt", b"four\n")
    store.fourth = store.save("fourth")
    store.all = [store.first, store.second, store.third, store.fourth]
    before = store.shape()
    yield store
    if os.path.isdir(store.folder):
        assert store.shape() == before


def listed(desk: Desk, **fields) -> list[str]:
    return [one.id for one in reversed(desk.list(**fields).checkpoints)]


def read(desk: Desk, path: bytes) -> bytes:
    with open(desk.path(path), "rb") as file:
        return file.read()


# -- finding


def test_a_worktree_with_old_checkpoints_alone_is_not_tracked_and_the_error_names_them(desk, old):
    with pytest.raises(DomainError, match=r"4 checkpoints of 0\.3\.6") as caught:
        desk.open(create=False)
    assert caught.value.kind == "not_tracked"
    assert "save" in caught.value.hint
    assert desk.catalog().list(desk.checkpoint_dir).workspaces == []


def test_without_old_checkpoints_the_error_says_nothing_of_them(desk):
    with pytest.raises(DomainError, match=r"is not tracked$"):
        desk.open(create=False)


def test_the_folder_of_another_worktree_is_not_taken(desk, old):
    other = os.path.join(desk.base, b"other", os.path.basename(desk.root))
    os.makedirs(other)
    assert legacy_folders(desk.checkpoint_dir, desk.root) == [old.folder]
    assert legacy_folders(desk.checkpoint_dir, other) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_that_another_user_has_put_there_is_not_taken(desk, old):
    os.chown(old.folder, 65534, 65534)
    assert legacy_folders(desk.checkpoint_dir, desk.root) == []
    os.chown(old.folder, os.geteuid(), os.getegid())
    assert legacy_folders(desk.checkpoint_dir, desk.root) != []


def test_a_folder_under_another_name_of_the_worktree_counts_too(desk, old):
    alias = os.path.join(desk.base, b"alias")
    os.symlink(desk.root, alias)
    other = LegacyStore(desk.checkpoint_dir, alias, "ffffffff")
    desk.write(b"only here", b"!\n")
    fifth = other.save("by another name")
    os.remove(desk.path(b"only here"))
    desk.open()
    assert set(listed(desk)) == {*old.all, fifth}
    assert desk.cat(fifth, b"only here") == b"!\n"


@pytest.mark.parametrize("config", [
    b"[core]\n\tbare = true\n\tworktree = %s\n",
    b"[core]\n\tbare = false\n[include]\n\tpath = other\n",
    b'[core "x"]\n\tbare = false\n\tworktree = %s\n',
    b"[core]\n\tbare = false\n\tworktree = relative\n",
    b"",
])  # fmt: skip
def test_a_folder_that_does_not_say_itself_whose_it_is_is_nobody_s(desk, config):
    folder = os.path.join(desk.checkpoint_dir, b"ws_01234567")
    os.mkdir(folder)
    for name, text in ((b"config", config), (b"other", b"[core]\n\tworktree = %s\n")):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(text % desk.root if b"%s" in text else text)
    assert legacy_folders(desk.checkpoint_dir, desk.root) == []
    shutil.rmtree(folder)


@pytest.mark.parametrize(("name", "data"), [
    (b"ws_0123456789abcdef", b"x"), (b"ws_0123456", b"x"), (b"ws", b"x"), (b"ws_01234567", None),
])  # fmt: skip
def test_other_names_and_things_without_a_configuration_are_passed_over(desk, name, data):
    folder = os.path.join(desk.checkpoint_dir, name)
    os.mkdir(folder)
    if data is not None:
        with open(os.path.join(folder, b"config"), "wb") as file:
            file.write(b"[core]\n\tbare = false\n\tworktree = " + desk.root)
    assert legacy_folders(desk.checkpoint_dir, desk.root) == []
    shutil.rmtree(folder)


@pytest.mark.parametrize("path", [
    "/plain", "/with space", "/trailing space ", '/quo"te', "/back\\slash", "/semi;colon", "/hash#tag", "/tab\tin it",
    "/é", "/line\nfeed", "/[core]", "/a = b", "/ lead",
])  # fmt: skip
def test_values_are_read_as_git_writes_them(short_dir, path):
    file = short_dir / "config"
    run_git("config", "-f", str(file), "core.worktree", path)
    run_git("config", "-f", str(file), "other.worktree", "no")
    assert config_values(file.read_bytes())[b"core.worktree"] == path.encode()


def test_odd_spellings_are_read_as_git_reads_them(short_dir):
    text = b'[CORE]\n  WorkTree=/a "b ; c" d  ; comment\n# worktree = no\n[core] bare = false # yes\n[x "y\\"]"]\nz=1\n'
    (short_dir / "config").write_bytes(text)
    values = config_values(text)
    for name in ("core.worktree", "core.bare"):
        told = run_git("config", "-f", str(short_dir / "config"), name).rstrip(b"\n")
        assert values[name.encode()] == told


# -- reading


def test_a_list_has_them_first_and_marked_in_the_order_in_which_they_were_made(desk, old):
    ours = desk.save("ours").id
    records = desk.list().checkpoints
    assert [(one.id, one.legacy) for one in records] == [(ours, False), *((one, True) for one in reversed(old.all))]
    assert [one.seq for one in records] == [1, 0, -1, -2, -3]
    assert [one.message for one in records[1:]] == ["fourth", None, "second\n\nwith a body", "first"]
    assert {(one.kind, one.client, one.complete) for one in records[1:]} == {
        ("manual", "fabricatio-checkpoint 0.3.6", True)
    }
    assert old.beginning not in listed(desk)


def test_a_list_can_be_read_page_by_page(desk, old):
    desk.save("ours")
    found, before = [], None
    while True:
        page = desk.list(limit=2, before_seq=before)
        found += [one.id for one in page.checkpoints]
        if not page.more:
            break
        before = page.checkpoints[-1].seq
    assert found == listed(desk)[::-1]


def test_a_list_of_a_path_compares_them_with_each_other(desk, old):
    desk.open()
    assert listed(desk, paths=[b"new.txt"]) == [old.third]
    assert listed(desk, paths=[b"sub"]) == [old.first]


def test_show_cat_and_diff_take_their_ids(desk, old):
    desk.open()
    shown = desk.show(old.second[:7])
    assert (shown.checkpoint.id, shown.checkpoint.legacy, shown.base) == (old.second, True, old.first)
    assert [(one.path, one.change) for one in shown.changes] == [("a.txt", "modified")]
    assert {one.path for one in desk.show(old.first).changes} == {".gitignore", "a.txt", "link", "sub/run.sh"}
    assert desk.cat(old.third, b"new.txt") == b"new\n"
    assert desk.diff(from_id=old.first, to_id=old.second) == old.git(
        "diff", "--no-color", "--full-index", old.first, old.second
    )
    assert b"-three\n+four\n" in desk.diff(from_id=old.third)


def test_there_is_no_head_before_a_save_and_no_number_names_them(desk, old):
    desk.open()
    assert desk.status().head is None
    for name in ("HEAD", "#0"):
        with pytest.raises(DomainError):
            desk.show(name)
    desk.save("ours")
    assert desk.show("HEAD~1").checkpoint.id == old.fourth
    assert desk.show("HEAD").checkpoint.base is None


def test_packed_objects_and_refs_are_read(desk, old):
    before = listed(desk) if desk.open() else []
    desk.close()
    packed = os.path.join(desk.checkpoint_dir, b"ws_11111111")
    shutil.copytree(old.folder, packed)
    shutil.move(old.folder, os.path.join(desk.base, b"aside"))
    run_git(b"--git-dir=" + packed, "gc", "-q", "--aggressive")
    desk.open()
    assert listed(desk) == before
    assert desk.cat(old.third, b"new.txt") == b"new\n"


def test_what_0_3_6_saves_while_the_store_is_open_is_seen(desk):
    store = LegacyStore(desk.checkpoint_dir, desk.root)
    desk.write(b"a", b"1")
    first = store.save("one")
    desk.open()
    assert listed(desk) == [first]
    desk.write(b"a", b"2")
    second = store.save("two")
    assert listed(desk) == [first, second]
    assert desk.cat(second, b"a") == b"2"


def test_a_damaged_commit_is_counted_and_the_others_are_listed(desk, old):
    os.remove(old.object_path(old.fourth))
    desk.open()
    result = desk.list()
    assert result.damaged == 1
    assert [one.id for one in result.checkpoints] == [old.third, old.second, old.first]
    shutil.rmtree(old.folder)


# -- restoring


def test_a_reset_brings_one_back_and_what_is_there_can_be_undone(desk, old):
    desk.write(b"later.txt", b"later\n")
    ours = desk.save("ours").id
    desk.write(b"a.txt", b"edited\n")
    done = desk.reset(old.third)
    assert (
        git_tree(desk.root, lambda path: path == b"x.log")
        == old.git("rev-parse", f"{old.third}^{{tree}}").decode().strip()
    )
    assert (read(desk, b"a.txt"), read(desk, b"x.log")) == (b"three\n", b"ignored\n")
    assert not os.path.lexists(desk.path(b"later.txt"))
    assert "x.log" in done.kept
    copy = desk.show(done.head).checkpoint
    assert (copy.legacy, copy.kind, copy.meta) == (False, "manual", {"legacy": old.third})
    assert desk.head() == copy.id == done.target
    desk.undo()
    assert (read(desk, b"a.txt"), read(desk, b"later.txt")) == (b"edited\n", b"later\n")
    assert desk.head() == ours
    desk.redo()
    assert read(desk, b"a.txt") == b"three\n"


def test_a_plan_writes_nothing_and_is_the_one_that_is_done(desk, old):
    desk.save("ours")
    before = listed(desk)
    plan = desk.reset(old.second, dry_run=True)
    assert listed(desk) == before
    done = desk.reset(old.second, digest=plan.digest)
    assert (done.written, done.deleted) == (plan.written, plan.deleted) == (["a.txt"], [])


def test_a_rollback_brings_paths_back_and_leaves_head(desk, old):
    ours = desk.save("ours").id
    desk.rollback(old.third[:10], b"new.txt")
    assert (read(desk, b"new.txt"), read(desk, b"a.txt")) == (b"new\n", b"four\n")
    assert desk.head() == ours


def test_a_first_restore_needs_no_save_before_it(desk, old):
    desk.open()
    desk.write(b"a.txt", b"unsaved\n")
    done = desk.reset(old.first)
    assert read(desk, b"a.txt") == b"one\n"
    assert desk.cat(done.safety, b"a.txt") == b"unsaved\n"
    desk.undo()
    assert read(desk, b"a.txt") == b"unsaved\n"


def test_head_is_the_same_after_the_store_is_opened_again(desk, old):
    desk.open()
    desk.rollback(old.first, b"a.txt")
    (copy,) = [one for one in desk.list().checkpoints if one.kind == "manual" and not one.legacy]
    assert desk.head() == copy.id
    desk.reopen()
    assert desk.head() == copy.id
    ours = desk.save("ours").id
    desk.rollback(old.second, b"a.txt")
    desk.reopen()
    assert desk.head() == ours


def test_a_restore_that_is_cancelled_while_it_copies_changes_nothing(desk, old):
    desk.open()
    before, ids = git_tree(desk.root), listed(desk)
    caller = Caller("test")
    caller.cancelled.set()
    params = RestoreParams(**desk.common(), token=desk.token(), id=old.first)
    with pytest.raises(DomainError) as caught:
        desk.writer.restore(params, caller)
    assert caught.value.kind == "cancelled"
    assert (git_tree(desk.root), listed(desk)) == (before, ids)


def test_it_is_copied_once_and_outlives_the_old_folder(desk, old):
    desk.save("ours")
    copy = desk.reset(old.first).head
    assert desk.reset(old.first).head == copy
    assert desk.show(old.first).checkpoint.id == copy
    desk.close()
    shutil.rmtree(old.folder)
    desk.write(b"a.txt", b"edited\n")
    assert desk.reset(old.first[:12]).head == copy
    assert read(desk, b"a.txt") == b"one\n"
    with pytest.raises(DomainError, match="no checkpoint"):
        desk.show(old.second)


def test_a_save_after_a_reset_compares_with_it(desk, old):
    desk.open()
    desk.reset(old.first)
    assert desk.changes() == []
    desk.write(b"a.txt", b"five\n")
    assert desk.changes() == [(b"a.txt", "modified", False)]


def test_permissions_that_were_not_recorded_stay(desk, old):
    desk.write(b"a.txt", b"secret\n", 0o600)
    os.chmod(desk.path(b"sub"), 0o700)
    desk.open()
    desk.reset(old.first)
    assert os.stat(desk.path(b"a.txt")).st_mode & 0o777 == 0o600
    assert os.stat(desk.path(b"sub")).st_mode & 0o777 == 0o700
    assert os.stat(desk.path(b"sub/run.sh")).st_mode & 0o777 == 0o755
    desk.reopen()
    desk.write(b"a.txt", b"again\n")
    desk.reset()
    assert os.stat(desk.path(b"a.txt")).st_mode & 0o777 == 0o600


def test_what_its_rules_ignored_is_kept_although_nothing_ignores_it_now(desk, old):
    os.remove(desk.path(b".gitignore"))
    desk.save("with the log")
    done = desk.reset(old.first)
    assert read(desk, b"x.log") == b"ignored\n"
    assert [from_wire(path) for path in done.kept] == [b"x.log"]


def test_the_user_s_own_rules_count_as_its_rules_although_they_are_overruled_now(desk, old):
    excludes = os.path.join(desk.base, b"excludes")
    with open(excludes, "wb") as file:
        file.write(b"*.tmp\n")
    desk.configure(git_excludes_path=excludes)
    desk.write(b".ckptignore", b"!*.tmp\n")
    desk.write(b"mine.tmp", b"mine\n")
    desk.save("with it")
    result = desk.reset(old.first)
    assert read(desk, b"mine.tmp") == b"mine\n"
    assert (result.deleted, result.kept) == ([".ckptignore"], ["mine.tmp", "x.log"])


def test_the_old_folder_does_not_stand_in_for_a_damaged_store_when_something_is_overwritten(desk):
    """The safety checkpoint must hold it by itself, since the old folder may go."""
    desk.damaged = True
    store, data = LegacyStore(desk.checkpoint_dir, desk.root), os.urandom(5000)
    desk.write(b"a", b"first")
    first = store.save()
    desk.write(b"a", data)
    store.save()
    desk.settle()
    desk.save()
    (pack,) = [name for name in os.listdir(desk.folder + b"/objects/pack") if name.endswith(b".pack")]
    path = os.path.join(desk.folder, b"objects/pack", pack)
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        file.seek(file.read().index(data[1000:1100]))
        file.write(b"\0" * 100)
    desk.reopen()
    result = desk.reset(first)
    shutil.rmtree(store.folder)
    desk.reopen()
    assert read(desk, b"a") == b"first"
    assert desk.cat(result.safety, b"a") == data
    desk.undo()
    assert read(desk, b"a") == data


@pytest.mark.parametrize("dry_run", [True, False])
def test_submodules_count_as_left_out(desk, dry_run):
    store = LegacyStore(desk.checkpoint_dir, desk.root)
    desk.write(b"deep/a", b"1")
    store.git("add", "-A")
    store.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},deep/module")
    commit = store._commit("with a submodule")
    desk.write(b"deep/module/file", b"of the submodule")
    desk.write(b"deep/other", b"later")
    desk.save("ours")
    assert desk.cat(commit, b"deep/a") == b"1"
    assert [one.path for one in desk.show(commit).changes] == ["deep/a"]
    result = desk.reset(commit, dry_run=dry_run)
    assert (result.deleted, result.kept) == (["deep/other"], ["deep/module/"])
    assert read(desk, b"deep/module/file") == b"of the submodule"
    if not dry_run:
        assert [one.reason for one in desk.show(result.head).excluded] == ["submodule"]


def test_a_name_that_must_not_be_restored_is_an_error_and_changes_nothing(desk, old):
    store = LegacyStore(desk.checkpoint_dir, desk.root, "22222222")
    blob = store.git("hash-object", "-w", desk.path(b"a.txt")).strip()
    inner = run_git(b"--git-dir=" + store.folder, "mktree", data=b"100644 blob %s\tconfig\n" % blob).strip()
    outer = run_git(b"--git-dir=" + store.folder, "mktree", data=b"040000 tree %s\t.git\n" % inner).strip()
    evil = store.git("commit-tree", outer, "-m", "evil").decode().strip()
    store.git("update-ref", "refs/heads/evil", evil)
    desk.save("ours")
    before = git_tree(desk.root)
    for dry_run in (True, False):
        with pytest.raises(DomainError, match="must not be restored"):
            desk.reset(evil, dry_run=dry_run)
    assert git_tree(desk.root) == before
    assert [one.legacy for one in desk.list().checkpoints if one.message == "evil"] == [True]


def test_missing_content_stops_the_restore_before_its_first_write(desk, old):
    blob = old.git("rev-parse", f"{old.third}:new.txt").decode().strip()
    desk.save("ours")
    os.remove(old.object_path(blob))
    before, ids = git_tree(desk.root), listed(desk)
    with pytest.raises(DomainError, match="missing"):
        desk.reset(old.third)
    assert (git_tree(desk.root), listed(desk)) == (before, ids)
    assert [one.reason for one in desk.reset(old.third, dry_run=True).conflicts] == ["object_missing"]
    shutil.rmtree(old.folder)


def test_prune_and_forget_leave_the_folder(desk, old):
    desk.save("ours")
    desk.close()
    moved = os.path.join(desk.base, b"moved")
    os.rename(desk.root, moved)
    catalog = desk.catalog()
    assert [from_wire(one.store) for one in catalog.dead(desk.checkpoint_dir).pruned] == [desk.folder]
    with pytest.raises(DomainError):
        catalog.delete(desk.checkpoint_dir, old.folder)
    catalog.delete(desk.checkpoint_dir, desk.folder)
    assert os.listdir(desk.checkpoint_dir) == [os.path.basename(old.folder)]
