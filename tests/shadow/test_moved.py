"""A worktree that was moved keeps its history; nobody else gets it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ckpt_protocol.structs import Worktree, from_wire, to_wire
from ckpt_protocol.worktree import AdoptResult
from ckptd.errors import DomainError
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.store import claims
from ckptd.shadow.store.mark import Mark, mark_of
from ckptd.shadow.store.metadata import Metadata, read_metadata, write_metadata
from support.worktrees import Desk, in_child, verify

pytestmark = pytest.mark.core


def test_marks_of_directories_agree_with_the_system(tmp_path: Path):
    place = os.fsencode(tmp_path / "one")
    os.mkdir(place)
    one = mark_of(place)
    assert (one.ino, one.dev) == (str(os.stat(place).st_ino), str(os.stat(place).st_dev))
    if one.birth is not None:
        assert abs(int(one.birth) - os.stat(place).st_mtime_ns) < 10_000_000_000
    moved = os.fsencode(tmp_path / "two")
    os.rename(place, moved)
    (tmp_path / "two" / "file").write_text("x")
    assert mark_of(moved) == one
    with pytest.raises(FileNotFoundError):
        mark_of(place)


PATH = b"/w/new"
HERE = Mark(ino="7", birth="100", dev="1", fsid="5")
"""What stands at the new path; each row below is a store, and what is to be thought of it."""


def recorded(**changes: object) -> Metadata:
    return Metadata(
        **{
            "format": 1,
            "worktree": "/nowhere/old",
            "parent_dev": "1",
            "parent_fsid": "5",
            "created": "2026-11-30T19:45:00Z",
            **HERE._asdict(),
            **changes,
        }
    )


ROWS = [
    ({}, True),
    ({"dev": "2"}, True),
    ({"fsid": "6"}, True),
    ({"dev": "2", "fsid": "6"}, False),
    ({"ino": "8"}, None),
    ({"birth": "101"}, None),
    ({"birth": None}, False),
    ({"birth": None, "dev": None, "fsid": None}, False),
    ({"worktree": "/usr"}, False),
    ({"worktree": "/usr", "birth": None}, None),
    ({"worktree": "/usr", "birth": "101"}, None),
]


@pytest.mark.parametrize(("changes", "wanted"), ROWS)
def test_what_a_record_says_of_a_directory(changes: dict[str, object], wanted: bool | None):
    assert claims.is_proved(recorded(**changes), HERE, PATH) is wanted


def test_without_a_birth_time_nothing_is_proved():
    assert claims.is_proved(recorded(), HERE._replace(birth=None), PATH) is False


@pytest.fixture
def moved(desk: Desk) -> bytes:
    """A worktree with a checkpoint that was moved: its new path."""
    desk.write(b"f", b"one\n")
    desk.save("one")
    desk.close()
    path = desk.root + b" moved"
    os.rename(desk.root, path)
    if mark_of(path).birth is None:
        pytest.skip("this file system keeps no birth times")
    return path


def place(path: bytes) -> Worktree:
    return Worktree(path=to_wire(path))


def refused(ask: Callable[[], object]) -> DomainError:
    with pytest.raises(DomainError) as caught:
        ask()
    return caught.value


def opening(desk: Desk, path: bytes, *, create: bool) -> Callable[[], object]:
    return lambda: desk.catalog().open(desk.checkpoint_dir, place(path), create=create, force=False)


def adopt(desk: Desk, path: bytes, old: bytes, *, dry_run: bool = False, force: bool = False) -> AdoptResult:
    return desk.catalog().adopt(desk.checkpoint_dir, place(path), old, force=force, dry_run=dry_run)


def unsure(desk: Desk) -> None:
    """Make the store one of an earlier version."""
    metadata = os.path.join(desk.folder, b"ckpt", b"metadata.json")
    told = json.loads(Path(os.fsdecode(metadata)).read_bytes())
    for name in ("birth", "dev", "fsid", "former"):
        del told[name]
    Path(os.fsdecode(metadata)).write_text(json.dumps(told))


@pytest.mark.parametrize("create", [False, True])
def test_a_moved_worktree_is_known_for_sure(desk: Desk, moved: bytes, create: bool):
    error = refused(opening(desk, moved, create=create))
    assert (error.kind, error.paths) == ("worktree_moved", (moved, desk.root))
    assert len(os.listdir(desk.checkpoint_dir)) == 1


def test_it_keeps_its_checkpoints_and_their_ids(desk: Desk, moved: bytes):
    before = desk.git("for-each-ref")
    plan = adopt(desk, moved, desk.root, dry_run=True)
    assert (plan.sure, plan.checkpoints, from_wire(plan.old), from_wire(plan.path)) == (True, 1, desk.root, moved)
    assert read_metadata(desk.folder).path == desk.root
    done = adopt(desk, moved, desk.root)
    assert (done.dry_run, from_wire(done.store)) == (False, desk.folder)
    assert (read_metadata(desk.folder).paths, desk.git("for-each-ref")) == ((moved, desk.root), before)
    opened = desk.catalog().open(desk.checkpoint_dir, place(moved), create=False, force=False)
    opened.writer.close()
    opened.reader.close()
    assert opened.folder == desk.folder
    verify(desk.folder)
    # Asked again, it says the same.
    again = adopt(desk, moved, desk.root)
    assert (again.store, again.checkpoints, again.old) == (done.store, 1, done.old)
    assert refused(opening(desk, desk.root, create=False)).kind == "not_tracked"


def test_it_may_be_moved_back(desk: Desk, moved: bytes):
    adopt(desk, moved, desk.root)
    os.rename(moved, desk.root)
    assert refused(opening(desk, desk.root, create=True)).paths == (desk.root, moved)
    adopt(desk, desk.root, moved)
    assert read_metadata(desk.folder).paths == (desk.root, moved)


def test_what_was_wished_of_it_stays(desk: Desk, moved: bytes):
    before = msgspec.structs.replace(read_metadata(desk.folder), autosave=True)
    write_metadata(desk.folder, before)
    adopt(desk, moved, desk.root)
    after = read_metadata(desk.folder)
    assert (after.autosave, after.created, after.ino, after.birth) == (
        True, before.created, before.ino, before.birth,
    )  # fmt: skip
    assert desk.catalog().watched(desk.checkpoint_dir) == [moved]


def test_another_directory_does_not_get_it(desk: Desk, moved: bytes):
    other = desk.root + b" other"
    os.mkdir(other)
    error = refused(opening(desk, other, create=False))
    assert (error.kind, os.fsdecode(desk.root) + " moved" in str(error)) == ("not_tracked", False)
    opened = desk.catalog().open(desk.checkpoint_dir, place(other), create=True, force=False)
    opened.writer.close()
    opened.reader.close()
    assert opened.created


def test_a_number_that_was_given_again_is_no_proof(desk: Desk, moved: bytes):
    record = read_metadata(desk.folder)
    write_metadata(desk.folder, msgspec.structs.replace(record, birth=str(int(record.birth or "0") - 1)))
    error = refused(opening(desk, moved, create=False))
    assert (error.kind, "ckpt adopt" in str(error)) == ("not_tracked", False)


def test_where_it_is_not_proved_a_person_is_asked(desk: Desk, moved: bytes):
    unsure(desk)
    error = refused(opening(desk, moved, create=False))
    assert error.kind == "not_tracked"
    assert f"ckpt adopt {os.fsdecode(desk.root)}" in error.message
    assert "\n" not in error.message
    assert adopt(desk, moved, desk.root).sure is False
    assert read_metadata(desk.folder).birth == mark_of(moved).birth


def test_who_saves_in_doubt_is_told_once(desk: Desk, moved: bytes):
    unsure(desk)
    old, desk.root = desk.root, moved
    notes = [desk.save().notes for _ in range(2)]
    desk.close()
    assert [any(f"ckpt adopt {os.fsdecode(old)}" in note for note in some) for some in notes] == [True, False]
    # Two histories are not made one: both are named.
    error = refused(lambda: adopt(desk, moved, old))
    assert (error.kind, error.paths) == ("two_claimants", (moved, old))


def test_a_store_without_checkpoints_is_in_nobody_s_way(desk: Desk, moved: bytes):
    unsure(desk)
    opened = desk.catalog().open(desk.checkpoint_dir, place(moved), create=True, force=False)
    opened.writer.close()
    opened.reader.close()
    adopt(desk, moved, desk.root, dry_run=True)
    assert len(os.listdir(desk.checkpoint_dir)) == 2
    adopt(desk, moved, desk.root)
    assert os.listdir(desk.checkpoint_dir) == [os.path.basename(desk.folder)]


@pytest.mark.parametrize("what", ["directory", "file", "link"])
def test_something_at_the_old_path_is_a_second_claimant(desk: Desk, moved: bytes, what: str):
    if what == "directory":
        os.mkdir(desk.root)
    elif what == "file":
        Path(os.fsdecode(desk.root)).write_text("mine")
    else:
        os.symlink(b"/usr", desk.root)
    error = refused(opening(desk, moved, create=False))
    assert (error.kind, "ckpt adopt" in error.message) == ("not_tracked", True)
    error = refused(lambda: adopt(desk, moved, desk.root))
    assert (error.kind, error.paths) == ("two_claimants", (moved, desk.root))
    assert all(os.fsdecode(each) in error.message for each in error.paths)
    assert read_metadata(desk.folder).path == desk.root


def test_a_link_to_the_new_place_is_no_claimant(desk: Desk, moved: bytes):
    os.symlink(moved, desk.root)
    assert refused(opening(desk, moved, create=False)).kind == "worktree_moved"
    assert adopt(desk, moved, desk.root).sure


def test_a_copy_is_adopted_by_hand_only(desk: Desk, moved: bytes):
    copy = moved + b" copy"
    shutil.copytree(moved, copy, symlinks=True)
    shutil.rmtree(moved)
    assert "ckpt adopt" not in refused(opening(desk, copy, create=False)).message
    assert adopt(desk, copy, desk.root).sure is False
    assert read_metadata(desk.folder).path == copy


def test_two_stores_of_one_worktree(desk: Desk, moved: bytes):
    twin = desk.folder + b"-copy"
    shutil.copytree(desk.folder, twin)
    assert refused(opening(desk, moved, create=False)).kind == "not_tracked"
    error = refused(lambda: adopt(desk, moved, desk.root))
    assert (error.kind, os.fsdecode(desk.folder) in error.message, os.fsdecode(twin) in error.message) == (
        "two_claimants", True, True,
    )  # fmt: skip
    assert from_wire(adopt(desk, moved, twin).store) == twin
    assert (read_metadata(twin).path, read_metadata(desk.folder).path) == (moved, desk.root)


def test_what_cannot_be_adopted(desk: Desk, moved: bytes):
    assert refused(lambda: adopt(desk, moved, b"/nowhere/else")).kind == "not_tracked"
    assert refused(lambda: adopt(desk, desk.checkpoint_dir, desk.root)).kind == "bad_path"
    assert refused(lambda: adopt(desk, moved + b" gone", desk.root)).kind == "worktree_missing"
    assert refused(lambda: adopt(desk, b"/usr", desk.root)).kind == "protected_place"
    adopt(desk, moved, desk.root)
    assert refused(lambda: adopt(desk, moved, moved)).kind == "bad_path"
    assert os.listdir(desk.checkpoint_dir) == [os.path.basename(desk.folder)]


@pytest.mark.parametrize("point", ["file-written", "file-named"])
def test_killed_half_way_it_is_the_old_or_the_new_one(desk: Desk, moved: bytes, point: str):
    def work() -> None:
        listen(lambda name, _path: os._exit(9) if name == point else None)
        adopt(desk, moved, desk.root)

    assert os.waitstatus_to_exitcode(in_child(work)) == 9
    assert read_metadata(desk.folder).path == (desk.root if point == "file-written" else moved)
    verify(desk.folder)
    adopt(desk, moved, desk.root)
    assert read_metadata(desk.folder).paths == (moved, desk.root)
