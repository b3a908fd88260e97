"""The folder of a store, its metadata, and the places where none is made."""

import os
import shutil
from pathlib import Path

import pytest

from ckpt_protocol.structs import to_wire
from ckptd.errors import DomainError
from ckptd.shadow.objects.durable import read_if_there, replace_file
from ckptd.shadow.store.layout import create_folder, delete_folder, folder_bytes, folder_name, sweep_folders
from ckptd.shadow.store.metadata import FORMAT, Metadata, describe, read_metadata, write_metadata
from ckptd.shadow.store.places import protected_reason
from ckptd.shadow.store.settings import Settings
from support.worktrees import verify

pytestmark = pytest.mark.core


def _metadata(path: bytes = b"/x/y") -> Metadata:
    return Metadata(format=FORMAT, worktree=to_wire(path), ino="1", parent_dev="2", parent_fsid="3", created="now")


# -- the folder


def test_folder_names():
    assert folder_name(b"/a/project").startswith(b"project_")
    assert folder_name(b"/a/project") != folder_name(b"/b/project")
    assert folder_name(b"/a/project") == folder_name(b"/a/project")
    assert len({folder_name(b"/a/project", attempt) for attempt in range(100)}) == 100
    assert folder_name(b"/" + b"x" * 255)[:61] == b"x" * 60 + b"_"
    assert folder_name(b"/").startswith(b"root_")


def test_a_new_folder_is_a_repository_to_git(tmp_path: Path):
    folder = create_folder(os.fsencode(tmp_path), b"name\xff", _metadata())
    assert folder == os.fsencode(tmp_path) + b"/name\xff"
    verify(folder)
    assert read_metadata(folder) == _metadata()
    assert os.stat(folder).st_mode & 0o077 == 0
    assert os.listdir(os.fsencode(tmp_path)) == [b"name\xff"]


def test_a_folder_that_cannot_be_made_leaves_nothing(tmp_path: Path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/f").touch()
    with pytest.raises(DomainError, match=r"^io_error: "):
        create_folder(os.fsencode(tmp_path), b"taken", _metadata())
    assert sorted(os.listdir(tmp_path)) == ["taken"]
    with pytest.raises(DomainError, match=r"^io_error: "):
        create_folder(os.fsencode(tmp_path / "none"), b"x", _metadata())
    with pytest.raises(DomainError, match=r"^bad_path: "):
        create_folder(os.fsencode(tmp_path), b"x" * 300, _metadata())
    assert sorted(os.listdir(tmp_path)) == ["taken"]


def test_deleting_takes_read_only_files_along(tmp_path: Path):
    folder = create_folder(os.fsencode(tmp_path), b"n" * 250, _metadata())
    with open(folder + b"/objects/pack/pack-1.pack", "xb"):
        pass
    os.chmod(folder + b"/objects/pack/pack-1.pack", 0o444)
    delete_folder(folder)
    assert os.listdir(tmp_path) == []
    with pytest.raises(DomainError, match=r"^io_error: "):
        delete_folder(folder)


def test_size(tmp_path: Path):
    before = folder_bytes(os.fsencode(tmp_path))
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_bytes(os.urandom(100_000))
    (tmp_path / "l").symlink_to("/usr")
    with open(tmp_path / "d/f", "rb+") as file:
        os.fsync(file.fileno())
    assert 100_000 <= folder_bytes(os.fsencode(tmp_path)) - before < 200_000
    assert folder_bytes(os.fsencode(tmp_path / "none")) == 0


def test_the_sweep_takes_only_what_is_ours(tmp_path: Path):
    names = [
        b".new-0123456789abcdef",
        b".old-0123456789abcdef-x\ny",
        b".new-x",
        b".old-0123456789abcdef",
        b"new-",
        b".lock",
    ]
    for name in names:
        os.makedirs(os.path.join(os.fsencode(tmp_path), name, b"deep"))
    sweep_folders(os.fsencode(tmp_path))
    assert set(os.listdir(os.fsencode(tmp_path))) == set(names[2:])
    sweep_folders(os.fsencode(tmp_path / "none"))


# -- small files


def test_a_file_is_replaced_whole(tmp_path: Path):
    path = os.fsencode(tmp_path / "f")
    assert read_if_there(path) is None
    replace_file(path, b"1")
    replace_file(path, b"2", durable=False)
    assert read_if_there(path) == b"2"
    assert os.listdir(tmp_path) == ["f"]
    os.mkdir(tmp_path / "d")
    (tmp_path / "d/x").touch()
    with pytest.raises(DomainError):
        replace_file(os.fsencode(tmp_path / "d"), b"3")
    with pytest.raises(DomainError):
        read_if_there(os.fsencode(tmp_path / "d"))
    assert sorted(os.listdir(tmp_path)) == ["d", "f"]


# -- metadata


def test_a_worktree_is_described(tmp_path: Path):
    place = tmp_path / os.fsdecode(b"odd\xff\n")
    place.mkdir()
    found = describe(os.fsencode(place), "now", forced=True)
    assert found.path == os.fsencode(place)
    assert (found.ino, found.parent_dev) == (str(place.stat().st_ino), str(tmp_path.stat().st_dev))
    assert found.forced
    folder = create_folder(os.fsencode(tmp_path), b"s", found)
    assert read_metadata(folder) == found
    write_metadata(folder, _metadata())
    assert read_metadata(folder) == _metadata()
    shutil.rmtree(folder + b"/ckpt")
    with pytest.raises(DomainError, match=r"^store_damaged: "):
        read_metadata(folder)


@pytest.mark.parametrize("number", [0, 2, 99])
def test_another_format_is_named_whatever_else_it_holds(tmp_path: Path, number: int):
    folder = create_folder(os.fsencode(tmp_path), b"s", _metadata())
    text = b'{"format": %d, "worktree": 7}' % number
    replace_file(folder + b"/ckpt/metadata.json", text)
    with pytest.raises(DomainError, match=f"^store_format: .*format {number}"):
        read_metadata(folder)
    assert read_if_there(folder + b"/ckpt/metadata.json") == text


# -- places

_SETTINGS = Settings(home=b"/home/me", temporary=b"/tmp")


@pytest.mark.parametrize(
    "path",
    [
        b"/",
        b"/home",
        b"/home/me",
        b"/tmp",
        b"/usr",
        b"/etc",
        b"/var/lib",
        b"/proc/1/cwd",
        b"/sys/x",
        b"/dev/shm",
        b"/root",
    ],
)
def test_protected(path: bytes):
    assert protected_reason(path, _SETTINGS)


@pytest.mark.parametrize(
    "path",
    [
        b"/home/me/x",
        b"/home/mentor",
        b"/home/other",
        b"/tmp/x",
        b"/tmpfs",
        b"/usr/src/x",
        b"/opt/x",
        b"/process",
        b"/work",
    ],
)
def test_ordinary(path: bytes):
    assert protected_reason(path, _SETTINGS) is None


def test_odd_homes():
    assert protected_reason(b"/home/me", Settings(home=b"/home/me/"))
    assert protected_reason(b"/somewhere/x", Settings(home=b"/")) is None
    assert protected_reason(b"/a", Settings(home=b"/a/b/c"))
