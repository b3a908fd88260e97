"""Patches of real checkpoints and worktrees, which the git program has to take."""

import base64
import os
import random
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import settings as effort_settings

from ckpt_protocol import checkpoint as wire
from ckptd.errors import DomainError
from support import isolation
from support.effort import examples
from support.worktrees import GIT_ENVIRON, Desk, Tree, desk_fixture, run_git, trees

pytestmark = pytest.mark.core


class Applier:
    """A repository of git's, to apply patches in that lead from one checkpoint's files to another's."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._place = os.path.join(desk.base, b"applier")
        os.mkdir(self._place)
        run_git("init", "-q", self._place)
        run_git("config", "core.protectNTFS", "false", cwd=self._place)
        alternates = os.path.join(self._place, b".git", b"objects", b"info", b"alternates")
        with open(alternates, "wb") as file:
            file.write(os.path.join(desk.folder, b"objects") + b"\n")

    def check(self, old: str, new: str, patch: bytes) -> None:
        before, after = self._desk.tree_of(old), self._desk.tree_of(new)
        assert self._apply(before, patch) == self._apply(after, b"")
        assert self._apply(after, patch, "-R") == self._apply(before, b"")

    def _apply(self, tree: str, patch: bytes, *options: str) -> bytes:
        """Apply a patch to a tree; give the files that come out. (No patch can hold an empty directory.)"""
        run_git("read-tree", "--reset", tree, cwd=self._place)
        if patch:
            run_git("apply", "--cached", "--whitespace=nowarn", *options, cwd=self._place, data=patch)
        return run_git("ls-files", "-s", "-z", cwd=self._place)


def check_pair(desk: Desk, old: str, new: str) -> bytes:
    shutil.rmtree(os.path.join(desk.base, b"applier"), ignore_errors=True)
    patch = desk.diff(from_id=old, to_id=new)
    Applier(desk).check(old, new, patch)
    return patch


def change_much(desk: Desk) -> None:
    desk.write(b"edited", b"1\n2\n3\n" * 100)
    desk.write(b"gone", b"x\n" * 50)
    desk.write(b"moved", b"".join(b"line %d\n" % number for number in range(50)))
    desk.write(b"d/was a directory", b"1")
    desk.write(b"was a file", b"1")
    desk.write(b"becomes a link", b"target")
    desk.write(b"binary", bytes(range(256)) * 10)
    desk.write(b"run", b"#!/bin/sh\n")
    desk.write(b'caf\xe9 "quoted"\n', b"odd\n")
    desk.write(b"no newline", b"a\nb")
    desk.mkdir(b"empty")


def change_again(desk: Desk) -> None:
    desk.write(b"edited", b"1\n2\n3\n" * 50 + b"new\n" + b"1\n2\n3\n" * 50)
    desk.remove(b"gone")
    os.rename(desk.path(b"moved"), desk.path(b"moved here"))
    desk.remove(b"d")
    desk.write(b"d", b"a file now")
    desk.remove(b"was a file")
    desk.write(b"was a file/below", b"1")
    desk.remove(b"becomes a link")
    desk.link(b"becomes a link", b"target")
    desk.write(b"binary", bytes(range(255, -1, -1)) * 10)
    os.chmod(desk.path(b"run"), 0o755)
    desk.write(b'caf\xe9 "quoted"\n', b"odder\n")
    desk.write(b"no newline", b"a\nb\n")
    desk.remove(b"empty")
    desk.mkdir(b"other/empty")
    desk.write(b"new", b"")


def test_between_checkpoints_and_to_the_worktree(desk: Desk):
    change_much(desk)
    one = desk.save("one").id
    change_again(desk)
    # The worktree is compared first: its content is in no checkpoint yet.
    to_worktree = desk.diff()
    two = desk.save("two").id
    assert to_worktree == desk.diff(from_id=one) == desk.diff(from_id=one, to_id=two)
    patch = check_pair(desk, one, two)
    assert b"rename from moved\n" in patch
    check_pair(desk, two, one)
    assert desk.diff() == b""
    assert desk.diff(from_id=two, to_id=two) == b""
    assert desk.diff(from_id="HEAD~1", to_id="HEAD") == patch


@given(trees(), trees())
@effort_settings(max_examples=examples(15))
def test_any_two_trees(old: Tree, new: Tree):
    for desk in desk_fixture():
        desk.plant(old)
        one = desk.save("one", force=True).id
        shutil.rmtree(desk.root)
        os.mkdir(desk.root)
        desk.plant(new)
        to_worktree = desk.diff()
        two = desk.save("two", force=True, meta={"x": "y"}).id
        assert check_pair(desk, one, two) == to_worktree


@pytest.mark.parametrize("context", [0, 1, 3, 100])
def test_context_lines(desk: Desk, context: int):
    desk.write(b"f", b"".join(b"%d\n" % number for number in range(100)))
    one = desk.save("one").id
    desk.write(b"f", b"".join(b"%d\n" % (number if number != 50 else 5000) for number in range(100)))
    two = desk.save("two").id
    ours = desk.diff(from_id=one, to_id=two, context_lines=context)
    theirs = desk.git("diff", "--full-index", "--binary", f"-U{context}", "-M", desk.tree_of(one), desk.tree_of(two))
    assert ours == theirs


def test_a_summary_is_that_of_git(desk: Desk):
    change_much(desk)
    one = desk.save("one").id
    change_again(desk)
    worktree = desk.diff(format="name-status")
    two = desk.save("two").id
    assert desk.diff(from_id=one, to_id=two, format="name-status") == worktree
    for line in desk.git("diff", "--name-status", "-M", desk.tree_of(one), desk.tree_of(two)).splitlines():
        assert line in worktree.splitlines()
    stat = desk.diff(from_id=one, to_id=two, format="stat")
    theirs = desk.git("diff", "--stat", "-M", desk.tree_of(one), desk.tree_of(two))
    assert stat.splitlines()[-1] == theirs.splitlines()[-1]


def test_some_paths_only(desk: Desk):
    for name in (b"a", b"d/b", b"d/e/c", b"dd", b"caf\xe9"):
        desk.write(name, b"1\n")
    one = desk.save("one").id
    for name in (b"a", b"d/b", b"d/e/c", b"dd", b"caf\xe9"):
        desk.write(name, b"2\n")

    def named(*paths: bytes) -> set[bytes]:
        text = desk.diff(from_id=one, paths=list(paths), format="name-status")
        return {line.split(b"\t")[1] for line in text.splitlines()}

    assert named() == {b"a", b"d/b", b"d/e/c", b"dd", b'"caf\\351"'}
    assert named(b"a") == {b"a"}
    assert named(b"d") == {b"d/b", b"d/e/c"}
    assert named(b"d/e", b"caf\xe9") == {b"d/e/c", b'"caf\\351"'}
    assert named(b"none", b"a/x", b"d/") == set()


def large(desk: Desk, size: int = 4_000_000) -> bytes:
    data = random.Random(1).randbytes(size // 2).hex().encode()
    return b"".join(data[at : at + 60] + b"\n" for at in range(0, len(data), 60))


def first_piece(desk: Desk, **fields: object) -> wire.DiffResult:
    return desk.diff_result(**fields)


def test_a_large_patch_comes_in_pieces(desk: Desk):
    desk.write(b"small", b"1\n")
    one = desk.save("one").id
    desk.write(b"large", large(desk))
    first = first_piece(desk)
    assert first.cursor is not None
    assert first.total_bytes > 3_000_000
    assert len(base64.b64decode(first.data.b64)) == 1 << 20
    # The pieces are those of one and the same patch, whatever happens meanwhile.
    desk.write(b"large", b"something else")
    two_id = None
    pieces, offset = [base64.b64decode(first.data.b64)], 1 << 20
    cursor: str | None = first.cursor
    while cursor is not None:
        piece = first_piece(desk, cursor=cursor, offset=offset)
        pieces.append(base64.b64decode(piece.data.b64))
        offset += len(pieces[-1])
        cursor = piece.cursor
    assert offset == first.total_bytes
    desk.write(b"large", large(desk))
    two_id = desk.save("two").id
    assert b"".join(pieces) == check_pair(desk, one, two_id)


def test_cursors_end(desk: Desk):
    desk.write(b"small", b"1\n")
    desk.save("one")
    desk.write(b"large", large(desk))
    cursors = [first_piece(desk).cursor for _ in range(5)]
    for cursor in (cursors[0], "none", ""):
        with pytest.raises(DomainError, match="expired_cursor"):
            first_piece(desk, cursor=cursor, offset=1 << 20)
    assert all(first_piece(desk, cursor=cursor, offset=1 << 20).cursor for cursor in cursors[1:])
    # Beyond the end there is nothing, and the patch is let go of.
    for cursor, offset in ((cursors[1], 1 << 40), (cursors[2], 1 << 70)):
        beyond = first_piece(desk, cursor=cursor, offset=offset)
        assert (beyond.data.b64, beyond.cursor) == ("", None)
        with pytest.raises(DomainError, match="expired_cursor"):
            first_piece(desk, cursor=cursor, offset=0)
    before = len(os.listdir("/proc/self/fd"))
    desk.close()
    assert len(os.listdir("/proc/self/fd")) < before
    desk.open(create=False)
    with pytest.raises(DomainError, match="expired_cursor"):
        first_piece(desk, cursor=cursors[3], offset=0)


def test_a_diff_writes_nothing_into_the_store(desk: Desk):
    desk.write(b"f", b"1\n")
    desk.save("one")
    desk.write(b"f", large(desk))

    def packs() -> list[bytes]:
        return sorted(os.listdir(os.path.join(desk.folder, b"objects", b"pack")))

    before = packs(), desk.git("for-each-ref"), sorted(os.listdir(os.path.join(desk.folder, b"ckpt")))
    desk.diff()
    assert (packs(), desk.git("for-each-ref"), sorted(os.listdir(os.path.join(desk.folder, b"ckpt")))) == before


def test_permission_bits_beyond_gits_are_no_patch(desk: Desk):
    desk.write(b"f", b"1\n", 0o644)
    desk.mkdir(b"d", 0o755)
    one = desk.save("one").id
    os.chmod(desk.path(b"f"), 0o600)
    os.chmod(desk.path(b"d"), 0o700)
    two = desk.save("two").id
    assert one != two
    for form in ("patch", "stat", "name-status"):
        assert desk.diff(from_id=one, to_id=two, format=form) == b""
    os.chmod(desk.path(b"f"), 0o711)
    assert desk.diff() == b"diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"


def test_a_diff_without_a_checkpoint(desk: Desk):
    desk.write(b"f", b"1\n")
    desk.open()
    with pytest.raises(DomainError, match="no_checkpoint"):
        desk.diff()
    desk.save("one")
    with pytest.raises(DomainError, match="unknown_checkpoint"):
        desk.diff(from_id="none")
    with pytest.raises(DomainError, match="unknown_checkpoint"):
        desk.diff(to_id="none")


def test_what_a_scan_leaves_out_is_not_in_a_patch(desk: Desk):
    desk.configure(max_file_bytes=1000)
    desk.write(b"f", b"1\n")
    desk.write(b".gitignore", b"*.log\n")
    desk.save("one")
    desk.write(b"x.log", b"log\n")
    desk.write(b"large", bytes(1001))
    os.mkfifo(desk.path(b"pipe"))
    assert desk.diff() == b""


@pytest.fixture
def writer_at_work(desk: Desk) -> Iterator[Desk]:
    """Somebody who rewrites files all the time: the length of each is that of a number, many times over."""
    script = "i=0; while :; do i=$((i+1)); for f in a b c; do printf '%s\\n' $i $i $i >$f; done; done"
    desk.write(b"still", b"1\n")
    desk.save("one")
    child = subprocess.Popen(["sh", "-c", script], cwd=desk.root, env=dict(GIT_ENVIRON))
    try:
        yield desk
    finally:
        child.kill()
        child.wait()


def test_a_patch_of_files_that_change_meanwhile_is_one_of_some_moment(writer_at_work: Desk):
    desk = writer_at_work
    for name in (b"a", b"b", b"c"):
        while not os.path.exists(desk.path(name)):
            pass
    place = os.fsencode(isolation.short_directory("ckf"))
    try:
        run_git("init", "-q", place)
        for _ in range(15):
            # Git checks each hunk's count of lines; the ids say what the whole file must be.
            patch = desk.diff()
            run_git("read-tree", "--empty", cwd=place)
            run_git("apply", "--cached", cwd=place, data=patch)
            for line in run_git("ls-files", "-s", cwd=place).splitlines():
                _, oid, rest = line.split(b" ", 2)
                assert b"index " + b"0" * 40 + b".." + oid in patch, rest
    finally:
        isolation.remove(os.fsdecode(place))
