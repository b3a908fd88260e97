"""Stands in for the manager: it notes what it is asked, and answers from the samples of the wire."""

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from ckpt_protocol import daemon
from ckpt_protocol.structs import Worktree, from_wire
from ckpt_protocol.worktree import StatusParams
from ckptd.core.manager import Watched
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.handlers import Daemon
from support.wire_samples import SAMPLES

__all__ = ["FakeManager", "daemon_on"]

SIDES = {
    "checkpoint.save": "save",
    "checkpoint.diff": "diff",
    "checkpoint.restore": "restore",
    "checkpoint.undo": "undo",
    "checkpoint.redo": "redo",
    "worktree.resume": "resume",
    "checkpoint.tag": "tag",
    "checkpoint.untag": "untag",
    "checkpoint.drop": "drop",
    "checkpoint.head": "head",
    "checkpoint.list": "list",
    "checkpoint.show": "show",
    "checkpoint.cat": "cat",
    "store.thin": "thin",
    "store.gc": "gc",
    "store.verify": "verify",
    "checkpoint.export": "export",
    "checkpoint.search": "search",
}

IN_STEPS = (
    "checkpoint.diff",
    "checkpoint.export",
    "checkpoint.list",
    "checkpoint.search",
    "checkpoint.show",
    "store.gc",
    "store.thin",
    "store.verify",
)


class Run:
    """What goes on in steps, and whose result is there at its second step."""

    def __init__(self, result: object) -> None:
        self._results = [None, result]
        self.is_waiting = True

    def step(self) -> object:
        return self._results.pop(0)

    def close(self) -> None:
        pass


class Kept:
    """What a Reader is given of a worktree."""

    is_open = True

    def close(self) -> None:
        self.is_open = False


class Side:
    """A Writer or Reader whose operations return the sample of their method."""

    def __init__(self, manager: "FakeManager") -> None:
        self._manager = manager

    def snapshot(self, params: object, caller: Caller) -> object:
        manager = self._manager
        if manager.busy_looks:
            manager.busy_looks -= 1
            return None
        manager.snapshots.append(Kept())
        return manager.snapshots[-1]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = next(method for method, side in SIDES.items() if side == name)

        def operation(params: object, caller: Caller | None = None, *_seen: object) -> object:
            self._manager.callers.append(caller)
            result = self._manager.answer(method)
            return Run(result) if method in IN_STEPS else result

        return operation


class FakeManager:
    """``raises`` is raised by every call; ``gate`` holds calls up until it is set; ``asked`` has one entry a call."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes, dict[str, object]]] = []
        self.callers: list[Caller | None] = []
        self.raises: BaseException | None = None
        self.instead: object = None
        self.gate: anyio.Event | None = None
        self.waiting = 0
        self.busy_looks = 0
        """So many times there is no room for another look at a worktree."""
        self.snapshots: list[Kept] = []
        self.reopens = False
        """Whether each call finds the store opened anew."""
        self._side = Side(self)

    def answer(self, method: str) -> Any:
        return self.instead if self.instead is not None else SAMPLES[method].result

    async def write(
        self,
        checkpoint_dir: bytes,
        place: Worktree,
        job: Callable[[Any], Any],
        caller: Caller,
        *,
        create: bool = False,
        force: bool = False,
        exclusive: bool = False,
    ) -> Any:
        await self._note("write", checkpoint_dir, create=create, force=force, exclusive=exclusive)
        return job(Side(self) if self.reopens else self._side)

    async def read(
        self, checkpoint_dir: bytes, place: Worktree, job: Callable[[Any], Any], caller: Caller | None = None
    ) -> Any:
        await self._note("read", checkpoint_dir)
        return job(Side(self) if self.reopens else self._side)

    async def clear_up(self, last: Coroutine[object, object, object]) -> None:
        with contextlib.suppress(DomainError):
            await last

    async def open(self, checkpoint_dir: bytes, place: Worktree, caller: Caller | None = None, *, force: bool) -> Any:
        await self._note("open", checkpoint_dir, force=force)
        return self.answer("worktree.open")

    async def list(self, checkpoint_dir: bytes, caller: Caller | None = None) -> Any:
        await self._note("list", checkpoint_dir)
        return self.answer("worktree.list")

    async def usage(self, checkpoint_dir: bytes, path: bytes | None, caller: Caller | None = None) -> Any:
        await self._note("usage", checkpoint_dir, path=path)
        return self.answer("store.usage")

    async def real_path(self, checkpoint_dir: bytes, caller: Caller) -> bytes:
        return checkpoint_dir

    async def status(self, params: StatusParams, caller: Caller) -> Any:
        self.callers.append(caller)
        await self._note("status", from_wire(params.checkpoint_dir))
        return self.answer("worktree.status")

    async def prune(self, checkpoint_dir: bytes, caller: Caller, *, dry_run: bool) -> Any:
        await self._note("prune", checkpoint_dir, dry_run=dry_run)
        return self.answer("store.prune")

    async def forget(self, checkpoint_dir: bytes, place: Worktree, caller: Caller) -> Any:
        await self._note("forget", checkpoint_dir)
        return self.answer("worktree.forget")

    async def adopt(
        self,
        checkpoint_dir: bytes,
        place: Worktree,
        old: bytes,
        caller: Caller,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> Any:
        await self._note("adopt", checkpoint_dir, old=old, force=force, dry_run=dry_run)
        return self.answer("worktree.adopt")

    async def watch(
        self, checkpoint_dir: bytes, place: Worktree, caller: Caller, on: bool | None, *, force: bool = False
    ) -> Any:
        self.callers.append(caller)
        await self._note("watch", checkpoint_dir, on=on, force=force)
        answer = self.answer("worktree.watch")
        return Watched(checkpoint_dir, answer.watcher, "halted", "for the test", answer.scans)

    def stores(self) -> "list[daemon.OpenStore]":
        return [daemon.OpenStore(worktree="/w", store="/s", state="idle", queued=0)]

    async def _note(self, name: str, checkpoint_dir: bytes, **options: object) -> None:
        self.asked.append((name, checkpoint_dir, options))
        if self.gate is not None:
            self.waiting += 1
            await self.gate.wait()
        if self.raises is not None:
            raise self.raises


def daemon_on(manager: FakeManager, stop: Callable[[], None] = lambda: None) -> Daemon:
    """Give what handlers reach, on a fake manager."""
    return Daemon(
        manager=manager,
        socket=b"/run/x.sock",
        connections=lambda: 3,
        stop=stop,
        may_be_replaced=lambda: False,
        started=0.0,
    )
