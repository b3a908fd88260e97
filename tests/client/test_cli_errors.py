"""Errors, help and the daemon commands, in this process."""

import os
import subprocess
import sys

import pytest

from ckpt_protocol.address import socket_path, state_dir
from fabricatio_checkpoint.cli import daemonctl
from fabricatio_checkpoint.cli.grammar import COMMANDS
from support.cli_answers import head
from support.cli_daemon import CardboardDaemon, Refusal
from support.cli_run import in_process
from support.poll import until


@pytest.fixture
def places(short_dir, monkeypatch):
    for name, below in (("XDG_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state")):
        (short_dir / below).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(short_dir / below))
    (short_dir / "tree").mkdir()
    monkeypatch.chdir(short_dir / "tree")
    return short_dir


@pytest.fixture
def daemon(places):
    with CardboardDaemon(socket_path(os.environ), {"checkpoint.head": head()}) as cardboard:
        yield cardboard


@pytest.fixture
def ckpt(places, capsysbinary):
    return lambda *argv: in_process(capsysbinary, *argv)


def refuse(kind, message, **data):
    def answer(_params):
        raise Refusal(kind, message, **data)

    return answer


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("unknown_checkpoint", 10),
        ("no_checkpoint", 20),
        ("nothing_to_undo", 20),
        ("no_space", 50),
        ("store_damaged", 50),
        ("worktree_busy", 60),
        ("protocol_mismatch", 60),
        ("internal", 70),
    ],
)
def test_every_family_has_its_exit_code(daemon, ckpt, kind, code):
    daemon.answers["checkpoint.show"] = refuse(kind, "what is wrong")
    done = ckpt("show", "HEAD")
    assert (done.code, done.out) == (code, "")
    assert done.stderr.startswith("ckpt: what is wrong")
    assert done.stderr.count("\n") == 1
    as_json = ckpt("show", "HEAD", "--json")
    assert as_json.code == code
    assert as_json.stderr == ""
    error = as_json.document["error"]
    assert set(error) == {"kind", "message", "hint", "paths"}
    assert (error["kind"], error["message"]) == (kind, "what is wrong")


def test_hint_paths_and_error_id_are_told(daemon, ckpt):
    daemon.answers["checkpoint.show"] = refuse("io_error", "cannot", hint="try\x1b", paths=["p\n"], error_id="e1")
    stderr = ckpt("show", "HEAD").stderr
    assert stderr == 'ckpt: cannot (error e1); try\\x1b\n  "p\\n"\n'


def test_usage_errors_are_json_too(ckpt):
    done = ckpt("reset", "--bogus", "--json")
    assert done.code == 2
    assert done.stderr == ""
    assert done.document["error"]["kind"] == "usage"
    assert ckpt().code == 2


def test_text_that_is_not_utf8_is_refused_before_anything_is_asked(daemon, ckpt):
    done = ckpt("save", os.fsdecode(b"caf\xe9"), "--json")
    assert done.code == 10
    assert done.document["error"]["kind"] == "bad_message"
    assert daemon.calls("checkpoint.save") == []


def test_a_bug_is_one_line_and_a_file(daemon, ckpt, places, monkeypatch):
    # An answer without the fields that it has to have.
    daemon.answers["checkpoint.show"] = {}
    done = ckpt("show", "HEAD")
    crash = f"{state_dir(os.environ)}/ckpt-crash.txt"
    assert done.code == 70
    assert done.stderr == (f"ckpt: unexpected KeyError; the traceback is in {crash}; CKPT_DEBUG=1 shows it\n")
    with open(crash) as file:
        assert "Traceback" in file.read()
    assert os.stat(crash).st_mode & 0o777 == 0o600
    monkeypatch.setenv("CKPT_DEBUG", "1")
    assert "Traceback" in ckpt("show", "HEAD").stderr


def test_a_bug_whose_traceback_cannot_be_kept(daemon, ckpt, places, monkeypatch):
    (places / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(places / "file"))
    daemon.answers["checkpoint.show"] = {}
    done = ckpt("show", "HEAD")
    assert done.code == 70
    assert "the traceback could not be written" in done.stderr


# help


def test_version(ckpt):
    assert ckpt("--version").out == "ckpt 1.0.0\n"
    assert ckpt("--version", "--json").document == {"version": "1.0.0", "protocol": 1}


@pytest.mark.parametrize("argv", [("help",), ("--help",), ("-h",)])
def test_help_lists_every_command(ckpt, argv):
    done = ckpt(*argv)
    assert done.code == 0
    for name in COMMANDS:
        assert f"  {name} " in done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself_with_an_example(ckpt, name):
    if COMMANDS[name].rest is None:
        assert ckpt(*name.split(), "--help").out == ckpt("help", *name.split()).out
    out = ckpt("help", *name.split()).out
    assert out.startswith(f"usage: ckpt {name}")
    examples = out.partition("example")[2].partition("\n\n")[0].splitlines()[1:]
    assert examples == [f"  {line}" for line in (COMMANDS[name].example, *COMMANDS[name].more)]
    assert all(f"--{option.name}" in out for option in COMMANDS[name].options)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_help_fits_the_terminal_and_never_needs_more_than_80_columns(ckpt, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    out = "\n".join(ckpt("help", *name).out for name in ((), ("reset",), ("save",), ("daemon",)))
    assert max(map(len, out.splitlines())) <= min(80, int(columns))
    assert "[--tag NAME]" in out
    assert "\N{NO-BREAK SPACE}" not in out


def test_usage_shows_what_is_optional(ckpt):
    assert ckpt("help", "rollback").out.splitlines()[:2] == [
        "usage: ckpt rollback ID PATH... [--dry-run] [--delete] [--skip-conflicts]",
        "                     [--expect-digest D] [--expect-head ID]",
    ]
    assert ckpt("help", "watch").out.splitlines()[0] == "usage: ckpt watch on|off|status [--force]"
    assert ckpt("help", "diff").out.splitlines()[0] == (
        "usage: ckpt diff [FROM] [TO] [-- PATH...] [--stat] [--name-status]"
    )
    assert "[--meta K=V]..." in ckpt("help", "save").out


def test_help_of_a_group_and_of_nothing(ckpt):
    assert "daemon logs" in ckpt("help", "daemon").out
    assert ckpt("help", "bogus").code == 2


# the daemon


STATUS = {
    "pid": 7,
    "version": "1.0.0",
    "protocol": 1,
    "socket": "/s",
    "uptime_s": 1.5,
    "connections": 1,
    "stores": [{"worktree": "/w", "store": "/x", "state": "IDLE", "queued": 1}],
}


def test_daemon_status_of_a_running_one(daemon, ckpt):
    daemon.answers["daemon.status"] = STATUS
    done = ckpt("daemon", "status")
    assert done.code == 0
    assert "the daemon runs, pid 7, version 1.0.0" in done.out
    assert "  /w (IDLE, 1 waiting)\n" in done.out
    assert ckpt("daemon", "status", "--json").document == {"running": True, **STATUS}


def test_daemon_status_starts_none(places, ckpt):
    done = ckpt("daemon", "status")
    assert (done.code, done.out) == (20, "the daemon does not run\n")
    as_json = ckpt("daemon", "status", "--json")
    assert as_json.code == 20
    assert as_json.document == {
        "running": False,
        "pid": None,
        "version": None,
        "protocol": None,
        "uptime_s": None,
        "socket": socket_path(os.environ),
        "stores": [],
    }
    assert not os.path.exists(socket_path(os.environ))


def test_daemon_start_says_that_one_runs(daemon, ckpt):
    daemon.answers["daemon.status"] = STATUS
    assert ckpt("daemon", "start").out == "the daemon runs already, pid 7\n"


def test_daemon_stop_waits_for_the_process_to_end(daemon, ckpt):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    def stop(_params):
        child.stdin.close()
        return {"pid": child.pid}

    daemon.answers["daemon.stop"] = stop
    done = ckpt("daemon", "stop")
    # Ended, though nobody has waited for it yet.
    assert not daemonctl.is_alive(child.pid)
    assert (done.code, done.out) == (0, f"the daemon has ended, pid {child.pid}\n")
    child.wait()


def test_daemon_stop_with_none_running(places, ckpt):
    done = ckpt("daemon", "stop")
    assert (done.code, done.out) == (0, "the daemon does not run\n")
    assert ckpt("daemon", "stop", "--json").document == {"stopped": False, "pid": None}


def test_waiting_for_an_end_has_an_end(short_dir):
    socket = short_dir / "s"
    socket.touch()
    assert not daemonctl.wait_until_ended(os.getpid(), str(socket), 0.05)
    socket.unlink()
    assert daemonctl.wait_until_ended(os.getpid(), str(socket), 0.05)


def test_who_is_alive():
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    until(lambda: not daemonctl.is_alive(child.pid))
    child.wait()
    assert not daemonctl.is_alive(child.pid)
    assert daemonctl.is_alive(os.getpid())


def test_daemon_logs(places, ckpt):
    assert ckpt("daemon", "logs").code == 60
    os.makedirs(state_dir(os.environ), exist_ok=True)
    with open(f"{state_dir(os.environ)}/ckptd.log", "wb") as log:
        log.write(b"".join(b"line %d\n" % number for number in range(100)))
    assert ckpt("daemon", "logs", "-n", "2").out == "line 98\nline 99\n"
    assert len(ckpt("daemon", "logs").out.splitlines()) == 50
    assert ckpt("daemon", "logs", "-n1", "--json").document["lines"] == ["line 99"]


@pytest.mark.parametrize("content", [b"", b"a", b"a\n", b"a\nb", b"x" * 200_000 + b"\n" + b"y\n" * 70_000, b"\n\n\n"])
@pytest.mark.parametrize("lines", [1, 2, 1000, 69_999, 1_000_000])
def test_the_end_of_a_log(short_dir, content, lines):
    (short_dir / "log").write_bytes(content)
    assert daemonctl.tail(str(short_dir / "log"), lines) == b"".join(content.splitlines(keepends=True)[-lines:])
