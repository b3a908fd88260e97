"""A checkpoint before a block or a call, and the way back when it fails."""

import asyncio
import inspect
import time

import anyio
import pytest

from fabricatio_checkpoint import launch
from fabricatio_checkpoint.aio import AsyncCheckPointStore
from fabricatio_checkpoint.capabilities.checkpoint import Checkpoint
from fabricatio_checkpoint.config import checkpoint_config
from fabricatio_checkpoint.errors import CheckpointError, InputError, StateError
from fabricatio_checkpoint.hooks import guarded
from fabricatio_checkpoint.inited_service import get_checkpoint_service
from support.fake_daemon import FakeDaemon, Refusal
from support.poll import eventually

ID = "a" * 40
OPENED = {"store": "/s", "created": True, "head": None}
SAVED = {"id": ID, "seq": 1, "created": True, "complete": True, "skipped": [], "excluded": [], "files": 1}
RESTORED = {
    **{key: [] for key in ["written", "deleted", "kept", "conflicts", "edited"]},
    "target": ID,
    "safety": "b" * 40,
    "head": ID,
    "digest": "d",
    "weak": False,
    "dry_run": False,
}


@pytest.fixture
def daemon():
    checkpoint_config.reload()
    answers = {"worktree.open": OPENED, "checkpoint.save": SAVED, "checkpoint.restore": RESTORED}
    with FakeDaemon(launch.socket_path()) as serving:
        serving.answers.update(answers)
        yield serving
        get_checkpoint_service().close()


@pytest.fixture
def store(daemon, tmp_path):
    return get_checkpoint_service().get_store(tmp_path)


def saves(daemon):
    return [(params["message"], params["kind"]) for params in daemon.params("checkpoint.save")]


def resets(daemon):
    return [params["id"] for params in daemon.params("checkpoint.restore")]


def test_a_block_that_ends_well_is_only_preceded_by_a_checkpoint(daemon, store):
    with store.guard("before", restore=True) as guard:
        assert guard.checkpoint == ID
        assert daemon.methods == ["worktree.open", "checkpoint.save"]
    assert guard.restored is None
    assert (saves(daemon), resets(daemon)) == ([("before", "auto")], [])


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_block_that_fails_is_taken_back_if_asked(daemon, store, error):
    with pytest.raises(error) as caught, store.guard("before", restore=True, kind="manual") as guard:
        raise error("in the block")
    assert guard.restored.safety == "b" * 40
    assert any(ID in note for note in caught.value.__notes__)
    assert (saves(daemon), resets(daemon)) == ([("before", "manual")], [ID])


def test_a_block_that_fails_stays_as_it_is_if_not_asked(daemon, store):
    with pytest.raises(ValueError, match="in the block"), store.guard() as guard:
        raise ValueError("in the block")
    assert guard.restored is None
    assert (saves(daemon), resets(daemon)) == ([(None, "auto")], [])


def test_without_a_checkpoint_the_block_does_not_begin(daemon, store):
    daemon.answers["checkpoint.save"] = Refusal("no_space", "disk full")
    reached = []
    with pytest.raises(CheckpointError, match="disk full"), store.guard(restore=True):
        reached.append(1)
    assert reached == resets(daemon) == []


def test_a_way_back_that_fails_is_told_with_what_led_to_it(daemon, store):
    daemon.answers["checkpoint.restore"] = Refusal("conflicts", "cannot keep a socket safe")
    with pytest.raises(StateError, match="cannot keep") as caught, store.guard(restore=True):
        raise ValueError("in the block")
    assert isinstance(caught.value.__context__, ValueError)


def test_a_decorated_function_is_guarded_at_each_call(daemon, store):
    @store.guard("before", restore=True)
    def work(number, *, fail=False):
        """Work."""
        if fail:
            raise ValueError(number)
        return number

    assert [work(1), work(2)] == [1, 2]
    assert (work.__name__, work.__doc__) == ("work", "Work.")
    with pytest.raises(ValueError, match="3"):
        work(3, fail=True)
    assert (saves(daemon), resets(daemon)) == ([("before", "auto")] * 3, [ID])


def test_a_decorated_coroutine_function_stays_one(daemon, store):
    @AsyncCheckPointStore(store).guard("before", restore=True)
    async def work(number):
        await asyncio.sleep(0)
        if number == 3:
            raise ValueError(number)
        return number

    assert inspect.iscoroutinefunction(work)
    assert asyncio.run(work(1)) == 1
    with pytest.raises(ValueError, match="3"):
        asyncio.run(work(3))
    assert (saves(daemon), resets(daemon)) == ([("before", "auto")] * 2, [ID])


def test_a_cancelled_block_is_taken_back_before_the_task_ends(daemon, store):
    async def edit(begun):
        async with store.guard("before", restore=True):
            begun.append(1)
            await asyncio.sleep(60)

    async def work():
        begun = []
        task = asyncio.create_task(edit(begun))
        await eventually(lambda: begun)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert resets(daemon) == [ID]

    asyncio.run(work())


def test_a_cancel_scope_does_not_cut_the_way_back_short(daemon, store):
    answer = daemon.answers["checkpoint.restore"]
    daemon.answers["checkpoint.restore"] = lambda _params: time.sleep(0.05) or answer

    async def work():
        with anyio.CancelScope() as scope:
            async with store.guard("before", restore=True) as guard:
                scope.cancel()
                await anyio.sleep(60)
        assert guard.restored.target == ID

    anyio.run(work)
    assert "$/cancel" not in daemon.methods


def test_methods_of_a_role_use_the_store_that_is_mounted_at_the_call(daemon, tmp_path):
    class Agent(Checkpoint):
        worktree_dir = tmp_path

        @guarded("before editing", restore=True)
        def edit(self, fail):
            if fail:
                self.unmount_checkpoint_store()
                raise ValueError("bad edit")
            return self.worktree_dir

        @guarded("before acting")
        async def act(self):
            return "done"

    agent = Agent()
    with pytest.raises(StateError, match="no checkpoint store mounted"):
        agent.edit(False)
    agent.mount_checkpoint_store()
    assert agent.edit(False) == tmp_path
    assert asyncio.run(agent.act()) == "done"
    with agent.guard("by hand") as guard:
        assert guard.checkpoint == ID
    with pytest.raises(ValueError, match="bad edit"):
        agent.edit(True)
    assert [message for message, _ in saves(daemon)] == ["before editing", "before acting", "by hand", "before editing"]
    assert resets(daemon) == [ID]


def test_generators_are_refused_since_their_work_is_done_later(store):
    with pytest.raises(InputError, match="is a generator"):

        @store.guard()
        def work():
            yield 1
