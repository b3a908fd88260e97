"""Nothing of the user's Git set-up reaches a store, and nothing of a store reaches the user's repositories."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import isolation
from support.worktrees import Desk, git_tree, run_git

pytestmark = pytest.mark.core

_HOSTILE = """\
[user]
\tsigningkey = nobody
[commit]
\tgpgsign = true
[gpg]
\tprogram = {trap}
[core]
\tautocrlf = true
\thooksPath = {hooks}
\tfsmonitor = {trap}
\tsymlinks = false
\tfilemode = false
\tprecomposeunicode = true
\tattributesFile = {base}/attributes
\tworktree = /nonexistent
[filter "trap"]
\tclean = {trap}
\tsmudge = {trap}
\trequired = true
[filter "lfs"]
\tclean = {trap}
\tprocess = {trap}
\trequired = true
[safe]
\tdirectory = /nowhere
[extensions]
\tobjectFormat = sha256
"""

# Runs in a process of its own, for libgit2 and git look at the environment when they are first used.
_WORK = """
import os, sys
from support.worktrees import Desk
desk = Desk(sys.argv[1])
os.rmdir(desk.root)
os.rename(sys.argv[2], desk.root)
saved = desk.save("one")
assert saved.complete, saved
desk.write(b"new", b"1\\r\\n")
desk.status(), desk.diff()
second = desk.save("two")
os.unlink(desk.path(b"crlf"))
desk.reset()
desk.undo(), desk.redo()
print(desk.save().id)
desk.close()
"""


def _plant(base: Path) -> Path:
    tree = base / "tree"
    tree.mkdir()
    (tree / "crlf").write_bytes(b"a\r\nb\r\n$Id$\r\n")
    (tree / "mixed").write_bytes(b"a\r\nb\n")
    (tree / "utf16").write_bytes("text".encode("utf-16"))
    (tree / "big.bin").write_bytes(bytes(1000))
    (tree / "link").symlink_to("crlf")
    (tree / "run").write_bytes(b"#!")
    (tree / "run").chmod(0o755)
    (tree / ".gitattributes").write_bytes(
        b"* text=auto eol=crlf ident filter=trap\n*.bin filter=lfs diff=lfs merge=lfs -text\n"
        b"utf16 working-tree-encoding=UTF-16\nrun export-ignore\n"
    )
    return tree


def _trap(base: Path) -> Path:
    trap = base / "trap"
    trap.write_text(f'#!/bin/sh\necho "$0 $@" >> {base}/sprung\nexit 1\n')
    trap.chmod(0o755)
    hooks = base / "hooks"
    hooks.mkdir()
    for name in ("pre-commit", "post-commit", "reference-transaction", "post-checkout", "post-index-change"):
        (hooks / name).write_text(trap.read_text())
        (hooks / name).chmod(0o755)
    return trap


def _run(base: Path, extra: dict[str, str]) -> str:
    (base / "desk").mkdir()
    environ = isolation.private_environment(str(base / "env"), os.environ)
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", _WORK, base / "desk", base / "tree"]
    done = subprocess.run(command, env=environ | extra, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def _check(base: Path, checkpoint: str) -> None:
    [store] = (base / "desk/cd").glob("ws_*")
    tree = run_git(f"--git-dir={store}", "rev-parse", f"{checkpoint}^{{tree}}").decode().strip()
    assert tree == git_tree(os.fsencode(base / "desk/ws"))
    assert run_git(f"--git-dir={store}", "cat-file", "blob", f"{checkpoint}:crlf") == b"a\r\nb\r\n$Id$\r\n"
    run_git(f"--git-dir={store}", "fsck", "--strict", "--full")
    assert not (base / "sprung").exists()
    author = run_git(f"--git-dir={store}", "log", "-1", "--format=%an %ae %cn %ce %G?", checkpoint)
    assert author.split() == [b"fabricatio-checkpoint", b"checkpoint@localhost"] * 2 + [b"N"]


@pytest.mark.parametrize("where", ["home", "xdg", "variable"])
def test_a_hostile_configuration(short_dir: Path, where: str):
    _plant(short_dir)
    text = _HOSTILE.format(trap=_trap(short_dir), hooks=short_dir / "hooks", base=short_dir)
    (short_dir / "attributes").write_text("* filter=trap\n")
    home = short_dir / "home"
    (home / ".config/git").mkdir(parents=True)
    place = {"home": home / ".gitconfig", "xdg": home / ".config/git/config", "variable": short_dir / "conf"}[where]
    place.write_text(text)
    extra = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}
    if where == "variable":
        extra |= {"GIT_CONFIG_GLOBAL": str(place), "GIT_CONFIG_SYSTEM": str(place)}
        extra |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.autocrlf", "GIT_CONFIG_VALUE_0": "true"}
    _check(short_dir, _run(short_dir, extra))


@pytest.mark.parametrize("text", ["[core\nbroken", "\0\0\0", "[include]\n\tpath = .gitconfig\n"])
def test_a_broken_configuration(short_dir: Path, text: str):
    _plant(short_dir)
    (short_dir / "home").mkdir()
    (short_dir / "home/.gitconfig").write_text(text)
    _check(short_dir, _run(short_dir, {"HOME": str(short_dir / "home")}))


def test_no_home_and_no_git(short_dir: Path):
    _plant(short_dir)
    extra = {"HOME": "/nonexistent", "PATH": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}
    _check(short_dir, _run(short_dir, extra))


def test_git_s_variables_lead_nowhere(short_dir: Path):
    """All of them point into a repository of the user's, which stays as it is."""
    _plant(short_dir)
    mine = short_dir / "mine"
    mine.mkdir()
    run_git("init", "-q", ".", cwd=str(mine))
    (mine / "f").write_bytes(b"1")
    run_git("add", ".", cwd=str(mine))
    run_git("commit", "-qm", "one", cwd=str(mine))
    before = _look(mine)
    git_dir = str(mine / ".git")
    extra = {
        "GIT_DIR": git_dir,
        "GIT_WORK_TREE": str(mine),
        "GIT_INDEX_FILE": f"{git_dir}/index",
        "GIT_OBJECT_DIRECTORY": f"{git_dir}/objects",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": f"{git_dir}/objects",
        "GIT_COMMON_DIR": git_dir,
        "GIT_NAMESPACE": "other",
        "GIT_CEILING_DIRECTORIES": "/",
        "GIT_AUTHOR_NAME": "Eve",
        "GIT_COMMITTER_DATE": "2001-01-01T00:00:00Z",
        "GIT_DEFAULT_HASH": "sha256",
    }
    _check(short_dir, _run(short_dir, extra))
    assert _look(mine) == before


def _look(place: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(place.rglob("*"))
    }


def test_a_store_is_private(desk: Desk):
    before = os.umask(0o022)
    try:
        desk.write(b"a", b"1")
        desk.save()
    finally:
        os.umask(before)
    assert os.stat(desk.folder).st_mode & 0o777 == 0o700


def test_a_store_s_own_configuration(desk: Desk):
    desk.write(b"a", b"1")
    desk.save()
    for name, value in (
        ("gc.auto", b"0"),
        ("maintenance.auto", b"false"),
        ("core.multiPackIndex", b"false"),
        ("core.bare", b"true"),
    ):
        assert desk.git("config", name).strip() == value
