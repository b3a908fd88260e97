"""Calls over a real socket: the hello, retries, threads, forks, interrupts."""

import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from ckpt_protocol.framing import MAX_REQUEST_BYTES
from ckpt_protocol.version import BUILD
from fabricatio_checkpoint.connection import Connection
from fabricatio_checkpoint.errors import ConnectionLost, InputError, InternalError, StateError, TransportError
from fabricatio_checkpoint.link import BrokenLinkError, Link
from support.fake_daemon import HANG_UP, HELLO, FakeDaemon, Notices, Raw, Refusal, stub_environment
from support.poll import until

TOKEN = "0" * 32


@pytest.fixture
def daemon(short_dir):
    with FakeDaemon(str(short_dir / "d.sock"), worktree__list={"workspaces": []}) as serving:
        yield serving


@pytest.fixture
def connection(daemon):
    with Connection(daemon.path, client="test", session="s1") as made:
        yield made


class Answers:
    """Gives one answer after the other; the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def __call__(self, _params):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def _join(threads):
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_the_hello_goes_out_with_the_first_request_and_never_again(daemon, connection):
    for _ in range(3):
        assert connection.call("worktree.list", {"x": 1}) == {"workspaces": []}
    assert [method for _, method, _ in daemon.asked] == ["daemon.hello", *["worktree.list"] * 3]
    told = {"protocol": 1, "build": BUILD, "client": "test", "session": "s1", "capabilities": ["progress"]}
    assert daemon.asked[0][2] == told
    assert len(daemon.writes) == 3
    assert daemon.connections == 1
    assert connection.peer == HELLO


def test_methods_of_the_daemon_itself_need_no_hello(daemon, connection):
    daemon.answers["daemon.status"] = {"pid": 1}
    assert connection.call("daemon.status", {}) == {"pid": 1}
    assert daemon.asked == [(1, "daemon.status", {})]
    connection.call("worktree.list", {})
    assert [method for _, method, _ in daemon.asked[1:]] == ["daemon.hello", "worktree.list"]
    assert daemon.connections == 1


def test_an_error_reply_is_raised_and_the_socket_stays(daemon, connection):
    daemon.answers["checkpoint.head"] = Refusal("no_checkpoint", "nothing saved yet", hint="save")
    with pytest.raises(StateError) as caught:
        connection.call("checkpoint.head", {})
    assert (caught.value.method, caught.value.hint) == ("checkpoint.head", "save")
    connection.call("worktree.list", {})
    assert daemon.connections == 1


def test_notices_go_to_the_caller_who_wants_them(daemon, connection):
    progress = [{"method": "$/progress", "params": {"done": n}} for n in range(3)]
    daemon.answers["checkpoint.save"] = Notices(progress, {"id": "x"})
    seen = []
    assert connection.call("checkpoint.save", {"token": TOKEN}, on_notice=seen.append) == {"id": "x"}
    assert [notice["params"] for notice in seen] == [{"done": 0}, {"done": 1}, {"done": 2}]
    assert connection.call("checkpoint.save", {"token": TOKEN}) == {"id": "x"}


def test_a_reply_may_come_before_that_of_the_hello(daemon, connection):
    daemon.answers["daemon.hello"] = Raw(b"")
    hello = '{"jsonrpc":"2.0","id":0,"result":{"protocol":1,"build":"b","pid":1,"capabilities":[]}}\n'
    daemon.answers["worktree.list"] = Raw(('{"jsonrpc":"2.0","id":1,"result":{"a":1}}\n' + hello).encode())
    assert connection.call("worktree.list", {}) == {"a": 1}
    assert connection.peer["build"] == "b"


def test_replies_to_something_else_are_passed_over(daemon, connection):
    connection.call("worktree.list", {})
    other = b'{"jsonrpc":"2.0","id":99,"result":{"a":1}}\n{"jsonrpc":"2.0","id":"x","result":{}}\n'
    daemon.answers["worktree.list"] = Raw(other + b'{"jsonrpc":"2.0","id":2,"result":{"a":2}}\n')
    assert connection.call("worktree.list", {}) == {"a": 2}


@pytest.mark.parametrize(
    "hello",
    [
        Refusal("protocol_mismatch", "the client speaks protocol 1, the daemon (build 9.9) protocol 7"),
        {**HELLO, "protocol": 7, "build": "9.9"},
    ],
)
def test_two_that_cannot_work_together_are_both_named_in_one_line(daemon, connection, hello):
    daemon.answers["daemon.hello"] = hello
    with pytest.raises(TransportError) as caught:
        connection.call("worktree.list", {})
    assert caught.value.kind == "protocol_mismatch"
    text = str(caught.value)
    assert "9.9" in text
    assert BUILD in text
    assert "ckpt daemon stop" in text
    assert "\n" not in text
    daemon.answers["daemon.stop"] = {"pid": 1}
    assert connection.call("daemon.stop", {}) == {"pid": 1}


def test_a_restarted_daemon_is_found_again_also_for_writes_without_a_token(daemon, connection):
    connection.call("worktree.list", {})
    daemon.restart()
    daemon.answers["odd.write"] = {"done": True}
    assert connection.call("odd.write", {}) == {"done": True}


def test_a_stale_socket_does_not_use_up_the_second_try(daemon, connection):
    connection.call("worktree.list", {})
    daemon.restart()
    daemon.answers["worktree.list"] = Answers(HANG_UP, {"again": True})
    assert connection.call("worktree.list", {}) == {"again": True}


def test_after_a_loss_the_other_idle_sockets_are_not_trusted(daemon, connection):
    release = threading.Event()
    daemon.answers["checkpoint.save"] = lambda _params: release.wait(20) and {}
    slow = threading.Thread(target=connection.call, args=("checkpoint.save", {"token": TOKEN}))
    slow.start()
    until(lambda: daemon.params("checkpoint.save"))
    connection.call("worktree.list", {})
    release.set()
    _join([slow])
    daemon.answers["worktree.list"] = Answers(HANG_UP, {"again": True})
    assert connection.call("worktree.list", {}) == {"again": True}
    assert daemon.asked[-1][0] == 3


@pytest.mark.parametrize(
    "said", [b"", b'{"jsonrpc":"2.0","id":null,"error":{"message":"no","data":{"kind":"stopping"}}}\n']
)
def test_a_request_that_could_not_be_sent_is_known_as_such_and_the_reason_is_heard(said):
    ours, theirs = socket.socketpair()
    theirs.sendall(said)
    theirs.close()
    link = Link(ours, "/x", {})
    with pytest.raises((BrokenLinkError, TransportError)) as caught:
        link.request("checkpoint.save", {})
    link.close()
    assert caught.value.kind == "stopping" if said else caught.value.sent is False


@pytest.mark.parametrize(("method", "params"), [("worktree.list", {}), ("checkpoint.save", {"token": TOKEN})])
def test_a_request_that_got_lost_is_sent_once_more_with_the_same_token(daemon, connection, method, params):
    daemon.answers[method] = Answers(HANG_UP, {"id": "x"})
    assert connection.call(method, params) == {"id": "x"}
    assert daemon.params(method) == [params, params]


def test_a_second_loss_is_told(daemon, connection):
    daemon.answers["worktree.list"] = HANG_UP
    with pytest.raises(ConnectionLost) as caught:
        connection.call("worktree.list", {})
    assert caught.value.sent
    assert len(daemon.params("worktree.list")) == 2


@pytest.mark.parametrize(("method", "repeatable"), [("daemon.stop", None), ("worktree.list", False)])
def test_what_must_not_be_repeated_is_not(daemon, connection, method, repeatable):
    daemon.answers[method] = HANG_UP
    with pytest.raises(ConnectionLost, match="it may have been done") as caught:
        connection.call(method, {}, repeatable=repeatable)
    assert (caught.value.sent, caught.value.kind, caught.value.retryable) == (True, "connection_lost", False)
    assert len(daemon.params(method)) == 1


def test_why_the_daemon_hung_up_is_heard(daemon, connection):
    line = b'{"jsonrpc":"2.0","id":null,"error":{"code":4010,"message":"not you","data":{"kind":"forbidden_peer"}}}\n'
    daemon.answers["daemon.hello"] = Raw(line)
    with pytest.raises(TransportError, match="not you") as caught:
        connection.call("worktree.list", {})
    assert caught.value.kind == "forbidden_peer"


@pytest.mark.parametrize("raw", [b"nonsense\n", b"[1]\n", b'{"jsonrpc":"2.0","id":1,"result":[]}\n', b"\xff\n"])
def test_an_answer_that_cannot_be_read_is_an_internal_error_and_the_next_call_works(daemon, connection, raw):
    connection.call("daemon.hello", {})
    daemon.answers["daemon.status"] = Raw(raw.replace(b'"id":1', b'"id":2'))
    with pytest.raises(InternalError):
        connection.call("daemon.status", {})
    assert connection.call("worktree.list", {}) == {"workspaces": []}


def test_text_that_is_not_unicode_and_a_request_too_long_are_never_sent(daemon, connection):
    with pytest.raises(InputError, match="not valid Unicode"):
        connection.call("checkpoint.save", {"token": TOKEN, "message": "\udcff"})
    with pytest.raises(TransportError) as caught:
        connection.call("checkpoint.save", {"token": TOKEN, "message": "x" * MAX_REQUEST_BYTES})
    assert caught.value.kind == "frame_too_large"
    assert daemon.asked == []


def test_a_long_answer_arrives_whole(daemon, connection):
    paths = [f"directory/{n}/\u00e4" for n in range(60_000)]
    daemon.answers["checkpoint.show"] = {"paths": paths}
    assert connection.call("checkpoint.show", {}) == {"paths": paths}


def test_a_call_does_not_wait_for_one_of_another_thread(daemon, connection):
    release = threading.Event()
    daemon.answers["checkpoint.save"] = lambda _params: release.wait(20) and {"id": "slow"}
    results = []
    slow = threading.Thread(target=lambda: results.append(connection.call("checkpoint.save", {"token": TOKEN})))
    slow.start()
    until(lambda: daemon.params("checkpoint.save"))
    assert connection.call("worktree.list", {}) == {"workspaces": []}
    release.set()
    _join([slow])
    assert results == [{"id": "slow"}]
    assert daemon.connections == 2


def test_replies_never_cross_between_threads(daemon, connection):
    daemon.answers["checkpoint.show"] = lambda params: {"id": params["id"]}
    wrong = []

    def ask(name):
        for n in range(40):
            wanted = f"{name}-{n}"
            if connection.call("checkpoint.show", {"id": wanted}) != {"id": wanted}:
                wrong.append(wanted)

    threads = [threading.Thread(target=ask, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    _join(threads)
    assert wrong == []
    assert daemon.connections <= 60


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_a_forked_child_makes_its_own_socket_and_leaves_the_parents_alone(daemon, connection):
    connection.call("worktree.list", {})
    child = os.fork()
    if child == 0:
        try:
            ok = connection.call("worktree.list", {}) == {"workspaces": []}
            os._exit(0 if ok else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    connection.call("worktree.list", {})
    assert [number for number, method, _ in daemon.asked if method == "worktree.list"] == [1, 2, 1]


def test_ctrl_c_cancels_the_call_and_leaves_a_usable_client(daemon, connection):
    held = threading.Event()
    daemon.answers["checkpoint.save"] = lambda _params: held.wait(20) and {"id": "late"}
    main = threading.main_thread().ident

    def interrupt():
        until(lambda: daemon.params("checkpoint.save"))
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        connection.call("checkpoint.save", {"token": TOKEN})
    _join([thread])
    assert connection.call("worktree.list", {}) == {"workspaces": []}
    held.set()
    until(lambda: daemon.params("$/cancel"))
    assert daemon.params("$/cancel") == [{"id": 1}]


def test_a_client_goes_to_the_owner_of_the_data_once(daemon, short_dir):
    with FakeDaemon(str(short_dir / "o.sock"), worktree__list={"owner": True}) as owner:
        daemon.answers["worktree.list"] = Refusal("owned_elsewhere", "owned", hint=owner.path)
        with Connection(daemon.path, client="test") as connection:
            assert connection.call("worktree.list", {}) == {"owner": True}
            assert connection.call("worktree.list", {}) == {"owner": True}
            assert len(daemon.params("worktree.list")) == 1
            owner.answers["worktree.list"] = Refusal("owned_elsewhere", "owned", hint=daemon.path)
            with pytest.raises(TransportError) as caught:
                connection.call("worktree.list", {})
            assert caught.value.kind == "owned_elsewhere"


def test_an_owner_that_has_gone_is_not_started_and_the_way_home_is_found(daemon, short_dir):
    with FakeDaemon(str(short_dir / "o.sock"), worktree__list={"owner": True}) as owner:
        daemon.answers["worktree.list"] = Refusal("owned_elsewhere", "owned", hint=owner.path)
        with Connection(daemon.path, client="test", environ=stub_environment(short_dir)) as connection:
            assert connection.call("worktree.list", {}) == {"owner": True}
            owner.kill()
            daemon.answers["worktree.list"] = {"mine": True}
            assert connection.call("worktree.list", {}) == {"mine": True}
    assert not (short_dir / "state").exists()


def test_an_owner_without_an_address_is_an_error(daemon, connection):
    daemon.answers["worktree.list"] = Refusal("owned_elsewhere", "on another host", hint="stop it there")
    with pytest.raises(TransportError, match="stop it there"):
        connection.call("worktree.list", {})


def test_a_daemon_that_is_about_to_end_is_waited_for(daemon, connection):
    daemon.answers["checkpoint.save"] = Answers(Refusal("stopping"), Refusal("stopping"), {"id": "x"})
    assert connection.call("checkpoint.save", {"token": TOKEN}) == {"id": "x"}


def test_a_silence_longer_than_the_limit_is_an_error(daemon):
    held = threading.Event()
    daemon.answers["daemon.status"] = lambda _params: held.wait(20) and {}
    with Connection(daemon.path, client="test", timeout_s=0.5) as connection:
        connection.call("worktree.list", {})
        # Not the answer that would come in the end.
        with pytest.raises(TransportError, match="does not answer"):
            connection.call("daemon.status", {})
        held.set()
        assert connection.call("worktree.list", {}) == {"workspaces": []}


def test_reads_about_the_daemon_start_none(short_dir):
    environ = stub_environment(short_dir)
    connection = Connection(str(short_dir / "d.sock"), client="test", environ=environ)
    with pytest.raises(TransportError) as caught:
        connection.call("daemon.status", {})
    assert caught.value.kind == "not_running"
    with pytest.raises(TransportError):
        connection.call("worktree.list", {}, start=False)
    assert not (short_dir / "state").exists()


def test_sockets_left_at_the_end_of_a_program_are_no_leak(daemon, short_dir):
    program = (
        "import sys; from fabricatio_checkpoint.connection import Connection\n"
        "kept = Connection(sys.argv[1], client='test'); kept.call('worktree.list', {})"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", program, daemon.path],
        env=stub_environment(short_dir),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
