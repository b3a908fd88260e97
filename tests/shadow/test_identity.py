"""Client and daemon must mean the same directory."""

import os
from pathlib import Path

import pytest

from ckpt_protocol.structs import Worktree, to_wire
from ckptd.errors import DomainError
from ckptd.shadow.store.identity import check_identity, check_real
from support.worktrees import Desk, somebody

pytestmark = pytest.mark.core


def place(path: bytes, dev: int | None, ino: int | None) -> Worktree:
    return Worktree(path=to_wire(path), dev=None if dev is None else str(dev), ino=None if ino is None else str(ino))


def refused(path: bytes, dev: int, ino: int) -> None:
    with pytest.raises(DomainError, match="identity_mismatch") as caught:
        check_identity(path, place(path, dev, ino))
    assert caught.value.paths == (path,)


def test_the_same_directory(tmp_path: Path):
    path, found = os.fsencode(tmp_path), tmp_path.stat()
    check_identity(path, place(path, found.st_dev, found.st_ino))
    check_identity(path, place(path, None, None))


def test_another_directory(tmp_path: Path):
    path, found = os.fsencode(tmp_path), tmp_path.stat()
    refused(path, found.st_dev + 1, found.st_ino)
    refused(path, found.st_dev, found.st_ino + 1)
    refused(path, 0, 0)


def test_a_directory_that_only_the_client_sees(tmp_path: Path):
    refused(os.fsencode(tmp_path / "none"), 1, 2)
    (tmp_path / "file").touch()
    refused(os.fsencode(tmp_path / "file" / "below"), 1, 2)


def test_a_directory_that_nobody_sees(tmp_path: Path):
    for path in (os.fsencode(tmp_path / "none"), os.fsencode(tmp_path / "none" / "none")):
        check_identity(path, place(path, None, None))


def test_a_directory_that_may_not_be_looked_at(short_dir: Path):
    path = short_dir / "a" / "b"
    path.mkdir(parents=True)
    os.chmod(short_dir / "a", 0)
    with somebody(), pytest.raises(DomainError, match="permission_denied"):
        check_identity(os.fsencode(path), place(os.fsencode(path), 1, 1))


def test_a_replaced_directory_is_told_from_the_old_one(tmp_path: Path):
    path = tmp_path / "d"
    path.mkdir()
    before = path.stat()
    (tmp_path / "e").mkdir()
    path.rmdir()
    os.rename(tmp_path / "e", path)
    refused(os.fsencode(path), before.st_dev, before.st_ino)


def test_links_in_a_path(tmp_path: Path):
    (tmp_path / "real" / "d").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "l").symlink_to("d")
    check_real(os.fsencode(tmp_path.resolve() / "real" / "d"))
    for path in (tmp_path / "link", tmp_path / "link" / "d", tmp_path / "real" / "l"):
        with pytest.raises(DomainError, match="bad_path") as caught:
            check_real(os.fsencode(path))
        assert str(path.resolve()) in (caught.value.hint or "")


def test_a_store_is_not_opened_for_another_directory(desk: Desk):
    desk.save("m")
    with pytest.raises(DomainError, match="identity_mismatch"):
        desk.catalog().open(desk.checkpoint_dir, place(desk.root, 1, 1), create=True, force=False)
    with pytest.raises(DomainError, match="identity_mismatch"):
        desk.writer.check_place(place(desk.root, 1, 1))
    desk.writer.check_place(desk.place())
