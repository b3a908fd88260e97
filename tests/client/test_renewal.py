"""A daemon of another build, and an owner out of reach, as the client library meets them."""

import threading
import time

import pytest

from ckpt_protocol.version import BUILD
from fabricatio_checkpoint import launch
from fabricatio_checkpoint.connection import Connection
from fabricatio_checkpoint.errors import TransportError
from fabricatio_checkpoint.link import Link
from support.fake_daemon import HANG_UP, HELLO, FakeDaemon, Raw, Refusal, stub_environment

OLDER, NEWER = "0.9.9", "99.0"


@pytest.fixture
def daemon(short_dir):
    with FakeDaemon(str(short_dir / "d.sock"), worktree__list={"workspaces": []}) as made:
        yield made


@pytest.fixture
def connection(daemon, short_dir):
    with Connection(daemon.path, client="test", environ=stub_environment(short_dir)) as made:
        yield made


def speaks(daemon, build):
    daemon.answers["daemon.hello"] = {**HELLO, "build": build}


@pytest.mark.parametrize("build", [BUILD, NEWER, "unknown", ""])
def test_a_daemon_that_is_not_older_is_never_asked_to_end(daemon, connection, build):
    speaks(daemon, build)
    for _ in range(2):
        connection.call("worktree.list", {})
    assert daemon.methods == ["worktree.list"] * 2
    assert daemon.connections == 1


def test_an_older_one_is_asked_once_after_the_first_answer(daemon, connection):
    speaks(daemon, OLDER)
    daemon.answers["daemon.stop"] = {"pid": 1, "stopping": False}
    for _ in range(3):
        assert connection.call("worktree.list", {}) == {"workspaces": []}
    assert daemon.methods == ["worktree.list", "daemon.stop", "worktree.list", "worktree.list"]
    assert daemon.params("daemon.stop") == [{"if_idle": True}]
    assert daemon.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"pid": 1, "stopping": True}, id="stops"),
        pytest.param({"pid": 1}, id="stops, as older ones say it"),
        pytest.param(Refusal("invalid_params"), id="does not know the question"),
        pytest.param(HANG_UP, id="hangs up"),
        pytest.param(Raw(b"nonsense\n"), id="says nonsense"),
    ],
)
def test_whatever_it_says_to_that_the_calls_go_on(daemon, connection, answer):
    speaks(daemon, OLDER)
    daemon.answers["daemon.stop"] = answer
    for _ in range(3):
        assert connection.call("worktree.list", {}) == {"workspaces": []}
    assert daemon.methods.count("daemon.stop") == 1


def test_a_refused_hello_of_an_older_idle_daemon_is_tried_again_with_the_next_one(daemon, connection):
    refusals = [Refusal("protocol_mismatch", f"build {OLDER}")]
    daemon.answers["daemon.hello"] = lambda _params: refusals.pop() if refusals else HELLO
    daemon.answers["daemon.status"] = {"version": OLDER, "protocol": 0}
    daemon.answers["daemon.stop"] = HANG_UP
    assert connection.call("worktree.list", {}) == {"workspaces": []}


@pytest.mark.parametrize(("build", "hint"), [(OLDER, "at work"), (NEWER, "update this client"), ("", "daemon stop")])
def test_a_refused_hello_is_else_one_line_that_says_what_to_do(daemon, connection, build, hint):
    daemon.answers["daemon.hello"] = Refusal("protocol_mismatch", f"the daemon (build {build}) speaks protocol 7")
    daemon.answers["daemon.status"] = {"version": build, "protocol": 7}
    daemon.answers["daemon.stop"] = {"pid": 1, "stopping": False}
    with pytest.raises(TransportError, match=hint) as caught:
        connection.call("worktree.list", {})
    assert caught.value.kind == "protocol_mismatch"
    assert "\n" not in str(caught.value)
    assert ("daemon.stop" in daemon.methods) == (build == OLDER)


def test_methods_about_the_daemon_ask_for_nothing_else(daemon, connection):
    speaks(daemon, OLDER)
    daemon.answers["daemon.status"] = {"pid": 1}
    connection.call("daemon.status", {})
    assert daemon.methods == ["daemon.status"]


@pytest.mark.parametrize("method", ["worktree.list", "daemon.status"])
def test_a_daemon_that_does_not_even_greet_is_given_up(daemon, method):
    silent = threading.Event()
    for name in ("daemon.hello", "daemon.status"):
        daemon.answers[name] = lambda _params: silent.wait(20) and HELLO
    sock = launch.connect(daemon.path, start=False)
    link = Link(sock, daemon.path, {}, quick_s=0.1)
    with pytest.raises(TransportError, match="does not answer"):
        link.request(method, {})
    silent.set()
    link.close()


def test_work_may_take_longer_than_a_greeting(daemon):
    daemon.answers["worktree.list"] = lambda _params: time.sleep(1.3) or {"slow": True}
    sock = launch.connect(daemon.path, start=False)
    link = Link(sock, daemon.path, {}, quick_s=1.0)
    assert link.request("worktree.list", {})["result"] == {"slow": True}
    assert sock.gettimeout() is None
    link.close()


def test_an_owner_out_of_reach_is_waited_for(daemon, connection, short_dir):
    """Its socket has gone; once it sees that, it lets go of the directory, and ours can have it."""
    daemon.answers["worktree.list"] = Refusal("owned_elsewhere", "owned", hint=str(short_dir / "gone.sock"))
    mine = threading.Timer(0.8, lambda: daemon.answers.update({"worktree.list": {"mine": True}}))
    mine.start()
    assert connection.call("worktree.list", {}) == {"mine": True}
    mine.join()
    assert len(daemon.params("worktree.list")) > 2
