"""What SECURITY.md promises, from outside: real processes, a hostile worktree, curious neighbours."""

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from support.cli_run import Outcome
from support.live import Place, snapshot
from support.poll import until
from support.worktrees import run_git

pytestmark = pytest.mark.e2e

NOBODY = 65534
SECRET = "hunter2-of-the-content"
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to act as another user")


def everything_of_ours(place: Place) -> list[Path]:
    """Every file and directory that the product has made."""
    tops = [
        place.checkpoint_dir,
        Path(place.environ["XDG_STATE_HOME"], "fabricatio-checkpoint"),
        Path(place.socket).parent,
    ]
    return [top for top in tops if top.exists()] + [path for top in tops for path in top.rglob("*")]


# -- private, whatever the umask


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_all_that_is_made_is_private_whatever_the_umask(place: Place, umask: int):
    place.obey_permissions()
    (place.ws / "f").write_text("one\n")

    def ckpt(*words: str) -> None:
        child = place.start(*words, umask=umask)
        said = child.communicate(timeout=60)
        assert child.returncode == 0, said

    ckpt("save", "first")
    assert (place.ws / "f").read_text() == "one\n"
    (place.ws / "f").write_text("two\n")
    ckpt("reset", "--yes")
    ckpt("undo")
    # As after a restart, nothing stands in its own way.
    ckpt("daemon", "stop")
    until(lambda: not place.daemons())
    ckpt("save", "second")
    found = everything_of_ours(place)
    assert len(found) > 20
    for path in found:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert not mode & 0o077, (path, oct(mode))
        assert path.lstat().st_uid == os.getuid()


# -- other users


@needs_root
def test_a_client_does_not_talk_to_a_daemon_of_another_user(place: Place):
    listening = Path(place.socket)
    listening.parent.mkdir(mode=0o700, parents=True)
    for folder in (place.base, *listening.parents[:2]):
        folder.chmod(0o777)
    code = (
        "import os, socket, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n"
        "print('ready', flush=True)\n"
        "while True: print(s.accept()[0].recv(100), flush=True)\n"
    )
    thief = place.spawn([sys.executable, "-c", code, str(listening)], place.environ, stdout=subprocess.PIPE)
    assert thief.stdout.readline() == b"ready\n"
    told = place.ckpt("save", SECRET, FABRICATIO_EXT__CHECKPOINT__SOCKET=str(listening))
    assert told.code == 60
    assert f"belongs to user {NOBODY}" in told.stderr
    thief.kill()
    assert thief.stdout.read() == b"b''\n"


@needs_root
@pytest.mark.parametrize("how", ["open to all", "of another user", "a link"])
def test_no_daemon_listens_where_others_could_be_in_its_place(place: Place, how: str):
    folder = place.base / "shared"
    if how == "a link":
        (place.base / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to("elsewhere")
    else:
        folder.mkdir(mode=0o700)
        if how == "open to all":
            folder.chmod(0o777)
        else:
            os.chown(folder, NOBODY, NOBODY)
    told = place.ckpt("save", FABRICATIO_EXT__CHECKPOINT__SOCKET=str(folder / "d.sock"))
    assert told.code == 60
    assert "0700" in told.stderr
    assert os.listdir(folder) == []


@needs_root
def test_another_user_gets_nothing_even_where_the_modes_would_let_them(place: Place):
    (place.ws / "f").write_text(SECRET)
    place.save()
    listening = place.socket
    for folder in (place.base, *Path(listening).parents[:2]):
        folder.chmod(0o755)
    Path(listening).chmod(0o666)
    code = (
        "import os, socket, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "print(s.recv(65536).decode())\n"
    )
    told = place.python(code, listening)
    for folder in Path(listening).parents[:2]:
        folder.chmod(0o700)
    assert "forbidden_peer" in told.out, told
    assert str(place.ws) not in told.out


# -- nothing of a worktree is run or believed

TRAP = "import os\nopen({witness!r}, 'a').write(__file__ + '\\n')\n"
MODULES = [
    "json", "os", "socket", "msgspec", "anyio", "pygit2", "tomllib", "ckptd", "ckpt_protocol", "fabricatio_checkpoint",
    "sitecustomize", "usercustomize", "dotenv", "rich", "encodings", "conftest", "setup",
]  # fmt: skip


CONFIG = """
[core]
 fsmonitor = {hook}
 hooksPath = {ws}
 pager = {hook}
 editor = {hook}
 sshCommand = {hook}
 excludesFile = {ws}/all
 attributesFile = {ws}/.gitattributes
[include]
 path = {ws}/more
[includeIf "gitdir:/"]
 path = {ws}/more
[filter "x"]
 clean = {hook}
 smudge = {hook}
 process = {hook}
 required = true
[diff "x"]
 textconv = {hook}
 command = {hook}
[merge "x"]
 driver = {hook}
[alias]
 status = !{hook}
[gpg]
 program = {hook}
[commit]
 gpgSign = true
[credential]
 helper = !{hook}
"""


def trapped(place: Place) -> Path:
    """Fill the worktree with all that somebody might run; gives the file that each of them would write."""
    witness = place.base / "was run"
    trap = TRAP.format(witness=str(witness))
    for name in MODULES:
        (place.ws / f"{name}.py").write_text(trap)
        (place.ws / f"{name}.pth").write_text(f"import os; open({str(witness)!r}, 'a')\n")
    shell = f"#!/bin/sh\necho \"$0\" >> '{witness}'\ncat\n"
    for name in ("git", "less", "python", "python3", "ckpt", "ckptd", "sh", "pager", "diff", "hook"):
        (place.ws / name).write_text(shell)
        (place.ws / name).chmod(0o755)
    hook = place.ws / "hook"
    preload = place.ws / "preload.so"
    preload.write_bytes(b"\x7fELF")
    (place.ws / ".env").write_text(
        f"LD_PRELOAD={preload}\nPYTHONPATH={place.ws}\nPYTHONSTARTUP={place.ws}/setup.py\nPAGER={hook}\nCKPT_PAGER={hook}\n"
        f"GIT_DIR={place.ws}/.git\nPATH={place.ws}\nBASH_ENV={hook}\nHOME={place.ws}\nXDG_RUNTIME_DIR={place.ws}\n"
    )
    run_git("init", "-q", str(place.ws))
    with open(place.ws / ".git" / "config", "a") as config:
        config.write(CONFIG.format(hook=hook, ws=place.ws))
    (place.ws / "more").write_text(f"[core]\n fsmonitor = {hook}\n hooksPath = {place.ws}\n")
    (place.ws / "all").write_text("*\n")
    (place.ws / ".gitattributes").write_text(
        "* filter=x diff=x merge=x text eol=crlf ident working-tree-encoding=UTF-16\n"
    )
    for name in ("pre-commit", "post-checkout", "post-index-change", "reference-transaction", "post-commit"):
        for folder in (place.ws / ".git" / "hooks", place.ws):
            folder.mkdir(exist_ok=True)
            shutil.copy(hook, folder / name)
    return witness


def test_nothing_of_a_worktree_is_ever_run(place: Place):
    witness = trapped(place)
    (place.ws / "text").write_bytes(b"a\n$Id$\r\n")
    git = snapshot(place.ws / ".git")
    first = place.save("first")
    (place.ws / "text").write_bytes(b"b\n")
    (place.ws / "new").write_bytes(b"new\n")
    place.ckpt("save", "second")
    for words in (
        ["ls"], ["ls", "text"], ["status"], ["show", first], ["cat", first, "text"], ["diff", first],
        ["diff", "--stat"],
        ["rollback", first, "text"], ["undo"], ["redo"], ["reset", first, "--yes"], ["workspaces"],
        ["prune", "--dry-run"],
        ["doctor"], ["daemon", "status"], ["daemon", "logs"],
    ):  # fmt: skip
        outcome = place.ckpt(*words)
        assert outcome.code == 0, (words, outcome)
    assert (place.ws / "text").read_bytes() == b"a\n$Id$\r\n"
    place.done("daemon", "stop")
    place.save("third")
    assert not witness.exists(), witness.read_text()
    assert snapshot(place.ws / ".git") == git


def test_the_daemon_is_started_without_the_settings_of_a_worktree(place: Place):
    trapped(place)
    place.save()
    environ = Path(f"/proc/{place.pid()}/environ").read_bytes().split(b"\0")
    command = Path(f"/proc/{place.pid()}/cmdline").read_bytes().split(b"\0")
    assert not [line for line in environ if os.fsencode(place.ws) in line]
    assert command[1:4] == [b"-P", b"-m", b"ckptd"]
    assert os.readlink(f"/proc/{place.pid()}/cwd") == "/"


def test_files_that_are_none_hold_nobody_up(place: Place):
    for name in ("fabricatio.toml", "pyproject.toml", ".env", ".gitignore", ".ckptignore"):
        os.mkfifo(place.ws / name)
    git = place.ws / ".git"
    git.mkdir()
    for name in ("HEAD", "index", "config", "commondir"):
        os.mkfifo(git / name)
    (git / "info").mkdir()
    os.mkfifo(git / "info" / "exclude")
    nested = place.ws / "nested"
    nested.mkdir()
    os.mkfifo(nested / ".git")
    (place.ws / "linked").mkdir()
    (place.ws / "linked" / ".git").write_text("gitdir: ../.git\n")
    (place.ws / "f").write_text("one\n")
    first = place.save()
    (place.ws / "f").write_text("two\n")
    place.done("status")
    place.done("rollback", first, "f")
    assert (place.ws / "f").read_text() == "one\n"


# -- a worktree's own options reach no further than the worktree


def test_a_worktree_cannot_have_its_history_or_another_thinned_or_moved(place: Place):
    (place.ws / "fabricatio.toml").write_text(
        "[ext.checkpoint]\nexclude = ['*.tmp']\nkeep_last = 0\nkeep_manual_days = 1\nmax_store_bytes = 1\n"
        "idle_exit_s = 0\ncache_size = 1\nuse_git_excludes = false\none_file_system = false\n"
    )
    (place.ws / "a.tmp").write_text("x")
    (place.ws / "f").write_text("x")
    first = place.save("one")
    assert place.ckpt("cat", first, "a.tmp").code == 10
    (place.ws / "f").write_text("y")
    place.save("two")
    assert len(place.json("ls")["checkpoints"]) == 2
    # Its own daemon still runs: no option of the worktree's ended it.
    assert len(place.daemons()) == 1


# -- what is written down, and what is shown


def test_neither_contents_nor_messages_are_in_the_logs(place: Place):
    (place.ws / "f").write_text(SECRET)
    first = place.save(f"message {SECRET}", "--tag", "t", "--meta", f"key={SECRET}")
    (place.ws / "f").write_text(SECRET * 2)
    (place.ws / "pyproject.toml").write_text(f"[tool.fabricatio.ext.checkpoint]\n{SECRET} = broken {SECRET}\n")
    for words in (
        ["diff", first], ["cat", first, "f"], ["save", SECRET, "--tag", f"{SECRET} .."], ["show", SECRET],
        ["save", "x", "--meta", f"{SECRET}={SECRET}"], ["reset", "--yes"], ["undo"],
    ):  # fmt: skip
        place.ckpt(*words, cwd=place.base)
        place.ckpt("-w", str(place.ws), *words, cwd=place.base)
    texts = [path.read_bytes() for path in everything_of_ours(place) if path.is_file() and "state" in str(path)]
    assert b"checkpoint.save" in b"".join(texts)
    assert SECRET.encode() not in b"".join(texts)


def test_a_name_forges_no_line_of_the_log(place: Place):
    forged = place.home / "x\n2026-11-30 00:00:00,000 ERROR ckptd forged\x1b[2J"
    forged.mkdir()
    (forged / "f\nERROR forged").write_text("x")
    place.save(cwd=forged)
    place.ckpt("cat", "HEAD", "no\nERROR forged", cwd=forged)
    for line in place.log.splitlines():
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING) ckptd", line), line
        assert line.isprintable()


EVIL = [
    "esc\x1b]0;title\x07",
    "csi\x9b2J",
    "bidi\u202egpj.exe",
    "nl\nforged",
    "cr\rover",
    "bs\b\b",
    "del\x7f",
    "zero\u200bwidth",
]


def shown(outcome: Outcome) -> None:
    """Assert that a terminal is not steered by what was printed."""
    for text in (outcome.out, outcome.stderr):
        bad = {char for char in text if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")}
        assert not bad, (bad, text)


def test_neither_names_nor_messages_steer_a_terminal(place: Place):
    ws = place.home / f"ws{EVIL[0]}{EVIL[2]}"
    ws.mkdir()
    for name in EVIL:
        (ws / name).write_text("x\n")
        (ws / f"dir {name}").mkdir()
        (ws / f"dir {name}" / name).symlink_to(name)
    os.mkfifo(ws / f"fifo {EVIL[0]}")
    message = " ".join(EVIL)
    first = place.ckpt("save", message, "--meta", f"k{EVIL[0]}={EVIL[2]}", cwd=ws)
    shown(first)
    for name in EVIL:
        (ws / name).write_text("y\n")
    (ws / EVIL[1]).unlink()
    begun = first.out.strip()
    for words in (
        ["ls"], ["ls", *EVIL], ["status"], ["show", begun], ["diff", "--stat"], ["diff", "--name-status"],
        ["workspaces"], ["cat", begun, "no" + EVIL[0]], ["cat", begun, f"dir {EVIL[0]}"], ["show", EVIL[0]],
        ["rollback", begun, "no" + EVIL[2]], ["rollback", begun, EVIL[0]], ["rollback", begun, "../" + EVIL[0]],
        ["reset", "--dry-run"], ["reset", "--yes"], ["undo"], ["redo"], ["save", "-w", EVIL[0]],
        ["prune", "--dry-run"], [EVIL[0]], ["save", "--" + EVIL[0]], ["doctor"], ["daemon", "status"],
        ["daemon", "logs"], ["forget"], ["save", "m", "--tag", EVIL[0]], ["-w", "/nowhere/" + EVIL[0], "status"],
        ["-w", f"{ws}/{EVIL[0]}", "ls"], ["verify"], ["gc"], ["drop", EVIL[0]], ["drop", begun], ["resume", "--undo"],
        ["save", "again\x1b[2J"], ["ls"], ["cat", "@{" + EVIL[0] + "}", "f"], ["diff", EVIL[0], EVIL[1]],
    ):  # fmt: skip
        shown(place.ckpt(*words, cwd=ws))
        shown(place.ckpt("--json", *words, cwd=ws))


# -- no further than the worktree


def test_paths_lead_nowhere_else(place: Place):
    outside = place.base / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    (place.ws / "d").mkdir()
    (place.ws / "d" / "f").write_text("x")
    (place.ws / "out").symlink_to(outside)
    (place.ws / "up").symlink_to("../..")
    (place.ws / "file").symlink_to(outside / "secret")
    first = place.save()
    before = snapshot(outside)
    spellings = [
        "out/secret", "up/outside/secret", f"{outside}/secret", "../../outside/secret", "d/../../../outside/secret",
        "out/../../outside/secret", f"{place.ws}/out/secret", f"{place.ws}/../../outside/secret", "/etc/passwd",
        "d//../..", "..", "../", ".", "./", "/", "", "d/f/x", "out/", "out/new", "x" * 5000, "d/" * 3000 + "f",
        "a\udcff/../../../outside",
        ".git/config", ".GIT/config", "git~1/config", ".g\u200cit/config",
    ]  # fmt: skip
    for path in spellings:
        raw = os.fsencode(path)
        for words in (
            ["cat", first, raw], ["rollback", first, raw], ["rollback", first, raw, "--delete"], ["ls", raw],
            ["diff", first, "--", raw],
        ):  # fmt: skip
            told = place.ckpt(*words)
            assert told.code in (0, 2, 10), (words, told)
            assert SECRET not in told.out
            assert "unexpected" not in told.stderr
    assert snapshot(outside) == before
    # What is a link is a link: its own text is what is kept of it.
    assert place.done("cat", first, "file").out == str(outside / "secret")


def test_a_directory_that_becomes_a_link_is_not_followed(place: Place):
    outside = place.base / "outside"
    outside.mkdir()
    (place.ws / "d").mkdir()
    (place.ws / "d" / "f").write_text("mine")
    first = place.save()
    (outside / "f").write_text("theirs")
    shutil.rmtree(place.ws / "d")
    (place.ws / "d").symlink_to(outside)
    before = snapshot(outside)
    for words in (["rollback", first, "d/f"], ["rollback", first, "d"], ["undo"], ["reset", first, "--yes"], ["undo"]):
        place.ckpt(*words)
        assert snapshot(outside) == before
    place.done("reset", first, "--yes")
    assert (place.ws / "d" / "f").read_text() == "mine"
    assert (outside / "f").read_text() == "theirs"


def test_a_checkpoint_directory_in_the_worktree_is_not_saved_into_itself(place: Place):
    (place.ws / "f").write_text("x")
    inside = place.ws / "cd"
    environ = {"FABRICATIO_EXT__CHECKPOINT__CHECKPOINT_DIR": str(inside)}
    first = place.done("save", **environ).out.strip()
    second = place.done("save", "again", **environ)
    assert second.out.strip() == first
    assert place.ckpt("cat", first, "cd/.lock", **environ).code == 10
    (place.ws / "f").write_text("y")
    place.done("reset", first, "--yes", **environ)
    assert inside.is_dir()
    place.done("ls", **environ)


def test_a_link_to_a_checkpoint_directory_may_be_turned_between_calls(place: Place):
    (place.ws / "f").write_text("x")
    for name in ("one", "two"):
        (place.base / name).mkdir(mode=0o700)
    link = place.base / "cd"
    link.symlink_to("one")
    environ = {"FABRICATIO_EXT__CHECKPOINT__CHECKPOINT_DIR": str(link)}
    first = place.done("save", **environ).out.strip()
    link.unlink()
    link.symlink_to("two")
    assert place.ckpt("cat", first, "f", **environ).code == 20
    second = place.done("save", **environ).out.strip()
    link.unlink()
    link.symlink_to("one")
    assert place.done("cat", first, "f", **environ).out == "x"
    assert place.ckpt("cat", second, "f", **environ).code == 10 or first == second


def test_a_checkpoint_directory_may_be_moved_away_beside_a_daemon_and_a_link_left_in_its_place(place: Place):
    (place.ws / "f").write_text("x")
    (place.base / "cd").mkdir(mode=0o700)
    environ = {"FABRICATIO_EXT__CHECKPOINT__CHECKPOINT_DIR": str(place.base / "cd")}
    first = place.done("save", **environ).out.strip()
    (place.base / "cd").rename(place.base / "moved")
    (place.base / "cd").symlink_to("moved")
    assert place.done("cat", first, "f", **environ).out == "x"
    (place.ws / "f").write_text("y")
    place.done("save", **environ)
    assert len(json.loads(place.done("ls", "--json", **environ).out)["checkpoints"]) == 2


def test_a_socket_of_a_worktree_is_no_daemon(place: Place):
    """A file of the worktree's that says where the daemon is can name a socket, but not one of another user."""
    (place.ws / "fabricatio.toml").write_text(f"[ext.checkpoint]\nsocket = '{place.ws}/run/d.sock'\n")
    with socket.socket(socket.AF_UNIX) as theirs:
        (place.ws / "run").mkdir(mode=0o700)
        theirs.bind(str(place.ws / "run" / "d.sock"))
        assert place.ckpt("daemon", "status").code == 20


def test_a_tag_means_nothing_to_the_shell_that_completes_it(place: Place):
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    tags = ["$(touch${IFS}x)", "v;touch${IFS}x", "w`touch${IFS}x`", "y&z|'\"", "#9"]
    (place.ws / "f").write_text("x")
    first = place.save("*\n* $(touch x)")
    for tag in tags:
        place.done("tag", first, tag)
    program = place.base / "bin" / "ckpt"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m fabricatio_checkpoint.cli "$@"\n')
    program.chmod(0o755)
    script = """
source <(ckpt completion bash)
COMP_WORDS=(ckpt show ''); COMP_CWORD=2; _ckpt
# What is completed becomes a part of the line.
eval "printf '%s\\n' ${COMPREPLY[*]}"
"""
    environ = {**place.environ, "PATH": f"{program.parent}:{place.environ['PATH']}"}
    done = subprocess.run(["bash", "--norc", "-c", script], cwd=place.ws, env=environ, capture_output=True, timeout=60)
    words = done.stdout.decode().splitlines()
    assert sorted(set(words) & set(tags)) == sorted(tags), (words, done.stderr)
    assert os.listdir(place.ws) == ["f"]
