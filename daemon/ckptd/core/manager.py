"""Owns the actors: finds or makes the one a request is for, closes those nobody needs, and ends them all."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Final, NamedTuple, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from ckpt_protocol.checkpoint import HeadParams
from ckpt_protocol.daemon import OpenStore
from ckpt_protocol.store import PruneResult, StoreUsage, UsageResult
from ckpt_protocol.structs import Worktree, from_wire, to_wire
from ckpt_protocol.wirepath import to_text
from ckpt_protocol.worktree import (
    AdoptResult,
    ForgetResult,
    ListResult,
    OpenResult,
    Scans,
    StatusParams,
    StatusResult,
    Watcher,
)
from ckptd.autosave import Autosave
from ckptd.core.actor import Actor, ActorClosedError, Terms
from ckptd.core.autosavers import Autosavers, Unwatched
from ckptd.core.bus import Bus
from ckptd.core.caller import Caller, unless_called_off
from ckptd.core.desk import Claim, Desk, RealPath, Release
from ckptd.core.desks import Desks
from ckptd.core.event import IdleElapsed, Stop
from ckptd.core.machine import Limits, Phase
from ckptd.core.ports import Catalog, OpenedStore, Reader, Watches, Writer
from ckptd.core.restore_lock import RestoreLocks
from ckptd.core.watcher import IDLE_RESCAN_S, State
from ckptd.errors import DomainError

__all__ = ["Manager", "Watched"]

_logger = logging.getLogger(__name__)

R = TypeVar("R")

_MOMENT_S: Final = 2.0

_MOST_LINKS: Final = 8
"""So often in one request a name may turn out to lead elsewhere: once where links stay as they are."""

Key = tuple[bytes, bytes]
"""A checkpoint directory and a worktree's real path."""

OpenStores = list[OpenStore]


class Watched(NamedTuple):
    """How autosave is for a worktree whose checkpoints are in the real path ``checkpoint_dir``."""

    checkpoint_dir: bytes
    watcher: Watcher
    state: str
    halted: str | None
    scans: Scans


class Manager:
    """The actors of one daemon. Every method is called in the event loop that runs run().

    ``claim`` is called in a thread, before each request; where the lock of a checkpoint directory was lost, all stores
    that are open below it are closed. ``mailbox_limit`` requests may wait for one worktree; more than ``cache_size``
    unused stores do not stay open. A caller that is cancelled only stops waiting: what it asked for goes on.

    Requests name a checkpoint directory as their clients do; ``real_path``, called in a thread of that name's own
    before each request, tells which it is. So nothing is remembered that a turned link could make wrong, and a name
    on a dead network mount holds up those alone that use it. ``release`` gives back the lock of a name that has become
    a link.

    Every request raises DomainError: what ``claim``, opening the store and the job raise, ``worktree_busy``,
    ``internal`` where the actor broke, and ``stopping`` after drain() was called.
    """

    def __init__(
        self,
        catalog: Catalog,
        claim: Claim,
        *,
        mailbox_limit: int = 256,
        cache_size: int = 100,
        bus: Bus | None = None,
        watches: Watches | None = None,
        idle_rescan_s: float = IDLE_RESCAN_S,
        real_path: RealPath = os.path.realpath,
        release: Release = lambda _checkpoint_dir: None,
    ) -> None:
        self.bus = bus or Bus()
        """Where it is published what happens."""
        self._autosavers = Autosavers(watches or Unwatched(), self.bus, idle_rescan_s)
        self._resumed: set[bytes] = set()
        self._catalog = catalog
        self._claim_lock = claim
        self._limits = Limits(mailbox=mailbox_limit)
        self._cache_size = cache_size
        self._locks = RestoreLocks()
        # In the order of their last use, the longest unused first.
        self._actors: dict[Key, Actor] = {}
        self._barriers: dict[Key, asyncio.Event] = {}
        self._halted: dict[Key, str] = {}
        self._desks = Desks(claim, real_path, release)
        # Real paths that were claimed, and perhaps are not real any more.
        self._owned: set[bytes] = set()
        self._chores: set[asyncio.Task[object]] = set()
        self._tasks: TaskGroup | None = None
        self._draining = asyncio.Event()
        self._drained = asyncio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Own the actors; ends after drain(). Cancelled, it still waits for what runs and closes all stores."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                task_status.started()
                try:
                    await self._draining.wait()
                finally:
                    self._draining.set()
                    self._stop_actors()
        finally:
            with anyio.CancelScope(shield=True):
                if self._chores:
                    await asyncio.wait(self._chores)
                await self._desks.close()
            self._drained.set()

    async def drain(self) -> None:
        """Refuse what comes, finish what runs, answer what is queued with ``stopping``, and close all stores."""
        self._draining.set()
        if self._tasks is not None:
            await self._drained.wait()

    async def write(
        self,
        checkpoint_dir: bytes,
        place: Worktree,
        job: Callable[[Writer], R],
        caller: Caller,
        *,
        create: bool = False,
        force: bool = False,
        exclusive: bool = False,
    ) -> R:
        """Run a job of the writer when its turn has come, and give its result when it has ended.

        ``create`` makes the store where there is none, ``force`` even for a protected place; ``exclusive`` waits
        until no other exclusive job runs in a worktree that contains this one or lies in it.
        """
        terms = Terms(place, create, create and force)
        _, result = await self._ask(
            checkpoint_dir,
            place,
            lambda actor: actor.write(terms, job, caller, exclusive=exclusive),
            caller,
            make=create,
        )
        return result

    async def read(
        self, checkpoint_dir: bytes, place: Worktree, job: Callable[[Reader], R], caller: Caller | None = None
    ) -> R:
        """Run a job of the reader, beside what the writer does."""
        asking = caller or _ours()
        _, result = await self._ask(checkpoint_dir, place, lambda actor: actor.read(Terms(place), job, asking), asking)
        return result

    async def clear_up(self, last: Coroutine[object, object, object]) -> None:
        """See to it that the last step of what was begun is done, whatever becomes of the caller.

        It is waited for as long as that takes a moment: it may be the next in a thread that hangs.
        """
        task = self._in_the_background(_unless_refused(last))
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task], timeout=_MOMENT_S)

    async def status(self, params: StatusParams, caller: Caller) -> StatusResult:
        """Compare a worktree with head, and add how its actor is."""
        place = params.worktree
        directory, result = await self._ask(
            from_wire(params.checkpoint_dir),
            place,
            lambda actor: actor.write(Terms(place), lambda writer: writer.status(params, caller), caller),
            caller,
        )
        state, halted = self.state_of(directory, place)
        watcher = self.watcher_of(directory, place)
        return msgspec.structs.replace(result, state=state, halted=halted, watcher=watcher)

    async def open(
        self, checkpoint_dir: bytes, place: Worktree, caller: Caller | None = None, *, force: bool
    ) -> OpenResult:
        """Open a worktree's store, made where there is none; ``force`` makes one for a protected place."""
        terms, asking = Terms(place, create=True, force=force), caller or _ours()
        directory, (folder, created) = await self._ask(
            checkpoint_dir, place, lambda actor: actor.open(terms, asking), asking, make=True
        )
        head = await self._head(directory, place, asking)
        return OpenResult(store=to_wire(folder), created=created, head=head)

    async def list(self, checkpoint_dir: bytes, caller: Caller | None = None) -> ListResult:
        """List the tracked worktrees of a checkpoint directory."""
        asking = caller or _ours()
        directory = await self._enter(checkpoint_dir, asking)
        listing = self._desk(directory).chore(lambda: self._catalog.list(directory), asking.owner)
        return await unless_called_off(asking, self._to_the_end(listing))

    async def usage(self, checkpoint_dir: bytes, path: bytes | None, caller: Caller | None = None) -> UsageResult:
        """Tell what the stores of a checkpoint directory hold, or that of one worktree."""
        asking = caller or _ours()
        directory = await self._enter(checkpoint_dir, asking)
        result = await unless_called_off(asking, self._to_the_end(self._measure(directory, path, asking)))
        if result is None:
            asking.check()
            raise RuntimeError("a look at the stores ended without a result")
        stores = [msgspec.structs.replace(one, watcher=self._watched(directory, one)) for one in result.stores]
        return msgspec.structs.replace(result, stores=stores)

    async def _measure(self, directory: bytes, path: bytes | None, asking: Caller) -> UsageResult | None:
        """Look at one store after the other; other chores of the directory come in between. None: it was called off."""
        run, result = self._catalog.usage(directory, path), None
        try:
            while result is None and not asking.cancelled.is_set():
                result = await self._desk(directory).chore(run.step, asking.owner)
        finally:
            run.close()
        return result

    def _watched(self, checkpoint_dir: bytes, one: StoreUsage) -> State | None:
        health = self._autosavers.health((checkpoint_dir, from_wire(one.path)))
        return None if health is None else health.state

    async def prune(self, checkpoint_dir: bytes, caller: Caller, *, dry_run: bool) -> PruneResult:
        """Delete the stores of worktrees that are proved gone, or tell which they are."""
        directory = await self._enter(checkpoint_dir, caller)
        if not dry_run:
            return await self._to_the_end(self._prune(directory))
        looking = self._desk(directory).chore(lambda: self._catalog.dead(directory))
        return await unless_called_off(caller, self._to_the_end(looking))

    async def real_path(self, checkpoint_dir: bytes, caller: Caller) -> bytes:
        """Give the real path of a checkpoint directory."""
        return await unless_called_off(caller, self._to_the_end(self._desk(checkpoint_dir).real()))

    async def resume_watching(self, checkpoint_dir: bytes) -> None:
        """Go on with autosave below a checkpoint directory, if it can be served."""
        with contextlib.suppress(DomainError):
            await self._claim(checkpoint_dir, make=False)

    async def watch(
        self, checkpoint_dir: bytes, place: Worktree, caller: Caller, on: bool | None, *, force: bool = False
    ) -> Watched:
        """Turn autosave on or off, or leave it as it is (None); tell how it is then, and how saves find what changed.

        Turned on, it looks again at what has stopped it, and makes the store where there is none.
        """
        if on is None:
            directory, scans = await self._ask(
                checkpoint_dir,
                place,
                lambda actor: actor.write(Terms(place), lambda writer: writer.scans(), caller),
                caller,
            )
        else:
            directory, scans = await self._set_autosave(checkpoint_dir, place, caller, on, force=force)
        return Watched(directory, self.watcher_of(directory, place), *self.state_of(directory, place), scans)

    def watcher_of(self, checkpoint_dir: bytes, place: Worktree) -> Watcher:
        """Tell how autosave is for a worktree; touches no thread."""
        key = _key(checkpoint_dir, place)
        return self._autosavers.describe(key, self._actors.get(key))

    @property
    def watching(self) -> bool:
        """Whether any worktree is saved by itself."""
        return self._autosavers.any()

    async def _set_autosave(
        self, checkpoint_dir: bytes, place: Worktree, caller: Caller, on: bool, *, force: bool
    ) -> tuple[bytes, Scans]:
        def job(writer: Writer) -> tuple[Autosave, Scans]:
            return writer.set_autosave(on), writer.scans()

        terms = Terms(place, on, on and force)
        directory, (options, scans) = await self._ask(
            checkpoint_dir, place, lambda actor: actor.write(terms, job, caller), caller, make=on
        )
        key = _key(directory, place)
        actor = self._actors.get(key)
        if not on:
            self._autosavers.stop(key)
        elif actor is not None and not actor.leaving:
            self._autosavers.begin(key, actor, options, self._running_tasks())
        return directory, scans

    async def forget(self, checkpoint_dir: bytes, place: Worktree, caller: Caller) -> ForgetResult:
        """Delete a worktree's store after what runs there has ended.

        Requests that wait for the worktree meanwhile are answered as if they came afterwards. Raises DomainError
        ``not_tracked`` where there is no store.
        """
        directory = await self._enter(checkpoint_dir, caller)
        return await self._to_the_end(self._forget(directory, place))

    async def adopt(
        self,
        checkpoint_dir: bytes,
        place: Worktree,
        old: bytes,
        caller: Caller,
        *,
        force: bool = False,
        dry_run: bool = False,
    ) -> AdoptResult:
        """Go on with the history of a worktree that was moved, after what runs there has ended; see Catalog.adopt."""
        directory = await self._enter(checkpoint_dir, caller)
        if dry_run:
            return await unless_called_off(
                caller, self._to_the_end(self._plan_adoption(directory, place, old, force=force))
            )
        return await self._to_the_end(self._adopt(directory, place, old, force=force))

    def stores(self) -> OpenStores:
        """Tell which stores are open or being opened, sorted by worktree; touches no thread.

        The folder of one that is being opened is not known: its checkpoint directory stands in its place.
        """
        alive = [(key, actor) for key, actor in self._actors.items() if actor.state.phase is not Phase.CLOSED]
        return [self._describe(key, actor) for key, actor in sorted(alive, key=lambda item: (item[0][1], item[0][0]))]

    def _describe(self, key: Key, actor: Actor) -> OpenStore:
        health = self._autosavers.health(key)
        return OpenStore(
            worktree=to_wire(actor.path),
            store=to_wire(actor.folder or key[0]),
            state=actor.state.phase.name,
            queued=len(actor.state.queue),
            watcher=None if health is None else health.state,
            watcher_reason=None if health is None else health.reason,
            halted=actor.state.halted,
        )

    def state_of(self, checkpoint_dir: bytes, place: Worktree) -> tuple[str, str | None]:
        """Give the name of the actor's state, CLOSED where there is no actor, and why it is halted if it is."""
        key = _key(checkpoint_dir, place)
        actor = self._actors.get(key)
        halted = self._halted.get(key) if actor is None else actor.state.halted
        if actor is not None and not actor.leaving:
            return actor.state.phase.name, halted
        return (Phase.CLOSED if halted is None else Phase.HALTED).name, halted

    async def _ask(
        self,
        checkpoint_dir: bytes,
        place: Worktree,
        ask: Callable[[Actor], Awaitable[R]],
        caller: Caller,
        *,
        make: bool = False,
    ) -> tuple[bytes, R]:
        """Give the real path of the checkpoint directory, and what the worktree's actor answers."""
        adopted = False
        while True:
            directory = await self._enter(checkpoint_dir, caller, make=make, path=from_wire(place.path))
            actor = await unless_called_off(caller, self._actor(_key(directory, place)))
            try:
                return directory, await ask(actor)
            except ActorClosedError:
                # It ended before this request's turn: unused, forgotten, or its lock was lost. Another one can do it.
                self._refuse_when_draining()
                await actor.ended()
            except DomainError as error:
                if error.kind != "worktree_moved" or adopted:
                    raise
                adopted = True
                moved = self._adopt(directory, place, error.paths[-1], force=False)
                await unless_called_off(caller, self._to_the_end(moved))

    async def _enter(
        self, checkpoint_dir: bytes, caller: Caller, *, make: bool = False, path: bytes | None = None
    ) -> bytes:
        """Claim a directory for a request; give its real path."""
        # To its end even if nobody waits for it: what a claim finds out, others have to be told.
        return await unless_called_off(caller, self._to_the_end(self._claim(checkpoint_dir, make, path)))

    async def _claim(self, checkpoint_dir: bytes, make: bool, path: bytes | None = None) -> bytes:
        """Make sure that a directory is ours, and that no actor works on what was there before; give its real path."""
        name = checkpoint_dir
        for _ in range(_MOST_LINKS):
            real = await self._claim_by(name, make, path)
            if real == name:
                return real
            await self._leave(name)
            name = real
        text = to_text(checkpoint_dir)
        raise DomainError("bad_path", f"{text} leads elsewhere each time", paths=(checkpoint_dir,))

    async def _claim_by(self, name: bytes, make: bool, path: bytes | None) -> bytes:
        """Claim a directory if this is its own name; give its real path."""
        living = None if path is None else self._actors.get((name, path))
        try:
            real, kept, whole = await self._desk(name).claim(
                make=make, then=lambda: living is None or living.has_its_folder()
            )
        except DomainError as error:
            if error.kind != "too_many_requests":
                self._let_go(name)
            raise
        if real != name:
            return real
        self._owned.add(name)
        if not kept:
            self._let_go(name)
        if name not in self._resumed and self._tasks is not None:
            self._resumed.add(name)
            self._in_the_background(self._resume(name))
        if kept and not whole and living is not None:
            # Its folder was removed or replaced by hand: whatever is there now, or nothing, has to be opened anew.
            living.post(Stop())
        return real

    async def _leave(self, name: bytes) -> None:
        """Give up a name that has become a link: the same stores may have to be opened under another one."""
        if name not in self._owned:
            return
        self._let_go(name)
        for actor in [actor for key, actor in self._actors.items() if key[0] == name]:
            await actor.ended()
        await self._desk(name).leave()
        self._owned.discard(name)

    def _check_lock(self, loop: asyncio.AbstractEventLoop, checkpoint_dir: bytes) -> None:
        """Make sure in an actor's thread that the directory is ours; raises DomainError where it is not any more."""
        try:
            kept = self._claim_lock(checkpoint_dir, False)
        except DomainError:
            loop.call_soon_threadsafe(self._on_lost, checkpoint_dir)
            raise
        if not kept:
            loop.call_soon_threadsafe(self._on_lost, checkpoint_dir)
            raise DomainError("stopping", f"{to_text(checkpoint_dir)} was replaced", paths=(checkpoint_dir,))

    def _on_lost(self, checkpoint_dir: bytes) -> None:
        """End what works on what was there before; go on with what is there now, if it is ours."""
        self._let_go(checkpoint_dir)
        if not self._draining.is_set():
            self._in_the_background(self.resume_watching(checkpoint_dir))

    def _let_go(self, checkpoint_dir: bytes) -> None:
        self._resumed.discard(checkpoint_dir)
        for key, actor in self._actors.items():
            if key[0] == checkpoint_dir:
                actor.post(Stop())

    async def _actor(self, key: Key) -> Actor:
        """Give the worktree's actor, a new one if there is none; one that is about to end refuses by itself."""
        while barrier := self._barriers.get(key):
            await barrier.wait()
        self._refuse_when_draining()
        actor = self._actors.pop(key, None)
        if actor is None:
            return self._start_actor(key)
        self._actors[key] = actor
        return actor

    def _start_actor(self, key: Key) -> Actor:
        checkpoint_dir, path = key
        actor = Actor(
            self._catalog,
            checkpoint_dir,
            path,
            self._locks,
            limits=self._limits,
            halted=self._halted.get(key),
            at_rest=self._close_unused,
            bus=self.bus,
            opened=lambda store: self._on_opened(key, store),
            guard=partial(self._check_lock, asyncio.get_running_loop(), checkpoint_dir),
        )
        self._running_tasks().start_soon(self._live, key, actor)
        self._actors[key] = actor
        return actor

    async def _live(self, key: Key, actor: Actor) -> None:
        try:
            await actor.run()
        finally:
            # No await since the actor's end: whoever waited for it finds its place free.
            self._autosavers.end(key)
            del self._actors[key]
            self._halted.pop(key, None)
            if actor.state.halted is not None:
                self._halted[key] = actor.state.halted

    def _on_opened(self, key: Key, store: OpenedStore) -> None:
        if store.autosave.on:
            self._autosavers.begin(key, self._actors[key], store.autosave, self._running_tasks())

    async def _resume(self, checkpoint_dir: bytes) -> None:
        """Open what is to be saved by itself; each begins with a look at what has changed meanwhile."""
        try:
            desk = self._desk(checkpoint_dir)
            for path in await desk.chore(lambda: self._catalog.watched(checkpoint_dir)):
                await self._resume_one(checkpoint_dir, path)
        except DomainError as error:
            _logger.info("autosave below %s does not go on for now: %s", to_text(checkpoint_dir), error)
            self._resumed.discard(checkpoint_dir)

    async def _resume_one(self, checkpoint_dir: bytes, path: bytes) -> None:
        place = Worktree(path=to_wire(path))
        try:
            await self._ask(checkpoint_dir, place, lambda actor: actor.open(Terms(place)), _ours())
        except DomainError as error:
            if error.row.family == "daemon":
                raise
            _logger.warning("autosave of %s does not go on: %s", to_text(path), error)

    def _close_unused(self) -> None:
        unused = [
            actor
            for key, actor in self._actors.items()
            if actor.state.phase in (Phase.IDLE, Phase.HALTED)
            and not actor.state.reads
            and not self._autosavers.has(key)
        ]
        for actor in unused[: max(0, len(unused) - self._cache_size)]:
            actor.post(IdleElapsed())

    def _stop_actors(self) -> None:
        for actor in self._actors.values():
            actor.post(Stop())

    async def _head(self, checkpoint_dir: bytes, place: Worktree, caller: Caller) -> str | None:
        params = HeadParams(checkpoint_dir=to_wire(checkpoint_dir), worktree=place)
        try:
            return (await self.read(checkpoint_dir, place, lambda reader: reader.head(params), caller)).id
        except DomainError as error:
            if error.kind == "no_checkpoint":
                return None
            raise

    async def _prune(self, checkpoint_dir: bytes) -> PruneResult:
        found = await self._chore(checkpoint_dir, lambda: self._catalog.dead(checkpoint_dir))
        folders = {from_wire(entry.store) for entry in found.pruned}
        keys = {(checkpoint_dir, from_wire(entry.path)) for entry in found.pruned}
        keys |= {key for key, actor in self._actors.items() if key[0] == checkpoint_dir and actor.folder in folders}
        async with self._closed(keys):
            # A worktree may have come back while its actor was finishing.
            still = await self._chore(checkpoint_dir, lambda: self._catalog.dead(checkpoint_dir))
            doomed = [entry for entry in still.pruned if from_wire(entry.store) in folders]
            for entry in doomed:
                await self._delete(checkpoint_dir, from_wire(entry.store))
                self._halted.pop((checkpoint_dir, from_wire(entry.path)), None)
                self._tell_pruned(checkpoint_dir, from_wire(entry.path), entry.checkpoints)
        return PruneResult(pruned=doomed, unreachable=still.unreachable, dry_run=False)

    async def _forget(self, checkpoint_dir: bytes, place: Worktree) -> ForgetResult:
        await self._check_place(checkpoint_dir, place)
        key = _key(checkpoint_dir, place)
        async with self._closed({key}):
            found = await self._chore(checkpoint_dir, lambda: self._catalog.find(checkpoint_dir, key[1]))
            if found is None:
                raise DomainError("not_tracked", f"{to_text(key[1])} is not tracked", paths=(key[1],))
            folder, checkpoints = found
            await self._delete(checkpoint_dir, folder)
            self._halted.pop(key, None)
            self._tell_pruned(checkpoint_dir, key[1], checkpoints)
        return ForgetResult(store=to_wire(folder), checkpoints=checkpoints)

    async def _plan_adoption(self, checkpoint_dir: bytes, place: Worktree, old: bytes, *, force: bool) -> AdoptResult:
        return await self._chore(
            checkpoint_dir, lambda: self._catalog.adopt(checkpoint_dir, place, old, force=force, dry_run=True)
        )

    async def _adopt(self, checkpoint_dir: bytes, place: Worktree, old: bytes, *, force: bool) -> AdoptResult:
        plan = await self._plan_adoption(checkpoint_dir, place, old, force=force)
        folder = from_wire(plan.store)
        keys = {_key(checkpoint_dir, place), (checkpoint_dir, from_wire(plan.old))}
        keys |= {key for key, actor in self._actors.items() if key[0] == checkpoint_dir and actor.folder == folder}
        async with self._closed(keys):
            # By its folder: what was looked at is what is closed.
            done = await self._chore(
                checkpoint_dir, lambda: self._catalog.adopt(checkpoint_dir, place, folder, force=force, dry_run=False)
            )
            for key in keys:
                self._halted.pop(key, None)
        _logger.info("%s was moved to %s", to_text(from_wire(plan.old)), to_text(from_wire(plan.path)))
        self._in_the_background(self._resume(checkpoint_dir))
        return done

    def _tell_pruned(self, checkpoint_dir: bytes, path: bytes, checkpoints: int) -> None:
        self.bus.publish("store.pruned", checkpoint_dir, path, checkpoints=checkpoints)

    async def _check_place(self, checkpoint_dir: bytes, place: Worktree) -> None:
        """Refuse a client that means another directory by this path; a store that does not open can be deleted."""
        try:
            await self.write(checkpoint_dir, place, lambda _writer: None, _ours())
        except DomainError as error:
            if error.kind == "identity_mismatch" or error.row.family in ("daemon", "bug"):
                raise

    async def _delete(self, checkpoint_dir: bytes, folder: bytes) -> None:
        await self._chore(checkpoint_dir, lambda: self._catalog.delete(checkpoint_dir, folder))

    @contextlib.asynccontextmanager
    async def _closed(self, keys: Iterable[Key]) -> AsyncIterator[None]:
        """Keep worktrees without an actor: end those that live, and hold up requests that want one."""
        wanted = set(keys)
        # All or none: who held some while waiting for others could wait in a circle.
        while taken := wanted & self._barriers.keys():
            await self._barriers[taken.pop()].wait()
        barrier = asyncio.Event()
        self._barriers.update(dict.fromkeys(wanted, barrier))
        try:
            living = [self._actors[key] for key in wanted & self._actors.keys()]
            for actor in living:
                actor.post(Stop())
            for actor in living:
                await actor.ended()
            yield
        finally:
            for key in wanted:
                del self._barriers[key]
            barrier.set()

    async def _chore(self, checkpoint_dir: bytes, job: Callable[[], R]) -> R:
        """Do a part of what was begun in a directory; it is given by its real path."""
        if await self._claim(checkpoint_dir, make=False) != checkpoint_dir:
            raise DomainError("stopping", f"{to_text(checkpoint_dir)} was replaced", paths=(checkpoint_dir,))
        return await self._desk(checkpoint_dir).chore(job)

    async def _to_the_end(self, chore: Coroutine[object, object, R]) -> R:
        """Run in a task of ours: a caller that is cancelled must not end the barrier of a deletion."""
        task = asyncio.get_running_loop().create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return await asyncio.shield(task)

    def _in_the_background(self, chore: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        """Run what nobody waits for; that it broke must be known, and end nothing else."""
        task = asyncio.get_running_loop().create_task(chore)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        task.add_done_callback(_log_if_broken)
        return task

    def _desk(self, checkpoint_dir: bytes) -> Desk:
        self._refuse_when_draining()
        return self._desks.of(checkpoint_dir)

    def _refuse_when_draining(self) -> None:
        if self._draining.is_set():
            raise DomainError("stopping", "the daemon is being stopped", hint="try again: it is started when needed")

    def _running_tasks(self) -> TaskGroup:
        if self._tasks is None:
            raise RuntimeError("the manager does not run")
        return self._tasks


def _ours() -> Caller:
    return Caller("ckptd")


def _key(checkpoint_dir: bytes, place: Worktree) -> Key:
    return checkpoint_dir, from_wire(place.path)


async def _unless_refused(last: Coroutine[object, object, object]) -> None:
    # Where the store is closed or the daemon ends, what was begun has ended with it.
    with contextlib.suppress(DomainError):
        await last


def _log_if_broken(task: "asyncio.Task[object]") -> None:
    if not task.cancelled() and task.exception() is not None:
        _logger.error("something in the background broke", exc_info=task.exception())
