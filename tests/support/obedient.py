"""A server on a real manager, whose stores are in memory and do what the test says: wait, tell, obey or finish."""

import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from ckpt_protocol import checkpoint
from ckptd.core.manager import Manager
from ckptd.core.ports import Caller
from ckptd.dispatch import Dispatcher
from ckptd.errors import DomainError
from ckptd.handlers import Daemon
from ckptd.listen import Address
from ckptd.server import Server
from support.faulty_stores import PATIENCE_S, MemoryCatalog, MemoryStore, NamesOnDeadMounts

__all__ = ["Obedient", "ObedientStore", "params", "serving_obedient"]


class EndlessList:
    """A list that goes on in steps until the test says otherwise, or until it is called off."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.steps = 0
        self.closes = 0
        self.is_waiting = False
        self.enough = threading.Event()

    def step(self) -> checkpoint.ListResult | None:
        self.steps += 1
        self.caller.progress("list", self.steps, 10**6, 0)
        if self.caller.cancelled.is_set():
            raise DomainError("cancelled", "the list was called off")
        if self.enough.wait(0.001):
            return checkpoint.ListResult(checkpoints=[], head=None, more=False)
        return None

    def close(self) -> None:
        self.closes += 1


@dataclass
class ObedientStore(MemoryStore):
    """Saves whose message is ``slow`` wait for the test or until they are called off; ``deaf`` ones for the test.

    ``begun`` lists the messages of the saves that have begun; ``go`` lets those go on that wait. Reads of head wait
    while ``reading`` is not set. ``lists`` are the lists that were begun.
    """

    begun: list[str | None] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    reading: threading.Event = field(default_factory=threading.Event)
    reads: int = 0
    lists: list[EndlessList] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reading.set()

    def save(self, params: checkpoint.SaveParams, caller: Caller) -> checkpoint.SaveResult:
        self.begun.append(params.message)
        caller.progress("hash", len(self.begun), 0, 10)
        word = (params.message or "").partition(" ")[0]
        for _ in range(int(PATIENCE_S * 100)):
            if word == "slow" and caller.cancelled.is_set():
                raise DomainError("cancelled", "the scan was cancelled")
            if word not in ("slow", "deaf") or self.go.wait(0.01):
                return super().save(params, caller)
        raise AssertionError("the test never let it go")

    def list(self, params: checkpoint.ListParams, caller: Caller) -> EndlessList:
        self.lists.append(EndlessList(caller))
        return self.lists[-1]

    def head(self, params: checkpoint.HeadParams) -> checkpoint.HeadResult:
        self.reads += 1
        assert self.reading.wait(PATIENCE_S)
        return super().head(params)


class Obedient:
    """What runs: ``path`` of the socket, ``manager``, ``store(name)`` of the worktree ``/w/name``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.catalog = MemoryCatalog(ObedientStore)
        self.names = NamesOnDeadMounts(b"/dead/mount")
        self.manager = Manager(self.catalog, lambda _directory, _make: True, mailbox_limit=8, real_path=self.names)
        self.address = Address(str(path))
        daemon = Daemon(
            manager=self.manager,
            socket=str(path).encode(),
            connections=lambda: self.server.connections,
            stop=lambda: None,
            may_be_replaced=lambda: False,
            started=0.0,
            bus=self.manager.bus,
        )
        self.server = Server(self.address, Dispatcher(daemon))

    def store(self, name: str = "a") -> ObedientStore:
        store = self.catalog.keep(b"/c", f"/w/{name}".encode())
        assert isinstance(store, ObedientStore)
        return store

    def release(self) -> None:
        self.names.revive()
        for store in self.catalog.kept.values():
            store.go.set()
            store.reading.set()
            for run in store.lists:
                run.enough.set()


@contextlib.asynccontextmanager
async def serving_obedient(directory: Path) -> AsyncIterator[Obedient]:
    served = Obedient(directory / "run" / "d.sock")
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: served.manager.run(task_status=task_status))
            tasks.start_soon(served.server.run)
            try:
                with anyio.fail_after(60):
                    yield served
            finally:
                served.release()
                with anyio.CancelScope(shield=True):
                    await served.manager.drain()
            tasks.cancel_scope.cancel()
    finally:
        served.address.close()
    served.catalog.check()


def params(name: str = "a", message: str | None = None, **more: object) -> dict[str, object]:
    """The params of a save of ``/w/name``, or without a message those of a read."""
    place = {"checkpoint_dir": "/c", "worktree": {"path": f"/w/{name}"}, **more}
    return place if message is None else {**place, "token": "0" * 32, "message": message}
