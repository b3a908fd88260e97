"""Store folders: no worktree's name may look like a rest, and a store goes whatever has been made of it."""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given

from ckptd.errors import DomainError
from ckptd.shadow.store.layout import create_folder, delete_folder, folder_name, is_left_over, sweep_folders
from ckptd.shadow.store.metadata import FORMAT, Metadata, read_metadata
from support.bare import Bare
from support.tiny_disk import fill, tiny_disk
from support.worktrees import names, somebody

pytestmark = pytest.mark.core

METADATA = Metadata(format=FORMAT, worktree="/w", ino="1", parent_dev="2", parent_fsid="3", created="t")


@given(names())
def test_no_stores_name_is_that_of_a_rest(name: bytes):
    for base in (name, b".new-0123456789abcdef" + name, b".old-0123456789abcdef-" + name):
        found = folder_name(b"/a/" + base[:255])
        assert len(found) <= 77
        assert not is_left_over(found)
        assert re.fullmatch(rb".+_[0-9a-f]{16}", found, re.DOTALL)


def test_rests_are_told_from_stores(tmp_path: Path):
    place = os.fsencode(tmp_path)
    rests = [b".new-0123456789abcdef", b".old-0123456789abcdef-s_1", b".old-0123456789abcdef-\n"]
    others = [b".new-", b".new-0123456789abcdeg", b".old-1-x", b".lock", b"s_1", b".hidden_0123456789abcdef"]
    assert [is_left_over(name) for name in rests + others] == [True] * len(rests) + [False] * len(others)
    for name in rests + others:
        os.makedirs(os.path.join(place, name, b"objects"))
    sweep_folders(place)
    assert sorted(os.listdir(place)) == sorted(others)
    sweep_folders(os.path.join(place, b"none"))


def test_a_full_disk_leaves_nothing(tmp_path: Path):
    with tiny_disk(os.fsencode(tmp_path)) as disk:
        fill(disk)
        with pytest.raises(DomainError, match=r"^no_space"):
            create_folder(disk, b"s_1", METADATA)
        assert os.listdir(disk) == [b"filler"]


def sweep_as_the_next_daemon(folder: bytes) -> None:
    place = os.path.dirname(folder)
    os.rename(folder, os.path.join(place, b".old-0123456789abcdef-s"))
    sweep_folders(place)


@pytest.mark.parametrize("remove", [delete_folder, sweep_as_the_next_daemon])
def test_a_read_only_store_can_be_removed(short_dir: Path, remove: Callable[[bytes], None]):
    os.chmod(short_dir, 0o777)
    outside = short_dir / "outside"
    with somebody():
        outside.mkdir(mode=0o555)
        bare = Bare(os.fsencode(short_dir))
        bare.put(b"data")
        os.symlink(outside, os.path.join(bare.folder, b"ckpt", b"link"))
        make_read_only(bare.folder)
        remove(bare.folder)
    assert os.listdir(short_dir) == ["outside"]
    # A link in it leads nowhere.
    assert stat.S_IMODE(os.stat(outside).st_mode) == 0o555


def make_read_only(folder: bytes) -> None:
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.chmod(os.path.join(path, name), 0o444)
        for name in folders:
            if name != b"link":
                os.chmod(os.path.join(path, name), 0o000 if name == b"pack" else 0o555)
    os.chmod(folder, 0o555)


def test_a_store_that_nobody_may_remove(short_dir: Path):
    os.chmod(short_dir, 0o755)
    folder = Bare(os.fsencode(short_dir)).folder
    with somebody(), pytest.raises(DomainError, match=r"^permission_denied"):
        delete_folder(folder)
    assert read_metadata(folder).worktree == "/nowhere"
