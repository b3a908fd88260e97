"""Places that are refused unless asked for by force."""

import os

import pytest

from ckptd.errors import DomainError
from ckptd.shadow.store.places import protected_reason
from ckptd.shadow.store.settings import Settings
from support.worktrees import Desk

pytestmark = pytest.mark.core

SETTINGS = Settings(home=b"/data/people/me", temporary=b"/scratch/tmp")


@pytest.mark.parametrize(
    "path",
    [
        *[b"/", b"/data/people/me", b"/data/people", b"/data", b"/scratch/tmp", b"/usr", b"/etc", b"/home", b"/root"],
        *[b"/proc/1", b"/sys/kernel", b"/dev/shm", b"/var/tmp", b"/usr/local", b"/Users"],
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
