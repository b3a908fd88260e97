"""The daemon as a process: start, signals, locks, activation, idleness. Its git side is a fake."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckpt_protocol.methods import METHODS
from ckpt_protocol.version import BUILD, PROTOCOL_VERSION
from support import fake_ckptd
from support.mapped import heaps, needs_maps

pytestmark = pytest.mark.e2e

SECONDS = 10.0


class Client:
    """A blocking client."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(SECONDS)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")

    def send(self, method: str, request_id: object = 1, **params: object) -> None:
        call = {"jsonrpc": "2.0", "method": method, "params": params, "id": request_id}
        self._socket.sendall(json.dumps(call).encode() + b"\n")

    def answer(self):
        return json.loads(self._lines.readline())

    def call(self, method: str, **params: object):
        self.send(method, **params)
        return self.answer()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class House:
    """A place for daemons: starts them, and ends those that are still there."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.socket = place / "run" / "d.sock"
        self._started: list[subprocess.Popen[str]] = []
        self._clients: list[Client] = []
        self.environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "XDG_STATE_HOME": str(place / "state"),
            "XDG_CONFIG_HOME": str(place / "config"),
        }

    @property
    def log(self) -> str:
        return (self.place / "state" / "fabricatio-checkpoint" / "ckptd.log").read_text()

    def run(self, *arguments: str, prefix: tuple[str, ...] = (), **options: object) -> "subprocess.Popen[str]":
        command = [*prefix, sys.executable, fake_ckptd.__file__, *(arguments or (str(self.socket),))]
        process = subprocess.Popen(
            command, env=self.environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options
        )
        self._started.append(process)
        return process

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        process = self.run(*arguments)
        until(lambda: connects(Path(arguments[0]) if arguments else self.socket))
        return process

    def client(self, path: Path | None = None) -> Client:
        client = Client(path or self.socket)
        self._clients.append(client)
        return client

    def save(self, message: str | None = None, worktree: str = "/w") -> dict[str, object]:
        directory = str(self.place / "data")
        return {"checkpoint_dir": directory, "worktree": {"path": worktree}, "token": "0" * 32, "message": message}

    def end(self) -> None:
        for client in self._clients:
            client.close()
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()


@pytest.fixture
def house(short_dir: Path) -> Iterator[House]:
    made = House(short_dir)
    yield made
    made.end()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def connects(path: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(path))
        return True
    return False


def kind_of(answer) -> str:
    return answer["error"]["data"]["kind"]


def errors_of(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    return process.stderr.read()


def test_it_serves_and_ends_by_a_signal(house) -> None:
    process = house.start()
    client = house.client()
    hello = client.call("daemon.hello", protocol=PROTOCOL_VERSION, build="9", client="tester")["result"]
    assert (hello["pid"], hello["build"]) == (process.pid, BUILD)
    assert client.call("checkpoint.save", **house.save())["result"]["notes"] == ["client tester"]
    place = {"checkpoint_dir": str(house.place / "data"), "worktree": {"path": "/w"}}
    state = client.call("worktree.status", **place)["result"]
    assert (state["state"].lower() in ("idle", "busy"), state["halted"]) == (True, None)
    status = client.call("daemon.status")["result"]
    assert (status["socket"], status["connections"]) == (str(house.socket), 1)
    assert [store["worktree"] for store in status["stores"]] == ["/w"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == 0
    assert errors_of(process) == ""
    assert os.listdir(house.socket.parent) == ["d.sock.lock"]
    assert "checkpoint.save worktree='/w'" in house.log
    assert "outcome=ok" in house.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_finish_what_runs_and_answers_what_waits(house, number) -> None:
    process = house.start()
    client, gate = house.client(), house.place / "gate"
    client.send("checkpoint.save", "runs", **house.save(f"wait {gate}"))
    until(lambda: Path(f"{gate}.begun").exists())
    client.send("checkpoint.save", "waits", **house.save())
    until(lambda: house.client().call("daemon.status")["result"]["stores"][0]["queued"] == 1)
    process.send_signal(number)
    waits = client.answer()
    assert (waits["id"], kind_of(waits)) == ("waits", "stopping")
    # Who comes while it drains is told so.
    assert kind_of(house.client().call("checkpoint.save", **house.save(worktree="/other"))) == "stopping"
    assert process.poll() is None
    gate.touch()
    runs = client.answer()
    assert (runs["id"], "result" in runs) == ("runs", True)
    assert process.wait(SECONDS) == 0


def test_stop_is_answered(house) -> None:
    process = house.start()
    client = house.client()
    assert client.call("daemon.stop")["result"]["pid"] == process.pid
    assert process.wait(SECONDS) == 0
    assert not house.socket.exists()


def test_after_a_kill_the_next_one_starts_at_once(house) -> None:
    first = house.start()
    house.client().call("checkpoint.save", **house.save())
    first.kill()
    first.wait()
    assert house.socket.exists()
    second = house.run()
    until(lambda: connects(house.socket))
    client = house.client()
    assert client.call("daemon.status")["result"]["pid"] == second.pid
    assert "result" in client.call("checkpoint.save", **house.save())


def test_of_several_that_start_at_once_one_serves(house) -> None:
    started = [house.run() for _ in range(4)]
    until(lambda: sum(process.poll() is None for process in started) == 1)
    until(lambda: connects(house.socket))
    winner = next(process for process in started if process.poll() is None)
    assert house.client().call("daemon.status")["result"]["pid"] == winner.pid
    for process in started:
        if process is not winner:
            assert process.returncode == 60
            assert errors_of(process) == f"ckptd: another ckptd (pid {winner.pid}) serves {house.socket}\n"
    winner.send_signal(signal.SIGTERM)
    assert winner.wait(SECONDS) == 0


def test_the_process_is_made_independent_of_where_it_was_started(house) -> None:
    house.environ |= {"GIT_DIR": "/x", "GIT_INDEX_FILE": "/y", "LISTEN_PID": "1", "LISTEN_FDS": "1"}
    house.start()
    answer = house.client().call("checkpoint.save", **house.save("process"))
    facts = json.loads(answer["result"]["notes"][0])
    assert not [name for name in facts["environment"] if name.startswith(("GIT_", "LISTEN_"))]
    assert (facts["cwd"], facts["umask"], facts["files_raised"]) == ("/", "0o77", True)
    assert facts["switch_interval"] == pytest.approx(0.0005)


@needs_maps
def test_all_its_threads_share_one_heap(house) -> None:
    process = house.start()
    for name in ("/v", "/w"):
        assert "result" in house.client().call("checkpoint.save", **house.save(worktree=name))
    assert len(os.listdir(f"/proc/{process.pid}/task")) > 2
    assert heaps(process.pid) == 0


_COLLECTING = """
import gc, os
from ckptd.__main__ import _prepare_process
_prepare_process(dict(os.environ))
most = [0, 0]
def before(phase, told):
    number = told["generation"]
    if phase == "start" and number < 2:
        looked_at = sum(len(gc.get_objects(generation=each)) for each in range(number + 1))
        most[number] = max(most[number], looked_at)
gc.callbacks.append(before)
kept = [[each] for each in range(1_500_000)]
print(*most)
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="there, a collection looks at a part of all objects")
def test_no_collection_of_young_objects_looks_at_many_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", _COLLECTING], env=_with_path(), capture_output=True, check=True)
    youngest, young = map(int, done.stdout.split())
    assert 0 < youngest < 20_000
    assert 0 < young < 80_000


def _with_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_second_daemon_sends_to_the_owner_of_the_data(house) -> None:
    house.start()
    other = house.place / "other" / "d.sock"
    house.start(str(other))
    assert "result" in house.client().call("checkpoint.save", **house.save())
    refused = house.client(other).call("checkpoint.save", **house.save())
    assert kind_of(refused) == "owned_elsewhere"
    assert refused["error"]["data"]["hint"] == str(house.socket)
    assert refused["error"]["data"]["paths"] == [str(house.socket)]


def test_a_passed_socket_is_served_and_left_alone(house) -> None:
    house.socket.parent.mkdir(0o700)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        listener.bind(str(house.socket))
        listener.listen()
        manager.bind(str(house.place / "notify"))
        manager.settimeout(SECONDS)
        house.environ |= {"LISTEN_FDS": "1", "NOTIFY_SOCKET": str(house.place / "notify")}
        # What a service manager does between fork and exec.
        become = (
            "import os, sys\n"
            "os.dup2(int(sys.argv[1]), 3)\n"
            "os.environ['LISTEN_PID'] = str(os.getpid())\n"
            "os.execv(sys.argv[2], sys.argv[2:])\n"
        )
        manage = (sys.executable, "-c", become, str(listener.fileno()))
        # No address on the command line: the passed socket has it.
        process = house.run("", prefix=manage, pass_fds=(listener.fileno(),))
        client = house.client()
        answer = client.call("checkpoint.save", **house.save("process"))
        facts = json.loads(answer["result"]["notes"][0])
        assert facts["fd3"] is False
        assert not {"LISTEN_PID", "LISTEN_FDS", "NOTIFY_SOCKET"} & set(facts["environment"])
        assert client.call("daemon.status")["result"]["socket"] == str(house.socket)
        assert manager.recv(200) == f"READY=1\nSTATUS=serving {house.socket}".encode()
        client.call("daemon.stop")
        assert process.wait(SECONDS) == 0
        assert manager.recv(200).startswith(b"STOPPING=1\n")
        assert house.socket.exists()


def test_the_watchdog_hears_from_it_as_often_as_it_wants(house) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(house.place / "notify"))
        manager.settimeout(SECONDS)
        house.environ |= {"NOTIFY_SOCKET": str(house.place / "notify"), "WATCHDOG_USEC": "150000"}
        house.start()
        heard: list[bytes] = []
        while heard.count(b"WATCHDOG=1") < 8:
            heard.append(manager.recv(200))
        assert heard[0].startswith(b"READY=1") or b"WATCHDOG=1" in heard[:2]
        answer = house.client().call("checkpoint.save", **house.save("process"))
        assert not [name for name in json.loads(answer["result"]["notes"][0])["environment"] if "WATCHDOG" in name]


def test_a_watchdog_that_means_another_process_hears_nothing(house) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(house.place / "notify"))
        manager.settimeout(SECONDS)
        notify = str(house.place / "notify")
        house.environ |= {"NOTIFY_SOCKET": notify, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
        process = house.start()
        assert manager.recv(200).startswith(b"READY=1")
        house.client().call("daemon.stop")
        assert manager.recv(200).startswith(b"STOPPING=1")
        assert process.wait(SECONDS) == 0


def test_a_thread_that_hangs_does_not_keep_the_process_for_ever(house) -> None:
    house.environ["FAKE_PATIENCE"] = "1"
    process = house.start()
    client, gate = house.client(), house.place / "gate"
    client.send("checkpoint.save", "hangs", **house.save(f"hang {gate}"))
    until(lambda: Path(f"{gate}.begun").exists())
    client.send("checkpoint.save", "waits", **house.save())
    until(lambda: house.client().call("daemon.status")["result"]["stores"][0]["queued"] == 1)
    process.send_signal(signal.SIGTERM)
    assert kind_of(client.answer()) == "stopping"
    assert process.wait(SECONDS) == 70
    assert "s without an end, so the process ends now" in house.log
    assert "ckptd-write /w" in house.log
    assert not house.socket.exists()
    # Nothing that it held is in the way of the next one.
    house.start()
    assert "result" in house.client().call("checkpoint.save", **house.save())


def test_a_thread_that_works_is_waited_for(house) -> None:
    house.environ["FAKE_PATIENCE"] = "0.5"
    process = house.start()
    client, gate = house.client(), house.place / "gate"
    # It looks for its file again and again.
    client.send("checkpoint.save", "works", **house.save(f"wait {gate}"))
    until(lambda: Path(f"{gate}.begun").exists())
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2.0)
    gate.touch()
    assert client.answer()["id"] == "works"
    assert process.wait(SECONDS) == 0


def test_a_stop_if_idle_ends_only_what_rests(house) -> None:
    process = house.start()
    client, gate = house.client(), house.place / "gate"
    client.send("checkpoint.save", "runs", **house.save(f"wait {gate}"))
    until(lambda: Path(f"{gate}.begun").exists())
    other = house.client()
    assert other.call("daemon.stop", if_idle=True)["result"] == {"pid": process.pid, "stopping": False}
    assert "result" in other.call("checkpoint.save", **house.save(worktree="/other"))
    gate.touch()
    assert client.answer()["id"] == "runs"
    until(lambda: other.call("daemon.stop", if_idle=True)["result"]["stopping"])
    assert process.wait(SECONDS) == 0


def test_it_ends_when_idle_and_not_before(house) -> None:
    house.environ["FABRICATIO_EXT__CHECKPOINT__IDLE_EXIT_S"] = "0.4"
    process = house.start()
    client = house.client()
    # Connected, without a request.
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.0)
    gate = house.place / "gate"
    client.send("checkpoint.save", **house.save(f"wait {gate}"))
    until(lambda: Path(f"{gate}.begun").exists())
    client.close()
    # The client has gone, its request still runs.
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.0)
    assert "idle for" not in house.log
    gate.touch()
    assert process.wait(SECONDS) == 0
    assert "idle for 0.4 s" in house.log


def test_an_answer_that_is_being_read_slowly_is_sent_whole(house) -> None:
    process = house.start()
    client = house.client()
    client.send("checkpoint.save", **house.save("big"))
    until(lambda: "checkpoint.save" in house.log)
    process.send_signal(signal.SIGTERM)
    until(lambda: not house.socket.exists())
    assert len(client.answer()["result"]["notes"][0]) == fake_ckptd.BIG
    assert process.wait(SECONDS) == 0


def test_bad_options_are_one_line_each_and_the_default(house) -> None:
    file = house.place / "config" / "fabricatio" / "fabricatio.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[ext.checkpoint]\ncache_size = "many"\nidle_exit_s = 7\n')
    house.environ["fabricatio_ext__checkpoint__idle_exit_s"] = "soon"
    house.start()
    assert "result" in house.client().call("daemon.status")
    assert [line.split(" ckptd ")[1] for line in house.log.splitlines() if "WARNING" in line] == [
        f"{file}: cache_size: must be a whole number, 1 or more",
        "environment: idle_exit_s: must be a number of seconds, 0 or more",
    ]


def test_an_address_that_cannot_be_had_is_one_line(house) -> None:
    (house.place / "open").mkdir()
    os.chmod(house.place / "open", 0o755)
    process = house.run(str(house.place / "open" / "d.sock"))
    assert process.wait(SECONDS) == 60
    assert errors_of(process).count("\n") == 1


def test_a_bug_at_the_start_is_in_the_log_and_leaves_nothing(house) -> None:
    process = house.run(str(house.socket), "--broken")
    assert process.wait(SECONDS) == 70
    assert "this catalog is broken" in house.log
    assert not house.socket.exists()


def test_the_log_goes_to_stderr_when_asked_or_under_the_journal(house) -> None:
    process = house.run(str(house.socket), "--stderr")
    until(lambda: connects(house.socket))
    house.client().call("daemon.stop")
    assert process.wait(SECONDS) == 0
    assert "daemon.stop" in errors_of(process)
    assert not (house.place / "state").exists()
    house.environ["JOURNAL_STREAM"] = "8:1"
    process = house.run()
    until(lambda: connects(house.socket))
    house.client().call("daemon.stop")
    assert process.wait(SECONDS) == 0
    assert "daemon.stop" in errors_of(process)


def test_the_command_line(house) -> None:
    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "ckptd", *arguments]
        return subprocess.run(command, env=house.environ, capture_output=True, text=True, timeout=SECONDS)

    assert run("--version").stdout == f"ckptd {BUILD}\n"
    assert "--socket" in run("--help").stdout
    described = [method["name"] for method in json.loads(run("discover").stdout)["methods"]]
    assert described == list(METHODS)
    assert run("--no-such-option").returncode == 2
