"""Places that are refused unless asked for by force."""

import ctypes
import os
import subprocess
import sys

import pytest

from ckptd.errors import DomainError
from ckptd.shadow.store.places import protected_reason, why_protected
from ckptd.shadow.store.settings import Settings
from support.worktrees import Desk

pytestmark = pytest.mark.core

SETTINGS = Settings(home=b"/data/people/me", temporary=b"/scratch/tmp")


@pytest.mark.parametrize(
    "path",
    [
        *[b"/", b"/data/people/me", b"/data/people", b"/data", b"/scratch/tmp", b"/usr", b"/etc", b"/home", b"/root"],
        *[b"/data/people/me/" + name for name in (b"Desktop", b"Documents", b"Downloads")],
        *[b"/tmp", b"/proc/1", b"/sys/kernel", b"/dev/shm", b"/var/tmp", b"/usr/local", b"/Users"],
    ],
)
def test_protected(path: bytes):
    assert protected_reason(path, SETTINGS) is not None


@pytest.mark.parametrize(
    "path",
    [
        *[
            b"/data/people/me/x",
            b"/data/people/me2",
            b"/data/people/m",
            b"/data/people/you",
            b"/scratch/tmp/x",
            b"/scratch",
        ],
        *[b"/data/people/me/Documents/p", b"/data/people/you/Documents", b"/tmp/x"],
        *[b"/home/me/p", b"/usr/src", b"/procs", b"/srv/www", b"/work", b"/dat", b"/root/p", b"/etc2"],
    ],
)
def test_allowed(path: bytes):
    assert protected_reason(path, SETTINGS) is None


def test_a_trailing_slash_of_a_setting_changes_nothing():
    settings = Settings(home=b"/data/me/", temporary=b"/scratch/")
    assert protected_reason(b"/data/me", settings) is not None
    assert protected_reason(b"/scratch", settings) is not None
    assert protected_reason(b"/data", settings) is not None


def test_a_home_that_is_the_root():
    settings = Settings(home=b"/", temporary=b"/scratch")
    assert protected_reason(b"/", settings) is not None
    assert protected_reason(b"/work", settings) is None


def test_a_protected_place_is_taken_by_force_and_remembered(desk: Desk):
    desk.configure(home=desk.root)
    with pytest.raises(DomainError, match=r"protected_place.*home directory"):
        desk.open()
    assert os.listdir(desk.checkpoint_dir) == []
    desk.open(force=True)
    desk.write(b"f", b"1")
    desk.save("m")
    # Once it is tracked, nobody has to insist again.
    desk.reopen()
    assert desk.open().created is False


def _bind(source: bytes, target: bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform != "linux" or os.geteuid() != 0 or libc.mount(source, target, None, 4096, None) != 0:
        pytest.skip("only root may mount a directory in a second place")


@pytest.mark.parametrize("place", [b"", b"/..", b"/Documents"])
def test_a_second_name_of_a_protected_place(desk: Desk, place: bytes):
    os.mkdir(os.path.join(desk.home, b"Documents"))
    desk.configure(home=desk.home)
    _bind(os.path.realpath(desk.home + place), desk.root)
    try:
        with pytest.raises(DomainError, match="protected_place"):
            desk.open()
        assert why_protected(desk.root, desk.settings) is not None
    finally:
        subprocess.run(["umount", desk.root], check=True)
    assert why_protected(desk.root, desk.settings) is None


def test_a_second_name_of_a_project_is_no_protected_place(desk: Desk):
    project = os.path.join(desk.home, b"project")
    os.mkdir(project)
    _bind(project, desk.root)
    try:
        assert why_protected(desk.root, desk.settings) is None
    finally:
        subprocess.run(["umount", desk.root], check=True)
