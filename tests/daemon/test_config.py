"""The daemon's options: where they come from, what is refused; and its log file."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptd import config, log

pytestmark = pytest.mark.core


def load(place: Path, text: str | None = None, **variables: str) -> config.Config:
    """Load from a global file with ``text`` below ``place`` and from variables."""
    environ = {"HOME": str(place), "XDG_CONFIG_HOME": str(place / "c"), **variables}
    if text is not None:
        file = Path(config.global_file(environ))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return config.load(environ)


def test_defaults(short_dir) -> None:
    found = load(short_dir)
    assert found == config.Config()
    assert (found.idle_exit_s, found.cache_size, found.socket, found.complaints) == (1800.0, 100, None, ())


def test_the_environment_is_above_the_file(short_dir) -> None:
    text = (
        '[ext.checkpoint]\nidle_exit_s = 5\ncache_size = 3\nsocket = "~/s/d.sock"\nkeep_last = 1\n[ext.other]\nx = 1\n'
    )
    found = load(short_dir, text, FABRICATIO_EXT__CHECKPOINT__CACHE_SIZE=" 7 ", fabricatio_ext__checkpoint__other="1")
    assert found == config.Config(idle_exit_s=5.0, cache_size=7, socket=f"{short_dir}/s/d.sock", keep_last=1)


@pytest.mark.parametrize("name", ["idle_exit_s", "cache_size", "socket"])
@pytest.mark.parametrize("value", ["true", "[]", "-1", '"x y"', '"nan"', '"inf"', "{}", "1979-05-27"])
def test_a_bad_value_in_the_file_is_one_complaint_and_the_default(short_dir, name, value) -> None:
    found = load(short_dir, f"[ext.checkpoint]\n{name} = {value}\n")
    assert found._replace(complaints=()) == config.Config()
    assert len(found.complaints) == 1
    assert f"fabricatio.toml: {name}: must be" in found.complaints[0]


@pytest.mark.parametrize("text", ["[checkpoint", "ext = 1 # checkpoint", "[ext]\ncheckpoint = 2", "checkpoint\0"])
def test_a_bad_file_is_one_complaint(short_dir, text) -> None:
    found = load(short_dir, text, FABRICATIO_EXT__CHECKPOINT__CACHE_SIZE="7")
    assert (found.cache_size, len(found.complaints)) == (7, 1)


def test_a_file_that_is_not_utf8_is_one_complaint(short_dir) -> None:
    file = short_dir / "c" / "fabricatio" / "fabricatio.toml"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"# checkpoint \xff")
    assert len(load(short_dir).complaints) == 1


def test_a_bad_variable_leaves_the_value_of_the_file(short_dir) -> None:
    found = load(short_dir, "[ext.checkpoint]\ncache_size = 3\n", FABRICATIO_EXT__CHECKPOINT__CACHE_SIZE="0")
    assert (found.cache_size, len(found.complaints)) == (3, 1)


@pytest.fixture
def kept_logging() -> Iterator[None]:
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.raiseExceptions
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers, level, logging.raiseExceptions = before
    root.setLevel(level)


@pytest.mark.usefixtures("kept_logging")
def test_the_log_is_private_and_bounded(short_dir) -> None:
    before = os.umask(0o077)
    try:
        log.configure(str(short_dir / "state"))
        for number in range(20_000):
            log.request_line("checkpoint.save", f"/w/\udcff/{number:0200}", 0.0012, "ok")
    finally:
        os.umask(before)
    files = sorted((short_dir / "state").iterdir())
    assert [file.name for file in files] == ["ckptd.log", "ckptd.log.1", "ckptd.log.2"]
    assert all(file.stat().st_size <= log.LOG_BYTES for file in files)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert r"worktree='/w/\udcff/" in files[0].read_text()


@pytest.mark.usefixtures("kept_logging")
def test_whatever_is_told_is_one_line_and_a_traceback_is_set_in(short_dir) -> None:
    log.configure(str(short_dir))
    forged = "/w/x\n2026-11-30 00:00:00,000 ERROR ckptd forged\x1b[2J\u2028\x9b\udcff"
    logger = logging.getLogger("ckptd.test")
    logger.warning("cannot look at %s", forged)
    try:
        raise OSError(forged)
    except OSError:
        logger.exception("in %s", forged)
    lines = (short_dir / "ckptd.log").read_text().splitlines()
    assert all(map(str.isprintable, lines))
    entries = [line for line in lines if not line.startswith("    ")]
    assert [line.split()[2:4] for line in entries] == [["WARNING", "ckptd.test"], ["ERROR", "ckptd.test"]]


@pytest.mark.usefixtures("kept_logging")
def test_without_a_place_for_the_log_stderr_serves(short_dir, capsys) -> None:
    (short_dir / "state").write_text("in the way")
    log.configure(str(short_dir / "state"))
    log.request_line("daemon.status", None, 0.0, "ok")
    text = capsys.readouterr().err
    assert "no log file" in text
    assert "daemon.status" in text
