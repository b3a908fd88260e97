"""Completion: what may come next, and the shells that ask for it."""

import os
import shutil
import subprocess
import sys

import pytest

from ckpt_protocol.address import socket_path
from fabricatio_checkpoint.cli.completing import candidates, understand
from support.cli_answers import ID, head, history, record
from support.cli_daemon import CardboardDaemon
from support.cli_run import as_process, environment

NAMES = [("HEAD", "the last save"), ("v1", "a tag"), ("1a2b3c4d5e", "an id")]


def offered(*words: str) -> list[str]:
    return [word for word, _ in candidates(understand(words), lambda: list(NAMES))]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rese"], ["reset"]),
        (["daem"], ["daemon"]),
        (["daemon", "sta"], ["start", "status"]),
        (["-w", "dir", "rollb"], ["rollback"]),
        (["--workspace=dir", "rollb"], ["rollback"]),
        (["--json", "undo", "--dr"], ["--dry-run"]),
        (["--js"], ["--json"]),
        (["rollback", ""], ["HEAD", "v1", "1a2b3c4d5e"]),
        (["rollback", "H"], ["HEAD"]),
        (["rollback", "HEAD", ""], []),
        (["diff", ""], ["HEAD", "v1", "1a2b3c4d5e"]),
        (["diff", "HEAD", "v"], ["v1"]),
        (["diff", "--", ""], []),
        (["diff", "--", "--st"], []),
        (["ls", "--kind", ""], ["manual", "auto", "safety"]),
        (["ls", "--limit", ""], []),
        (["save", ""], []),
        (["help", "rese"], ["reset"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["watch", ""], ["on", "off", "status"]),
        (["untag", ""], ["v1"]),
        (["tag", "HEAD", ""], []),
        (["save", "--expect-head", ""], ["HEAD", "v1", "1a2b3c4d5e"]),
        (["no-such-command", ""], []),
        (["--no-such-option", "rese"], ["reset"]),
        ([], ["save"]),
    ],
)
def test_what_may_come_next(words, expected):
    found = offered(*words)
    assert found == expected if words else set(expected) < set(found)


def test_checkpoints_are_only_asked_for_where_one_may_stand():
    def ask():
        raise AssertionError("asked")

    assert candidates(understand(["save", ""]), ask) == []
    with pytest.raises(AssertionError, match="asked"):
        candidates(understand(["show", ""]), ask)


@pytest.fixture
def place(short_dir, monkeypatch):
    for name, below in (("XDG_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state")):
        (short_dir / below).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(short_dir / below))
    (short_dir / "tree").mkdir()
    return short_dir / "tree"


@pytest.fixture
def daemon(place):
    listed = history(record(tags=["v1", "v2"], message="before the\tend"))
    with CardboardDaemon(socket_path(os.environ), {"checkpoint.head": head(), "checkpoint.list": listed}) as cardboard:
        yield cardboard


@pytest.mark.e2e
def test_ids_and_tags_come_from_the_daemon(daemon, place):
    done = as_process("completion", "words", "--", "-w", str(place), "show", "", cwd=place.parent)
    words = [line.split("\t")[0] for line in done.out.splitlines()]
    assert words == ["HEAD", "v1", "v2", ID[:10]]
    assert daemon.calls("checkpoint.list")[0]["worktree"]["path"] == str(place)


@pytest.mark.e2e
def test_a_key_that_is_pressed_starts_no_daemon(place):
    done = as_process("completion", "words", "--", "show", "", cwd=place)
    assert (done.code, done.out, done.stderr) == (0, "", "")
    assert os.listdir(os.path.join(os.environ["XDG_RUNTIME_DIR"])) == []


@pytest.mark.e2e
def test_an_unknown_shell_is_told(place):
    done = as_process("completion", "tcsh", cwd=place)
    assert done.code == 2
    assert "bash, zsh, fish" in done.stderr


IN_A_SHELL = {
    "bash": """
source <(ckpt completion bash)
COMP_WORDS=(ckpt rollback v); COMP_CWORD=2; _ckpt; printf '%s\\n' "${COMPREPLY[@]}"
COMP_WORDS=(ckpt daemon st); COMP_CWORD=2; _ckpt; printf '%s\\n' "${COMPREPLY[@]}"
""",
    # Outside of its line editor zsh cannot complete: what the function would hand over is looked at instead.
    "zsh": """
compdef() { : }
_describe() { printf '%s\\n' "${(@)${(P)3}%%:*}" }
_files() { print files }
source <(ckpt completion zsh)
words=(ckpt rollback v); CURRENT=3; _ckpt
words=(ckpt daemon st); CURRENT=3; _ckpt
words=(ckpt save ''); CURRENT=3; _ckpt
""",
    "fish": """
ckpt completion fish | source
complete --do-complete 'ckpt rollback v' | string replace -r '\\t.*' ''
complete --do-complete 'ckpt daemon st' | string replace -r '\\t.*' ''
""",
}


@pytest.mark.e2e
@pytest.mark.parametrize("shell", list(IN_A_SHELL))
def test_in_the_shell_itself(daemon, place, short_dir, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (short_dir / "bin").mkdir()
    script = short_dir / "bin" / "ckpt"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m fabricatio_checkpoint.cli "$@"\n')
    script.chmod(0o755)
    env = {**environment(), "PATH": f"{script.parent}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(short_dir)}
    quiet = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *quiet, "-c", IN_A_SHELL[shell]], cwd=place, env=env, capture_output=True, text=True, check=False
    )
    expected = ["start", "status", "stop", "v1", "v2"] + ["files"] * (shell == "zsh")
    assert sorted(done.stdout.split()) == sorted(expected), done.stderr
