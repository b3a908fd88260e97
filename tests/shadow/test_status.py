"""What status says has changed: every kind of swap, and nothing written by asking."""

import os
from pathlib import Path

import pytest

from support.worktrees import Desk, Executable, Link, somebody

pytestmark = pytest.mark.core

_BEFORE = {
    b"same": b"1",
    b"edited": b"1",
    b"deleted": b"1",
    b"run": b"1",
    b"walk": Executable(b"1"),
    b"private": b"1",
    b"file-link": b"1",
    b"link-file": Link(b"x"),
    b"link-link": Link(b"x"),
    b"file-dir": b"1",
    b"dir-file": {b"a": b"1", b"b": {b"c": b"1"}},
    b"dir-link": {b"a": b"1"},
    b"link-dir": Link(b"x"),
    b"emptied": {b"a": b"1"},
    b"empty-gone": {},
    b"empty-file": {},
    b"empty-link": {},
    b"filled": {},
    b"gone": {b"a": b"1", b"e": {}},
    b"modes": {b"a": b"1"},
    b"empty-modes": {},
}

_CHANGES = [
    (b"deleted", "deleted", False),
    (b"dir-file", "type", False),
    (b"dir-file/a", "deleted", False),
    (b"dir-file/b/c", "deleted", False),
    (b"dir-link", "type", False),
    (b"dir-link/a", "deleted", False),
    (b"edited", "modified", False),
    (b"emptied/a", "deleted", False),
    (b"empty-file", "type", False),
    (b"empty-gone", "deleted", True),
    (b"empty-link", "type", False),
    (b"empty-modes", "mode", True),
    (b"file-dir", "type", False),
    (b"file-dir/a", "added", False),
    (b"file-link", "type", False),
    (b"filled/a", "added", False),
    (b"gone/a", "deleted", False),
    (b"gone/e", "deleted", True),
    (b"link-dir", "type", False),
    (b"link-file", "type", False),
    (b"link-link", "modified", False),
    (b"modes", "mode", True),
    (b"new", "added", False),
    (b"new-dir/e", "added", True),
    (b"new-empty", "added", True),
    (b"private", "mode", False),
    (b"run", "mode", False),
    (b"walk", "mode", False),
]


def _change(desk: Desk) -> None:
    for name in (b"deleted", b"file-link", b"link-file", b"link-link", b"file-dir", b"dir-file", b"dir-link"):
        desk.remove(name)
    for name in (b"link-dir", b"empty-gone", b"empty-file", b"empty-link", b"gone", b"emptied/a"):
        desk.remove(name)
    desk.write(b"edited", b"2")
    os.chmod(desk.path(b"run"), 0o755)
    os.chmod(desk.path(b"walk"), 0o644)
    os.chmod(desk.path(b"private"), 0o600)
    desk.link(b"file-link", b"1")
    desk.write(b"link-file", b"x")
    desk.link(b"link-link", b"y")
    desk.write(b"file-dir/a", b"1")
    desk.write(b"dir-file", b"1")
    desk.link(b"dir-link", b"same")
    desk.mkdir(b"link-dir")
    desk.write(b"empty-file", b"")
    desk.link(b"empty-link", b"x")
    desk.write(b"filled/a", b"1")
    desk.mkdir(b"modes", 0o700)
    desk.mkdir(b"empty-modes", 0o700)
    desk.write(b"new", b"1")
    desk.mkdir(b"new-dir/e")
    desk.mkdir(b"new-empty")


def test_every_kind_of_change(desk: Desk):
    desk.plant(_BEFORE)
    first = desk.save()
    _change(desk)
    assert desk.changes() == _CHANGES
    second = desk.save()
    assert desk.changes() == []
    # a checkpoint compared with its base says the same
    assert [(os.fsencode(one.path), one.change, one.dir) for one in desk.show(second.id).changes] == _CHANGES
    assert desk.show(second.id).base == first.id


def _look(place: bytes) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in [Path(os.fsdecode(place)), *Path(os.fsdecode(place)).rglob("*")]:
        stated = path.lstat()
        found[str(path)] = (stated.st_mtime_ns, stated.st_ctime_ns, stated.st_size)
    return found


def test_asking_writes_nothing(desk: Desk):
    desk.plant(_BEFORE)
    desk.save()
    _change(desk)
    before = _look(desk.base)
    desk.status()
    desk.diff()
    desk.diff(format="stat")
    desk.reset(dry_run=True)
    assert _look(desk.base) == before


def test_of_a_store_without_checkpoints(desk: Desk):
    desk.open()
    desk.write(b"a", b"1")
    status = desk.status()
    assert (status.head, status.head_record, status.files) == (None, None, 1)
    assert desk.changes() == [(b"a", "added", False)]


def test_it_names_head_and_the_last_manual_checkpoint_behind_an_autosave(desk: Desk):
    desk.write(b"a", b"1")
    first = desk.save("mine", tag="t")
    status = desk.status()
    assert status.head == first.id
    assert status.head_record is not None
    assert (status.head_record.message, status.head_record.tags, status.last_manual) == ("mine", ["t"], None)
    desk.write(b"a", b"2")
    auto = desk.save(kind="auto")
    status = desk.status()
    assert status.head == auto.id
    assert status.last_manual is not None
    assert status.last_manual.id == first.id


def test_what_is_left_out_is_told(desk: Desk):
    desk.configure(max_file_bytes=5)
    desk.write(b"locked", b"1", 0o000)
    desk.write(b"large", b"123456")
    if os.geteuid() == 0:
        os.chown(desk.path(b"locked"), 0, 0)
    with somebody():
        desk.save()
        status = desk.status()
        desk.close()
    assert [(item.path, item.reason) for item in status.skipped] == [("locked", "unreadable")]
    assert [(item.path, item.reason) for item in status.excluded] == [("large", "large")]
