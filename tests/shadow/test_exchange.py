"""Renames that replace nothing, on this file system and on one that has fewer of them."""

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptd.shadow.restore.exchange import EXCHANGE, NOREPLACE, NoExchange, Rename, Renamer, native_rename
from ckptd.shadow.restore.sync import sync

pytestmark = pytest.mark.core


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    (tmp_path / "a").write_bytes(b"A")
    (tmp_path / "b").write_bytes(b"B")
    yield opened
    os.close(opened)


def names(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


def without(code: int) -> Rename:
    """A file system that knows neither flag."""

    def rename(_fd: int, _source: bytes, _target: bytes, _flag: int) -> None:
        raise OSError(code, os.strerror(code))

    return rename


def test_exchange(tmp_path: Path, fd: int):
    inode = (tmp_path / "a").stat().st_ino
    Renamer().exchange(fd, 1, b"a", b"b")
    assert names(tmp_path) == {"a": b"B", "b": b"A"}
    assert (tmp_path / "b").stat().st_ino == inode


def test_exchange_of_different_kinds(tmp_path: Path, fd: int):
    (tmp_path / "dir/x").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    Renamer().exchange(fd, 1, b"dir", b"link")
    assert (tmp_path / "link/x").is_dir()
    assert os.readlink(tmp_path / "dir") == "a"


def test_exchange_with_nothing_there(tmp_path: Path, fd: int):
    with pytest.raises(FileNotFoundError):
        Renamer().exchange(fd, 1, b"a", b"absent")
    with pytest.raises(FileNotFoundError):
        Renamer().exchange(fd, 1, b"absent", b"a")
    assert names(tmp_path) == {"a": b"A", "b": b"B"}


@pytest.mark.parametrize("rename", [native_rename, without(errno.EINVAL), without(errno.ENOSYS)])
def test_a_name_that_is_taken_is_left_alone(tmp_path: Path, fd: int, rename: Rename):
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    renamer = Renamer(rename)
    for taken in (b"b", b"empty", b"dangling"):
        with pytest.raises(FileExistsError):
            renamer.place(fd, 1, b"a", taken)
        with pytest.raises(FileExistsError):
            renamer.set_aside(fd, 1, b"a", taken)
    assert (tmp_path / "a").read_bytes() == b"A"
    assert (tmp_path / "b").read_bytes() == b"B"


@pytest.mark.parametrize("rename", [native_rename, without(errno.EOPNOTSUPP)])
def test_a_free_name_is_given(tmp_path: Path, fd: int, rename: Rename):
    renamer = Renamer(rename)
    assert renamer.place(fd, 1, b"a", b"c") is True
    renamer.set_aside(fd, 1, b"b", b"d")
    assert names(tmp_path) == {"c": b"A", "d": b"B"}
    with pytest.raises(FileNotFoundError):
        renamer.place(fd, 1, b"absent", b"e")
    with pytest.raises(FileNotFoundError):
        renamer.set_aside(fd, 1, b"absent", b"e")


def test_without_the_flag_a_link_is_moved_as_a_link(tmp_path: Path, fd: int):
    (tmp_path / "link").symlink_to("a")
    assert Renamer(without(errno.EINVAL)).place(fd, 1, b"link", b"moved") is True
    assert os.readlink(tmp_path / "moved") == "a"
    assert not (tmp_path / "link").is_symlink()


def test_without_the_flag_a_directory_can_only_be_moved_unsurely(tmp_path: Path, fd: int):
    (tmp_path / "dir/x").mkdir(parents=True)
    assert Renamer(without(errno.EINVAL)).place(fd, 1, b"dir", b"moved") is False
    assert (tmp_path / "moved/x").is_dir()


def test_a_file_system_without_exchange_is_found_out_once(fd: int):
    asked = []

    def rename(_fd: int, _source: bytes, _target: bytes, flag: int) -> None:
        asked.append(flag)
        raise OSError(errno.EINVAL, "")

    renamer = Renamer(rename)
    for _ in range(3):
        with pytest.raises(NoExchange):
            renamer.exchange(fd, 7, b"a", b"b")
    assert asked == [EXCHANGE]
    with pytest.raises(NoExchange):
        renamer.exchange(fd, 8, b"a", b"b")
    assert asked == [EXCHANGE, EXCHANGE]


def test_where_it_has_worked_the_same_error_is_an_error(fd: int):
    errors: list[int] = []

    def rename(dir_fd: int, source: bytes, target: bytes, flag: int) -> None:
        if errors:
            raise OSError(errors.pop(), "")
        native_rename(dir_fd, source, target, flag)

    renamer = Renamer(rename)
    renamer.exchange(fd, 7, b"a", b"b")
    errors.append(errno.EINVAL)
    with pytest.raises(OSError, match="22"):
        renamer.exchange(fd, 7, b"a", b"b")
    errors.append(errno.EIO)
    with pytest.raises(OSError, match="5"):
        renamer.exchange(fd, 9, b"a", b"b")


def test_names_are_bytes_and_nul_is_refused(tmp_path: Path, fd: int):
    native_rename(fd, b"a", b"\xff\n", NOREPLACE)
    assert b"\xff\n" in os.listdir(os.fsencode(tmp_path))
    with pytest.raises(ValueError, match="NUL"):
        native_rename(fd, b"b\0x", b"c", NOREPLACE)
    assert (tmp_path / "b").exists()


def test_the_kernel_call_is_there_without_the_wrapper(tmp_path: Path, fd: int):
    from ckptd.shadow.restore import exchange

    class Bare:
        """A libc that has nothing but syscall()."""

        syscall = ctypes.CDLL(None, use_errno=True).syscall

    call = exchange._renameat2(Bare())  # type: ignore[arg-type]  # stands in for a CDLL
    if call is None:
        pytest.skip("no number is known for this machine's kernel call")
    assert call(fd, b"a", fd, b"b", EXCHANGE) == 0
    assert names(tmp_path) == {"a": b"B", "b": b"A"}
    assert call(fd, b"a", fd, b"b", NOREPLACE) == -1
    assert ctypes.get_errno() == errno.EEXIST


def test_sync_takes_any_handle_of_the_root(tmp_path: Path, fd: int):
    sync(fd)
    if hasattr(os, "O_PATH"):
        handle = os.open(tmp_path, os.O_PATH)
        sync(handle)
        os.close(handle)
