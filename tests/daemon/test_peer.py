"""The state of a connection: what is told of its requests, until when, and which of them end with it."""

import asyncio
import json

import anyio
import pytest

from ckptd.asked import PROGRESS_EVERY_S
from ckptd.core.bus import Bus
from ckptd.core.subscription import Wanted
from ckptd.dispatch import Dispatcher
from ckptd.errors import DomainError
from ckptd.peer import MAX_SUBSCRIPTIONS, Outbox, Peer
from support.fake_manager import FakeManager, daemon_on

pytestmark = [pytest.mark.core, pytest.mark.anyio]

SAVE = {"checkpoint_dir": "/h/.c", "worktree": {"path": "/w"}, "token": "0" * 32}


class Noted(Outbox):
    """What a peer was told, each with the question whether it is still true."""

    def __init__(self) -> None:
        self.posted = []
        self.sent = []
        self.work = []

    def post(self, message, still_true):
        self.posted.append((json.loads(message), still_true))

    async def send(self, message):
        self.sent.append(json.loads(message))

    def spawn(self, work):
        self.work.append(asyncio.ensure_future(work()))


async def test_progress_is_true_until_the_answer_and_is_not_told_after_it():
    outbox = Noted()
    peer = Peer(outbox)
    peer.wants_progress = True
    asked = peer.begin("x", writes=True)
    asked.caller.progress("hash", 3, 9, 100)
    await anyio.sleep(PROGRESS_EVERY_S * 2.5)
    told, still_true = outbox.posted[0]
    assert told["params"] == {"id": "x", "phase": "hash", "done": 3, "total": 9, "bytes": 100}
    assert len(outbox.posted) >= 2
    assert still_true()
    peer.end(asked)
    peer.end(asked)
    assert not still_true()
    count = len(outbox.posted)
    await anyio.sleep(PROGRESS_EVERY_S * 2.5)
    assert len(outbox.posted) == count


@pytest.mark.parametrize(("wants", "request_id"), [(False, "x"), (True, None)])
async def test_progress_of_what_has_no_name_or_who_does_not_want_it_is_not_told(wants, request_id):
    outbox = Noted()
    peer = Peer(outbox)
    peer.wants_progress = wants
    peer.end(peer.begin(request_id, writes=True))
    asked = peer.begin(request_id, writes=True)
    await anyio.sleep(PROGRESS_EVERY_S * 2)
    peer.end(asked)
    assert outbox.posted == []


async def test_a_request_is_called_off_by_its_id_alone_and_only_until_its_answer():
    peer = Peer()
    number, text, twin = (peer.begin(one, writes=True) for one in (1, "1", 1))
    ended = peer.begin(1, writes=True)
    peer.end(ended)
    peer.cancel(1)
    peer.cancel(2)
    assert [one.caller.cancelled.is_set() for one in (number, text, twin, ended)] == [True, False, True, False]


async def test_a_peer_that_is_gone_ends_its_reads():
    peer = Peer()
    reads, writes = peer.begin(1, writes=False), peer.begin(2, writes=True)
    peer.is_gone()
    assert (reads.caller.cancelled.is_set(), writes.caller.cancelled.is_set()) == (True, False)


async def test_errors_are_told_as_what_they_are():
    asked = Peer().begin(1, writes=True)
    asked.set_deadline(0.001)
    cancelled = DomainError("cancelled", "nothing was done", paths=[b"a"])
    assert asked.as_told(cancelled) is cancelled
    with anyio.fail_after(60):
        while not asked.caller.cancelled.is_set():  # noqa: ASYNC110 - a timer sets it
            await anyio.sleep(0.001)
    told = asked.as_told(cancelled)
    assert (told.kind, told.paths) == ("deadline_exceeded", (b"a",))
    assert told.message == "the deadline of 0.001 s has passed: nothing was done"
    incomplete = DomainError("restore_incomplete", "x")
    assert asked.as_told(incomplete) is incomplete


async def test_events_stop_with_the_subscription_and_with_the_peer():
    outbox, bus = Noted(), Bus()
    peer = Peer(outbox)
    numbers = [peer.subscribe(bus, Wanted(), 10) for _ in range(MAX_SUBSCRIPTIONS)]
    with pytest.raises(DomainError, match="too_many_requests"):
        peer.subscribe(bus, Wanted(), 10)
    assert peer.unsubscribe(numbers[0])
    assert not peer.unsubscribe(numbers[0])
    bus.publish("store.pruned", b"/c")
    await anyio.wait_all_tasks_blocked()
    assert sorted(told["params"]["subscription"] for told in outbox.sent) == numbers[1:]
    peer.close()
    bus.publish("store.pruned", b"/c")
    await asyncio.gather(*outbox.work)
    assert len(outbox.sent) == MAX_SUBSCRIPTIONS - 1


async def test_a_member_that_was_called_off_before_its_turn_never_begins():
    manager, peer = FakeManager(), Peer()
    manager.gate = anyio.Event()
    dispatcher = Dispatcher(daemon_on(manager))
    prune = {"checkpoint_dir": "/h/.c", "token": "0" * 32}
    members = [
        {"jsonrpc": "2.0", "id": 1, "method": "checkpoint.save", "params": SAVE},
        {"jsonrpc": "2.0", "id": 2, "method": "store.prune", "params": prune},
    ]
    answering = asyncio.ensure_future(dispatcher.handle(json.dumps(members).encode(), peer))
    await anyio.wait_all_tasks_blocked()
    peer.cancel(2)
    manager.gate.set()
    first, second = json.loads(await answering)
    assert (first["id"], "result" in first) == (1, True)
    assert (second["id"], second["error"]["data"]["kind"]) == (2, "cancelled")
    assert [name for name, _, _ in manager.asked] == ["write"]
