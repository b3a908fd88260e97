"""A daemon that nobody has to think about: races, stolen files, vanished directories, foreign homes."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt_protocol.wirepath import encode
from fabricatio_checkpoint.connection import Connection
from fabricatio_checkpoint.errors import ConnectionLost, TransportError
from support import lock_holder
from support.live import Place, snapshot
from support.other_build import copy_of, python_path
from support.poll import until

pytestmark = pytest.mark.e2e

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


@pytest.fixture
def saved(place: Place) -> str:
    (place.ws / "f").write_text("one\n")
    return place.save("one")


def messages(place: Place, **environ: str) -> list[str]:
    listed = place.ckpt("--json", "ls", **environ)
    assert listed.code == 0, listed
    return [record["message"] for record in listed.document["checkpoints"]]


def second_runtime(place: Place) -> dict[str, str]:
    """As over ssh or from cron: the same home, another runtime directory."""
    other = place.base / "r2"
    other.mkdir(mode=0o700, exist_ok=True)
    return {"XDG_RUNTIME_DIR": str(other)}


def data_lock(place: Place) -> dict[str, object]:
    return json.loads((place.checkpoint_dir / ".lock").read_text())


# races


@pytest.mark.parametrize("moment", ["starting", "serving"])
def test_clients_outlive_a_daemon_that_is_killed(place: Place, saved: str, moment: str):
    # Each is a process of its own, and has four questions to ask.
    code = (
        "import sys; from fabricatio_checkpoint import CheckpointService\n"
        "for _ in range(4): print(CheckpointService(sys.argv[1]).get_store(sys.argv[2]).commits()[0], flush=True)"
    )
    words = [sys.executable, "-c", code, str(place.checkpoint_dir), str(place.ws)]
    for _ in range(3):
        place.kill()
        # Without a buffer: what it would have read beyond the first line would be lost to communicate().
        children = [place.spawn(words, place.environ, stdout=subprocess.PIPE, bufsize=0) for _ in range(4)]
        first = ""
        if moment == "serving":
            assert children[0].stdout is not None
            first = children[0].stdout.readline().decode()
        until(place.daemons)
        for pid in place.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        answers = [child.communicate(timeout=60)[0].decode() for child in children]
        assert (first + answers[0]).split() == [saved] * 4
        assert [answer.split() for answer in answers[1:]] == [[saved] * 4] * 3
    assert messages(place) == ["one"]


def test_dozens_of_clients_find_a_stale_socket_and_a_stale_lock(place: Place, saved: str):
    place.kill(signal.SIGKILL)
    said = data_lock(place)
    # The number of the dead daemon is another process by now.
    (place.checkpoint_dir / ".lock").write_text(json.dumps(said | {"pid": os.getpid()}))
    children = [place.start("cat", saved, "f") for _ in range(20)]
    for child in children:
        out, err = child.communicate(timeout=90)
        assert (child.returncode, out) == (0, b"one\n"), err
    until(lambda: len(place.daemons()) == 1)


# what is done to its files


@pytest.mark.parametrize("how", ["deleted", "replaced", "stolen"])
def test_a_socket_that_is_taken_away(place: Place, saved: str, how: str):
    place.pid()
    path = Path(place.socket)
    path.unlink()
    with contextlib.ExitStack() as stack:
        if how != "deleted":
            thief = stack.enter_context(socket.socket(socket.AF_UNIX))
            thief.bind(str(path))
            if how == "stolen":
                # It even listens, hangs up on everybody, and comes back once.
                thief.listen()
                stack.enter_context(hanging_up(thief))
        until(lambda: place.ckpt("cat", saved, "f").code == 0)
    assert messages(place) == ["one"]
    until(lambda: len(place.daemons()) == 1)


@contextlib.contextmanager
def hanging_up(listener: socket.socket) -> Iterator[None]:
    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_locks_that_are_removed_by_hand(place: Place, saved: str):
    pid = place.pid()
    state = place.home / ".local" / "state" / "fabricatio-checkpoint"
    locks = [Path(f"{place.socket}.lock"), place.checkpoint_dir / ".lock", *state.glob("start-*.lock")]
    assert len(locks) == 3
    for lock in locks:
        lock.unlink()
    assert messages(place) == ["one"]
    assert place.pid() == pid
    until(lambda: locks[0].exists() and locks[1].exists())
    assert data_lock(place)["pid"] == pid
    # Another one that is started by hand finds no gap.
    told = place.ckpt("daemon", "run")
    assert told.code == 60
    assert f"pid {pid}" in told.stderr


def test_a_lock_that_another_daemon_got_leaves_one_owner(place: Place, saved: str):
    first = place.pid()
    # With its store open, the first one loses the lock of the data without noticing.
    (place.checkpoint_dir / ".lock").unlink()
    other = second_runtime(place)
    (place.ws / "f").write_text("two\n")
    place.done("save", "two", **other)
    second = data_lock(place)["pid"]
    assert second != first
    assert messages(place) == ["two", "one"]
    # The first one sent us on, and has let go of what it had open.
    status = Connection(place.socket, client="test").call("daemon.status", {})
    assert (status["pid"], status["stores"]) == (first, [])
    (place.ws / "f").write_text("three\n")
    place.save("three")
    assert messages(place, **other) == ["three", "two", "one"]
    assert data_lock(place)["pid"] == second


def test_a_runtime_directory_that_vanishes_at_logout(place: Place, saved: str):
    """Whoever comes by another way meets an owner out of reach, and waits until it has seen that itself."""
    first = place.pid()
    shutil.rmtree(Path(place.socket).parent)
    assert messages(place, **second_runtime(place)) == ["one"]
    until(lambda: first not in place.daemons())
    assert data_lock(place)["pid"] in place.daemons()


def test_a_checkpoint_directory_that_is_replaced_by_another_one(place: Place, saved: str):
    pid = place.pid()
    backup = place.base / "backup"
    shutil.copytree(place.checkpoint_dir, backup, symlinks=True)
    (place.ws / "f").write_text("two\n")
    place.save("two")
    place.checkpoint_dir.rename(place.base / "away")
    backup.rename(place.checkpoint_dir)
    # What is open belongs to the directory that went away: the backup has to be opened anew.
    assert messages(place) == ["one"]
    (place.ws / "f").write_text("three\n")
    place.save("three")
    assert messages(place) == ["three", "one"]
    assert place.pid() == pid
    place.verify()


def test_reading_makes_nothing(place: Place):
    (place.ws / "f").write_text("one\n")
    for words in (("status",), ("ls",), ("workspaces",), ("prune",), ("diff",), ("reset",), ("forget", "--yes")):
        place.ckpt(*words)
        assert not place.checkpoint_dir.exists(), words
    # Nor does it leave a lock in a directory that is something else.
    photos = place.home / "photos"
    (photos / "2024").mkdir(parents=True)
    for words in (("status",), ("workspaces",), ("prune",)):
        place.ckpt(*words, FABRICATIO_EXT__CHECKPOINT__CHECKPOINT_DIR=str(photos))
        assert os.listdir(photos) == ["2024"], words
    place.save("one")
    assert len(place.stores()) == 1


# other owners


@needs_root
def test_root_in_the_home_of_a_user_makes_nothing_there(place: Place):
    """``sudo ckpt`` with the user's environment."""
    user = place.base / "user"
    (user / "ws").mkdir(parents=True)
    (user / "run").mkdir(mode=0o700)
    (user / "ws" / "f").write_text("one\n")
    for path in (user, user / "ws", user / "run", user / "ws" / "f"):
        os.chown(path, 12345, 12345)
    places = {"HOME": str(user), "XDG_RUNTIME_DIR": str(user / "run"), "XDG_STATE_HOME": str(user / ".local/state")}
    before = snapshot(user)
    for words in (("save",), ("ls",), ("status",)):
        told = place.ckpt(*words, cwd=user / "ws", **places)
        assert (told.code, told.stderr.count("\n")) == (60, 1), told
        assert "belongs to user 12345" in told.stderr
        assert "sudo" in told.stderr
    # With a state directory of root's own it is the checkpoint directory that is the user's.
    told = place.ckpt("save", cwd=user / "ws", HOME=str(user))
    assert (told.code, told.stderr.count("\n")) == (50, 1), told
    assert "belongs to user 12345" in told.stderr
    assert snapshot(user) == before


def test_the_owner_on_another_machine_is_one_clear_line(place: Place, saved: str):
    """As in a home on a network file system whose locks reach further than sockets."""
    place.kill(signal.SIGTERM)
    command = [sys.executable, lock_holder.__file__, "/run/there.sock", str(place.checkpoint_dir), str(os.getuid())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=place.environ
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        there = {**data_lock(place), "host": "there.example", "boot_id": "another boot"}
        (place.checkpoint_dir / ".lock").write_text(json.dumps(there))
        told = place.ckpt("save")
        assert (told.code, told.stderr.count("\n")) == (60, 1), told
        assert "belongs to another daemon on host there.example" in told.stderr
        assert holder.stdin is not None
        holder.stdin.close()
    assert messages(place) == ["one"]


@needs_root
def test_a_host_of_another_name_shares_the_home(place: Place):
    """A container, or a laptop in another network: the same machine, no runtime directory, another name."""
    del place.environ["XDG_RUNTIME_DIR"]
    (place.ws / "f").write_text("one\n")
    place.save("one")
    (owner,) = place.daemons()
    elsewhere = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere.example && exec "$@"', "sh"]
    if subprocess.run([*elsewhere, "true"], capture_output=True, check=False).returncode:
        pytest.skip("cannot take another host name")
    place.prefix = elsewhere
    assert messages(place) == ["one"]
    place.prefix = []
    assert data_lock(place)["pid"] == owner
    run = place.home / ".local" / "state" / "fabricatio-checkpoint" / "run"
    assert sorted(os.listdir(run)) == sorted([os.uname().nodename[:32], "elsewhere.example"])


@needs_root
def test_a_state_directory_that_cannot_be_written_is_no_obstacle(place: Place):
    frozen = place.base / "frozen"
    frozen.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", frozen], capture_output=True, check=False
    ).returncode:
        pytest.skip("cannot mount a read-only file system")
    try:
        (place.ws / "f").write_text("one\n")
        children = [place.start("save", environ={"XDG_STATE_HOME": str(frozen / "s")}) for _ in range(4)]
        for child in children:
            out, err = child.communicate(timeout=60)
            assert (child.returncode, len(out)) == (0, 41), err
        until(lambda: len(place.daemons()) == 1)
        place.kill(signal.SIGTERM)
    finally:
        subprocess.run(["umount", "-l", frozen], check=True)


# restart under living clients


def params(place: Place, **more: object) -> dict[str, object]:
    seen = place.ws.stat()
    where = {"path": encode(os.fsencode(place.ws)), "dev": str(seen.st_dev), "ino": str(seen.st_ino)}
    return {"checkpoint_dir": str(place.checkpoint_dir), "worktree": where, **more}


def test_what_was_in_flight_says_whether_it_was_sent(place: Place, saved: str):
    place.heavy(96)
    lost: list[ConnectionLost] = []

    def save() -> None:
        with Connection(place.socket, client="test") as connection, pytest.raises(ConnectionLost) as caught:
            connection.call("checkpoint.save", params(place, token="1" * 32), repeatable=False)
        lost.append(caught.value)

    asking = threading.Thread(target=save)
    asking.start()
    until(place.is_busy)
    place.kill(signal.SIGKILL)
    asking.join()
    assert (lost[0].sent, lost[0].kind, lost[0].exit_code) == (True, "connection_lost", 60)
    assert "it may have been done" in str(lost[0])


def test_a_request_with_a_token_is_done_once_whatever_happens_to_the_daemon(place: Place, saved: str):
    place.heavy(64)
    answers: list[dict[str, object]] = []
    with Connection(place.socket, client="test") as connection:

        def save() -> None:
            answers.append(connection.call("checkpoint.save", params(place, token="2" * 32, message="two")))

        asking = threading.Thread(target=save)
        asking.start()
        until(place.is_busy)
        place.kill(signal.SIGKILL)
        asking.join()
        # The answer was lost, so to speak: the same request again gets the same answer.
        place.kill(signal.SIGTERM)
        save()
    assert answers[0]["id"] == answers[1]["id"]
    assert messages(place) == ["two", "one"]


def test_a_daemon_that_is_frozen_is_told_and_not_waited_for(place: Place, saved: str):
    pid = place.pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        for method in ("daemon.status", "checkpoint.head"):
            with Connection(place.socket, client="test", timeout_s=0.3) as connection:
                with pytest.raises(TransportError, match="does not answer") as caught:
                    connection.call(method, params(place) if method != "daemon.status" else {})
                assert caught.value.kind == "unreachable"
    finally:
        os.kill(pid, signal.SIGCONT)
    assert messages(place) == ["one"]


def test_a_daemon_whose_packages_are_broken_says_why_it_did_not_start(place: Place):
    tree = copy_of(place.base / "broken", "1.0.0")
    (tree / "daemon" / "ckptd" / "dispatch.py").write_text("raise ImportError('libgit2 is of another kind')\n")
    told = place.ckpt("save", PYTHONPATH=python_path(tree))
    assert told.code == 60
    assert "ended with status 70" in told.stderr
    assert "libgit2 is of another kind" in told.stderr
    assert "Traceback" not in told.stderr
    assert place.daemons() == []
    assert not os.path.lexists(place.socket)
    place.save()


# what is open


def test_stores_that_were_not_used_for_longest_are_closed(place: Place):
    place.environ["FABRICATIO_EXT__CHECKPOINT__CACHE_SIZE"] = "2"
    roots = [place.home / name for name in "abcd"]
    for root in roots:
        root.mkdir()
        (root / "f").write_text(root.name)
        place.save("-w", str(root))

    def opened() -> list[str]:
        return [Path(store["worktree"]).name for store in place.json("daemon", "status")["stores"]]

    until(lambda: opened() == ["c", "d"])
    assert place.done("-w", str(roots[0]), "cat", "HEAD", "f").out == "a"
    until(lambda: opened() == ["a", "d"])
    for root in roots:
        assert place.json("-w", str(root), "status")["changes"] == []


def test_a_daemon_with_open_stores_ends_when_it_is_idle(place: Place):
    name = f"start-{hashlib.sha256(os.fsencode(place.socket)).hexdigest()[:16]}.lock"
    place.environ["FABRICATIO_EXT__CHECKPOINT__IDLE_EXIT_S"] = "0.3"
    (place.ws / "f").write_text("one\n")
    place.save("one")
    until(lambda: place.daemons() == [])
    left = [Path(place.socket).parent, place.home / ".local" / "state" / "fabricatio-checkpoint"]
    assert [sorted(os.listdir(path)) for path in left] == [["ckptd.sock.lock"], ["ckptd.log", "ckptd.start.log", name]]
    assert "idle for 0.3 s" in place.log
