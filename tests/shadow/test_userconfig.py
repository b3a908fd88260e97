"""Where the user's global excludes file lies: as git finds it, and never a reason to fail."""

import os
from pathlib import Path

import pytest

from ckptd.shadow.objects.isolation import isolate
from ckptd.shadow.scan.userconfig import global_excludes_path
from support.worktrees import GIT_ENVIRON, run_git, somebody

pytestmark = pytest.mark.core


class Home:
    def __init__(self, place: Path) -> None:
        isolate()
        self.home = place / "home"
        self.config = self.home / ".config"
        (self.config / "git").mkdir(parents=True)
        self.own = self.home / ".gitconfig"
        self.xdg = self.config / "git" / "config"

    def path(self) -> bytes | None:
        return global_excludes_path(os.fsencode(self.home), os.fsencode(self.config))

    def default(self) -> bytes:
        return os.fsencode(self.config / "git" / "ignore")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_the_default(home: Home):
    assert home.path() == home.default()
    home.own.write_text("[user]\n\tname = me\n")
    assert home.path() == home.default()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("~/ignore", "HOME/ignore"),
        ("~", "HOME"),
        ("/etc/gitignore", "/etc/gitignore"),
        ('"/with space/and\\"quote"', '/with space/and"quote'),
        ("/ünï", "/ünï"),
        ("/x # a comment", "/x"),
        ("/first\n\texcludesfile = /last", "/last"),
    ],
)
def test_values(home: Home, value: str, expected: str):
    wanted = expected.replace("HOME", str(home.home)).encode()
    for file in (home.own, home.xdg):
        file.write_text(f"[core]\n\texcludesFile = {value}\n")
        assert home.path() == wanted
        # It is what git itself makes of it.
        said = run_git("-c", f"include.path={file}", "config", "--type=path", "core.excludesFile").rstrip(b"\n")
        assert said == wanted.replace(os.fsencode(home.home), os.fsencode(GIT_ENVIRON["HOME"]), value.startswith("~"))
        file.unlink()


@pytest.mark.parametrize("value", ["", "=", "= relative/path", "= ~somebody/x"])
def test_values_that_name_no_file_for_us(home: Home, value: str):
    home.own.write_text(f"[core]\n\texcludesFile {value}\n")
    assert home.path() is None


def test_the_users_own_file_has_the_last_word(home: Home):
    home.own.write_text("[core]\n\texcludesFile = /own\n")
    home.xdg.write_text("[core]\n\texcludesFile = /xdg\n")
    assert home.path() == b"/own"
    home.own.write_text("[core]\n\tautocrlf = true\n")
    assert home.path() == b"/xdg"


@pytest.mark.parametrize(
    "content",
    [b"[core\nexcludesFile = /x\n", b"\xff\xfe\0\0", b"\0" * 100, b"[core]\nexcludesFile == [\n[\n"],
)
def test_a_broken_file_says_nothing(home: Home, content: bytes):
    home.own.write_bytes(content)
    assert home.path() == home.default()
    home.xdg.write_text("[core]\n\texcludesFile = /xdg\n")
    assert home.path() == b"/xdg"


def test_what_is_no_file_says_nothing(home: Home):
    os.mkfifo(home.own)
    home.xdg.mkdir()
    assert home.path() == home.default()


def test_a_file_that_may_not_be_read_says_nothing(short_dir: Path):
    os.chmod(short_dir, 0o777)
    with somebody():
        home = Home(short_dir)
        home.own.write_text("[core]\n\texcludesFile = /x\n")
        home.own.chmod(0)
        assert home.path() == home.default()


def test_an_include_does_no_harm(home: Home):
    home.own.write_text(f"[include]\n\tpath = {home.home}/none\n\tpath = ~/.gitconfig\n[core]\n\texcludesFile = /x\n")
    assert home.path() in (b"/x", home.default())


def test_a_home_that_is_not_text(tmp_path: Path):
    home = os.fsencode(tmp_path) + b"/caf\xe9"
    os.makedirs(home)
    Path(os.fsdecode(home), ".gitconfig").write_text("[core]\n\texcludesFile = ~/x\n")
    assert global_excludes_path(home, home + b"/.config") in (home + b"/x", home + b"/.config/git/ignore")
