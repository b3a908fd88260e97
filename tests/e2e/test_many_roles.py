"""One program with many roles: threads and tasks mixed, forks, and a daemon that is restarted under it."""

import asyncio
import multiprocessing
import os
import signal
import threading
from pathlib import Path

import pytest

from fabricatio_checkpoint.aio import AsyncCheckpointService, AsyncCheckPointStore
from fabricatio_checkpoint.capabilities.checkpoint import Checkpoint
from fabricatio_checkpoint.errors import ConnectionLost, StateError
from fabricatio_checkpoint.service import CheckpointService
from support.live import Place
from support.poll import eventually, until

pytestmark = pytest.mark.e2e

ROLES = 50
WORKTREES = 10
EDITS = 3


class Agent(Checkpoint):
    """Edits a file of its own, as agents do."""

    def __init__(self, number: int, **values: object) -> None:
        super().__init__(**values)
        self.file = Path(self.worktree_dir, f"of role {number}")
        self.saved: list[tuple[str, str]] = []

    def edit(self, turn: int) -> str:
        text = f"{self.file.name}, turn {turn}\n"
        self.file.write_text(text)
        return text

    def work(self) -> None:
        for turn in range(EDITS):
            text = self.edit(turn)
            self.saved.append((self.save_checkpoint(text), text))

    async def awork(self) -> None:
        for turn in range(EDITS):
            text = self.edit(turn)
            self.saved.append((await self.asave_checkpoint(text), text))


def make_agents(service: CheckpointService, place: Place) -> list[Agent]:
    roots = [place.home / f"tree {number}" for number in range(WORKTREES)]
    for root in roots:
        root.mkdir()
    agents = [Agent(number, worktree_dir=roots[number % WORKTREES]) for number in range(ROLES)]
    return [agent.mount_checkpoint_store(service.get_store(agent.worktree_dir)) for agent in agents]


def test_fifty_roles_over_ten_worktrees_in_threads_and_tasks(place: Place):
    service = place.service()
    agents = make_agents(service, place)
    in_threads, in_tasks = agents[: ROLES // 2], agents[ROLES // 2 :]
    threads = [threading.Thread(target=agent.work) for agent in in_threads]

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            for agent in in_tasks:
                tasks.create_task(agent.awork())

    for thread in threads:
        thread.start()
    asyncio.run(work())
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(place.daemons()) == 1
    assert len(service.workspaces()) == WORKTREES
    for agent in agents:
        store = agent.access_checkpoint_store()
        assert len(agent.saved) == EDITS
        assert {cid for cid, _ in agent.saved} <= set(store.commits())
        # Each checkpoint holds what its own role had written, whoever else saved at that moment.
        for cid, text in agent.saved:
            assert store.cat(cid, agent.file) == text.encode()
        assert agent.status().changes == ()


def test_a_failed_block_of_a_role_is_taken_back(place: Place):
    service = place.service()
    (place.ws / "kept").write_text("before\n")
    agent = Agent(1, worktree_dir=place.ws).mount_checkpoint_store(service.get_store(place.ws))
    guard = agent.guard("before the agent", restore=True)

    def wreck() -> None:
        with guard:
            (place.ws / "kept").unlink()
            (place.ws / "new").write_text("new\n")
            raise ValueError("wrecked")

    with pytest.raises(ValueError, match="wrecked"):
        wreck()
    assert (place.ws / "kept").read_text() == "before\n"
    assert not (place.ws / "new").exists()
    assert guard.restored is not None
    assert guard.restored.deleted == ("new",)
    agent.undo()
    assert (place.ws / "new").read_text() == "new\n"
    record = agent.access_checkpoint_store().show(str(guard.checkpoint)).checkpoint
    assert (record.kind, record.message) == ("auto", "before the agent")


def test_a_cancelled_save_leaves_a_store_that_works(place: Place):
    for number in range(3000):
        (place.ws / f"file {number}").write_text(f"{number}\n" * 50)

    async def work() -> None:
        store = await AsyncCheckpointService.of(place.service()).get_store(place.ws)
        for seconds in (0.0, 0.001, 0.01, 0.05):
            try:
                async with asyncio.timeout(seconds):
                    await store.save(f"within {seconds} s")
            except TimeoutError:
                continue
        await store.save("to the end")
        assert (await store.status()).changes == ()
        assert (await store.status()).files == 3000

    asyncio.run(work())


def _in_a_forked_worker(service: CheckpointService, root: Path, number: int) -> str:
    store = service.get_store(root)
    (root / f"of worker {number}").write_text(f"{number}\n")
    ids = [store.save(f"worker {number}"), asyncio.run(AsyncCheckPointStore(store).save(f"worker {number} again"))]
    assert store.cat(ids[0], f"of worker {number}") == f"{number}\n".encode()
    return ids[0]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_forked_workers_of_a_program_that_has_used_its_service(place: Place):
    service = place.service()
    store = service.get_store(place.ws)
    store.save("before the fork")
    asyncio.run(AsyncCheckPointStore(store).status())
    stop = threading.Event()

    def keep_asking() -> None:
        # So that the forks come in the middle of calls.
        while not stop.is_set():
            store.status()

    thread = threading.Thread(target=keep_asking)
    thread.start()
    try:
        context = multiprocessing.get_context("fork")
        workers = [context.Process(target=_worker, args=(service, place.ws, number)) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        assert [worker.exitcode for worker in workers] == [0] * 4
    finally:
        stop.set()
        thread.join(60)
    for number in range(4):
        assert store.cat("HEAD", f"of worker {number}") == f"{number}\n".encode()
    assert len(place.daemons()) == 1


def _worker(service: CheckpointService, root: Path, number: int) -> None:
    _in_a_forked_worker(service, root, number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemon_that_is_restarted_under_living_roles(place: Place, number: int):
    service = place.service()
    agents = make_agents(service, place)[:WORKTREES]
    lost: list[ConnectionLost] = []
    done: list[str] = []
    stop = threading.Event()

    def work(agent: Agent) -> None:
        turn = 0
        while not stop.is_set():
            text = agent.edit(turn)
            try:
                cid = agent.save_checkpoint(text)
            except ConnectionLost as error:
                lost.append(error)
                continue
            # What was answered is there, whoever answered.
            assert agent.access_checkpoint_store().cat(cid, agent.file) == text.encode()
            done.append(cid)
            turn += 1

    failures: list[BaseException] = []

    def work_and_tell(agent: Agent) -> None:
        try:
            work(agent)
        except BaseException as error:
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=work_and_tell, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            before, reached = place.daemons(), len(done)
            until(lambda reached=reached: len(done) >= reached + len(agents) or failures)
            for pid in before:
                os.kill(pid, number)
            reached = len(done)
            until(lambda reached=reached: len(done) > reached + len(agents) or failures)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert failures == []
    assert all(isinstance(error.sent, bool) and error.kind == "connection_lost" for error in lost)
    assert len(set(done)) == len(done)
    for agent in agents:
        agent.save_checkpoint("at the end")
        assert agent.status().changes == ()


def test_tasks_that_wait_while_the_daemon_is_killed(place: Place):
    for number in range(2000):
        (place.ws / f"file {number}").write_text(f"{number}\n" * 20)

    async def work() -> list[object]:
        store = await AsyncCheckpointService.of(place.service()).get_store(place.ws)
        saves = [asyncio.ensure_future(store.save(f"save {number}")) for number in range(8)]
        await eventually(lambda: place.daemons())
        await asyncio.sleep(0)
        for pid in place.daemons():
            os.kill(pid, signal.SIGKILL)
        ended = await asyncio.gather(*saves, return_exceptions=True)
        await store.save("at the end")
        assert (await store.status()).changes == ()
        return [*ended]

    for each in asyncio.run(work()):
        assert isinstance(each, str) or (isinstance(each, ConnectionLost) and isinstance(each.sent, bool)), each


def test_a_role_without_a_store_says_so_in_tasks_too(place: Place):
    with pytest.raises(StateError, match="no checkpoint store mounted"):
        asyncio.run(Agent(1, worktree_dir=place.ws).asave_checkpoint("x"))
    assert place.daemons() == []
