"""The configuration chain: every place, their order, types, and what is not read."""

import os
from pathlib import Path

import pytest

from fabricatio_checkpoint.config import OPTIONS, CheckpointConfig, checkpoint_config, read_options
from fabricatio_checkpoint.errors import InputError

pytestmark = pytest.mark.core

FIELD = "FABRICATIO_EXT__CHECKPOINT__"


@pytest.fixture
def place(tmp_path):
    for name in ("cwd", "home/.config/fabricatio"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def _read(place, *names, **environ):
    return read_options({"HOME": str(place / "home"), **environ}, str(place / "cwd"), names)


def _write(place, layer, **options):
    table = "".join(f"{name} = {value}\n" for name, value in options.items())
    if layer == "dotenv":
        text = "".join(f"{FIELD}{name.upper()}={value}\n" for name, value in options.items())
        (place / "cwd/.env").write_text(text)
    elif layer == "fabricatio":
        (place / "cwd/fabricatio.toml").write_text(f"[ext.checkpoint]\n{table}")
    elif layer == "pyproject":
        (place / "cwd/pyproject.toml").write_text(f"[tool.fabricatio.ext.checkpoint]\n{table}")
    else:
        (place / "home/.config/fabricatio/fabricatio.toml").write_text(f"[ext.checkpoint]\n{table}")


def test_defaults(place):
    found = _read(place, *OPTIONS)
    assert found["checkpoint_dir"] == str(place / "home/.fabricatio-checkpoint")
    assert found["cache_size"] == 100
    assert found["socket"] is None
    assert found["exclude"] == []
    assert found["max_file_bytes"] == 100 * 1024 * 1024
    assert found["max_store_bytes"] == 2 * 1024**3
    assert (found["idle_exit_s"], found["autosave"], found["scan"]) == (1800, False, "auto")


@pytest.mark.parametrize(
    ("home", "given", "expected"),
    [
        ("/", None, "/.fabricatio-checkpoint"),
        ("/", "~/stores", "/stores"),
        ("/h/", "~", "/h"),
        ("/h", "//stores", "/stores"),
    ],
)
def test_the_root_is_a_home_as_any_other(place, home, given, expected):
    """As in containers whose user is in no database."""
    environ = {"HOME": home} if given is None else {"HOME": home, f"{FIELD}CHECKPOINT_DIR": given}
    assert _read(place, "checkpoint_dir", **environ) == {"checkpoint_dir": expected}


def test_each_place_outranks_the_next(place):
    environ = {}
    expected = 100
    for value, layer in enumerate(["global", "pyproject", "fabricatio", "environ", "dotenv"], start=1):
        assert _read(place, "cache_size", **environ) == {"cache_size": expected}
        if layer == "environ":
            environ = {f"{FIELD}CACHE_SIZE": str(value)}
        else:
            _write(place, layer, cache_size=value)
        expected = value
    assert _read(place, "cache_size", **environ) == {"cache_size": 5}


def test_merging_is_per_key(place):
    _write(place, "global", cache_size=1, keep_last=2, autosave="true")
    _write(place, "fabricatio", cache_size=7)
    found = _read(place, "cache_size", "keep_last", "autosave")
    assert found == {"cache_size": 7, "keep_last": 2, "autosave": True}


def test_environment_keys_in_any_case_and_empty_ones_are_unset(place):
    _write(place, "global", keep_last=9)
    found = _read(
        place, "cache_size", "keep_last", **{"fabricatio_ext__Checkpoint__cache_SIZE": "5", f"{FIELD}KEEP_LAST": ""}
    )
    assert found == {"cache_size": 5, "keep_last": 9}


def test_dotenv_quotes_export_comments_and_lines_that_are_none(place):
    (place / "cwd/.env").write_text(f'OTHER=1\nexport {FIELD}cache_size="4" # four\n# {FIELD}KEEP_LAST=3\n?!\n')
    assert _read(place, "cache_size", "keep_last") == {"cache_size": 4, "keep_last": 100}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("${HOME}/x", "{home}/x"),
        ("$HOME/x", "{home}/x"),
        ('"${HOME}/x"', "{home}/x"),
        ("'/a/${HOME}'", "/a/${HOME}"),
        ("/a/${NOWHERE}b", "/a/b"),
        ("/a/${LINE}", "/a/before"),
        (r'"/a/\$b"', "/a/$b"),
    ],
)
def test_dotenv_stands_in_variables_as_fabricatio_does(place, written, read):
    (place / "cwd/.env").write_text(f"LINE=before\n{FIELD}CHECKPOINT_DIR={written}\nLINE=after\n")
    assert _read(place, "checkpoint_dir") == {"checkpoint_dir": read.replace("{home}", str(place / "home"))}


@pytest.mark.parametrize("layer", ["dotenv", "fabricatio", "pyproject"])
def test_the_nearest_file_above_counts_where_there_is_none_here(place, layer):
    _write(place, layer, cache_size=7, keep_last=8)
    below = place / "cwd/sub/sub"
    below.mkdir(parents=True)
    environ = {"HOME": str(place / "home")}
    assert read_options(environ, str(below), ("cache_size",)) == {"cache_size": 7}
    for path in (place / "cwd").iterdir():
        if path.is_file():
            (below.parent / path.name).write_text(
                path.read_text().replace("7", "9").replace("keep_last", "new").replace("KEEP_LAST", "NEW")
            )
    found = read_options(environ, str(below), ("cache_size", "keep_last"))
    assert found["cache_size"] == 9
    # Of each name there is one file, and not one above the other.
    assert found["keep_last"] == 100


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_strangers_file_above_is_passed_over(place):
    _write(place, "fabricatio", cache_size=7)
    (place / "cwd/sub").mkdir()
    os.chown(place / "cwd/fabricatio.toml", 12345, 12345)
    environ = {"HOME": str(place / "home")}
    assert read_options(environ, str(place / "cwd/sub"), ("cache_size",)) == {"cache_size": 100}
    assert read_options(environ, str(place / "cwd"), ("cache_size",)) == {"cache_size": 7}


def test_a_default_list_is_its_readers_own(place):
    config = CheckpointConfig({"HOME": str(place / "home")}, str(place / "cwd"))
    config.exclude.append("*.log")
    assert config.exclude == ["*.log"]
    assert _read(place, "exclude") == {"exclude": []}


def test_the_global_file_moves_with_its_variable(place):
    (place / "other/fabricatio").mkdir(parents=True)
    (place / "other/fabricatio/fabricatio.toml").write_text("[ext.checkpoint]\ncache_size = 8\n")
    assert _read(place, "cache_size", XDG_CONFIG_HOME=str(place / "other")) == {"cache_size": 8}


@pytest.mark.parametrize(
    ("given", "expected"),
    [("~/x", "{home}/x"), ("~", "{home}"), ("rel/../y", "{cwd}/y"), ("/abs/z/", "/abs/z")],
)
def test_paths_are_expanded_and_made_absolute(place, given, expected):
    _write(place, "fabricatio", checkpoint_dir=f'"{given}"')
    expected = expected.format(home=place / "home", cwd=place / "cwd")
    assert _read(place, "checkpoint_dir") == {"checkpoint_dir": expected}


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("cache_size", "12", 12),
        ("idle_exit_s", "0.5", 0.5),
        ("autosave", "Yes", True),
        ("autosave", "off", False),
        ("scan", "full", "full"),
        ("exclude", '["*.log", "d/"]', ["*.log", "d/"]),
        ("exclude", "[*.log, d/]", ["*.log", "d/"]),
        ("exclude", "[]", []),
        ("socket", "/run/x.sock", "/run/x.sock"),
    ],
)
def test_text_of_the_environment_is_typed(place, option, text, value):
    assert _read(place, option, **{FIELD + option.upper(): text}) == {option: value}


@pytest.mark.parametrize(
    ("option", "text", "expected"),
    [
        ("cache_size", "many", "a whole number of at least 1"),
        ("cache_size", "0", "a whole number of at least 1"),
        ("idle_exit_s", "nan", "a number of seconds"),
        ("idle_exit_s", "inf", "a number of seconds"),
        ("autosave", "maybe", "true or false"),
        ("scan", "quick", "one of auto, full"),
        ("exclude", "*.log", "a list of strings"),
    ],
)
def test_wrong_text_names_place_key_and_type(place, option, text, expected):
    with pytest.raises(InputError) as caught:
        _read(place, option, **{FIELD + option.upper(): text})
    assert f"environment: {FIELD}{option.upper()}" in str(caught.value)
    assert expected in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("layer", ["fabricatio", "pyproject", "global"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("cache_size", '"50"'),
        ("cache_size", "true"),
        ("cache_size", "1.5"),
        ("checkpoint_dir", "3"),
        ("checkpoint_dir", '""'),
        ("autosave", "1"),
        ("exclude", "[1]"),
    ],
)
def test_a_wrong_value_in_a_file_names_file_key_and_type(place, layer, option, value):
    _write(place, layer, **{option: value})
    with pytest.raises(InputError) as caught:
        _read(place, option)
    file = {"fabricatio": "cwd/fabricatio.toml", "pyproject": "cwd/pyproject.toml"}.get(
        layer, "home/.config/fabricatio/fabricatio.toml"
    )
    assert caught.value.kind == "bad_option"
    assert caught.value.paths == [str(place / file)]
    assert str(place / file) in str(caught.value)
    assert f"ext.checkpoint.{option}: expected" in str(caught.value)


def test_a_wrong_value_that_is_outranked_or_not_asked_for_harms_nobody(place):
    _write(place, "global", cache_size='"x"', keep_last='"y"')
    _write(place, "fabricatio", cache_size=3)
    assert _read(place, "cache_size") == {"cache_size": 3}


def test_unknown_keys_and_tables_are_ignored(place):
    (place / "cwd/fabricatio.toml").write_text("[llm]\nx = 1\n[ext.checkpoint]\nnew_option = 1\n[ext.other]\ny = 2\n")
    assert _read(place, "cache_size", **{f"{FIELD}NEW": "1"}) == {"cache_size": 100}


@pytest.mark.parametrize(
    "text",
    ["[ext.checkpoint\n", "[ext]\ncheckpoint = 3\n", "ext.checkpoint = " + "[" * 100_000],
    ids=["cut", "no table", "deep"],
)
def test_a_file_that_cannot_be_understood_is_named(place, text):
    (place / "cwd/fabricatio.toml").write_text(text)
    with pytest.raises(InputError, match=r"cwd/fabricatio\.toml") as caught:
        _read(place, "cache_size")
    assert "another directory" in str(caught.value)


def test_a_broken_pyproject_that_is_not_about_us_is_not_even_parsed(place):
    (place / "cwd/pyproject.toml").write_text("[project\nthis is being edited")
    assert _read(place, "cache_size") == {"cache_size": 100}


def test_odd_things_by_the_names_of_the_files_are_no_files(place):
    (place / "cwd/.env").mkdir()
    os.mkfifo(place / "cwd/pyproject.toml")
    os.symlink("nowhere", place / "cwd/fabricatio.toml")
    assert _read(place, "cache_size") == {"cache_size": 100}


def test_without_a_directory_only_environment_and_global_file_count(place):
    _write(place, "fabricatio", cache_size=3)
    _write(place, "global", cache_size=4)
    assert read_options({"HOME": str(place / "home")}, None, ("cache_size",)) == {"cache_size": 4}


def test_higher_places_end_the_search(place):
    (place / "cwd/fabricatio.toml").write_text("ext checkpoint: not TOML at all")
    assert _read(place, "cache_size", **{f"{FIELD}CACHE_SIZE": "5"}) == {"cache_size": 5}


def test_the_object_reads_lazily_and_keeps_what_it_read(place):
    config = CheckpointConfig({"HOME": str(place / "home")}, str(place / "cwd"))
    _write(place, "fabricatio", cache_size=3, checkpoint_dir='"~/stores"')
    assert config.cache_size == 3
    assert config.checkpoint_dir == place / "home/stores"
    assert isinstance(config.checkpoint_dir, Path)
    _write(place, "fabricatio", cache_size=4)
    assert config.cache_size == 3
    config.reload()
    assert config.cache_size == 4


def test_setting_is_the_highest_place_and_is_checked(place):
    config = CheckpointConfig({"HOME": str(place / "home"), f"{FIELD}CACHE_SIZE": "5"}, str(place / "cwd"))
    config.cache_size = 6
    config.checkpoint_dir = Path("~/mine")
    assert (config.cache_size, config.checkpoint_dir) == (6, place / "home/mine")
    with pytest.raises(InputError, match="cache_size: expected a whole number"):
        config.cache_size = "lots"
    with pytest.raises(AttributeError, match="no_such"):
        config.no_such = 1
    with pytest.raises(AttributeError, match="no_such"):
        _ = config.no_such


def test_the_processes_object_reads_the_processes_environment():
    checkpoint_config.reload()
    assert checkpoint_config.checkpoint_dir == Path.home() / ".fabricatio-checkpoint"
    checkpoint_config.reload()
