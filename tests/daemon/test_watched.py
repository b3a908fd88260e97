"""What the next daemon knows of autosave, and what is prepared for a reboot."""

import os
import pwd

import pytest

from ckpt_protocol.worktree import WatchReboot
from ckptd.reboot import survey
from ckptd.watched import WatchedDirectories

pytestmark = pytest.mark.core


def test_directories_are_kept_once_whatever_they_are_called(tmp_path):
    known = WatchedDirectories(str(tmp_path / "state"))
    assert known.read() == []
    for path in (b"/b", b"/\xff", b"/b", b"/a\nb"):
        known.add(path)
    assert WatchedDirectories(str(tmp_path / "state")).read() == [b"/a\nb", b"/b", b"/\xff"]
    assert os.listdir(tmp_path / "state") == ["watched.json"]


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", '{"checkpoint_dirs": [3]}', '{"checkpoint_dirs": 3}', "\0"])
def test_a_file_that_cannot_be_read_costs_the_hint_alone(tmp_path, text):
    (tmp_path / "watched.json").write_text(text)
    known = WatchedDirectories(str(tmp_path))
    assert known.read() == []
    known.add(b"/a")
    assert known.read() == [b"/a"]


def test_what_is_prepared_for_a_reboot(tmp_path):
    environ = {"HOME": str(tmp_path)}
    units, linger = tmp_path / ".config" / "systemd" / "user", tmp_path / "linger"
    wanted = units / "default.target.wants"
    for folder in (wanted, linger):
        folder.mkdir(parents=True)
    assert survey(environ, str(linger)) == WatchReboot(unit=False, enabled=False, linger=False)
    (units / "ckptd.service").write_text("")
    (wanted / "ckptd.service").symlink_to(units / "ckptd.service")
    assert survey(environ, str(linger)) == WatchReboot(unit=True, enabled=True, linger=False)
    (linger / pwd.getpwuid(os.getuid()).pw_name).touch()
    assert survey({"XDG_CONFIG_HOME": str(tmp_path / ".config")}, str(linger)).linger
