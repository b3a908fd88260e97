"""Patches between checkpoints and of the worktree: git applies them, and they come in pieces."""

import base64
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from ckpt_protocol import checkpoint as wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from support.git_trees import GitTrees
from support.worktrees import Desk, Executable, Link, Tree, trees

pytestmark = pytest.mark.core

_OLD: Tree = {
    b"edited": b"".join(b"line %d\n" % number for number in range(50)),
    b"same": b"1\n",
    b"binary": bytes(range(256)),
    b"no end": b"no line end",
    b"empty": b"",
    b"moved": b"".join(b"moved %d\n" % number for number in range(20)),
    b"run": b"#!/bin/sh\n",
    b"link": Link(b"same"),
    b"file-dir": b"2\n",
    b"dir-file": {b"a": b"3\n"},
    b"crlf": b"a\r\nb\r\n",
    b"\xff\n\"'": b"odd\n",
    b"gone": {b"deep": {b"er": b"1\n"}},
}

_NEW: Tree = {
    b"edited": b"".join(b"line %d\n" % (number if number != 25 else 0) for number in range(50)),
    b"same": b"1\n",
    b"binary": bytes(range(255, -1, -1)),
    b"no end": b"no line end either",
    b"empty": b"full\n",
    b"place": {b"moved": b"".join(b"moved %d\n" % number for number in range(20))},
    b"run": Executable(b"#!/bin/sh\n"),
    b"link": Link(b"nowhere"),
    b"file-dir": {b"b": b"4\n"},
    b"dir-file": b"5\n",
    b"crlf": b"a\nb\n",
    b"\xff\n\"'": b"odder\n",
    b"new-empty": {},
}


def _replace(desk: Desk, tree: Tree) -> None:
    for name in os.listdir(desk.root):
        desk.remove(name)
    desk.plant(tree)


def _flat(tree: Tree, start: bytes = b"") -> dict[bytes, tuple[int, bytes]]:
    found: dict[bytes, tuple[int, bytes]] = {}
    for name, node in tree.items():
        if isinstance(node, dict):
            found |= _flat(node, start + name + b"/")
        else:
            mode = 0o120000 if isinstance(node, Link) else 0o100755 if isinstance(node, Executable) else 0o100644
            found[start + name] = (mode, bytes(node))
    return found


def test_git_turns_the_old_tree_into_the_new_one(desk: Desk, tmp_path: Path):
    git = GitTrees(tmp_path / "git")
    old, new = git.write(_flat(_OLD), _flat(_NEW))
    desk.plant(_OLD)
    first = desk.save()
    _replace(desk, _NEW)
    patch = desk.diff()
    assert b"rename to place/moved" in patch
    assert git.apply(old, patch) == new
    second = desk.save()
    assert desk.diff() == b""
    assert desk.diff(from_id=first.id, to_id=second.id) == patch
    assert git.apply(new, desk.diff(from_id=second.id, to_id="#1")) == old
    assert desk.diff(from_id=first.id, to_id=second.id, format="stat") == git.diff(old, new, "--stat=80", "-M")
    assert desk.diff(from_id="HEAD", to_id="HEAD") == b""


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=trees(), new=trees())
def test_any_two_trees(desk: Desk, tmp_path_factory, old: Tree, new: Tree):
    git = GitTrees(tmp_path_factory.mktemp("git") / "git")
    before, after = git.write(_flat(old), _flat(new))
    _replace(desk, old)
    desk.save(force=True)
    _replace(desk, new)
    assert git.apply(before, desk.diff()) == after


def test_paths_and_formats(desk: Desk):
    desk.plant(_OLD)
    desk.save()
    _replace(desk, _NEW)
    assert desk.diff(paths=[b"gone"], format="name-status") == b"D\tgone/deep/er\n"
    # a path in the place of a directory stands for itself, and not for what begins with its name
    assert desk.diff(paths=[b"e"]) == b""
    assert desk.diff(paths=[b"edited"]).count(b"diff --git") == 1
    names = desk.diff(format="name-status").decode("utf-8", "surrogateescape").splitlines()
    assert "M\tedited" in names
    assert "A\tnew-empty/" in names
    assert desk.diff(paths=[b"edited"], context_lines=0).count(b"\n line") == 0


_CHANGED_BITS = [("a", "0644", "0600"), ("d", "0755", "0700")]


def test_permissions_beyond_git_s_are_no_part_of_a_patch(desk: Desk):
    desk.write(b"a", b"1")
    desk.mkdir(b"d")
    desk.save()
    os.chmod(desk.path(b"a"), 0o600)
    os.chmod(desk.path(b"d"), 0o700)
    assert [change[1] for change in desk.changes()] == ["mode", "mode"]
    told = [f"{path} differs in its permissions: {was} became {now}" for path, was, now in _CHANGED_BITS]
    for form in ("patch", "stat", "name-status"):
        assert desk.diff(format=form) == b""
        assert desk.diff_result(format=form).notes == told


def test_empty_directories_are_told_of_where_a_patch_has_no_word_for_them(desk: Desk):
    desk.mkdir(b"gone")
    desk.mkdir(b"filled")
    desk.save()
    desk.remove(b"gone")
    desk.mkdir(b"come/deep")
    desk.write(b"filled/f", b"1")
    told = ["come/deep, an empty directory, was added", "gone, an empty directory, was deleted"]
    assert desk.diff_result().notes == desk.diff_result(format="stat").notes == told
    assert desk.diff_result(format="name-status").notes == []


def _piece(desk: Desk, **fields) -> wire.DiffResult:
    return desk.diff_result(**fields)


def test_a_large_patch_comes_in_pieces(desk: Desk):
    for name in (b"a", b"b", b"c", b"d", b"e"):
        desk.write(name, b"")
    desk.save()
    for name in (b"a", b"b", b"c", b"d", b"e"):
        desk.write(name, b"".join(b"%d %s\n" % (number, os.urandom(30).hex().encode()) for number in range(8_000)))
    first = _piece(desk)
    assert first.cursor is not None
    assert first.total_bytes > 2 << 20
    # the very same patch, whatever happens to the worktree meanwhile
    desk.write(b"a", b"gone")
    whole = [first]
    while whole[-1].cursor is not None:
        assert whole[-1].cursor == first.cursor
        offset = whole[-1].offset + len(_bytes(whole[-1]))
        whole.append(_piece(desk, cursor=first.cursor, offset=offset))
    patch = b"".join(map(_bytes, whole))
    assert len(patch) == first.total_bytes
    assert patch.count(b"\n+") == 5 * 8_001
    # what has been given whole is not kept
    with pytest.raises(DomainError, match=r"^expired_cursor: "):
        _piece(desk, cursor=first.cursor)


def _bytes(result: wire.DiffResult) -> bytes:
    return base64.b64decode(result.data.b64)


def test_only_the_last_few_patches_are_kept(desk: Desk):
    desk.write(b"a", b"")
    desk.save()
    desk.write(b"a", os.urandom(2 << 20))
    cursors = [_piece(desk).cursor for _ in range(5)]
    with pytest.raises(DomainError, match=r"^expired_cursor: "):
        _piece(desk, cursor=cursors[0])
    assert _piece(desk, cursor=cursors[1], offset=5).offset == 5
    with pytest.raises(DomainError, match=r"^expired_cursor: "):
        _piece(desk, cursor="0" * 16)
    desk.reopen()
    with pytest.raises(DomainError, match=r"^expired_cursor: "):
        _piece(desk, cursor=cursors[4])


def test_unknown_and_missing_sides(desk: Desk):
    desk.open()
    with pytest.raises(DomainError, match=r"^no_checkpoint: "):
        desk.diff()
    desk.write(b"a", b"1")
    desk.save()
    with pytest.raises(DomainError, match=r"^unknown_checkpoint: "):
        desk.diff(from_id="ffff")
    with pytest.raises(DomainError, match=r"^unknown_checkpoint: "):
        desk.diff(to_id="nothing")


def test_cancelled(desk: Desk):
    desk.write(b"a", b"1")
    desk.save()
    desk.write(b"a", b"2")
    caller = Caller("test")
    caller.cancelled.set()
    with pytest.raises(DomainError, match=r"^cancelled: "):
        desk.begin_diff(caller=caller)


def test_what_it_keeps_while_it_works_has_no_name(desk: Desk):
    desk.write(b"a", b"")
    desk.save()
    before = sorted(os.listdir(desk.folder + b"/ckpt"))
    desk.write(b"a", os.urandom(12 << 20))
    assert _piece(desk).cursor is not None
    assert sorted(os.listdir(desk.folder + b"/ckpt")) == before
