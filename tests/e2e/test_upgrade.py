"""Two versions at once, and an installation that changes or vanishes under a running daemon."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ckpt_protocol.version import BUILD
from support.live import Place
from support.other_build import copy_of, installation, python_path
from support.poll import until

pytestmark = pytest.mark.e2e

OLD, NEW = "0.9.0", "7.0.0"

# Writes the name of each module that is not yet loaded when it is asked for.
WATCHED = """
import runpy, sys
log = open(sys.argv.pop(1), "a", buffering=1)
sys.addaudithook(lambda event, args: event == "import" and log.write(args[0] + "\\n"))
runpy.run_module("ckptd", run_name="__main__", alter_sys=True)
"""


def use(place: Place, build: str, protocol: int = 1) -> dict[str, str]:
    """Give the environment in which ``ckpt`` is of another version."""
    tree = place.base / f"build {build}"
    if not tree.exists():
        copy_of(tree, build, protocol)
    return {"PYTHONPATH": python_path(tree)}


def version(place: Place) -> str:
    return place.json("daemon", "status")["version"]


@pytest.fixture
def saved(place: Place) -> str:
    (place.ws / "f").write_text("one\n")
    return place.save("one")


# the same protocol


def test_an_older_idle_daemon_makes_room_for_a_newer_client(place: Place):
    (place.ws / "f").write_text("one\n")
    first = place.done("save", "one", **use(place, OLD)).out.strip()
    (old,) = place.daemons()
    assert version(place) == OLD
    # Asking is no reason to end anything.
    assert place.pid() == old
    assert place.done("cat", first, "f").out == "one\n"
    until(lambda: old not in place.daemons())
    (place.ws / "f").write_text("two\n")
    place.save("two")
    assert version(place) == BUILD
    assert [record["message"] for record in place.json("ls")["checkpoints"]] == ["two", "one"]


def test_an_older_client_works_with_a_newer_daemon(place: Place, saved: str):
    pid = place.pid()
    old = use(place, OLD)
    assert place.done("cat", saved, "f", **old).out == "one\n"
    (place.ws / "f").write_text("two\n")
    place.done("save", "two", **old)
    assert (version(place), place.pid()) == (BUILD, pid)
    told = place.done("daemon", "status", **old)
    assert f"this client is version {OLD}" in told.stderr


def test_an_older_daemon_that_works_is_left_alone(place: Place, saved: str):
    place.kill(signal.SIGTERM)
    old = use(place, OLD)
    place.done("ls", **old)
    place.heavy(64)
    child = place.start("save", "in flight", environ=old)
    until(place.is_busy)
    assert place.done("cat", saved, "f").out == "one\n"
    assert version(place) == OLD
    out, err = child.communicate(timeout=90)
    assert (child.returncode, len(out)) == (0, 41), err
    place.done("status")
    place.done("status")
    assert version(place) == BUILD


def test_a_service_of_an_older_build_goes_on(place: Place, saved: str):
    """Its daemon is replaced under it, and it neither notices nor fights back."""
    place.kill(signal.SIGTERM)
    code = (
        "import sys; from fabricatio_checkpoint import CheckpointService\n"
        "store = CheckpointService(sys.argv[1]).get_store(sys.argv[2])\n"
        "for line in sys.stdin: print(len(store.commits()), flush=True)"
    )
    words = [sys.executable, "-c", code, str(place.checkpoint_dir), str(place.ws)]
    environ = {**place.environ, **use(place, OLD)}
    with subprocess.Popen(words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def ask() -> str:
            child.stdin.write("\n")
            child.stdin.flush()
            return child.stdout.readline()

        assert ask() == "1\n"
        assert version(place) == OLD
        (place.ws / "f").write_text("two\n")
        place.save("two")
        assert version(place) == BUILD
        assert ask() == "2\n"
        assert version(place) == BUILD


def test_dozens_of_clients_of_two_versions_start_one_daemon(place: Place):
    (place.ws / "f").write_text("one\n")
    old = use(place, OLD)
    children = [
        place.start("save", f"{number}", environ=old if number % 2 else {}, stdout=subprocess.PIPE)
        for number in range(24)
    ]
    for child in children:
        out, err = child.communicate(timeout=90)
        assert (child.returncode, len(out)) == (0, 41), err
    until(lambda: len(place.daemons()) <= 1)
    # All content was the same: the first made it, and the others were told its id.
    assert len(place.json("ls")["checkpoints"]) == 1


# another protocol


def test_an_older_idle_daemon_that_speaks_another_protocol_is_replaced(place: Place, saved: str):
    place.kill(signal.SIGTERM)
    old = use(place, OLD, protocol=0)
    place.done("ls", **old)
    (pid,) = place.daemons()
    assert place.done("cat", saved, "f").out == "one\n"
    assert pid not in place.daemons()
    assert version(place) == BUILD


def test_an_older_daemon_of_another_protocol_finishes_what_it_does(place: Place, saved: str):
    place.kill(signal.SIGTERM)
    old = use(place, OLD, protocol=0)
    place.done("ls", **old)
    place.heavy(96)
    child = place.start("save", "in flight", environ=old)
    until(place.is_busy)
    told = place.ckpt("ls")
    assert (told.code, told.stderr.count("\n")) == (60, 1)
    for words in (f"build {OLD}", f"build {BUILD}", "ckpt daemon stop", "at work"):
        assert words in told.stderr
    # Whatever it speaks, it can be asked and ended.
    assert version(place) == OLD
    out, err = child.communicate(timeout=90)
    assert (child.returncode, len(out)) == (0, 41), err
    assert [record["message"] for record in place.json("ls")["checkpoints"]] == ["in flight", "one"]
    assert version(place) == BUILD


def test_a_newer_daemon_of_another_protocol_is_one_clear_line(place: Place, saved: str):
    place.kill(signal.SIGTERM)
    new = use(place, NEW, protocol=2)
    place.done("ls", **new)
    (pid,) = place.daemons()
    told = place.ckpt("save")
    assert (told.code, told.stderr.count("\n")) == (60, 1)
    for words in (f"build {NEW}", f"build {BUILD}", "update this client"):
        assert words in told.stderr
    assert place.json("save", code=60)["error"]["kind"] == "protocol_mismatch"
    assert place.daemons() == [pid]
    assert version(place) == NEW
    assert place.done("daemon", "stop").out == f"the daemon has ended, pid {pid}\n"
    assert place.done("cat", saved, "f").out == "one\n"


# what lies on the disk


@pytest.fixture
def daemon_of_an_installation(place: Place) -> tuple[Path, Path]:
    """A daemon that runs from a folder of packages of its own; gives that, and the list of what it imports."""
    packages, log = installation(place.base / "packages"), place.base / "imports"
    # -S: this Python's own packages are not found, whatever becomes of the folder.
    words = [sys.executable, "-S", "-c", WATCHED, str(log), "--socket", place.socket]
    environ = {**place.environ, "PYTHONPATH": str(packages)}
    place.spawn(words, environ)
    until(lambda: place.ckpt("daemon", "status").code == 0)
    return packages, log


def all_verbs(place: Place) -> None:
    first = place.save("one", "--tag", "start")
    words = (("status",), ("diff",), ("ls",), ("ls", "f"), ("show", first), ("cat", first, "f"), ("workspaces",))
    for each in words:
        place.done(*each)
    (place.ws / "f").write_bytes(b"two\n" * 1000)
    (place.ws / "odd \udcff".encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")).write_bytes(b"x")
    place.done("diff", "--stat")
    place.save("two")
    for each in (("diff", "HEAD~1", "HEAD"), ("rollback", "start", "f"), ("reset",), ("undo",), ("redo",), ("prune",)):
        place.done(*each)
    assert place.ckpt("show", "#99").code == 10
    assert place.ckpt("-w", "/", "save").code == 10
    place.done("forget", "--yes")


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_daemon_needs_nothing_of_its_installation_once_it_answers(place: Place, daemon_of_an_installation, how: str):
    packages, log = daemon_of_an_installation
    (place.ws / "f").write_text("one\n")
    (pid,) = place.daemons()
    before = log.stat().st_size
    assert "ckptd.dispatch" in log.read_text()
    # Links only: what they lead to stays.
    for entry in packages.iterdir():
        entry.unlink() if entry.is_symlink() else shutil.rmtree(entry)
        if how == "replaced":
            entry.mkdir()
            (entry / "__init__.py").write_text("raise SystemExit('of another version')\n")
    if how == "deleted":
        packages.rmdir()
    all_verbs(place)
    assert place.pid() == pid
    assert log.read_text()[before:].splitlines() == []
    assert place.done("daemon", "stop").out == f"the daemon has ended, pid {pid}\n"
    assert log.read_text()[before:].splitlines() == []
    assert "Traceback" not in place.log


def test_an_interpreter_that_is_gone_is_one_clear_line(place: Place, saved: str):
    """The virtual environment of a long-lived service was deleted: it goes on as long as a daemon runs."""
    code = (
        "import os, sys; from fabricatio_checkpoint import CheckpointError, CheckpointService\n"
        "store = CheckpointService(sys.argv[1]).get_store(sys.argv[2])\n"
        "sys.executable = sys.argv[3]\n"
        "print(len(store.commits()), flush=True); sys.stdin.readline()\n"
        "try: store.commits()\n"
        "except CheckpointError as error: print(type(error).__name__, error)"
    )
    gone = str(place.base / "gone" / "bin" / "python")
    words = [sys.executable, "-c", code, str(place.checkpoint_dir), str(place.ws), gone]
    with subprocess.Popen(words, env=place.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "1\n"
        place.kill(signal.SIGTERM)
        out, _ = child.communicate("\n", timeout=60)
    assert out.startswith("DaemonStartError cannot start the daemon: ")
    assert os.path.basename(gone) in out
