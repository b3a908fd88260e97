"""What a store says of itself, and what is done about a store that says something else."""

import os
from pathlib import Path

import msgspec
import pytest

from ckptd.errors import DomainError
from ckptd.shadow.store.metadata import FORMAT, Metadata, describe, read_metadata, write_metadata
from support.tiny_disk import fill, tiny_disk
from support.worktrees import Desk

pytestmark = pytest.mark.core


@pytest.fixture
def folder(tmp_path: Path) -> bytes:
    (tmp_path / "ckpt").mkdir()
    return os.fsencode(tmp_path)


def file_of(folder: bytes) -> Path:
    return Path(os.fsdecode(folder), "ckpt", "metadata.json")


@pytest.mark.parametrize("name", [b"plain", b"caf\xe9", b"two\nlines", "ünï".encode(), b"x" * 255, b'"'])
def test_a_worktree_of_any_name_comes_back(folder: bytes, short_dir: Path, name: bytes):
    worktree = os.path.join(os.fsencode(short_dir), name)
    os.mkdir(worktree)
    metadata = describe(worktree, "2026-01-01T00:00:00Z", forced=True)
    write_metadata(folder, metadata)
    found = read_metadata(folder)
    assert found == metadata
    assert found.path == worktree
    assert found.ino == str(os.stat(worktree).st_ino)
    assert found.parent_dev == str(os.stat(short_dir).st_dev)
    assert found.forced


def test_a_worktree_that_is_gone_cannot_be_described(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        describe(os.fsencode(tmp_path / "none"), "t", forced=False)


GOOD = {"format": FORMAT, "worktree": "/w", "ino": "1", "parent_dev": "2", "parent_fsid": "3", "created": "t"}


def encoded(**changes: object) -> bytes:
    return msgspec.json.encode({**GOOD, **changes})


def test_fields_that_are_unknown_are_passed_over(folder: bytes):
    file_of(folder).write_bytes(encoded(something={"new": [1]}))
    assert read_metadata(folder) == Metadata(**GOOD)


@pytest.mark.parametrize(
    "data",
    [
        encoded(format=FORMAT + 1),
        b'{"format": 0}',
        b'{"format": 99, "entirely": "else"}',
        encoded(format=7, worktree=5),
    ],
)
def test_an_unknown_format_is_refused_and_left_alone(folder: bytes, data: bytes):
    file_of(folder).write_bytes(data)
    with pytest.raises(DomainError, match=r"store_format.*this version knows format 1") as caught:
        read_metadata(folder)
    assert caught.value.paths == (folder,)
    assert file_of(folder).read_bytes() == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"junk",
        b"\0" * 100,
        b"[]",
        b"{}",
        b"\xff\xfe",
        encoded()[:-20],
        encoded(format="1"),
        encoded(format=None),
        encoded(worktree=None),
        encoded(worktree=""),
        encoded(worktree="relative/path"),
        encoded(worktree="/a/../b"),
        encoded(worktree="/a\0b"),
        encoded(worktree={"b64": "!"}),
        encoded(worktree={"b64": "YQ=="}),
        encoded(worktree={"b64": "/w=="}),
        encoded(ino=5),
        encoded().replace(b'"/w"', b'"/\xff"'),
        encoded().replace(b'"/w"', b'"/\\ud800"'),
    ],
)
def test_malformed_metadata_is_damage(folder: bytes, data: bytes):
    file_of(folder).write_bytes(data)
    with pytest.raises(DomainError, match="store_damaged"):
        read_metadata(folder)
    assert file_of(folder).read_bytes() == data


def test_no_metadata_is_no_store(folder: bytes):
    with pytest.raises(DomainError, match=r"store_damaged.*no metadata"):
        read_metadata(folder)
    file_of(folder).mkdir()
    with pytest.raises(DomainError, match="io_error"):
        read_metadata(folder)


def test_a_full_disk_leaves_the_old_metadata(tmp_path: Path):
    with tiny_disk(os.fsencode(tmp_path)) as place:
        os.mkdir(os.path.join(place, b"ckpt"))
        old = Metadata(**GOOD)
        write_metadata(place, old)
        fill(place)
        with pytest.raises(DomainError, match="no_space"):
            write_metadata(place, Metadata(**{**GOOD, "created": "x" * 10_000}))
        assert read_metadata(place) == old
        assert os.listdir(os.path.join(place, b"ckpt")) == [b"metadata.json"]


def test_a_store_of_another_format_is_opened_by_nobody(desk: Desk):
    desk.save("m")
    desk.close()
    desk.damaged = True
    file = file_of(desk.folder)
    later = file.read_bytes().replace(b'"format":1', b'"format":2')
    file.write_bytes(later)
    before = sorted(os.walk(desk.folder))
    for create in (False, True):
        with pytest.raises(DomainError, match="store_format"):
            desk.open(create=create)
    with pytest.raises(DomainError, match="store_format"):
        desk.catalog().delete(desk.checkpoint_dir, desk.folder)
    assert sorted(os.walk(desk.folder)) == before
    assert file.read_bytes() == later
    assert len(list(desk.stores())) == 1
