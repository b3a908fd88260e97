"""Reset and rollback: what comes back, what stays, what is refused, and that nothing is lost."""

import os
import shutil
import stat

import pytest

from ckpt_protocol.checkpoint import Expected
from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.packindex import PackIndex
from support.plainworld import look
from support.restores import Copy, content, kept, left_out, names, refused, stats, untouched
from support.tiny_disk import tiny_disk
from support.worktrees import Executable, Link, run_git, somebody

pytestmark = pytest.mark.core

GONE = [Expected(path="file", oid="0" * 40)]
ODD = [b"\xff\xfe", b"new\nline", b"x" * 255, b" lead", b'"q"', b"e\xcc\x81", b"\xc3\xa9", b"-", b"*", b"a\\b", b"\t"]


def plant_some(desk) -> None:
    desk.plant(
        {
            b"file": b"text",
            b"empty": b"",
            b"tool": Executable(b"#!"),
            b"link": Link(b"/nowhere/at all"),
            b"dir": {b"sub": {b"deep": b"deep"}, b"hollow": {}, b"x": b"x"},
            b"odd": {name: name for name in ODD},
        }
    )
    for name, bits in ((b"file", 0o640), (b"dir/x", 0o4755), (b"dir/sub", 0o700), (b"dir", 0o1777), (b"empty", 0o444)):
        os.chmod(desk.path(name), bits)


def wreck(desk) -> None:
    """Do to it whatever an agent might."""
    desk.write(b"file", b"other text", 0o600)
    desk.remove(b"dir")
    desk.write(b"dir", b"a file now")
    desk.remove(b"link")
    desk.mkdir(b"link")
    desk.write(b"link/inside", b"new")
    desk.remove(b"empty")
    desk.link(b"empty", b"file")
    desk.remove(b"odd/" + ODD[0])
    desk.mkdir(b"odd/" + ODD[0])
    desk.write(b"odd/" + ODD[1], b"changed")
    os.chmod(desk.path(b"tool"), 0o600)
    desk.write(b"brand/new/file", b"new")
    desk.mkdir(b"brand/hollow")


# -- everything comes back


def test_a_reset_leaves_no_difference_to_a_copy(desk):
    plant_some(desk)
    saved = desk.save().id
    copy = Copy(desk)
    wreck(desk)
    result = desk.reset()
    assert copy.differences() == []
    assert (result.target, result.head, result.kept, result.conflicts) == (saved, saved, [], [])
    assert result.safety is not None


def test_a_second_reset_writes_nothing_and_makes_no_safety_checkpoint(desk):
    plant_some(desk)
    desk.save()
    wreck(desk)
    desk.reset()
    before, count = stats(desk), len(desk.list().checkpoints)
    result = desk.reset()
    assert (result.written, result.deleted, result.safety) == ([], [], None)
    assert stats(desk) == before
    assert len(desk.list().checkpoints) == count


def test_a_reset_right_after_the_first_save_changes_nothing(desk):
    plant_some(desk)
    saved = desk.save().id
    with untouched(desk):
        assert desk.reset(saved, dry_run=True).written == []
    result = desk.reset(saved)
    assert (result.written, result.deleted, result.safety) == ([], [], None)


def test_the_same_checkpoint_can_be_restored_again(desk):
    plant_some(desk)
    saved = desk.save().id
    copy = Copy(desk)
    for _ in range(2):
        wreck(desk)
        desk.reset(saved)
        assert copy.differences() == []


def test_what_does_not_differ_keeps_inode_and_times(desk):
    plant_some(desk)
    desk.save()
    desk.write(b"file", b"changed")
    desk.write(b"new", b"new")
    before = stats(desk)
    result = desk.reset()
    after = stats(desk)
    assert {path for path in before if after.get(path) != before[path]} == {b"file", b"new"}
    assert (names(result.written), names(result.deleted)) == ([b"file"], [b"new"])


def test_the_safety_checkpoint_holds_all_that_went(desk):
    plant_some(desk)
    desk.save()
    wreck(desk)
    wrecked = Copy(desk)
    safety = desk.reset().safety
    desk.reset(safety)
    assert wrecked.differences() == []


def test_an_old_checkpoint_can_be_restored_after_newer_ones_and_head_moves_to_it(desk):
    plant_some(desk)
    first = desk.save().id
    copy = Copy(desk)
    wreck(desk)
    desk.save()
    assert desk.reset(first).head == first
    assert copy.differences() == []
    assert desk.head() == first
    assert desk.changes() == []


@pytest.mark.parametrize("verb", ["reset", "rollback"])
def test_a_dry_run_writes_nothing_anywhere_and_tells_what_will_be_done(desk, verb):
    plant_some(desk)
    saved = desk.save().id
    wreck(desk)

    def call(**fields):
        return desk.reset(saved, **fields) if verb == "reset" else desk.rollback(saved, b"dir", b"file", **fields)

    with untouched(desk):
        planned = call(dry_run=True)
    assert planned.dry_run
    assert planned.safety is None
    done = call(digest=planned.digest)
    assert (done.written, done.deleted, done.digest) == (planned.written, planned.deleted, planned.digest)


def test_another_plan_than_the_callers_changes_nothing(desk):
    desk.write(b"a", b"old")
    desk.save()
    desk.write(b"a", b"new")
    digest = desk.reset(dry_run=True).digest
    desk.write(b"a", b"newer")
    with refused(desk, "plan_changed"):
        desk.reset(digest=digest)
    assert content(desk, b"a") == b"newer"


def test_a_retried_token_does_nothing_twice_and_gives_the_same_answer(desk):
    desk.write(b"a", b"old")
    desk.save()
    desk.write(b"a", b"new")
    token = desk.token()
    first = desk.reset(token=token)
    desk.write(b"a", b"newer")
    with untouched(desk):
        assert desk.reset(token=token) == first
    desk.reopen()
    assert desk.reset(token=token) == first
    assert content(desk, b"a") == b"newer"


def test_a_retried_rollback_that_had_nothing_to_do_has_nothing_to_do_again(desk):
    desk.write(b"a", b"old")
    saved = desk.save().id
    token = desk.token()
    first = desk.rollback(saved, b"a", token=token)
    desk.write(b"a", b"new")
    assert desk.rollback(saved, b"a", token=token) == first
    assert content(desk, b"a") == b"new"


def test_hard_links_are_broken_and_not_written_through(desk):
    desk.write(b"a", b"old")
    desk.write(b"b", b"old", 0o600)
    desk.save()
    outside = os.path.join(desk.base, b"outside")
    desk.write(b"a", b"new")
    os.link(desk.path(b"a"), outside)
    os.link(desk.path(b"b"), outside + b"2")
    os.chmod(desk.path(b"b"), 0o644)
    desk.reset()
    assert (content(desk, b"a"), content(desk, b"b")) == (b"old", b"old")
    with open(outside, "rb") as file:
        assert file.read() == b"new"
    assert stat.S_IMODE(os.stat(outside + b"2").st_mode) == 0o644
    assert os.stat(desk.path(b"b")).st_nlink == 1


def test_a_private_file_is_readable_to_nobody_else_at_any_point(desk):
    desk.write(b"d/secret", b"secret", 0o600)
    desk.write(b"d/other", b"secret", 0o600)
    desk.write(b"gone/secret", b"secret", 0o600)
    os.chmod(desk.path(b"gone"), 0o700)
    saved = desk.save().id
    desk.write(b"d/secret", b"secret of now")
    desk.remove(b"d/other")
    desk.remove(b"gone")
    seen = []

    def check(point, _path):
        for path in look(desk.root):
            bits = os.lstat(desk.path(path))
            if stat.S_ISREG(bits.st_mode) and bits.st_mode & 0o077:
                seen.append((point, path))
            if path == b"gone" and bits.st_mode & 0o077:
                seen.append((point, path))

    desk.configure(hooks=check)
    desk.reset(saved)
    assert seen == []
    assert stat.S_IMODE(os.stat(desk.path(b"gone/secret")).st_mode) == 0o600


# -- what stays


def test_ignored_files_stay_and_are_listed(desk):
    desk.plant({b".gitignore": b"*.log\nbuild/\n", b"a": b"a", b"x.log": b"1", b"build": {b"out": b"2"}})
    desk.save()
    desk.write(b"x.log", b"changed")
    desk.write(b"new.log", b"new")
    desk.write(b"build/more", b"more")
    desk.write(b"a", b"changed")
    before = stats(desk)
    result = desk.reset()
    assert kept(result) == [b"build/", b"new.log", b"x.log"]
    after = stats(desk)
    assert {path for path in before if before[path] != after.get(path)} == {b"a"}


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        (b".gitignore", b"x.log"),
        (b".ckptignore", b"x.log"),
        (b".git/info/exclude", b"x.log"),
        (b"sub/.gitignore", b"sub/x.log"),
        (b"sub/.ckptignore", b"sub/deep/x.log"),
    ],
)
def test_what_was_ignored_when_the_target_was_made_stays(desk, rules, path):
    desk.write(b".git/HEAD", b"ref: refs/heads/main\n")
    desk.write(rules, b"*.log\n")
    desk.write(b"sub/a", b"a")
    desk.write(path, b"precious")
    saved = desk.save().id
    desk.write(rules, b"")
    desk.save()
    desk.write(b"new", b"goes")
    result = desk.reset(saved)
    assert content(desk, path) == b"precious"
    assert path in kept(result)
    assert not os.path.exists(desk.path(b"new"))


def test_what_a_self_ignoring_file_left_out_stays_after_that_file_is_gone(desk):
    desk.plant({b"a": b"a", b"venv": {b".gitignore": b"*\n", b"bin": {b"python": b"elf"}}})
    saved = desk.save().id
    desk.remove(b"venv/.gitignore")
    desk.write(b"a", b"changed")
    result = desk.reset(saved)
    assert content(desk, b"venv/bin/python") == b"elf"
    assert kept(result) == [b"venv/bin/"]
    assert content(desk, b"a") == b"a"


def test_what_options_left_out_then_stays(desk):
    desk.configure(exclude=(b"*.bin",))
    desk.plant({b"a": b"a", b"x.bin": b"big"})
    saved = desk.save().id
    desk.configure(exclude=())
    result = desk.reset(saved)
    assert (content(desk, b"x.bin"), kept(result), result.deleted) == (b"big", [b"x.bin"], [])


def test_what_was_too_large_then_stays(desk):
    desk.configure(max_file_bytes=10)
    desk.plant({b"a": b"a", b"big": b"b" * 20})
    assert left_out(desk.save().excluded) == [(b"big", "large")]
    desk.write(b"big", b"small now")
    result = desk.reset()
    assert (content(desk, b"big"), kept(result)) == (b"small now", [b"big"])


def test_what_is_too_large_now_stays_unless_the_target_has_the_path(desk):
    desk.configure(max_file_bytes=10)
    desk.plant({b"a": b"a", b"grew": b"small"})
    desk.save()
    desk.write(b"grew", b"g" * 20)
    desk.write(b"big", b"b" * 20)
    result = desk.reset()
    assert (content(desk, b"big"), kept(result)) == (b"b" * 20, [b"big"])
    assert content(desk, b"grew") == b"small"
    assert desk.cat(result.safety, b"grew") == b"g" * 20


def test_a_fifo_stays(desk):
    desk.write(b"d/a", b"a")
    desk.save()
    os.mkfifo(desk.path(b"d/pipe"))
    desk.write(b"d/a", b"changed")
    result = desk.reset()
    assert kept(result) == [b"d/pipe"]
    assert stat.S_ISFIFO(os.lstat(desk.path(b"d/pipe")).st_mode)
    assert content(desk, b"d/a") == b"a"


def test_another_mount_stays_and_is_in_the_way(desk):
    desk.write(b"d/mount", b"a file")
    saved = desk.save().id
    desk.remove(b"d/mount")
    os.mkdir(desk.path(b"d/mount"))
    with tiny_disk(desk.path(b"d/mount")):
        desk.write(b"d/mount/x", b"mounted")
        desk.write(b"new/x", b"new")
        with refused(desk, "conflicts", b"d/mount"):
            desk.reset(saved)
        result = desk.reset(saved, skip_conflicts=True)
        assert left_out(result.conflicts) == [(b"d/mount", "other_mount")]
        assert (content(desk, b"d/mount/x"), os.path.exists(desk.path(b"new"))) == (b"mounted", False)
        without = desk.save().id
        desk.write(b"d/new", b"new")
        result = desk.reset(without)
        assert (names(result.deleted), kept(result)) == ([b"d/new"], [b"d/mount"])


def test_deleted_directories_that_hold_something_that_stays_stay(desk):
    desk.write(b".gitignore", b"*.log\n")
    desk.save()
    desk.write(b"one/x.log", b"ignored")
    desk.write(b"one/go", b"goes")
    desk.write(b"two/deep/.git/HEAD", b"ref: refs/heads/main\n")
    desk.write(b"two/deep/go", b"goes")
    desk.write(b"two/go/go", b"goes")
    os.mkdir(desk.path(b"three"))
    os.mkfifo(desk.path(b"three/pipe"))
    result = desk.reset()
    assert set(look(desk.root)) == {
        b".gitignore",
        b"one",
        b"one/x.log",
        b"three",
        b"three/pipe",
        b"two",
        b"two/deep",
        b"two/deep/.git",
        b"two/deep/.git/HEAD",
    }
    assert kept(result) == [b"one/x.log", b"three/pipe"]
    assert names(result.deleted) == [b"one/go", b"two/deep/go", b"two/go/go"]


def test_nested_repositories_get_their_files_back_and_their_git_directory_is_not_touched(desk):
    nested = desk.mkdir(b"nested")
    run_git("init", "-q", nested)
    desk.write(b"nested/a", b"old")
    desk.save()
    git_dir = {path: one for path, one in stats(desk).items() if b".git" in path.split(b"/")}
    desk.write(b"nested/a", b"new")
    desk.write(b"nested/b", b"new")
    desk.reset()
    assert content(desk, b"nested/a") == b"old"
    assert not os.path.exists(desk.path(b"nested/b"))
    assert {path: one for path, one in stats(desk).items() if b".git" in path.split(b"/")} == git_dir


def test_tracked_files_come_back_although_a_rule_ignores_them(desk):
    run_git("init", "-q", desk.root)
    desk.write(b".gitignore", b"dist/\n")
    desk.write(b"dist/x", b"forced")
    desk.write(b"dist/y", b"ignored")
    run_git("add", "-f", "dist/x", cwd=desk.root)
    desk.save()
    desk.remove(b"dist/x")
    desk.write(b"dist/y", b"changed")
    desk.reset()
    assert (content(desk, b"dist/x"), content(desk, b"dist/y")) == (b"forced", b"changed")


def test_rules_that_came_after_the_save_keep_nothing_from_being_restored(desk):
    desk.write(b"x.log", b"old")
    desk.write(b"go", b"go")
    desk.save()
    desk.write(b"x.log", b"new")
    desk.write(b"other.log", b"other")
    desk.write(b".gitignore", b"*.log\n")
    result = desk.reset()
    assert set(look(desk.root)) == {b"x.log", b"go", b"other.log"}
    assert content(desk, b"x.log") == b"old"
    assert kept(result) == [b"other.log"]
    assert desk.cat(result.safety, b"x.log") == b"new"


def test_rules_that_went_after_the_save_protect_what_they_left_out(desk):
    desk.plant({b".gitignore": b"*.log\n", b"x.log": b"precious"})
    desk.save()
    desk.remove(b".gitignore")
    desk.write(b"new", b"new")
    result = desk.reset()
    assert set(look(desk.root)) == {b".gitignore", b"x.log"}
    assert (content(desk, b"x.log"), kept(result)) == (b"precious", [b"x.log"])


# -- what is in the way


def test_an_ignored_file_in_the_way_is_in_the_safety_checkpoint(desk):
    desk.write(b"x.log", b"old", 0o600)
    saved = desk.save().id
    desk.write(b".gitignore", b"*.log\n")
    desk.write(b"x.log", b"ignored now", 0o640)
    result = desk.reset(saved)
    assert content(desk, b"x.log") == b"old"
    assert desk.cat(result.safety, b"x.log") == b"ignored now"


def test_an_ignored_directory_with_content_in_the_way_is_in_the_safety_checkpoint(desk):
    desk.write(b"cache", b"a file")
    saved = desk.save().id
    desk.remove(b"cache")
    desk.write(b".gitignore", b"cache\n")
    desk.write(b"cache/deep/x", b"x", 0o600)
    desk.mkdir(b"cache/hollow")
    result = desk.reset(saved)
    assert content(desk, b"cache") == b"a file"
    assert desk.cat(result.safety, b"cache/deep/x") == b"x"
    assert desk.paths_of(result.safety)[b"cache/hollow"][0] == b"040000"


def test_a_repository_in_the_way_is_a_conflict(desk):
    desk.write(b"thing", b"a file")
    desk.write(b"other", b"old")
    saved = desk.save().id
    desk.remove(b"thing")
    desk.write(b"thing/.git/HEAD", b"ref: refs/heads/main\n")
    desk.write(b"thing/a", b"a")
    desk.write(b"other", b"new")
    with refused(desk, "conflicts", b"thing"):
        desk.reset(saved)
    before = stats(desk)
    result = desk.reset(saved, skip_conflicts=True)
    assert left_out(result.conflicts) == [(b"thing", "git_dir")]
    assert {path for path in before if stats(desk).get(path) != before[path]} == {b"other"}
    assert content(desk, b"other") == b"old"


def test_a_fifo_in_the_way_is_a_conflict(desk):
    desk.write(b"thing", b"a file")
    desk.write(b"d/x", b"x")
    desk.save()
    desk.remove(b"thing")
    os.mkfifo(desk.path(b"thing"))
    desk.remove(b"d")
    os.mkfifo(desk.path(b"d"))
    with refused(desk, "conflicts", b"d", b"thing"):
        desk.reset()
    result = desk.reset(skip_conflicts=True)
    assert left_out(result.conflicts) == [(b"d", "special"), (b"thing", "special")]
    assert stat.S_ISFIFO(os.lstat(desk.path(b"thing")).st_mode)


def test_an_unreadable_file_in_the_way_is_a_conflict(desk):
    with somebody():
        desk.write(b"thing", b"old")
        desk.save()
        desk.write(b"thing", b"new", 0o000)
        with refused(desk, "conflicts", b"thing"):
            desk.reset()
        desk.write(b"other", b"goes")
        result = desk.reset(skip_conflicts=True)
        assert left_out(result.conflicts) == [(b"thing", "unreadable")]
        assert not os.path.exists(desk.path(b"other"))
        os.chmod(desk.path(b"thing"), 0o600)
    assert content(desk, b"thing") == b"new"


def test_below_an_unreadable_directory_nothing_is_touched(desk):
    with somebody():
        desk.write(b"d/x", b"old")
        desk.save()
        desk.write(b"e/y", b"new")
        os.chmod(desk.path(b"d"), 0)
        os.chmod(desk.path(b"e"), 0)
        with refused(desk, "conflicts", b"d/x"):
            desk.reset()
        result = desk.reset(skip_conflicts=True)
        for name in (b"d", b"e"):
            os.chmod(desk.path(name), 0o755)
    assert (content(desk, b"d/x"), content(desk, b"e/y")) == (b"old", b"new")
    assert kept(result) == [b"e"]


def test_an_unreadable_ignore_file_stops_a_restore_before_its_first_write(desk):
    with somebody():
        desk.write(b".gitignore", b"*.log\n")
        desk.write(b"a", b"old")
        saved = desk.save().id
        desk.write(b"a", b"new")
        os.chmod(desk.path(b".gitignore"), 0)
        with refused(desk, "permission_denied", b".gitignore"):
            desk.reset()
        with refused(desk, "permission_denied", b".gitignore"):
            desk.rollback(saved, b"a")
        os.chmod(desk.path(b".gitignore"), 0o644)


def test_a_read_only_directory_is_reported_and_nothing_is_lost(desk):
    with somebody():
        desk.write(b"locked/a", b"old a")
        desk.write(b"locked/b", b"old b")
        desk.write(b"open/a", b"old")
        desk.save()
        desk.write(b"locked/a", b"new a")
        desk.remove(b"locked/b")
        desk.write(b"locked/c", b"new c")
        desk.write(b"open/a", b"new")
        os.chmod(desk.path(b"locked"), 0o555)
        writable = desk.head()
        desk.save()
        # With other bits in the target the directory could be opened; here it is locked on both sides.
        os.chmod(desk.path(b"locked"), 0o755)
        desk.write(b"locked/a", b"other a")
        os.chmod(desk.path(b"locked"), 0o555)
        result = desk.reset()
        assert [reason for _, reason in left_out(result.conflicts)] == ["permission_denied"]
        assert content(desk, b"locked/a") == b"other a"
        assert desk.cat(result.safety, b"locked/a") == b"other a"
        result = desk.reset(writable)
        assert result.conflicts == []
        assert set(look(desk.root)) == {b"locked", b"locked/a", b"locked/b", b"open", b"open/a"}


# -- the store is not as it should be


def objects_of(desk) -> list[bytes]:
    return [os.path.join(desk.folder, b"objects/pack", name) for name in os.listdir(desk.folder + b"/objects/pack")]


def newest_pack(desk) -> bytes:
    return max(
        (path for path in objects_of(desk) if path.endswith(b".pack")), key=lambda path: os.stat(path).st_mtime_ns
    )


def test_a_checkpoint_whose_info_is_gone_deletes_nothing(desk):
    desk.damaged = True
    desk.write(b"a", b"old")
    desk.plant({b".venv": {b".gitignore": b"*\n", b"lib": b"lib"}})
    saved = desk.save().id
    packs = set(objects_of(desk))
    ref = desk.git("rev-parse", "refs/ckpt-info/0000000001").strip()
    # Everything but the info commit, in a pack of its own.
    wanted = [line.split()[0] for line in desk.git("rev-list", "--objects", "--all").splitlines()]
    listed = b"\n".join(one for one in wanted if one != ref) + b"\n"
    desk.git("pack-objects", "-q", desk.folder + b"/objects/pack/pack", data=listed)
    for path in packs:
        os.unlink(path)
    desk.reopen()
    desk.write(b"a", b"new")
    desk.write(b"new", b"new")
    desk.remove(b".venv/.gitignore")
    result = desk.reset(saved)
    assert content(desk, b"a") == b"old"
    assert (result.deleted, content(desk, b"new"), content(desk, b".venv/lib")) == ([], b"new", b"lib")
    assert b"new" in kept(result)
    assert any("nothing that it lacks is deleted" in note for note in result.notes)


def test_a_missing_blob_is_a_conflict_and_its_file_is_not_touched(desk):
    desk.damaged = True
    desk.write(b"a", b"old a")
    desk.write(b"b", b"old b")
    saved = desk.save().id
    packs = set(objects_of(desk))
    lost = hash_object(b"blob", b"old a").hex().encode()
    wanted = [line.split()[0] for line in desk.git("rev-list", "--objects", "--all").splitlines()]
    desk.git("pack-objects", "-q", desk.folder + b"/objects/pack/pack", data=b"\n".join(set(wanted) - {lost}) + b"\n")
    for path in packs:
        os.unlink(path)
    desk.reopen()
    desk.write(b"a", b"new a")
    desk.write(b"b", b"new b")
    plan = desk.reset(saved, dry_run=True)
    assert (left_out(plan.conflicts), plan.written) == ([(b"a", "object_missing")], ["b"])
    with refused(desk, "object_missing", b"a"):
        desk.reset(saved)
    with refused(desk, "object_missing", b"a"):
        desk.rollback(saved, b"a")
    result = desk.reset(saved, skip_conflicts=True)
    assert left_out(result.conflicts) == [(b"a", "object_missing")]
    assert (content(desk, b"a"), content(desk, b"b")) == (b"new a", b"old b")


def test_a_missing_blob_where_a_directory_would_have_to_go_leaves_the_directory(desk):
    desk.damaged = True
    desk.write(b"a", b"old a")
    desk.write(b"b", b"old b")
    saved = desk.save().id
    for path in objects_of(desk):
        if path.endswith((b".pack", b".idx")):
            os.rename(path, os.path.join(desk.base, os.path.basename(path)))
    wanted = [desk.base + b"/" + name for name in os.listdir(desk.base) if name.endswith(b".pack")]
    with open(wanted[0], "rb") as file:
        desk.git("unpack-objects", "-q", data=file.read())
    lost = hash_object(b"blob", b"old a").hex().encode()
    os.unlink(desk.folder + b"/objects/" + lost[:2] + b"/" + lost[2:])
    desk.reopen()
    desk.remove(b"a")
    desk.write(b"a/x", b"x")
    before = stats(desk)
    result = desk.reset(saved, skip_conflicts=True)
    assert left_out(result.conflicts) == [(b"a", "object_missing")]
    assert stats(desk) == before


def test_a_damaged_blob_is_reported_and_its_file_is_not_touched(desk):
    desk.damaged = True
    data = os.urandom(5000)
    desk.write(b"a", data)
    desk.write(b"b", b"old b")
    saved = desk.save().id
    pack = newest_pack(desk)
    os.chmod(pack, 0o600)
    with open(pack, "r+b") as file:
        raw = file.read()
        at = raw.index(data[1000:1100])
        file.seek(at)
        file.write(b"\0" * 100)
    desk.reopen()
    desk.write(b"a", b"new a")
    desk.write(b"b", b"new b")
    with refused(desk, "store_damaged", b"a"):
        desk.reset(saved)
    with refused(desk, "store_damaged", b"a"):
        desk.rollback(saved, b"a", b"b")
    result = desk.reset(saved, skip_conflicts=True)
    assert left_out(result.conflicts) == [(b"a", "store_damaged")]
    assert (content(desk, b"a"), content(desk, b"b")) == (b"new a", b"old b")


def test_what_a_damaged_store_no_longer_holds_is_stored_anew_before_it_is_overwritten(desk):
    """The scan takes an unchanged file for known; the only good copy of it may be the one that is to be overwritten."""
    desk.damaged = True
    data = os.urandom(5000)
    desk.write(b"a", b"first")
    first = desk.save().id
    desk.write(b"a", data)
    desk.settle()
    desk.save()
    pack = newest_pack(desk)
    os.chmod(pack, 0o600)
    with open(pack, "r+b") as file:
        at = file.read().index(data[1000:1100])
        file.seek(at)
        file.write(b"\0" * 100)
    desk.reopen()
    result = desk.reset(first)
    assert content(desk, b"a") == b"first"
    assert desk.cat(result.safety, b"a") == data
    desk.undo()
    assert content(desk, b"a") == data


def test_a_directory_that_a_damaged_store_no_longer_holds_is_stored_anew_before_it_is_changed(desk):
    """As above, of a directory in which nothing has changed, beside one that has been written this very moment."""
    desk.damaged = True
    desk.write(b"d/a", b"first")
    desk.write(b"e/a", b"first")
    first = desk.save().id
    names = [b"%s" % os.urandom(40).hex().encode() for _ in range(200)]
    for name in names:
        desk.write(b"d/" + name, name)
    desk.settle()
    second = desk.save().id
    tree = bytes.fromhex(desk.git("rev-parse", f"{second}:d").decode())
    desk.write(b"e/a", b"third")
    damage(desk, tree)
    desk.reopen()
    result = desk.reset(first)
    assert sorted(os.listdir(desk.path(b"d"))) == [b"a"]
    assert desk.cat(result.safety, b"e/a") == b"third"
    assert {desk.cat(result.safety, b"d/" + name) for name in names} == set(names)
    desk.undo()
    assert sorted(os.listdir(desk.path(b"d"))) == sorted([b"a", *names])


def damage(desk, oid: bytes) -> None:
    """Overwrite the middle of an object in its pack."""
    for path in objects_of(desk):
        offset = PackIndex(path).find(oid) if path.endswith(b".idx") else None
        if offset is not None:
            pack = path[:-4] + b".pack"
            os.chmod(pack, 0o600)
            with open(pack, "r+b") as file:
                file.seek(offset + 500)
                file.write(b"\0" * 100)


def test_a_missing_tree_stops_a_restore(desk):
    desk.damaged = True
    desk.write(b"d/a", b"old")
    saved = desk.save().id
    desk.write(b"d/a", b"new")
    tree = desk.git("rev-parse", f"{saved}:d").strip()
    packs = set(objects_of(desk))
    wanted = {line.split()[0] for line in desk.git("rev-list", "--objects", "--all").splitlines()}
    desk.git("pack-objects", "-q", desk.folder + b"/objects/pack/pack", data=b"\n".join(wanted - {tree}) + b"\n")
    for path in packs:
        os.unlink(path)
    desk.reopen()
    with refused(desk, "object_missing"):
        desk.reset(saved)


def craft(desk, *records: bytes) -> str:
    """Make a checkpoint of a hand-made tree under the next number."""
    raw = b"".join(records)
    tree = desk.git("hash-object", "-t", "tree", "-w", "--stdin", "--literally", data=raw).strip()
    message = b"crafted\n\nCkpt-Seq: 99\nCkpt-Kind: manual\nCkpt-Scan: full\nCkpt-Complete: true\n"
    made = b"tree %s\nauthor c <c> 1 +0000\ncommitter c <c> 1 +0000\n\n%s" % (tree, message)
    commit = desk.git("hash-object", "-t", "commit", "-w", "--stdin", data=made).strip()
    desk.git("update-ref", "refs/checkpoints/0000000099", commit)
    desk.reopen()
    return commit.decode()


@pytest.mark.parametrize("name", [b"..", b".", b".git", b".GIT", b"", b"a/b", b"../outside", b"/etc/x"])
@pytest.mark.parametrize("deep", [False, True])
def test_a_crafted_tree_is_refused_as_a_whole(desk, name, deep):
    desk.damaged = True
    desk.write(b"good", b"mine")
    desk.save()
    blob = hash_object(b"blob", b"mine")
    bad = b"100644 %s\0%s" % (name, blob)
    if deep:
        tree = desk.git("hash-object", "-t", "tree", "-w", "--stdin", "--literally", data=bad).strip()
        bad = b"40000 d\0" + bytes.fromhex(tree.decode())
    crafted = craft(desk, bad, b"100644 other\0" + blob)
    with refused(desk, "store_damaged"):
        desk.reset(crafted)
    assert not os.path.exists(os.path.join(desk.base, b"outside"))


# -- which checkpoint


def test_ids_that_name_no_checkpoint_here_change_nothing(desk):
    desk.write(b"a", b"old")
    desk.save()
    desk.write(b"a", b"new")
    for wrong in ("0" * 40, "0000", "no such tag", "#77", "HEAD~9"):
        with refused(desk, "unknown_checkpoint"):
            desk.reset(wrong)
        with refused(desk, "unknown_checkpoint"):
            desk.rollback(wrong, b"a")


def test_an_id_of_another_store_changes_nothing(desk):
    desk.write(b"a", b"old")
    foreign = desk.save().id
    desk.close()
    desk.root = os.path.join(desk.base, b"other")
    os.mkdir(desk.root)
    desk.write(b"a", b"mine")
    desk.save()
    with refused(desk, "unknown_checkpoint"):
        desk.reset(foreign)


def test_an_ambiguous_id_changes_nothing(desk):
    ids = []
    while len({one[:4] for one in ids}) == len(ids):
        desk.write(b"a", b"%d" % len(ids))
        ids.append(desk.save().id)
        assert len(ids) < 2000
    prefix = next(one[:4] for one in ids if sum(other[:4] == one[:4] for other in ids) > 1)
    with refused(desk, "ambiguous_id"):
        desk.reset(prefix)


def test_with_no_checkpoint_there_is_nothing_to_restore(desk):
    desk.write(b"a", b"a")
    desk.open()
    with refused(desk, "no_checkpoint"):
        desk.reset()


# -- the worktree's own directory


def test_a_missing_worktree_comes_back_on_request_alone(desk):
    plant_some(desk)
    saved = desk.save().id
    copy = Copy(desk)
    os.rename(desk.root, os.path.join(desk.base, b"moved"))
    desk.reopen()
    with pytest.raises(DomainError) as caught:
        desk.reset(saved)
    assert caught.value.kind == "worktree_missing"
    assert not os.path.exists(desk.root)
    desk.reset(saved, recreate=True)
    assert copy.differences() == []


def test_the_plan_for_a_missing_worktree_is_what_is_done(desk):
    plant_some(desk)
    saved = desk.save().id
    copy = Copy(desk)
    shutil.rmtree(desk.root)
    store = look(desk.folder)
    plan = desk.reset(saved, recreate=True, dry_run=True)
    few = desk.rollback(saved, plan.written[0].encode(), recreate=True, dry_run=True)
    assert few.written == plan.written[:1]
    assert (look(desk.folder), os.path.exists(desk.root)) == (store, False)
    for refused_for, fields in (("plan_changed", {"digest": few.digest}), ("precondition_failed", {"expect": GONE})):
        with pytest.raises(DomainError) as caught:
            desk.reset(saved, recreate=True, **fields)
        assert (caught.value.kind, os.path.exists(desk.root)) == (refused_for, False)
    done = desk.reset(saved, recreate=True, digest=plan.digest)
    assert (done.written, done.deleted, done.digest) == (plan.written, [], plan.digest)
    assert copy.differences() == []


def test_an_emptied_worktree_is_restored_as_usual(desk):
    plant_some(desk)
    desk.save()
    copy = Copy(desk)
    for name in os.listdir(desk.root):
        desk.remove(name)
    desk.reset()
    assert copy.differences() == []


# -- rollback


def test_a_rollback_touches_nothing_else(desk):
    plant_some(desk)
    saved = desk.save().id
    wreck(desk)
    head, before = desk.head(), stats(desk)
    result = desk.rollback(saved, b"file")
    after = stats(desk)
    assert {path for path in before | after if before.get(path) != after.get(path)} == {b"file"}
    assert (content(desk, b"file"), names(result.written), result.deleted) == (b"text", [b"file"], [])
    assert (desk.head(), result.head) == (head, head)


def test_a_rollback_leaves_the_list_as_it_was_but_for_the_safety_checkpoint(desk):
    desk.write(b"a", b"old")
    saved = desk.save().id
    desk.write(b"a", b"new")
    desk.write(b"b", b"new")
    desk.save()
    before = desk.list().checkpoints
    result = desk.rollback(saved, b"a")
    after = desk.list().checkpoints
    assert [one.id for one in after] == [result.safety, *(one.id for one in before)]
    assert after[0].kind == "safety"


def test_missing_directories_above_are_made_with_their_permissions(desk):
    desk.write(b"p/q/x", b"x")
    desk.write(b"p/other", b"other")
    os.chmod(desk.path(b"p"), 0o700)
    saved = desk.save().id
    desk.remove(b"p")
    desk.rollback(saved, b"p/q/x")
    assert set(look(desk.root)) == {b"p", b"p/q", b"p/q/x"}
    assert stat.S_IMODE(os.stat(desk.path(b"p")).st_mode) == 0o700


def test_a_path_that_the_checkpoint_lacks_is_an_error_and_with_delete_it_goes(desk):
    desk.write(b"a", b"a")
    saved = desk.save().id
    desk.write(b"new", b"new")
    desk.write(b"dir/new", b"new")
    with refused(desk, "path_not_in_checkpoint", b"new"):
        desk.rollback(saved, b"a", b"new")
    with refused(desk, "path_not_in_checkpoint", b"nowhere"):
        desk.rollback(saved, b"nowhere", delete=True)
    result = desk.rollback(saved, b"new", b"dir", delete=True)
    assert set(look(desk.root)) == {b"a"}
    assert names(result.deleted) == [b"dir/new", b"new"]
    assert desk.cat(result.safety, b"new") == b"new"


def test_delete_is_about_the_paths_given_and_not_what_rules_keep_elsewhere(desk):
    desk.plant({b".gitignore": b"*.log\n", b"d": {b"a": b"a", b"x.log": b"precious"}})
    saved = desk.save().id
    desk.remove(b".gitignore")
    desk.write(b"new", b"new")
    desk.rollback(saved, b"d", b"new", delete=True)
    assert content(desk, b"d/x.log") == b"precious"
    assert not os.path.exists(desk.path(b"new"))


def test_a_directory_rollback_deletes_what_the_target_lacks_below_it(desk):
    desk.plant({b".gitignore": b"*.log\n", b"d": {b"a": b"a", b"e": {b"b": b"b"}}})
    saved = desk.save().id
    desk.write(b"d/new", b"new")
    desk.write(b"d/e/b", b"changed")
    desk.write(b"d/e/x.log", b"ignored")
    desk.write(b"outside", b"stays")
    result = desk.rollback(saved, b"d")
    assert set(look(desk.root)) == {b".gitignore", b"d", b"d/a", b"d/e", b"d/e/b", b"d/e/x.log", b"outside"}
    assert (names(result.written), names(result.deleted)) == ([b"d/e/b"], [b"d/new"])
    assert kept(result) == [b"d/e/x.log"]


def test_several_overlapping_paths_at_once(desk):
    plant_some(desk)
    saved = desk.save().id
    copy = Copy(desk)
    desk.remove(b"dir")
    desk.write(b"file", b"changed")
    desk.write(b"tool", b"changed")
    desk.rollback(saved, b"dir/sub/deep", b"dir", b"dir/x", b"file", b"file")
    assert copy.differences() == ["tool: other bytes"]


@pytest.mark.parametrize("rules", [b"", b"sub\n"])
def test_a_parent_that_is_a_link_to_outside_now_is_refused(desk, rules):
    outside = os.path.join(desk.base, b"outside")
    os.mkdir(outside)
    desk.write(b"sub/f", b"old")
    saved = desk.save().id
    desk.remove(b"sub")
    desk.link(b"sub", outside)
    if rules:
        desk.write(b".gitignore", rules)
    for _ in range(2):
        with refused(desk, "beyond_symlink", b"sub/f"):
            desk.rollback(saved, b"sub/f")
        with open(os.path.join(outside, b"f"), "wb") as file:
            file.write(b"sentinel")
    with open(os.path.join(outside, b"f"), "rb") as file:
        assert file.read() == b"sentinel"


def test_a_parent_that_is_a_file_now_is_refused(desk):
    desk.write(b"sub/f", b"old")
    saved = desk.save().id
    desk.remove(b"sub")
    desk.write(b"sub", b"mine")
    with refused(desk, "bad_path", b"sub/f"):
        desk.rollback(saved, b"sub/f")


def test_a_link_can_be_rolled_back_itself(desk):
    outside = os.path.join(desk.base, b"outside")
    os.mkdir(outside)
    with open(os.path.join(outside, b"f"), "wb") as file:
        file.write(b"sentinel")
    desk.write(b"sub/f", b"old")
    desk.link(b"link", b"first")
    saved = desk.save().id
    desk.remove(b"sub")
    desk.link(b"sub", outside)
    desk.remove(b"link")
    desk.link(b"link", outside)
    desk.rollback(saved, b"sub", b"link")
    assert (content(desk, b"sub/f"), os.readlink(desk.path(b"link"))) == (b"old", b"first")
    assert os.listdir(outside) == [b"f"]
    desk.undo()
    assert os.readlink(desk.path(b"sub")) == outside
    with open(os.path.join(outside, b"f"), "rb") as file:
        assert file.read() == b"sentinel"


def test_a_reset_goes_through_no_link_either(desk):
    outside = os.path.join(desk.base, b"outside")
    os.mkdir(outside)
    desk.write(b"sub/f", b"old")
    desk.save()
    desk.remove(b"sub")
    desk.link(b"sub", outside)
    desk.reset()
    assert content(desk, b"sub/f") == b"old"
    assert os.listdir(outside) == []


@pytest.mark.parametrize("name", ODD)
def test_a_path_of_any_name_can_be_rolled_back(desk, name):
    desk.write(b"d/" + name, b"old")
    saved = desk.save().id
    desk.write(b"d/" + name, b"new")
    assert names(desk.rollback(saved, b"d/" + name).written) == [b"d/" + name]
    assert content(desk, b"d/" + name) == b"old"


def test_a_name_that_is_not_utf8_can_be_told_of(desk):
    """Conflicts and notes are texts for people, and an answer has to be encoded after everything has been written."""
    desk.write(b"\xff", b"old")
    desk.save()
    desk.remove(b"\xff")
    desk.write(b"\xff/.git/HEAD", b"ref\n")
    result = desk.reset(skip_conflicts=True)
    assert left_out(result.conflicts) == [(b"\xff", "git_dir")]
    assert "\\" in (result.conflicts[0].detail or "")


# -- the store lies in the worktree


def test_a_store_inside_the_worktree_is_never_captured_or_deleted(desk):
    desk.write(b"a", b"old")
    desk.write(b"home", b"a file")
    saved = desk.save().id
    desk.close()
    desk.remove(b"home")
    os.mkdir(desk.path(b"home"))
    inside = desk.path(b"home/checkpoints")
    os.rename(desk.checkpoint_dir, inside)
    desk.checkpoint_dir = inside
    desk.write(b"a", b"new")
    desk.open(create=False)
    with refused(desk, "conflicts", b"home"):
        desk.reset(saved)
    result = desk.reset(saved, skip_conflicts=True)
    assert left_out(result.conflicts) == [(b"home", "store")]
    assert content(desk, b"a") == b"old"
    desk.reopen()
    assert len(desk.list().checkpoints) == 2
