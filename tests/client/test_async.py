"""The awaitable classes: the same answers, a loop that never waits, and what cancelling leaves behind."""

import asyncio
import inspect
import json
import threading

import anyio
import pytest

from fabricatio_checkpoint import launch
from fabricatio_checkpoint.aio import AsyncCheckpointService, AsyncCheckPointStore
from fabricatio_checkpoint.capabilities.checkpoint import Checkpoint
from fabricatio_checkpoint.config import checkpoint_config
from fabricatio_checkpoint.errors import InputError, StateError
from fabricatio_checkpoint.inited_service import get_checkpoint_service
from fabricatio_checkpoint.service import CheckpointService
from fabricatio_checkpoint.store import CheckPointStore
from support.fake_daemon import HANG_UP, FakeDaemon, Raw, Refusal
from support.poll import eventually, until

ID = "a" * 40
OPENED = {"store": "/s", "created": True, "head": None}
SAVED = {"id": ID, "seq": 1, "created": True, "complete": True, "skipped": [], "excluded": [], "files": 1}
STATUS = {
    **{key: [] for key in ["changes", "skipped", "excluded"]},
    **dict.fromkeys(["head", "head_record", "last_manual", "halted", "interrupted"]),
    "files": 0,
    "state": "idle",
}
RESTORED = {
    **{key: [] for key in ["written", "deleted", "kept", "conflicts", "edited"]},
    "target": ID,
    "safety": None,
    "head": ID,
    "digest": "d",
    "weak": False,
    "dry_run": False,
}

NOT_AWAITED = {"guard", "known_as", "workspace", "stores_root", "close"}


@pytest.fixture
def daemon(short_dir):
    path = str(short_dir / "d.sock")
    with FakeDaemon(path, worktree__open=OPENED, checkpoint__save=SAVED, worktree__status=STATUS) as serving:
        yield serving


class Held:
    """An answer that is given when the daemon is told to, once; later ones are given at once."""

    def __init__(self, answer):
        self.release = threading.Event()
        self._answer = answer
        self._first = True

    def __call__(self, _params):
        if self._first:
            self._first = False
            self.release.wait(20)
        return self._answer


def silent_until_cancelled(daemon, answer):
    """Let saves have no answer until they are cancelled; ``answer`` is what they get then."""
    daemon.answers["checkpoint.save"] = Raw(b"")
    daemon.answers["$/cancel"] = answer


def given_up(number):
    body = {"code": 2012, "message": "given up", "data": {"kind": "cancelled"}}
    return Raw(json.dumps({"jsonrpc": "2.0", "id": number, "error": body}).encode() + b"\n")


def service_at(daemon, tmp_path):
    return AsyncCheckpointService(tmp_path / "stores", socket=daemon.path)


@pytest.mark.parametrize(
    ("twin", "blocking"), [(AsyncCheckPointStore, CheckPointStore), (AsyncCheckpointService, CheckpointService)]
)
def test_the_names_and_arguments_are_those_of_the_blocking_class(twin, blocking):
    names = {name for name in vars(blocking) if not name.startswith("_")}
    assert names <= {*vars(twin), "known_as"}
    for name in names - NOT_AWAITED:
        mine, theirs = getattr(twin, name), getattr(blocking, name)
        assert inspect.iscoroutinefunction(mine) or inspect.isasyncgenfunction(mine), name
        assert list(inspect.signature(mine).parameters) == list(inspect.signature(theirs).parameters), name
        assert mine.__doc__, name
        assert mine.__qualname__ == f"{twin.__name__}.{name}"


def test_calls_and_errors_are_those_of_the_blocking_ones(daemon, tmp_path):
    daemon.answers["checkpoint.head"] = Refusal("no_checkpoint", "nothing saved yet")

    async def work():
        async with service_at(daemon, tmp_path) as service:
            store = await service.get_store(tmp_path)
            assert store.workspace == tmp_path
            assert store.blocking is service.blocking.get_store(tmp_path)
            assert await store.save("x", meta={"a": "b"}) == ID
            with pytest.raises(StateError, match="nothing saved yet"):
                await store.head()
            with pytest.raises(InputError, match="prefix not found"):
                await store.rollback(ID, "/elsewhere")
            again = AsyncCheckpointService.of(service.blocking)
            assert again.stores_root == service.stores_root == tmp_path / "stores"

    anyio.run(work)
    (asked,) = daemon.params("checkpoint.save")
    assert (asked["message"], asked["meta"]) == ("x", {"a": "b"})


def test_a_search_is_an_asynchronous_iterator(daemon, tmp_path):
    record = {**dict.fromkeys(["id", "time", "message"], ""), "kind": "auto", "tags": [], "meta": {}, "complete": True}

    def answer(params):
        seq = params["before_seq"] or 3
        hit = {"checkpoint": {**record, "seq": seq}, "paths": [], "left_out": 0}
        return {"hits": [hit], "head": None, "next_seq": seq - 1 or None, "searched": 1, "damaged": 0, "unread": 0}

    daemon.answers["checkpoint.search"] = answer

    async def work():
        async with service_at(daemon, tmp_path) as service:
            store = await service.get_store(tmp_path)
            assert [hit.checkpoint.seq async for hit in store.search("x", paths=["a"])] == [3, 2, 1]
            with pytest.raises(InputError, match="prefix not found"):
                await anext(store.search("x", paths=["/elsewhere"]))

    anyio.run(work)
    assert daemon.params("checkpoint.search")[0]["paths"] == ["a"]


def test_the_loop_goes_on_while_a_save_waits(daemon, tmp_path):
    held = daemon.answers["checkpoint.save"] = Held(SAVED)
    order = []

    async def save(store):
        await store.save("slow")
        order.append("saved")

    async def work():
        store = await service_at(daemon, tmp_path).get_store(tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(save, store)
            with anyio.fail_after(60):
                while not daemon.params("checkpoint.save"):  # noqa: ASYNC110 - the other side is a thread
                    await anyio.sleep(0.002)
            assert (await store.status()).state == "idle"
            order.append("looked")
            held.release.set()

    anyio.run(work)
    assert order == ["looked", "saved"]


def test_a_cancelled_call_is_given_up_by_the_daemon_and_its_socket_serves_on(daemon, tmp_path):
    silent_until_cancelled(daemon, given_up(2))

    async def work():
        store = await service_at(daemon, tmp_path).get_store(tmp_path)
        with anyio.move_on_after(0.05) as scope:
            await store.save("too slow")
        assert scope.cancelled_caught
        daemon.answers["checkpoint.save"] = SAVED
        assert await store.save("again") == ID

    anyio.run(work)
    assert daemon.params("$/cancel") == [{"id": 2}]
    assert daemon.connections == 1


def test_a_daemon_that_does_not_give_up_holds_a_cancelled_task_for_a_moment_only(daemon, tmp_path):
    daemon.answers["checkpoint.save"] = Raw(b"")

    async def work():
        store = await service_at(daemon, tmp_path).get_store(tmp_path)
        with anyio.move_on_after(0.05):
            await store.save("too slow")
        # Nobody waits on that socket any more.
        until(lambda: daemon.ended == 1)
        daemon.answers["checkpoint.save"] = SAVED
        assert await store.save("again") == ID

    anyio.run(work)
    assert len(daemon.params("checkpoint.save")) == 2


def test_native_cancelling_of_asyncio_leaves_a_usable_store(daemon, tmp_path):
    silent_until_cancelled(daemon, HANG_UP)

    async def work():
        store = await service_at(daemon, tmp_path).get_store(tmp_path)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.save("too slow"), 0.05)
        task = asyncio.create_task(store.save("cancelled"))
        await eventually(lambda: len(daemon.params("checkpoint.save")) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        daemon.answers["checkpoint.save"] = SAVED
        return await store.save("again")

    assert asyncio.run(work()) == ID
    assert len(daemon.params("$/cancel")) == 2


def test_a_call_that_is_cancelled_before_its_thread_begins_asks_nothing(daemon, tmp_path):
    async def work():
        store = await service_at(daemon, tmp_path).get_store(tmp_path)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await store.save("never")

    asyncio.run(work())
    assert daemon.params("checkpoint.save") == []


def test_a_lost_connection_is_not_asked_again_once_cancelled(daemon, tmp_path):
    silent_until_cancelled(daemon, HANG_UP)

    async def work():
        store = await service_at(daemon, tmp_path).get_store(tmp_path)
        with anyio.move_on_after(0.05):
            await store.save("x")
        # The thread has ended by itself: nothing more may follow.
        assert len(daemon.params("checkpoint.save")) == 1
        assert (await store.status()).state == "idle"

    asyncio.run(work())
    assert len(daemon.params("checkpoint.save")) == 1
    assert daemon.connections == 2


def test_loops_one_after_another_and_side_by_side_share_a_service(daemon, tmp_path):
    service = service_at(daemon, tmp_path)

    async def work():
        store = await service.get_store(tmp_path)
        return await store.save("x")

    found = [asyncio.run(work()) for _ in range(3)]
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(work()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [ID] * 7
    service.close()


def test_many_tasks_at_once(daemon, tmp_path):
    async def work():
        store = await service_at(daemon, tmp_path).get_store(tmp_path)
        return await asyncio.gather(*(store.save(str(number)) for number in range(150)))

    assert asyncio.run(work()) == [ID] * 150
    assert {params["message"] for params in daemon.params("checkpoint.save")} == {str(n) for n in range(150)}


def test_the_twins_of_the_mixin(tmp_path):
    checkpoint_config.reload()
    piece = {"data": {"b64": "LWEK"}, "offset": 0, "total_bytes": 3, "cursor": None}
    answers = {
        "worktree.open": OPENED,
        "worktree.status": STATUS,
        "checkpoint.save": SAVED,
        "checkpoint.restore": RESTORED,
        "checkpoint.undo": RESTORED,
        "checkpoint.diff": piece,
    }

    class Agent(Checkpoint):
        worktree_dir = tmp_path

        def save_checkpoint(self, msg=None):
            """An override, which the twin has to respect."""
            return super().save_checkpoint(f"mine: {msg}")

    async def work(agent):
        assert await agent.amount_checkpoint_store() is agent
        assert await agent.asave_checkpoint(msg="x") == ID
        assert (await agent.arollback(ID, "a")).target == ID
        assert (await agent.areset_to_checkpoint(ID)).target == ID
        assert await agent.aget_file_diff(ID, "a") == "-a\n"
        assert await agent.adiff(paths=["a"]) == "-a\n"
        assert (await agent.astatus()).state == "idle"
        assert (await agent.aundo()).target == ID
        assert await agent.amount_checkpoint_store(AsyncCheckPointStore(agent.access_checkpoint_store())) is agent
        agent.unmount_checkpoint_store()
        with pytest.raises(StateError, match="no checkpoint store mounted"):
            await agent.astatus()

    with FakeDaemon(launch.socket_path()) as daemon:
        daemon.answers.update(answers)
        asyncio.run(work(Agent()))
        assert daemon.params("checkpoint.save")[0]["message"] == "mine: x"
        get_checkpoint_service().close()
