"""What a scan reads, what it leaves out, and that it never fails because of one path."""

import os
import resource
import socket
import subprocess
import sys
import tracemalloc

import pytest

from ckpt_protocol.structs import LeftOut, from_wire
from ckptd.errors import DomainError
from ckptd.shadow.objects.pack import HashOnly
from support.worktrees import Desk, git_tree, opened_files, somebody

pytestmark = pytest.mark.core

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def _reasons(items: list[LeftOut]) -> dict[bytes, str]:
    return {from_wire(item.path): item.reason for item in items}


def _worktree_files(opened: list[bytes]) -> list[bytes]:
    """Of what was opened, what is not of the store (whose paths are absolute) nor the table of mounts."""
    return sorted(path for path in opened if not path.startswith(b"/"))


# -- what is read again


def test_an_unchanged_file_is_not_opened_again(desk: Desk):
    desk.write(b".gitignore", b"*.o\n")
    desk.write(b".ckptignore", b"*.p\n")
    desk.write(b"a/b", b"1")
    desk.write(b"a/.gitignore", b"*.q\n")
    desk.write(b"a/x.q", b"1")
    desk.link(b"l", b"a")
    desk.settle()
    desk.save()
    with opened_files() as opened:
        desk.save()
        assert desk.changes() == []
    assert _worktree_files(opened) == []
    desk.reopen()
    with opened_files() as opened:
        assert not desk.save().created
        assert not desk.save().created
    assert _worktree_files(opened) == []
    assert desk.repo.scan(HashOnly()).read_count == 0


def test_only_what_changed_is_opened(desk: Desk):
    for number in range(20):
        desk.write(b"d/%d" % number, b"1")
    desk.settle()
    desk.save()
    desk.write(b"d/7", b"2")
    desk.write(b"new", b"2")
    with opened_files() as opened:
        desk.save()
    assert _worktree_files(opened) == [b"7", b"new"]


def test_rehash_opens_everything(desk: Desk):
    desk.write(b"a", b"1")
    desk.settle()
    desk.save()
    with opened_files() as opened:
        assert not desk.save(rehash=True).created
    assert _worktree_files(opened) == [b"a"]


def _rewrite_keeping_stat(path: bytes, data: bytes) -> None:
    """Write other bytes of the same number, and put mtime back."""
    before = os.stat(path)
    with open(path, "r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_rewrite_right_after_the_save_is_found(desk: Desk):
    path = desk.write(b"a", b"1")
    desk.unsettle()
    first = desk.save()
    # as if nothing in its stat data had changed: the entry counts as racy and is read whatever they say
    for number in range(30):
        _rewrite_keeping_stat(path, b"%d" % (number % 10))
        saved = desk.save()
        assert desk.tree_of(saved.id) == git_tree(desk.root)
    assert first.created


def test_young_entries_are_read_again_and_old_ones_are_not(desk: Desk):
    desk.write(b"a", b"1")
    # However long the machine takes, the file is as young as can be.
    desk.clock.offset_s = -10.0
    desk.save()
    assert desk.repo.scan(HashOnly()).read_count == 1
    desk.settle()
    assert desk.repo.scan(HashOnly()).read_count == 1
    desk.save()
    assert desk.repo.scan(HashOnly()).read_count == 0


def test_the_margin_counts_from_before_the_look(desk: Desk):
    path = desk.write(b"a", b"1")
    changed_s = os.stat(path).st_ctime_ns / 1e9
    for age_s, racy in ((0.02, True), (-5.0, True), (5.0, False)):
        desk.repo.model = None
        desk.clock.__class__ = type("Fixed", (), {"__call__": lambda _self, at=changed_s + age_s: at})
        desk.save(force=True)
        assert (desk.repo.scan(HashOnly()).read_count == 1) is racy, age_s


def test_mtime_put_back_is_found(desk: Desk):
    path = desk.write(b"a", b"1")
    desk.settle()
    desk.save()
    _rewrite_keeping_stat(path, b"2")
    assert desk.changes() == [(b"a", "modified", False)]
    saved = desk.save()
    assert desk.cat(saved.id, b"a") == b"2"


def test_another_file_with_the_same_stat_data_but_its_inode_is_found(desk: Desk):
    path = desk.write(b"a", b"1")
    desk.settle()
    desk.save()
    before = os.stat(path)
    desk.write(b"b", b"2")
    os.utime(desk.path(b"b"), ns=(before.st_atime_ns, before.st_mtime_ns))
    os.rename(desk.path(b"b"), path)
    assert desk.changes() == [(b"a", "modified", False)]


@pytest.mark.parametrize("harm", ["deleted", "truncated", "foreign", "flipped", "empty"])
def test_without_a_usable_model_the_answers_are_the_same(desk: Desk, harm: str):
    desk.write(b".gitignore", b"*.o\n")
    desk.write(b"x.o", b"1")
    desk.write(b"d/a", b"1" * 100)
    desk.write(b"d/b", b"2")
    desk.mkdir(b"e/e")
    desk.settle()
    first = desk.save()
    desk.close()
    model = desk.folder + b"/ckpt/model"
    with open(model, "rb") as file:
        data = file.read()
    if harm == "deleted":
        os.unlink(model)
    else:
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]
        broken = {"truncated": data[:middle], "foreign": b"\x93\x01\xc4\x00\x90", "flipped": flipped, "empty": b""}
        with open(model, "wb") as file:
            file.write(broken[harm])
    assert desk.changes() == []
    assert desk.save().id == first.id
    desk.write(b"d/b", b"3")
    assert desk.tree_of(desk.save().id) == git_tree(desk.root, lambda path: path == b"x.o")


def test_every_flipped_byte_of_a_model_is_noticed(desk: Desk):
    """Content ids in it would go into trees as they are."""
    from ckptd.shadow.scan.modelfile import dump_model, load_model

    desk.write(b"d/a", b"1")
    desk.save()
    data = dump_model(desk.repo.model, b"f" * 20)
    assert load_model(data) is not None
    for at in range(len(data)):
        assert load_model(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]) is None


# -- what is left out


def test_special_files(desk: Desk):
    desk.write(b"f", b"1")
    os.mkfifo(desk.path(b"d-pipe"))
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(desk.root, os.O_RDONLY)
        try:
            listener.bind(f"/proc/self/fd/{here}/sock")
        finally:
            os.close(here)
        saved = desk.save()
    assert saved.complete
    assert _reasons(saved.excluded) == {b"d-pipe": "special", b"sock": "special"}
    assert desk.tree_of(saved.id) == git_tree(desk.root)


@needs_root
def test_devices(desk: Desk):
    try:
        os.mknod(desk.path(b"null"), 0o020666, os.makedev(1, 3))
    except PermissionError as error:
        pytest.skip(f"cannot make a device here: {error}")
    assert _reasons(desk.save().excluded) == {b"null": "special"}


def test_unreadable_things_are_listed_and_nothing_fails(desk: Desk):
    desk.write(b"ok", b"1")
    desk.write(b"locked", b"2", 0o000)
    desk.write(b"dir/in", b"3")
    desk.write(b"blind/in", b"4")
    os.chmod(desk.path(b"dir"), 0o000)
    # names can be listed, but not looked at
    os.chmod(desk.path(b"blind"), 0o444)
    for path in (b"locked", b"dir", b"blind"):
        os.chown(desk.path(path), os.geteuid() and -1, -1)
    if os.geteuid() == 0:
        os.chown(desk.path(b"locked"), 0, 0)
    with somebody():
        saved = desk.save()
        assert not saved.complete
        assert _reasons(saved.skipped) == {b"locked": "unreadable", b"dir": "unreadable", b"blind/in": "unreadable"}
        assert set(desk.paths_of(saved.id)) == {b"ok", b"dir", b"blind"}
        again = desk.save()
        assert (again.id, again.created, again.complete) == (saved.id, False, False)
        [record] = desk.list().checkpoints
        assert not record.complete
        assert desk.show(saved.id).skipped == saved.skipped
        desk.close()
    for path in (b"dir", b"blind", b"locked"):
        os.chmod(desk.path(path), 0o755)
    with somebody():
        desk.configure()
        assert desk.save().complete


def test_an_unreadable_worktree_is_an_error(desk: Desk):
    desk.write(b"a", b"1")
    with somebody():
        desk.save()
        desk.close()
    os.chmod(desk.root, 0o000)
    if os.geteuid() == 0:
        os.chown(desk.root, 0, 0)
    with somebody():
        with pytest.raises(DomainError, match=r"^permission_denied: "):
            desk.save()
        desk.close()
    os.chmod(desk.root, 0o755)


def test_names_that_belong_to_git_or_to_us(desk: Desk):
    desk.write(b".GIT/config", b"1")
    desk.write(b"sub/.Git", b"1")
    desk.write(b"sub/.git/config", b"1")
    desk.write(b".ckpt-0123456789abcdef.tmp", b"1")
    desk.write(b"sub/.ckpt-0123456789abcdef.tmp/f", b"1")
    desk.write(b".ckpt-0123456789ABCDEF.tmp", b"1")
    desk.write(b".ckpt-0123456789abcdef.tmp2", b"1")
    saved = desk.save()
    assert saved.complete
    assert _reasons(saved.excluded) == {b".GIT": "name", b"sub/.Git": "name"}
    assert set(desk.paths_of(saved.id)) == {b"sub", b".ckpt-0123456789ABCDEF.tmp", b".ckpt-0123456789abcdef.tmp2"}


def test_the_checkpoint_directory_in_the_worktree(desk: Desk):
    desk.checkpoint_dir = desk.mkdir(b"inside/stores")
    desk.write(b"inside/f", b"1")
    saved = desk.save()
    assert set(desk.paths_of(saved.id)) == {b"inside", b"inside/f"}
    os.rename(desk.path(b"inside"), desk.path(b"elsewhere"))
    desk.close()
    desk.checkpoint_dir = desk.path(b"elsewhere/stores")
    saved = desk.save()
    assert set(desk.paths_of(saved.id)) == {b"elsewhere", b"elsewhere/f"}


@needs_root
def test_other_mounts(desk: Desk):
    desk.write(b"f", b"1")
    mounted = desk.mkdir(b"d/mnt")
    done = subprocess.run(["mount", "-t", "tmpfs", "none", mounted], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot mount here: {done.stderr!r}")
    try:
        desk.write(b"d/mnt/secret", b"1")
        saved = desk.save()
        assert saved.complete
        assert _reasons(saved.excluded) == {b"d/mnt": "other_mount"}
        assert set(desk.paths_of(saved.id)) == {b"f", b"d"}
        desk.configure(one_file_system=False)
        assert b"d/mnt/secret" in desk.paths_of(desk.save().id)
    finally:
        subprocess.run(["umount", mounted], check=True)


def test_large_files(desk: Desk):
    desk.configure(max_file_bytes=1000)
    desk.write(b"limit", b"x" * 1000)
    with open(desk.path(b"huge"), "wb") as file:
        file.truncate(1 << 40)
    desk.link(b"l", b"huge")
    saved = desk.save()
    assert saved.complete
    assert saved.excluded == [LeftOut(path="huge", reason="large", detail=f"{1 << 40} bytes")]
    assert set(desk.paths_of(saved.id)) == {b"limit", b"l"}
    # what was in a checkpoint and grows over the limit leaves the next tree, and stays on disk
    desk.write(b"limit", b"x" * 1001)
    saved = desk.save()
    assert set(desk.paths_of(saved.id)) == {b"l"}
    assert os.path.exists(desk.path(b"limit"))


def test_a_file_of_many_megabytes_is_streamed(desk: Desk):
    block = os.urandom(1 << 20)
    with open(desk.path(b"big"), "wb") as file:
        for number in range(20):
            file.write(block[number:] + block[:number])
    desk.write(b"small", b"1")
    tracemalloc.start()
    try:
        saved = desk.save()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 << 20
    assert desk.tree_of(saved.id) == git_tree(desk.root)
    assert not desk.save().created


def test_a_copy_of_a_large_file_is_stored_once(desk: Desk):
    data = os.urandom(9 << 20)
    desk.write(b"a", data)
    desk.write(b"b", data)
    desk.save()
    desk.write(b"c", data)
    saved = desk.save()
    stored = sum(os.stat(os.path.join(path, name)).st_size for path, _, files in os.walk(desk.folder) for name in files)
    assert stored < 10 << 20
    assert desk.tree_of(saved.id) == git_tree(desk.root)


def test_a_tree_deeper_than_the_number_of_open_files(desk: Desk):
    here = os.open(desk.root, os.O_RDONLY)
    for _ in range(700):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    desk.open()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    try:
        saved = desk.save()
        assert not saved.skipped
        assert saved.files == 1
        assert desk.changes() == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if sys.platform == "linux":
        subprocess.run(["rm", "-rf", desk.path(b"d")], check=True)


def test_a_process_short_of_descriptors_does_not_blame_the_files(desk: Desk):
    desk.plant({b"a": {b"b": {b"c": {b"f": b"1"}}}, b"g": b"2"})
    desk.open()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    outcomes = set()
    # The runner's own descriptors count, too.
    taken = max(map(int, os.listdir("/proc/self/fd")))
    for limit in range(3, taken + 64):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            saved = desk.save()
            outcomes.add("saved")
        except DomainError as error:
            outcomes.add(error.kind)
            continue
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert saved.complete
        assert saved.files == 2
    assert outcomes == {"saved", "too_many_files"}
    assert all(one.complete for one in desk.list().checkpoints)


def test_descriptors_are_closed(desk: Desk):
    desk.plant({b"a": {b"b": {b"c": b"1"}}, b"d": {}})
    desk.save()
    before = os.listdir("/proc/self/fd")
    desk.write(b"a/b/c", b"2")
    desk.status()
    desk.configure(max_file_bytes=1)
    assert len(os.listdir("/proc/self/fd")) <= len(before)
