"""The user's own repositories in a worktree: their content is saved, nothing of theirs is touched."""

import os
import shutil
import stat

import pytest

from ckptd.shadow.objects.pack import HashOnly
from support.worktrees import Desk, git_tree, run_git

pytestmark = pytest.mark.core


def _git(desk: Desk, where: bytes, *words: str | bytes) -> bytes:
    return run_git("-c", "protocol.file.allow=always", *words, cwd=desk.path(where))


def _repository(desk: Desk, where: bytes, commit: bool = True) -> None:
    desk.mkdir(where)
    _git(desk, where, "init", "-q", ".")
    desk.write(os.path.join(where, b"tracked"), b"1")
    if commit:
        _git(desk, where, "add", ".")
        _git(desk, where, "commit", "-qm", "one")


def _git_dirs(desk: Desk) -> dict[bytes, tuple[int, int, bytes]]:
    """Everything below (or at) each .git: mode, mtime and bytes."""
    found = {}
    for folder, folders, files in os.walk(desk.root):
        for name in folders + files:
            path = os.path.join(folder, name)
            if b"/.git/" not in path + b"/" and b".git/" not in path + b"/":
                continue
            stated = os.lstat(path)
            data = b""
            if stat.S_ISREG(stated.st_mode):
                with open(path, "rb") as file:
                    data = file.read()
            found[path] = (stated.st_mode, stated.st_mtime_ns, data)
    return found


def _everything(desk: Desk) -> list[str]:
    """Each operation that looks at the worktree; gives the tree that was saved."""
    desk.status()
    saved = desk.save()
    desk.write(b"zz-new", b"1")
    desk.status()
    desk.diff()
    assert desk.save().created
    assert desk.save(rehash=True).notes == saved.notes
    return saved.notes


def test_repositories_of_all_kinds(desk: Desk):
    _repository(desk, b"")
    _repository(desk, b"nested")
    _repository(desk, b"unborn", commit=False)
    _git(desk, b"", "init", "-q", "--bare", "bare.git")
    _repository(desk, b"source")
    _git(desk, b"", "submodule", "--quiet", "add", "./source", "module")
    _git(desk, b"nested", "worktree", "add", "-q", "../linked")
    desk.write(b"nested/deep/new", b"2")
    before = _git_dirs(desk)
    assert _everything(desk) == []
    assert _git_dirs(desk) == before
    paths = desk.paths_of("refs/checkpoints/0000000001")
    assert desk.tree_of("refs/checkpoints/0000000002") == git_tree(desk.root)
    wanted = (b"nested/tracked", b"nested/deep/new", b"unborn/tracked", b"module/tracked", b"linked/tracked")
    assert {*wanted, b"bare.git/HEAD", b"bare.git/config"} <= set(paths)
    assert not any(b".git" in path.split(b"/") for path in paths)
    _git(desk, b"nested", "fsck", "--strict")


def test_nothing_below_a_git_directory_is_even_opened_for_writing(desk: Desk):
    """Taken away: the permission to write there."""
    _repository(desk, b"")
    for folder, _, files in os.walk(desk.path(b".git")):
        for name in files:
            os.chmod(os.path.join(folder, name), 0o444)
        os.chmod(folder, 0o555)
    before = _git_dirs(desk)
    _everything(desk)
    assert _git_dirs(desk) == before


def test_tracked_files_are_saved_although_a_rule_ignores_them(desk: Desk):
    for where in (b"", b"nested"):
        _repository(desk, where)
        desk.write(os.path.join(where, b".gitignore"), b"dist/\n*.log\n")
        for name in (b"dist/deep/x", b"dist/y", b"kept.log", b"other.log"):
            desk.write(os.path.join(where, name), b"1")
        _git(desk, where, "add", "-f", "dist/deep/x", "kept.log", "tracked")
    saved = desk.save()
    paths = set(desk.paths_of(saved.id))
    for start in (b"", b"nested/"):
        assert {start + b"dist/deep/x", start + b"kept.log"} <= paths
        assert not {start + b"dist/y", start + b"other.log"} & paths
    assert saved.notes == []
    # an edit of one is seen, as is one that git stops tracking
    desk.write(b"dist/deep/x", b"2")
    assert desk.changes() == [(b"dist/deep/x", "modified", False)]
    _git(desk, b"", "rm", "-q", "--cached", "kept.log")
    assert (b"kept.log", "deleted", False) in desk.changes()
    assert os.path.exists(desk.path(b"kept.log"))
    desk.reopen()
    saved = desk.save()
    assert b"dist/deep/x" in desk.paths_of(saved.id)
    assert not desk.save().created


def test_a_submodule_that_a_rule_ignores_is_tracked_all_the_same(desk: Desk):
    _repository(desk, b"")
    _repository(desk, b"source")
    _git(desk, b"", "submodule", "--quiet", "add", "./source", "module")
    desk.write(b"module/untracked", b"1")
    desk.write(b".gitignore", b"module\nsource\n")
    paths = set(desk.paths_of(desk.save().id))
    assert b"module/tracked" in paths
    assert not any(path.startswith(b"source") for path in paths)


def test_odd_names_in_an_index(desk: Desk):
    _repository(desk, b"")
    desk.write(b".gitignore", b"*.x\n")
    for name in (b"\xff.x", "é".encode() + b".x", b"new\nline.x"):
        desk.write(name, b"1")
        _git(desk, b"", "add", "-f", name)
    desk.write(b"none.x", b"1")
    saved = desk.save()
    assert saved.notes == []
    assert {b"\xff.x", "é".encode() + b".x", b"new\nline.x"} <= set(desk.paths_of(saved.id))
    assert b"none.x" not in desk.paths_of(saved.id)


def test_an_index_that_cannot_be_read_is_reported(desk: Desk):
    _repository(desk, b"")
    desk.write(b".gitignore", b"*.x\n")
    desk.write(b"a.x", b"1")
    desk.write(b"b", b"1")
    _git(desk, b"", "add", "-f", "a.x", "b")
    _git(desk, b"", "update-index", "--split-index")
    saved = desk.save()
    [note] = saved.notes
    assert "index" in note
    assert saved.complete
    assert b"b" in desk.paths_of(saved.id)
    assert desk.save().notes == [note]
    _git(desk, b"", "update-index", "--no-split-index")
    assert b"a.x" in desk.paths_of(desk.save().id)
    with open(desk.path(b".git/index"), "r+b") as file:
        file.write(b"JUNK")
    assert len(desk.save().notes) == 1
    desk.remove(b".git/index")
    assert desk.save().notes == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", [b".git", b".git/info/exclude", b".git/index", b".gitignore", b".ckptignore"])
def test_a_fifo_where_git_has_a_file_is_not_waited_for(desk: Desk, name: bytes):
    _repository(desk, b"")
    desk.write(b".gitignore", b"*.x\n")
    desk.write(b"a.x", b"1")
    if os.path.lexists(desk.path(name)):
        desk.remove(name)
    os.mkfifo(desk.path(name))
    saved = desk.save()
    assert b"tracked" in desk.paths_of(saved.id)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("target", [b"/dev/zero", b"/", b"nowhere", b"."])
def test_a_git_file_that_is_a_link_to_something_else(desk: Desk, target: bytes):
    desk.link(b".git", target)
    desk.write(b"a", b"1")
    assert set(desk.paths_of(desk.save().id)) == {b"a"}


def test_a_repository_that_comes_and_goes(desk: Desk):
    desk.write(b".gitignore", b"*.x\n")
    desk.write(b"a.x", b"1")
    desk.write(b"b", b"1")
    desk.settle()
    first = desk.save()
    _git(desk, b"", "init", "-q", ".")
    _git(desk, b"", "add", "-f", "a.x")
    second = desk.save()
    assert b"a.x" in desk.paths_of(second.id)
    shutil.rmtree(desk.path(b".git"))
    third = desk.save()
    assert desk.tree_of(third.id) == desk.tree_of(first.id)


def test_problems_of_a_scan_that_was_called_off_are_not_told_twice(desk: Desk):
    _repository(desk, b"")
    desk.write(b".gitignore", b"*.x\n")
    desk.write(b"a.x", b"1")
    _git(desk, b"", "update-index", "--split-index")

    class Broken(HashOnly):
        def add(self, kind: bytes, data: bytes) -> bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        desk.repo.scan(Broken())
    assert len(desk.repo.scan(HashOnly()).problems) == 1


def test_what_the_users_git_throws_away_is_in_the_store(desk: Desk):
    desk.write(b"file", b"nobody else has this\n")
    _repository(desk, b"", commit=True)
    saved = desk.save()
    _git(desk, b"", "checkout", "-q", "--orphan", "other")
    _git(desk, b"", "rm", "-qrf", ".")
    for branch in _git(desk, b"", "for-each-ref", "--format=%(refname:short)").split():
        _git(desk, b"", "branch", "-D", branch)
    _git(desk, b"", "reflog", "expire", "--expire=now", "--all")
    _git(desk, b"", "gc", "-q", "--prune=now")
    desk.reopen()
    desk.reset(saved.id)
    with open(desk.path(b"file"), "rb") as file:
        assert file.read() == b"nobody else has this\n"
    assert not os.path.exists(os.path.join(desk.folder, b"objects/info/alternates"))
