"""The command as a real process: what it imports, its pipes, its signals, and its terminal."""

import base64
import os
import pty
import re
import signal
import subprocess
import sys
import threading

import pytest

from ckpt_protocol.address import socket_path
from support.cli_answers import ID, head, history, hits, record, restored, saved, status
from support.cli_daemon import AfterCancel, CardboardDaemon, Refusal, Told
from support.cli_run import Outcome, as_process, command, environment
from support.poll import until

pytestmark = pytest.mark.e2e


@pytest.fixture
def place(short_dir, monkeypatch):
    for name, below in (("XDG_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state")):
        (short_dir / below).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(short_dir / below))
    (short_dir / "tree").mkdir()
    return short_dir / "tree"


@pytest.fixture
def daemon(place):
    with CardboardDaemon(socket_path(os.environ), {"checkpoint.head": head()}) as cardboard:
        yield cardboard


# imports


OF_THE_LIBRARY = {"__future__", "_json", "_socket", "binascii", "errno", "importlib", "itertools", "warnings"}
"""All that a hot command may load of the standard library beside what the interpreter has loaded by itself."""

OURS = {
    f"fabricatio_checkpoint{name}"
    for name in ("", ".config", ".configfile", ".connection", ".errors", ".interruption", ".jsontext", ".launch")
} | {f"fabricatio_checkpoint{name}" for name in (".link", ".wire", ".cli", ".cli.commands")}
OURS |= {
    f"fabricatio_checkpoint.cli.{name}"
    for name in ("__main__", "arguments", "failure", "grammar", "output", "session", "text", "words", "worktree")
}
OURS |= {f"ckpt_protocol{name}" for name in ("", ".address", ".framing", ".version", ".wirepath")}
OURS.add("fabricatio_checkpoint.cli.commands.save")
"""What a save may load of this project."""

SELDOM = {f"fabricatio_checkpoint.{name}" for name in ("spawn", "cli.render", "cli.commands.help")}


def imported(*argv: str, cwd, code: str) -> set[str]:
    """The modules that a run loaded, as the interpreter itself reports them."""
    line = [sys.executable, "-X", "importtime", "-c", code, *argv]
    done = subprocess.run(line, cwd=cwd, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize("argv", [("save", "m"), ("status",), ("ls",), ("cat", "HEAD", "x"), ("workspaces",)])
def test_hot_commands_import_next_to_nothing(daemon, place, argv):
    daemon.answers["checkpoint.save"] = saved()
    daemon.answers["worktree.status"] = status()
    daemon.answers["worktree.list"] = {"workspaces": [], "damaged": []}
    daemon.answers["checkpoint.list"] = history(record())
    piece = {"data": {"b64": ""}, "offset": 0, "total_bytes": 0, "mode": "100644", "id": ID}
    daemon.answers["checkpoint.cat"] = piece
    # By the function that the installed script calls: ``-m`` would add modules of its own.
    found = imported(*argv, cwd=place, code="from fabricatio_checkpoint.cli.__main__ import run; run()")
    assert "fabricatio_checkpoint.connection" in found
    found -= imported(cwd=place, code="pass")
    ours = {name for name in found if name.startswith(("fabricatio_checkpoint", "ckpt_protocol"))}
    assert found - ours <= OF_THE_LIBRARY
    assert not ours & SELDOM
    if argv[0] == "save":
        assert ours <= OURS


# pipes


def test_a_reader_that_goes_away_is_no_error(daemon, place):
    daemon.answers["checkpoint.list"] = history(*(record(seq=seq) for seq in range(20_000, 0, -1)))
    child = subprocess.Popen(
        command("ls"), cwd=place, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout.readline().startswith(b"1a2b3c4d5e")
    child.stdout.close()
    with child.stderr:
        assert child.stderr.read() == b""
    assert child.wait() == 0


def test_a_full_disk_under_stdout_is_told(daemon, place):
    daemon.answers["checkpoint.save"] = saved()
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("save"), cwd=place, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 50
    assert b"cannot write to stdout: No space left" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_an_error_keeps_its_exit_code_whatever_happens_to_stdout(daemon, place):
    for redirect in (">&-", "| true", "> /dev/full"):
        line = ["bash", "-c", f'"$@" {redirect}; exit ${{PIPESTATUS[0]}}', "sh", *command("--json", "show", "HEAD")]
        done = subprocess.run(line, cwd=place, env=environment(), capture_output=True, check=False)
        assert done.returncode == 20, redirect
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr


def test_closed_streams_are_borne(daemon, place):
    daemon.answers["checkpoint.save"] = saved()
    for closing in (">&-", "2>&-", "<&-", ">&- 2>&- <&-"):
        line = ["sh", "-c", f'exec "$@" {closing}', "sh", *command("save")]
        done = subprocess.run(line, cwd=place, env=environment(), capture_output=True, check=False)
        assert b"Traceback" not in done.stderr
        assert done.returncode in (0, 50), closing


def test_names_reach_a_stdout_that_is_not_utf8(daemon, place):
    daemon.answers["checkpoint.list"] = history(record(message="grüße ☃"))
    done = as_process("ls", cwd=place, PYTHONIOENCODING="latin-1")
    assert done.code == 0
    assert "grüße \\u2603".encode("latin-1") in done.stdout


def test_arguments_that_are_not_utf8(daemon, place):
    daemon.answers["checkpoint.restore"] = restored()
    line = [os.fsencode(word) for word in command("rollback", "HEAD")]
    done = subprocess.run([*line, b"caf\xe9"], cwd=place, env=environment(), capture_output=True, check=False)
    assert done.returncode == 0
    assert daemon.calls("checkpoint.restore")[0]["paths"] == [{"b64": "Y2Fm6Q=="}]


# signals


def is_asleep(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="sees in /proc when the command waits")
@pytest.mark.parametrize(
    ("words", "last_word", "told"),
    [
        (
            ["save"],
            Refusal("cancelled", "the scan was cancelled"),
            "interrupted: no checkpoint was made; what was read is kept for the next save",
        ),
        (["save"], saved(), f"interrupted too late: checkpoint {saved()['id']} was made"),
        (["undo"], Refusal("cancelled", "it was put back"), "interrupted: it was put back"),
        (["undo"], restored(), "interrupted too late: it was done; ckpt undo takes it back"),
        (["status"], Refusal("cancelled", "the scan was cancelled"), "interrupted: the scan was cancelled"),
    ],
)
def test_ctrl_c_cancels_and_tells_what_came_of_it(daemon, place, words, last_word, told):
    called = threading.Event()
    method = {"save": "checkpoint.save", "undo": "checkpoint.undo", "status": "worktree.status"}[words[0]]
    refusal = last_word if isinstance(last_word, Refusal) else None
    daemon.answers[method] = AfterCancel(called.set, {} if refusal else last_word, refusal)
    assert interrupted(place, called, *words) == (130, b"", f"ckpt: {told}\n".encode())
    (params,) = daemon.calls("$/cancel")
    assert isinstance(params["id"], int)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="sees in /proc when the command waits")
def test_ctrl_c_does_not_wait_for_ever(daemon, place):
    called, go_on = threading.Event(), threading.Event()

    def answer(_params):
        called.set()
        go_on.wait(30)
        return saved()

    daemon.answers["checkpoint.save"] = answer
    outcome = interrupted(place, called, "save")
    go_on.set()
    told = b"interrupted; the daemon was asked to give it up; ckpt status shows how things stand"
    assert outcome == (130, b"", b"ckpt: " + told + b"\n")


def interrupted(place, called, *words: str) -> tuple[int, bytes, bytes]:
    """Send Ctrl-C to a command that waits for its answer."""
    child = subprocess.Popen(
        command(*words), cwd=place, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert called.wait(30)
    # The signal must not come between the request and the wait for its answer: there it would only be noticed with
    # the answer, as in every program.
    until(lambda: is_asleep(child.pid))
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


# the terminal


def on_a_terminal(place, *argv: str, answer: bytes = b"", wait_for: bytes = b"", **changes: str) -> Outcome:
    """Run with all three streams on a terminal, type ``answer`` after ``wait_for``; everything said is ``stdout``."""
    ours, theirs = pty.openpty()
    env = {**environment(TERM="xterm", COLUMNS="100", PAGER="cat"), **changes}
    child = subprocess.Popen(command(*argv), cwd=place, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = bytearray()

    def read() -> None:
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:
                return
            if not data:
                return
            said.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    if answer:
        until(lambda: wait_for in said or child.poll() is not None)
        os.write(ours, answer)
    code = child.wait(60)
    reader.join(10)
    os.close(ours)
    return Outcome(code, bytes(said).replace(b"\r\n", b"\n"), "")


def plain(said: bytes) -> bytes:
    return re.sub(rb"\x1b\[[0-9;]*m", b"", said)


def test_a_line_on_the_terminal_says_how_far_it_is_and_goes_again(daemon, place):
    told = [{"done": 256, "bytes": 1_000_000}, {"done": 512, "bytes": 2_000_000}, {"done": 1024, "bytes": 4_000_000}]
    daemon.answers["checkpoint.save"] = Told(saved(), *told)
    outcome = on_a_terminal(place, "save")
    assert outcome.code == 0
    assert b"256 files" not in outcome.stdout
    assert re.search(rb"\r[^\r ]+ reading, 512 files, 2.0 MB", plain(outcome.stdout))
    assert re.search(rb"\r[^\r ]+ reading, 1024 files, 4.0 MB", plain(outcome.stdout))
    last, _, result = outcome.stdout.rpartition(b"\r")
    assert last.rpartition(b"\r")[2].strip() == b""
    assert result.startswith(ID.encode() + b"\n")


@pytest.mark.parametrize("words", [["save"], ["--json", "save"]])
def test_a_pipe_is_told_nothing_of_it(daemon, place, words):
    daemon.answers["checkpoint.save"] = Told(saved(), *[{"done": number} for number in range(5)])
    outcome = as_process(*words, cwd=place)
    assert (outcome.code, "reading" in outcome.stderr) == (0, False)


def test_errors_are_seen_on_a_terminal_and_broken_between_words(daemon, place):
    told = on_a_terminal(place, "rollback", "HEAD", "../else/where", COLUMNS="40").out
    assert told.startswith("\x1b[1;31mckpt:\x1b[m prefix not found:")
    plain = on_a_terminal(place, "rollback", "HEAD", "../else/where", COLUMNS="40", NO_COLOR="1").out
    assert plain == told.replace("\x1b[1;31m", "").replace("\x1b[m", "")
    assert all(len(line) <= 40 or " " not in line.strip() for line in plain.splitlines())
    assert all(line.startswith("      ") for line in plain.splitlines()[1:])
    outcome = as_process("rollback", "HEAD", "../else/where", cwd=place, COLUMNS="40")
    assert outcome.stderr.split() == plain.split()
    assert outcome.stderr.count("\n") == 1


def test_a_restore_and_a_summary_are_coloured(daemon, place):
    pytest.importorskip("rich")
    daemon.answers["checkpoint.restore"] = restored()
    done = on_a_terminal(place, "reset", "--yes").out
    assert "\x1b[32m  written a\x1b[0m" in done
    assert "\x1b[31m  deleted b\x1b[0m" in done
    diff_answers(daemon, b" a | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n")
    assert " a | 2 \x1b[32m+\x1b[m\x1b[31m-\x1b[m\n" in on_a_terminal(place, "diff", "--stat").out
    assert "\x1b" not in on_a_terminal(place, "diff", "--stat", NO_COLOR="1").out
    diff_answers(daemon, b"A\ta +-\n")
    assert "\x1b[32mA " in on_a_terminal(place, "diff", "--name-status").out


def test_json_on_a_terminal_is_told_nothing_of_it(daemon, place):
    daemon.answers["checkpoint.save"] = Told(saved(), *[{"done": number} for number in range(5)])
    assert b"reading" not in on_a_terminal(place, "--json", "save").stdout


def plan_then_done(params):
    if params.get("dry_run"):
        return restored(dry_run=True, safety=None, digest="d9")
    return restored()


def test_reset_shows_the_plan_and_asks(daemon, place):
    daemon.answers["checkpoint.restore"] = plan_then_done
    done = on_a_terminal(place, "reset", "HEAD~1", answer=b"y\n", wait_for=b"[y/N] ")
    assert done.code == 0
    assert "reset to 1a2b3c4d5e: 1 file to write, 1 to delete, 1 kept" in done.out
    assert "ckpt undo brings it back" in done.out
    plan, real = daemon.calls("checkpoint.restore")
    assert (plan["dry_run"], plan["id"]) == (True, "HEAD~1")
    assert (real["digest"], real["id"]) == ("d9", "HEAD~1")
    assert "dry_run" not in real
    assert plan["token"] != real["token"]


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"\x04", b"yikes\n"])
def test_any_other_answer_changes_nothing(daemon, place, answer):
    daemon.answers["checkpoint.restore"] = plan_then_done
    done = on_a_terminal(place, "reset", answer=answer, wait_for=b"[y/N] ")
    assert done.code == 20
    assert "not reset; nothing was changed" in done.out
    assert len(daemon.calls("checkpoint.restore")) == 1


def test_ctrl_c_at_the_question_changes_nothing(daemon, place):
    daemon.answers["checkpoint.restore"] = plan_then_done
    # Ctrl-C becomes a signal only for the session whose terminal it is.
    script = (
        "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", script, *command("reset")],
        cwd=place, env=environment(TERM="xterm"), stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while b"[y/N] " not in said:
        said += os.read(ours, 65536)
    os.write(ours, b"\x03")
    assert child.wait(60) == 130
    os.close(ours)
    assert len(daemon.calls("checkpoint.restore")) == 1


def test_yes_and_dry_run_do_not_ask(daemon, place):
    daemon.answers["checkpoint.restore"] = plan_then_done
    assert on_a_terminal(place, "reset", "--yes").code == 0
    assert on_a_terminal(place, "reset", "--dry-run").code == 0
    assert len(daemon.calls("checkpoint.restore")) == 2


def test_an_empty_plan_is_not_asked_about(daemon, place):
    daemon.answers["checkpoint.restore"] = lambda params: restored(
        written=[], deleted=[], safety=None, dry_run=params.get("dry_run", False)
    )
    done = on_a_terminal(place, "reset")
    assert done.code == 0
    assert "nothing to change" in done.out


def test_a_plan_with_conflicts_is_refused_before_the_question(daemon, place):
    daemon.answers["checkpoint.restore"] = restored(dry_run=True, conflicts=[{"path": "fifo", "reason": "special"}])
    done = on_a_terminal(place, "reset")
    assert done.code == 20
    assert "--skip-conflicts" in done.out
    assert "  fifo\n" in done.out
    assert "[y/N]" not in done.out


def test_forget_asks(daemon, place):
    entry = {"path": str(place), "store": "/s", "state": "ok", "checkpoints": 12, "bytes": 2048}
    daemon.answers["worktree.list"] = {"workspaces": [entry], "damaged": []}
    daemon.answers["worktree.forget"] = {"store": "/s", "checkpoints": 12}
    no = on_a_terminal(place, "forget", answer=b"n\n", wait_for=b"[y/N] ")
    assert no.code == 20
    assert "12 checkpoints, 2.0 KiB" in no.out
    assert daemon.calls("worktree.forget") == []
    assert on_a_terminal(place, "forget", answer=b"y\n", wait_for=b"[y/N] ").code == 0
    assert len(daemon.calls("worktree.forget")) == 1


def test_forget_of_what_is_not_tracked_does_not_ask(daemon, place):
    def refuse(_params):
        raise Refusal("not_tracked", "not tracked")

    daemon.answers["checkpoint.head"] = refuse
    daemon.answers["worktree.list"] = {"workspaces": [], "damaged": []}
    done = on_a_terminal(place, "forget")
    assert done.code == 20
    assert "[y/N]" not in done.out


def test_prune_asks_and_says_what_a_moved_worktree_needs(daemon, place):
    entry = {"path": "/w", "store": "/s/w", "checkpoints": 2, "bytes": 10}
    daemon.answers["store.prune"] = lambda params: {
        "pruned": [entry],
        "unreachable": [],
        "dry_run": params["dry_run"],
    }
    no = on_a_terminal(place, "prune", answer=b"n\n", wait_for=b"[y/N] ")
    assert (no.code, "ckpt adopt OLD" in no.out) == (20, True)
    assert [params["dry_run"] for params in daemon.calls("store.prune")] == [True]
    assert on_a_terminal(place, "prune", "--yes").code == 0
    assert [params["dry_run"] for params in daemon.calls("store.prune")] == [True, False]


def test_adopt_asks_where_it_is_not_certain(daemon, place):
    plan = {"path": str(place), "old": "/before", "store": "/s", "checkpoints": 3, "sure": False}
    daemon.answers["worktree.adopt"] = lambda params: {**plan, "dry_run": params["dry_run"]}
    no = on_a_terminal(place, "adopt", "/before", answer=b"n\n", wait_for=b"[y/N] ")
    assert (no.code, "Was /before moved to" in no.out) == (20, True)
    assert on_a_terminal(place, "adopt", "/before", answer=b"y\n", wait_for=b"[y/N] ").code == 0
    assert [params["dry_run"] for params in daemon.calls("worktree.adopt")] == [True, True, False]


def test_colour_and_tables_are_for_terminals_that_want_them(daemon, place):
    pytest.importorskip("rich")
    message = "[bold]no markup[/bold]"
    daemon.answers["checkpoint.list"] = history(record(message=message))
    daemon.answers["worktree.status"] = status(changes=[{"path": "[red]a", "change": "added"}])
    table = on_a_terminal(place, "ls").out
    assert message in table
    assert "message" in table
    assert "\x1b[" in on_a_terminal(place, "status").out
    assert "A [red]a" in on_a_terminal(place, "status").out
    for changes in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b[" not in on_a_terminal(place, "status", **changes).out
        assert on_a_terminal(place, "ls", **changes).out == as_process("ls", cwd=place).out


def test_what_a_search_finds_is_coloured_on_a_terminal_and_needs_no_pager(daemon, place):
    pytest.importorskip("rich")
    paths = [{"path": "[red]a", "before": 0, "after": 2}, {"path": "b", "before": 1, "after": 0}]
    daemon.answers["checkpoint.search"] = hits({"checkpoint": record(message="[bold]x"), "paths": paths, "left_out": 0})
    first, second, third = on_a_terminal(place, "search", "x", PAGER="sed 's/^/paged: /'").out.splitlines()
    assert first.startswith("\x1b[1m1a2b3c4d5e")
    assert "[bold]x" in first
    assert (second, third) == ("\x1b[32m      +2 [red]a\x1b[0m", "\x1b[31m      -1 b\x1b[0m")
    plain = on_a_terminal(place, "search", "x", NO_COLOR="1").out
    assert plain == as_process("search", "x", cwd=place).out


PATCH = b"""diff --git a/f b/f
index 1..2 100644
--- a/f
+++ b/f
@@ -1,2 +1,2 @@
 same\tline
--- not a header
+++ neither \x1b]0;title\x07 \xe9
\\ No newline at end of file
"""


def diff_answers(daemon, data=PATCH):
    """Give a patch in two pieces that are cut in the middle of a line."""
    cut = len(data) // 2

    def answer(params):
        piece = data[cut:] if params.get("offset") else data[:cut]
        more = "c1" if not params.get("offset") and piece else None
        return {
            "data": {"b64": base64.b64encode(piece).decode()}, "offset": params.get("offset", 0), "cursor": more,
            "total_bytes": len(data),
        }  # fmt: skip

    daemon.answers["checkpoint.diff"] = answer


def test_a_patch_on_a_terminal_is_coloured_and_cannot_steer_it(daemon, place):
    diff_answers(daemon)
    done = on_a_terminal(place, "diff")
    assert done.code == 0
    assert done.out.splitlines() == [
        "\x1b[1mdiff --git a/f b/f\x1b[m",
        "\x1b[1mindex 1..2 100644\x1b[m",
        "\x1b[1m--- a/f\x1b[m",
        "\x1b[1m+++ b/f\x1b[m",
        "\x1b[36m@@ -1,2 +1,2 @@\x1b[m",
        " same\tline",
        "\x1b[31m--- not a header\x1b[m",
        "\x1b[32m+++ neither \\x1b]0;title\\x07 \\xe9\x1b[m",
        "\\ No newline at end of file",
    ]
    plain = on_a_terminal(place, "diff", NO_COLOR="1").out
    assert "\x1b" not in plain
    assert "--- not a header" in plain


def test_a_patch_in_a_pipe_is_bytes(daemon, place):
    diff_answers(daemon)
    assert as_process("diff", cwd=place).stdout == PATCH


@pytest.mark.parametrize("argv", [("diff",), ("show", "HEAD"), ("ls",)])
def test_long_results_go_through_the_pager(daemon, place, argv):
    diff_answers(daemon)
    daemon.answers["checkpoint.list"] = history(record())
    daemon.answers["checkpoint.show"] = {
        "checkpoint": record(), "base": None, "changes": [], "skipped": [], "excluded": []
    }  # fmt: skip
    done = on_a_terminal(place, *argv, PAGER="sed 's/^/paged: /'")
    assert done.code == 0
    assert all(line.startswith("paged: ") for line in done.out.splitlines())
    assert on_a_terminal(place, *argv, PAGER="exit 1", CKPT_PAGER="").out != ""
    assert b"paged" not in as_process(*argv, cwd=place, PAGER="sed 's/^/paged: /'").stdout


def test_a_pager_that_ends_early_is_no_error(daemon, place):
    daemon.answers["checkpoint.list"] = history(*(record(seq=seq) for seq in range(5_000, 0, -1)))
    done = on_a_terminal(place, "ls", PAGER="head -n 3")
    assert done.code == 0
    assert "Traceback" not in done.out


def test_an_error_does_not_start_the_pager(daemon, place):
    def refuse(_params):
        raise Refusal("not_tracked", "not tracked")

    for method in ("checkpoint.list", "checkpoint.diff", "checkpoint.show"):
        daemon.answers[method] = refuse
    for argv in (("ls",), ("diff",), ("show", "HEAD")):
        done = on_a_terminal(place, *argv, PAGER="echo paged")
        assert done.code == 20
        assert "paged" not in done.out


def test_a_table_says_how_long_ago_and_a_narrow_terminal_gets_lines(daemon, place):
    pytest.importorskip("rich")
    message = "words " * 20
    daemon.answers["checkpoint.list"] = history(record(message=message))
    wide = on_a_terminal(place, "ls").out
    assert " ago " in re.sub(r"\x1b\[[0-9;]*m", "", wide)
    assert all(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= 100 for line in wide.splitlines())
    assert re.sub(r"\x1b\[[0-9;]*m", "", wide).split().count("words") == 20
    narrow = on_a_terminal(place, "ls", COLUMNS="40").out
    assert all(len(line) <= 40 for line in narrow.splitlines())
    assert narrow.split().count("words") == 20
    assert re.match(r"1a2b3c4d5e  #7  .* ago  manual\n  words", narrow)


def test_without_rich_a_terminal_gets_plain_text(daemon, place, short_dir):
    # A module that cannot be imported stands in for one that is not installed.
    (short_dir / "hide").mkdir()
    (short_dir / "hide" / "rich.py").write_text("raise ImportError('hidden')\n")
    path = f"{short_dir / 'hide'}:{environment()['PYTHONPATH']}"
    daemon.answers["checkpoint.list"] = history(record())
    daemon.answers["worktree.status"] = status(changes=[{"path": "a", "change": "added"}])
    assert on_a_terminal(place, "ls", PYTHONPATH=path).out == as_process("ls", cwd=place).out
    told = on_a_terminal(place, "status", PYTHONPATH=path).out
    assert " ago)\nA a\n" in told
    assert re.sub(r"\(.*\)", "", told) == re.sub(r"\(.*\)", "", as_process("status", cwd=place).out)


# the daemon


def test_daemon_run_becomes_the_daemon(place, short_dir):
    fake = short_dir / "fake" / "ckptd"
    fake.mkdir(parents=True)
    (fake / "__init__.py").touch()
    (fake / "__main__.py").write_text("import os, sys\nprint(os.getpid(), sys.argv[1:])\n")
    env = environment()
    env["PYTHONPATH"] = f"{short_dir / 'fake'}:{env['PYTHONPATH']}"
    line = command("daemon", "run", "--socket", "x", "--help")
    child = subprocess.Popen(line, cwd=place, env=env, stdout=subprocess.PIPE, text=True)
    out, _ = child.communicate()
    assert out == f"{child.pid} ['--socket', 'x', '--help']\n"
