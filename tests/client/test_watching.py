"""How far a call is, how long it may take, and what happens: what a program can watch."""

import asyncio
import threading

import pytest

from fabricatio_checkpoint import AsyncCheckpointService
from fabricatio_checkpoint.errors import ConnectionLost, Interrupted, StateError, TransportError
from fabricatio_checkpoint.events import Event
from fabricatio_checkpoint.progress import Progress
from fabricatio_checkpoint.service import CheckpointService
from support.cli_answers import ID, restored, saved, status
from support.fake_daemon import HANG_UP, FakeDaemon, Notices, Refusal
from support.poll import eventually, until

pytestmark = pytest.mark.core

OPENED = {"store": "/s", "created": True, "head": None}
PIECE = {"data": {"b64": "eA=="}, "offset": 0, "total_bytes": 1, "cursor": None}


def progress(*counts):
    told = [{"id": 1, "phase": "hash", "done": count, "total": 9, "bytes": 7} for count in counts]
    return [{"method": "$/progress", "params": params} for params in told]


def event(seq, **changes):
    params = {
        "subscription": 1,
        "seq": seq,
        "time": "2026-11-30T10:00:00.000001Z",
        "kind": "checkpoint.created",
        "checkpoint_dir": "/c",
        "worktree": {"b64": "L/8="},
        "data": {"id": ID},
        "lost": False,
        "missed": 0,
        **changes,
    }
    return {"method": "event", "params": params}


@pytest.fixture
def daemon(short_dir):
    with FakeDaemon(str(short_dir / "run" / "d.sock"), worktree__open=OPENED) as fake:
        yield fake


@pytest.fixture
def service(daemon, tmp_path):
    return CheckpointService(tmp_path / "stores", socket=daemon.path)


@pytest.fixture
def store(service, tmp_path):
    return service.get_store(tmp_path)


CALLS = {
    "save": ("checkpoint.save", (), saved()),
    "save_detailed": ("checkpoint.save", (), saved()),
    "status": ("worktree.status", (), status()),
    "diff": ("checkpoint.diff", (), PIECE),
    "diff_bytes": ("checkpoint.diff", (), PIECE),
    "reset": ("checkpoint.restore", (), restored()),
    "rollback": ("checkpoint.restore", ("HEAD", "a"), restored()),
    "undo": ("checkpoint.undo", (), restored()),
    "redo": ("checkpoint.redo", (), restored()),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_progress_is_told_in_the_thread_of_the_call(daemon, store, name):
    method, arguments, answer = CALLS[name]
    daemon.answers[method] = Notices(progress(1, 2), answer)
    seen = []
    getattr(store, name)(*arguments, progress=lambda told: seen.append((told, threading.current_thread())))
    here = threading.current_thread()
    assert seen == [(Progress("hash", 1, 9, 7), here), (Progress("hash", 2, 9, 7), here)]


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_deadline_goes_with_the_request_and_only_if_given(daemon, store, name):
    method, arguments, answer = CALLS[name]
    daemon.answers[method] = answer
    getattr(store, name)(*arguments)
    getattr(store, name)(*arguments, deadline_s=2.5)
    assert [params.get("deadline_s") for params in daemon.params(method)] == [None, 2.5]
    assert "deadline_s" not in daemon.params(method)[0]


def test_a_deadline_that_has_passed_is_a_state_that_can_be_tried_again(daemon, store):
    daemon.answers["checkpoint.save"] = Refusal("deadline_exceeded", "the deadline of 1 s has passed")
    with pytest.raises(StateError, match="1 s has passed") as caught:
        store.save(deadline_s=1)
    assert (caught.value.kind, caught.value.retryable) == ("deadline_exceeded", True)


def test_what_the_callback_raises_calls_the_request_off(daemon, store):
    class EnoughError(Exception):
        pass

    def enough(_told):
        raise EnoughError

    daemon.answers["checkpoint.save"] = Notices(progress(1), saved())
    with pytest.raises(EnoughError):
        store.save(progress=enough)
    until(lambda: "$/cancel" in daemon.methods)
    daemon.answers["checkpoint.save"] = saved()
    assert store.save() == ID


def test_other_notifications_are_no_progress(daemon, store):
    others = [event(1), {"method": "$/progress"}, {"method": "of.the.future", "params": {"done": 1}}]
    daemon.answers["checkpoint.save"] = Notices([*others, *progress(5)], saved())
    seen = []
    store.save(progress=seen.append)
    assert [told.done for told in seen] == [5]


def test_a_silence_has_a_limit_where_one_is_set(daemon, tmp_path):
    go_on = threading.Event()
    daemon.answers["checkpoint.save"] = lambda _params: go_on.wait(30) and saved()
    store = CheckpointService(tmp_path / "stores", socket=daemon.path, timeout_s=0.1).get_store(tmp_path)
    with pytest.raises(TransportError, match="does not answer"):
        store.save()
    go_on.set()


def test_an_interrupted_call_tells_what_came_of_it(daemon, store):
    asked = threading.Event()

    def cancelled(_params):
        asked.set()

    def interrupt(_told):
        raise KeyboardInterrupt

    def answer(_params):
        return Notices(progress(1), saved())

    daemon.answers |= {"checkpoint.save": answer, "$/cancel": cancelled}
    with pytest.raises(KeyboardInterrupt) as caught:
        store.save(progress=interrupt)
    assert isinstance(caught.value, Interrupted)
    assert (caught.value.method, caught.value.answer["result"]["id"]) == ("checkpoint.save", ID)
    assert asked.wait(10)


# -- events


def test_events_are_records_in_order(daemon, service, tmp_path):
    notices = [event(4), event(9, worktree=None, lost=True, missed=3, data={})]
    daemon.answers["events.subscribe"] = Notices(notices, {"subscription": 1, "seq": 3})
    with service.events(tmp_path, kinds=["checkpoint.created"]) as stream:
        first, second = next(stream), next(stream)
    assert first == Event(4, "2026-11-30T10:00:00.000001Z", "checkpoint.created", "/c", "/\udcff", {"id": ID})
    assert (second.seq, second.worktree, second.lost, second.missed) == (9, None, True, 3)
    (params,) = daemon.params("events.subscribe")
    assert (params["worktree"]["path"], params["kinds"]) == (str(tmp_path), ["checkpoint.created"])
    until(lambda: daemon.ended == daemon.connections)


def test_a_stream_that_is_closed_ends_whoever_waits(daemon, service):
    daemon.answers["events.subscribe"] = {"subscription": 1, "seq": 0}
    stream = service.events()
    heard = []
    waiting = threading.Thread(target=lambda: heard.append(list(stream)))
    waiting.start()
    stream.close()
    stream.close()
    waiting.join(10)
    assert heard == [[]]
    assert list(stream) == []


def test_a_daemon_that_ends_ends_the_stream_with_an_error(daemon, service):
    daemon.answers["events.subscribe"] = Notices([event(1)], {"subscription": 1, "seq": 0})
    stream = service.events()
    assert next(stream).seq == 1
    daemon.kill()
    with pytest.raises(ConnectionLost):
        next(stream)
    stream.close()


@pytest.mark.parametrize(
    ("answer", "error"), [(Refusal("too_many_requests", "many"), TransportError), (HANG_UP, ConnectionLost)]
)
def test_a_subscription_that_is_refused(daemon, service, answer, error):
    daemon.answers["events.subscribe"] = answer
    with pytest.raises(error):
        service.events()
    until(lambda: daemon.ended == daemon.connections)


# -- awaited


def test_progress_is_told_in_the_thread_of_the_loop(daemon, tmp_path):
    daemon.answers["checkpoint.save"] = Notices(progress(1, 2), saved())
    seen = []

    async def work():
        store = await AsyncCheckpointService(tmp_path / "stores", socket=daemon.path).get_store(tmp_path)
        await store.save(progress=lambda told: seen.append((told.done, threading.current_thread())), deadline_s=9)

    asyncio.run(work())
    assert seen == [(1, threading.current_thread()), (2, threading.current_thread())]
    assert daemon.params("checkpoint.save")[0]["deadline_s"] == 9


def test_events_can_be_awaited_and_left_by_cancelling(daemon, tmp_path):
    daemon.answers["events.subscribe"] = Notices([event(1), event(2)], {"subscription": 1, "seq": 0})
    seen = []

    async def listen():
        service = AsyncCheckpointService(tmp_path / "stores", socket=daemon.path)
        async for told in service.events(tmp_path):
            assert told.kind == "checkpoint.created"
            seen.append(told.seq)

    async def work():
        task = asyncio.ensure_future(listen())
        await eventually(lambda: len(seen) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert seen == [1, 2]
    until(lambda: daemon.ended == daemon.connections)
