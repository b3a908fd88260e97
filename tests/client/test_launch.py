"""Connecting, and starting the daemon exactly once, as real processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fabricatio_checkpoint import launch, spawn
from fabricatio_checkpoint.connection import Connection
from fabricatio_checkpoint.errors import DaemonStartError, TransportError
from support.fake_daemon import FakeDaemon, stub_environment
from support.poll import until

ROOT = Path(__file__).resolve().parents[2]
CLIENT = """
import sys
from fabricatio_checkpoint.connection import Connection
with Connection(sys.argv[1], client="test") as connection:
    print(connection.call("worktree.list", {"checkpoint_dir": "/c"}))
"""


@pytest.fixture
def place(short_dir):
    yield short_dir
    if (short_dir / "r/d.sock").exists():
        try:
            Connection(str(short_dir / "r/d.sock"), client="test").call("daemon.stop", {})
        except TransportError:
            pass
    pids = [start["pid"] for start in _starts(short_dir)]
    until(lambda: not any(_alive(pid) for pid in pids))


def _socket(place):
    (place / "r").mkdir(exist_ok=True)
    return str(place / "r/d.sock")


def _starts(place):
    path = place / "r/d.sock.starts"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _alive(pid):
    spawn._reap()
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Adopted by a process that does not wait for its children, as the first one of some containers.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def _run_client(path, environ, **options):
    return subprocess.Popen([sys.executable, "-c", CLIENT, path], env=environ, stdout=subprocess.PIPE, **options)


def test_connects_to_what_listens(place):
    with FakeDaemon(_socket(place)) as daemon:
        launch.connect(daemon.path, start=False).close()
        until(lambda: daemon.connections == 1)


@pytest.mark.parametrize("left_over", [False, True])
def test_without_start_nobody_there_is_not_running_and_the_socket_stays(place, left_over):
    path = _socket(place)
    if left_over:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
    with pytest.raises(TransportError, match="no daemon is running") as caught:
        launch.connect(path, start=False)
    assert caught.value.kind == "not_running"
    assert os.path.exists(path) == left_over


def test_another_failure_proves_nothing_and_starts_nothing(place):
    (place / "file").write_text("")
    environ = stub_environment(place)
    with pytest.raises(TransportError, match="Not a directory") as caught:
        launch.connect(str(place / "file/d.sock"), environ=environ)
    assert caught.value.kind == "unreachable"
    assert not (place / "state").exists()


def test_a_place_for_its_logs_that_cannot_be_made_is_named_with_what_to_set(place):
    (place / "file").write_text("")
    environ = {**stub_environment(place), "XDG_STATE_HOME": str(place / "file")}
    with pytest.raises(DaemonStartError, match="Not a directory") as caught:
        launch.connect(_socket(place), environ=environ)
    assert caught.value.kind == "start_failed"
    assert "XDG_STATE_HOME" in caught.value.hint
    assert _starts(place) == []


def test_no_descriptors_left_is_no_reason_to_start_one(place):
    path = _socket(place)
    program = (
        "import resource, sys; from fabricatio_checkpoint import launch\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "try: launch.connect(sys.argv[1])\n"
        "except Exception as error: print(error.kind)"
    )
    environ = stub_environment(place)
    done = subprocess.run(
        [sys.executable, "-c", program, path], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "unreachable\n"
    assert _starts(place) == []


def test_a_default_time_limit_of_the_process_does_not_reach_us(place):
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(0.001)
    try:
        with FakeDaemon(_socket(place)) as daemon:
            connected = launch.connect(daemon.path, start=False)
            assert connected.gettimeout() is None
            connected.close()
    finally:
        socket.setdefaulttimeout(before)


@pytest.mark.e2e
def test_starts_a_detached_daemon_that_outlives_the_client_and_its_group(place):
    path = _socket(place)
    environ = {**stub_environment(place), "GIT_DIR": "/elsewhere", "NOTIFY_SOCKET": "/n", "LISTEN_FDS": "1"}
    environ |= {"PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1", "PYTHONINSPECT": "1"}
    with open(place / "open-file", "w") as kept:
        client = _run_client(path, environ, start_new_session=True, pass_fds=[kept.fileno()], cwd=str(place))
        # Its end of file comes only when nobody holds the pipe any more.
        out, _ = client.communicate(timeout=30)
    assert b"workspaces" in out
    try:
        os.killpg(client.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    (started,) = _starts(place)
    assert started["session"] == started["pid"] != client.pid
    assert started["cwd"] == "/"
    assert not {name for name in started["environ"] if name.startswith(("GIT_", "NOTIFY_", "LISTEN_"))}
    assert not {"PYTHONWARNINGS", "PYTHONDEVMODE", "PYTHONINSPECT"} & started["environ"].keys()
    assert max(started["files"]) <= 3
    assert Connection(path, client="test").call("worktree.list", {})["workspaces"] == []
    assert len(_starts(place)) == 1


@pytest.mark.e2e
def test_many_clients_at_once_start_one_daemon(place):
    path = _socket(place)
    environ = stub_environment(place)
    clients = [_run_client(path, environ) for _ in range(6)]
    assert all(b"workspaces" in client.communicate(timeout=60)[0] for client in clients)
    assert len(_starts(place)) == 1


@pytest.mark.e2e
def test_threads_of_one_process_start_one_daemon_and_a_killed_one_is_replaced(place):
    path = _socket(place)
    connection = Connection(path, client="test", environ=stub_environment(place))
    results = []
    threads = [threading.Thread(target=lambda: results.append(connection.call("worktree.list", {}))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 4
    (started,) = _starts(place)
    os.kill(started["pid"], signal.SIGKILL)
    until(lambda: not _alive(started["pid"]))
    os.unlink(path)
    assert connection.call("worktree.list", {})["workspaces"] == []
    assert len(_starts(place)) == 2
    connection.close()


@pytest.mark.e2e
def test_a_daemon_that_dies_is_reported_with_what_it_said(place):
    environ = stub_environment(place, "import sys; print('line one'); sys.exit('no module named libgit2')")
    with pytest.raises(DaemonStartError) as caught:
        launch.connect(_socket(place), environ=environ)
    assert caught.value.kind == "start_failed"
    assert "ended with status 1" in str(caught.value)
    assert "line one" in str(caught.value)
    assert "no module named libgit2" in str(caught.value)
    assert str(place / "state/fabricatio-checkpoint/ckptd.start.log") in str(caught.value)
    with pytest.raises(DaemonStartError) as again:
        launch.connect(_socket(place), environ=environ)
    assert str(again.value).count("line one") == 1


def test_a_state_directory_that_is_not_ours_alone_is_refused(place):
    environ = stub_environment(place)
    (place / "state/fabricatio-checkpoint").mkdir(parents=True)
    (place / "state/fabricatio-checkpoint").chmod(0o777)
    with pytest.raises(DaemonStartError, match="chmod 700"):
        launch.connect(_socket(place), environ=environ)


def test_a_child_that_outlives_its_object_is_no_leak(place):
    program = (
        "import sys; from fabricatio_checkpoint.connection import Connection\n"
        "Connection(sys.argv[1], client='test').call('worktree.list', {})"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", program, _socket(place)],
        env=stub_environment(place),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
