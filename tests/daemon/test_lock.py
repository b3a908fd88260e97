"""Locks on real files, against real processes."""

import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ckptd.errors import DomainError
from ckptd.lock import DataLocks, HeldLock, LockedElsewhereError, this_process
from support import lock_holder

pytestmark = pytest.mark.core

NOBODY = 65534


@contextlib.contextmanager
def holder(directory: Path, address: str = "/run/other.sock", uid: int | None = None) -> Iterator[tuple[str, int]]:
    """Another process that claims the directory; gives what it said and its pid."""
    uid = os.getuid() if uid is None else uid
    command = [sys.executable, lock_holder.__file__, address, str(directory), str(uid)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


@pytest.fixture
def locks() -> Iterator[DataLocks]:
    made = DataLocks(this_process("/run/me.sock"))
    yield made
    made.close()


@pytest.fixture
def directory(short_dir: Path) -> Path:
    return short_dir / "data"


def refused(locks: DataLocks, directory: Path) -> DomainError:
    with pytest.raises(DomainError) as caught:
        locks.claim(os.fsencode(directory))
    return caught.value


def test_a_claim_makes_the_directory_and_says_who_holds_it(locks, directory) -> None:
    locks.claim(os.fsencode(directory))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / ".lock").stat().st_mode) == 0o600
    said = json.loads((directory / ".lock").read_text())
    assert (said["pid"], said["address"], said["host"]) == (os.getpid(), "/run/me.sock", socket.gethostname())
    assert set(said) == {"pid", "boot_id", "host", "address", "build"}


def test_a_second_process_is_sent_to_the_owner(locks, directory) -> None:
    with holder(directory, "/run/other.sock") as (said, pid):
        assert said == "held"
        error = refused(locks, directory)
        assert (error.kind, error.hint, error.paths) == ("owned_elsewhere", "/run/other.sock", (b"/run/other.sock",))
        assert str(pid) in error.message
    # The kernel gives the lock back with the process, whatever the file says.
    locks.claim(os.fsencode(directory))


def test_the_owner_on_another_host_is_named_and_gives_no_address(locks, directory) -> None:
    with holder(directory):
        said = json.loads((directory / ".lock").read_text()) | {"host": "elsewhere.example", "boot_id": "another"}
        (directory / ".lock").write_text(json.dumps(said))
        error = refused(locks, directory)
        assert "elsewhere.example" in error.message
        assert error.paths == (os.fsencode(directory),)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pid": 1}', "\0\0"])
def test_a_lock_file_with_other_text_is_held_all_the_same(locks, directory, text) -> None:
    with holder(directory):
        (directory / ".lock").write_text(text)
        assert refused(locks, directory).kind == "owned_elsewhere"


def test_what_a_lock_file_says_without_being_locked_means_nothing(locks, directory) -> None:
    directory.mkdir()
    (directory / ".lock").write_text(json.dumps(this_process("/run/dead.sock")._replace(pid=1)._asdict()))
    locks.claim(os.fsencode(directory))
    assert json.loads((directory / ".lock").read_text())["pid"] == os.getpid()


def test_a_claim_can_be_repeated_but_not_by_another_name(locks, directory, short_dir) -> None:
    locks.claim(os.fsencode(directory))
    locks.claim(os.fsencode(directory))
    (short_dir / "alias").symlink_to(directory)
    # As by a bind mount: links are resolved before. Two names would be two owners of one store.
    error = refused(locks, short_dir / "alias")
    assert error.kind == "bad_path"
    assert str(directory) in (error.hint or "")
    with holder(directory) as (said, _):
        assert said == "owned_elsewhere"


def test_a_directory_that_was_renamed_is_claimed_by_its_new_name(locks, directory, short_dir) -> None:
    locks.claim(os.fsencode(directory))
    directory.rename(short_dir / "moved")
    locks.claim(os.fsencode(short_dir / "moved"))
    with holder(short_dir / "moved") as (said, _):
        assert said == "owned_elsewhere"


def test_a_directory_can_be_given_back(locks, directory) -> None:
    locks.release(os.fsencode(directory))
    assert locks.claim(os.fsencode(directory))
    locks.release(os.fsencode(directory))
    with holder(directory) as (said, _):
        assert said == "held"


def test_of_threads_that_claim_one_directory_by_several_names_one_gets_it(directory, short_dir) -> None:
    directory.mkdir()
    names = [directory, *(short_dir / f"alias{number}" for number in range(4))]
    for alias in names[1:]:
        alias.symlink_to(directory)
    for _ in range(20):
        locks = DataLocks(this_process("/run/me.sock"))
        with ThreadPoolExecutor(len(names)) as pool:
            claims = [pool.submit(locks.claim, os.fsencode(name)) for name in names]
        refusals = [error for claim in claims if (error := claim.exception()) is not None]
        assert [error.kind for error in refusals if isinstance(error, DomainError)] == ["bad_path"] * (len(names) - 1)
        locks.close()


def test_a_replaced_lock_file_is_locked_anew(locks, directory) -> None:
    locks.claim(os.fsencode(directory))
    (directory / ".lock").unlink()
    locks.claim(os.fsencode(directory))
    with holder(directory) as (said, _):
        assert said == "owned_elsewhere"


def test_a_replaced_lock_file_of_another_owner_ends_the_claim(locks, directory) -> None:
    locks.claim(os.fsencode(directory))
    (directory / ".lock").unlink()
    with holder(directory) as (said, _):
        assert said == "held"
        assert refused(locks, directory).kind == "owned_elsewhere"


def test_a_removed_directory_is_made_again(locks, directory) -> None:
    locks.claim(os.fsencode(directory))
    shutil.rmtree(directory)
    locks.claim(os.fsencode(directory))
    with holder(directory) as (said, _):
        assert said == "owned_elsewhere"


def test_a_claim_tells_when_it_is_another_directory_than_before(locks, directory, short_dir) -> None:
    name = os.fsencode(directory)
    assert (locks.claim(name), locks.claim(name)) == (True, True)
    (directory / ".lock").unlink()
    assert (locks.claim(name), locks.claim(name)) == (False, True)
    directory.rename(short_dir / "moved")
    assert (locks.claim(name), locks.claim(name)) == (False, True)


def test_a_claim_that_may_not_make_the_directory_makes_nothing(locks, directory) -> None:
    name = os.fsencode(directory)
    assert locks.claim(name, False)
    assert not directory.exists()
    directory.mkdir()
    (directory / "photos").mkdir()
    assert locks.claim(name, False)
    assert os.listdir(directory) == ["photos"]
    # Stores that were put there by hand are owned as any.
    (directory / "store" / "ckpt").mkdir(parents=True)
    assert locks.claim(name, False)
    with holder(directory) as (said, _):
        assert said == "owned_elsewhere"
    shutil.rmtree(directory)
    assert (locks.claim(name, False), locks.claim(name, False)) == (False, True)
    assert not directory.exists()


def test_close_gives_all_back(directory, short_dir) -> None:
    locks = DataLocks(this_process("/run/me.sock"))
    for name in ("data", "third"):
        locks.claim(os.fsencode(short_dir / name))
    locks.close()
    with holder(directory) as (said, _):
        assert said == "held"


def test_a_link_in_place_of_the_lock_is_refused(locks, directory, short_dir) -> None:
    directory.mkdir()
    target = short_dir / "target"
    target.write_text("precious")
    (directory / ".lock").symlink_to(target)
    assert refused(locks, directory).row.family == "storage"
    assert target.read_text() == "precious"
    target.unlink()
    assert refused(locks, directory).row.family == "storage"
    assert not target.exists()


def test_what_is_not_a_directory_is_refused(locks, short_dir) -> None:
    target = short_dir / "target"
    target.write_text("precious")
    assert refused(locks, target).kind == "not_a_directory"
    assert refused(locks, target / "below").kind in ("not_a_directory", "io_error")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to have files of another user")
def test_a_directory_of_another_user_is_refused_and_left_alone(locks, directory, short_dir) -> None:
    directory.mkdir()
    os.chown(directory, NOBODY, NOBODY)
    assert refused(locks, directory).kind == "foreign_owner"
    assert refused(locks, directory / "new").kind == "foreign_owner"
    assert list(directory.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_a_user_may_have_a_new_directory_below_one_of_root(directory, short_dir) -> None:
    shared = short_dir / "shared"
    shared.mkdir()
    os.chmod(short_dir, 0o755)
    os.chmod(shared, 0o1777)
    with holder(shared / "mine", uid=NOBODY) as (said, _):
        assert said == "held"
    directory.mkdir(0o755)
    with holder(directory, uid=NOBODY) as (said, _):
        assert said == "foreign_owner"


def test_one_lock_file_is_held_once(short_dir) -> None:
    path = os.fsencode(short_dir / "x.lock")
    held = HeldLock.take(path, this_process("/a"))
    with pytest.raises(LockedElsewhereError) as caught:
        HeldLock.take(path, this_process("/b"))
    assert caught.value.owner is not None
    assert caught.value.owner.address == "/a"
    held.close()
    HeldLock.take(path, this_process("/b")).close()
