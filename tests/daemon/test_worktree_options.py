"""A worktree's own files: what they may set, and what they may not."""

import os

import pytest

from ckptd import config
from ckptd.autosave import Autosave, AutosaveWishes

pytestmark = pytest.mark.core


def options(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(text)
    return config.worktree_options(bytes(tmp_path))


def test_nothing_is_set_where_there_are_no_files(tmp_path):
    assert options(tmp_path) == config.WorktreeOptions()


def test_fabricatio_toml_goes_before_pyproject_key_by_key(tmp_path):
    found = options(
        tmp_path,
        fabricatio='[ext.checkpoint]\nexclude = ["big/"]\n',
        pyproject='[tool.fabricatio.ext.checkpoint]\nexclude = ["other"]\nmax_file_bytes = 5\n',
    )
    assert found == config.WorktreeOptions(exclude=("big/",), max_file_bytes=5)


@pytest.mark.parametrize("key", ["keep_last = 1", "max_store_bytes = 1", 'checkpoint_dir = "/tmp"', "cache_size = 1"])
def test_a_key_that_could_cost_history_is_named_and_not_taken(tmp_path, key):
    found = options(tmp_path, fabricatio=f"[ext.checkpoint]\n{key}\n")
    assert found.exclude is None
    assert found.max_file_bytes is None
    assert len(found.complaints) == 1
    assert key.split(" ")[0] in found.complaints[0]


def test_autosave_is_taken_from_the_worktree(tmp_path):
    found = options(
        tmp_path,
        fabricatio="[ext.checkpoint]\nautosave = true\nautosave_quiet_s = 0.5\n",
        pyproject="[tool.fabricatio.ext.checkpoint]\nautosave = false\nautosave_max_wait_s = 10\n",
    )
    assert found.complaints == ()
    assert found.autosave_wishes() == AutosaveWishes(True, 0.5, 10.0)


@pytest.mark.parametrize(
    "text", ["autosave = 3", "autosave_quiet_s = -1", "autosave_max_wait_s = 1e9", 'autosave = "x"']
)
def test_a_wrong_wish_for_autosave_is_a_complaint(tmp_path, text):
    found = options(tmp_path, fabricatio=f"[ext.checkpoint]\n{text}\n")
    assert found.autosave_wishes() == AutosaveWishes()
    assert len(found.complaints) == 1


def test_the_narrower_wish_goes_before_the_wider_one():
    daemon = Autosave(False, 2.0, 30.0)
    assert AutosaveWishes().over(daemon) == daemon
    assert AutosaveWishes(True, None, 5.0).over(AutosaveWishes(False, 1.0, 9.0).over(daemon)) == (True, 1.0, 5.0)


@pytest.mark.parametrize("text", ['["*.bin", "/cache"]', "[*.bin, /cache]", "[ *.bin,/cache ]"])
def test_a_list_in_the_environment_is_read_as_the_client_reads_it(tmp_path, text):
    environ = {"HOME": str(tmp_path), "FABRICATIO_EXT__CHECKPOINT__EXCLUDE": text}
    assert config.load(environ).exclude == ("*.bin", "/cache")


@pytest.mark.parametrize("text", ["*.bin", "[1, 2]x", '["a"', '{"a": 1}'])
def test_what_is_no_list_is_refused(tmp_path, text):
    found = config.load({"HOME": str(tmp_path), "FABRICATIO_EXT__CHECKPOINT__EXCLUDE": text})
    assert found.exclude == ()
    assert len(found.complaints) == 1


@pytest.mark.parametrize(
    "text",
    [
        "[ext.checkpoint]\nexclude = 3\n",
        "[ext.checkpoint]\nmax_file_bytes = -1\n",
        "[ext.checkpoint\n",
        "ext = 1\n#checkpoint",
        "checkpoint = " + "[" * 100_000,
        "[ext.checkpoint]\nmax_file_bytes = " + "9" * 5000,
    ],
)
def test_a_wrong_value_or_file_is_a_complaint_and_never_a_failure(tmp_path, text):
    found = options(tmp_path, fabricatio=text)
    assert found.exclude is None
    assert len(found.complaints) == 1


def test_engine_options_come_from_the_environment(tmp_path):
    environ = {
        "HOME": str(tmp_path),
        "FABRICATIO_EXT__CHECKPOINT__EXCLUDE": "[*.bin, /cache]",
        "FABRICATIO_EXT__CHECKPOINT__MAX_FILE_BYTES": "1000",
        "FABRICATIO_EXT__CHECKPOINT__USE_GIT_EXCLUDES": "false",
        "FABRICATIO_EXT__CHECKPOINT__ONE_FILE_SYSTEM": "maybe",
    }
    found = config.load(environ)
    assert (found.exclude, found.max_file_bytes, found.use_git_excludes) == (("*.bin", "/cache"), 1000, False)
    assert found.one_file_system is True
    assert len(found.complaints) == 1


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fabricatio.toml")
    (tmp_path / "pyproject.toml").symlink_to("fabricatio.toml")
    assert config.worktree_options(bytes(tmp_path)) == config.WorktreeOptions()


def test_a_complaint_tells_nothing_of_what_the_file_holds(tmp_path):
    # It may be a link to anything that the user can read.
    (tmp_path / "secret").write_bytes(b"checkpoint of hunter2\n\xff")
    (tmp_path / "fabricatio.toml").symlink_to("secret")
    (tmp_path / "pyproject.toml").write_text("[tool.fabricatio.ext.checkpoint]\nhunter2 = 1 2")
    found = config.worktree_options(bytes(tmp_path))
    assert len(found.complaints) == 2
    assert "hunter2" not in str(found)
