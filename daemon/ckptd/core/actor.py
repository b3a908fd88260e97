"""The one owner of everything that happens to a worktree: a task, its mailbox and its two threads."""

import asyncio
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar, cast

import anyio

from ckpt_protocol.checkpoint import SaveParams, SaveResult
from ckpt_protocol.structs import Worktree, to_wire
from ckpt_protocol.wirepath import to_text
from ckptd.core.announcement import announcements
from ckptd.core.bus import Bus
from ckptd.core.caller import Caller
from ckptd.core.effect import (
    ArmTimer,
    CallOff,
    CloseStore,
    DisarmTimer,
    Effect,
    OpenStore,
    Outcome,
    Reply,
    StartOp,
    StartRead,
)
from ckptd.core.event import AUTOSAVE, Cancel, Event, Kind, OpDone, Opened, OpenFailed, OpFailed, QuietElapsed, Request
from ckptd.core.machine import DEFAULT_LIMITS, LEAVING, RESTING, Limits, Phase, State, advance
from ckptd.core.ports import Catalog, OpenedStore, Reader, WatchPlan, Writer
from ckptd.core.restore_lock import RestoreLocks, Ticket
from ckptd.core.tending import TEND_AFTER_S, Tender
from ckptd.core.worker import Worker
from ckptd.errors import DomainError

__all__ = ["TRANSITIONS", "Actor", "ActorClosedError", "Failure", "Observer", "Terms", "Transition"]

logger = logging.getLogger(__name__)

R = TypeVar("R")

TRANSITIONS: Final = 200
"""So many of the last transitions are kept for whoever looks into a fault."""


class ActorClosedError(Exception):
    """The actor ends without having begun this request: a new actor can be asked."""


class Transition(NamedTuple):
    """One step of the machine; ``at`` is the event loop's clock in seconds."""

    at: float
    before: Phase
    event: Event
    after: Phase


class Observer(Protocol):
    """Who is told what the actor does; called in the event loop, and must not wait."""

    def began(self) -> bool:
        """An autosave begins; tell whether it is to look at everything, whatever is known to be unchanged."""
        ...

    def observe(self, event: Event, phase: Phase) -> None:
        """An event was worked off, and this is the phase after it."""
        ...


class Failure(NamedTuple):
    """Why the last autosave has come to nothing; ``at`` in seconds since the epoch."""

    kind: str
    message: str
    at: float


class Terms(NamedTuple):
    """All that opening a store for a request depends on."""

    place: Worktree
    create: bool = False
    force: bool = False


class _Found(NamedTuple):
    """The folder of a store, and which it was when it was opened."""

    folder: bytes
    identity: tuple[int, int] | None


@dataclass(slots=True, eq=False)
class _Pending:
    """A request without a reply."""

    terms: Terms
    work: Callable[[OpenedStore], object]
    caller: Caller
    exclusive: bool = False
    waiter: asyncio.Future[object] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    ended: asyncio.Future[object] | None = None


class Actor:
    """Serialises the operations of one worktree; reads run beside them.

    Exactly one task runs run(). Requests wait for their reply, or for the end of the actor. ``at_rest`` is called
    whenever nothing is left to do; ``halted`` is the reason that an earlier actor of the worktree has left behind.
    What has become true is published on ``bus``. ``opened`` is called when the store is open;
    ``guard`` in the writer's thread, before each autosave: it raises DomainError where the store is not ours any more.
    Times in events are the event loop's.
    """

    def __init__(
        self,
        catalog: Catalog,
        checkpoint_dir: bytes,
        path: bytes,
        locks: RestoreLocks,
        *,
        limits: Limits = DEFAULT_LIMITS,
        halted: str | None = None,
        at_rest: Callable[[], None] = lambda: None,
        bus: Bus | None = None,
        tend_after_s: float = TEND_AFTER_S,
        opened: Callable[[OpenedStore], None] = lambda _store: None,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        self.path: Final = path
        self.observer: Observer | None = None
        self.failure: Failure | None = None
        """Of the last autosave, until something is saved."""
        self._opened = opened
        self._guard = guard
        self._bus = bus or Bus()
        self.transitions: Final[deque[Transition]] = deque(maxlen=TRANSITIONS)
        self._catalog = catalog
        self._checkpoint_dir = checkpoint_dir
        self._locks = locks
        self._at_rest = at_rest
        self._loop = asyncio.get_running_loop()
        self._state = State(limits=limits, halted=halted)
        self._mailbox: asyncio.Queue[Event] = asyncio.Queue()
        self._pending: dict[int, _Pending] = {}
        self._last_id = AUTOSAVE
        self._writes = Worker(f"ckptd-write {to_text(path)}")
        self._reads = Worker(f"ckptd-read {to_text(path)}")
        self._opening: asyncio.Future[OpenedStore] | None = None
        self._opened_by: int | None = None
        self._found: _Found | None = None
        self._ticket: Ticket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tender = Tender(self._tend, after_s=tend_after_s, pressure=self._pressure)
        self._over = False
        self._ended = asyncio.Event()

    @property
    def state(self) -> State:
        """The machine's state."""
        return self._state

    @property
    def folder(self) -> bytes | None:
        """The store's folder, None while it is not open."""
        store = self._store()
        return None if store is None else store.folder

    def has_its_folder(self) -> bool:
        """Whether the open store's folder is still where it was opened; touches the disk, for any thread."""
        found = self._found
        return found is None or _identity(found.folder) == found.identity

    @property
    def leaving(self) -> bool:
        """Whether new requests are sent away, or would not even be read."""
        return self._over or self._state.phase in LEAVING

    async def write(
        self,
        terms: Terms,
        job: Callable[[Writer], R],
        caller: Caller,
        *,
        exclusive: bool = False,
    ) -> R:
        """Run a job on the writer's thread and give its result or exception.

        ``exclusive`` keeps it apart from other exclusive jobs in worktrees that contain this one or lie in it.
        Raises ActorClosedError where the actor ends first, DomainError ``worktree_busy`` where too many wait,
        ``cancelled`` where the caller called it off before its turn, ``internal`` where the actor breaks, and what
        opening the store and the check of the place raise. A caller that goes away does not cut the job short.
        """

        def work(store: OpenedStore) -> R:
            caller.check()
            store.writer.check_place(terms.place)
            return job(store.writer)

        _, answer = await self._ask(Kind.WRITE, _Pending(terms, work, caller, exclusive))
        return cast("R", answer)

    async def read(self, terms: Terms, job: Callable[[Reader], R], caller: Caller | None = None) -> R:
        """Run a job on the reader's thread, beside what the writer does; raises what write() raises.

        One that is called off is answered at once; what its thread does is of no consequence then.
        """
        asking = caller or Caller("ckptd")

        def work(store: OpenedStore) -> R:
            asking.check()
            return job(store.reader)

        _, answer = await self._ask(Kind.READ, _Pending(terms, work, asking))
        return cast("R", answer)

    async def open(self, terms: Terms, caller: Caller | None = None) -> tuple[bytes, bool]:
        """Open the store if it is not; give its folder, and whether it was made for this very request."""

        def work(store: OpenedStore) -> OpenedStore:
            store.writer.check_place(terms.place)
            return store

        request, answer = await self._ask(Kind.WRITE, _Pending(terms, work, caller or Caller("ckptd")))
        store = cast("OpenedStore", answer)
        return store.folder, store.created and self._opened_by == request

    def plan(self) -> asyncio.Future[WatchPlan]:
        """Tell what is worth watching, once what runs has ended; raises RuntimeError where the store is not open."""
        return self._writes.submit(self._open_or_fail().writer.watch_plan)

    def post(self, event: Event) -> None:
        """Put an event into the mailbox."""
        self._mailbox.put_nowait(event)

    async def ended(self) -> None:
        """Wait until the store is closed and both threads are gone."""
        await self._ended.wait()

    async def run(self) -> None:
        """Live, until the store is closed. Cancelled, it still waits for the thread and closes the store."""
        left: Exception = ActorClosedError("the actor has ended")
        try:
            while not self._over:
                self._step(await self._mailbox.get())
        except asyncio.CancelledError:
            # What runs goes on to its end, but nobody will hear of it.
            left = DomainError("stopping", "the daemon is being stopped")
            raise
        except Exception as error:
            logger.exception("the actor of %s broke after %s", to_text(self.path), list(self.transitions)[-5:])
            left = DomainError("internal", "the worktree's actor ended unexpectedly")
            left.__cause__ = error
        finally:
            self._over = True
            self._dismiss(left)
            with anyio.CancelScope(shield=True):
                await self._close_store()
            self._ended.set()

    async def _ask(self, kind: Kind, pending: _Pending) -> tuple[int, object]:
        """Give the request's number and its answer."""
        if self._over:
            raise ActorClosedError("the actor has ended")
        pending.caller.check()
        self._last_id += 1
        request = self._last_id
        self._pending[request] = pending
        self.post(Request(request, kind, pending.terms, pending.caller.owner))
        with pending.caller.listening(lambda: self.post(Cancel(request))):
            return request, await pending.waiter

    def _step(self, event: Event) -> None:
        before, was_halted = self._state.phase, self._state.halted is not None
        self._state, effects = advance(self._state, event)
        self.transitions.append(Transition(self._loop.time(), before, event, self._state.phase))
        for effect in effects:
            self._carry_out(effect)
        self._tell_of(event, was_halted=was_halted)
        if self._state.phase in RESTING and not self._state.reads:
            self._tender.at_rest()
            self._at_rest()

    def _tell_of(self, event: Event, *, was_halted: bool) -> None:
        phase = self._state.phase
        # Not by the phase: what is asked for while it is halted comes back to it, and is no news.
        if self._state.halted is not None and not was_halted:
            self._bus.publish("autosave.halted", self._checkpoint_dir, self.path, reason=self._state.halted)
        if isinstance(event, Opened) and phase not in LEAVING:
            self._opened(self._open_or_fail())
        if isinstance(event, OpDone) and event.saved:
            self.failure = None
        if self.observer is not None:
            self.observer.observe(event, phase)

    def _carry_out(self, effect: Effect) -> None:
        """Do what the machine wants. Nothing here waits: what takes long reports its end as an event."""
        match effect:
            case OpenStore(request):
                self._open_store(request)
            case StartOp(request):
                self._start_op(request)
            case StartRead(request):
                self._submit(self._reads, request, self._pending[request].work)
            case CallOff(request):
                self._call_off(request)
            case Reply(request, outcome):
                self._reply(request, outcome)
            case ArmTimer(deadline):
                self._disarm()
                self._timer = self._loop.call_at(deadline, self.post, QuietElapsed())
            case DisarmTimer():
                self._disarm()
            case CloseStore():
                self._over = True

    def _open_store(self, request: int) -> None:
        place, create, force = self._pending[request].terms
        self._opened_by = request
        self._opening = self._writes.submit(partial(self._open, place, create, force))
        self._opening.add_done_callback(self._opening_ended)

    def _opening_ended(self, opening: "asyncio.Future[OpenedStore]") -> None:
        if opening.exception() is not None:
            self.post(OpenFailed())
            return
        self.post(Opened())
        if (safety := opening.result().interrupted) is not None:
            self._bus.publish("restore.interrupted", self._checkpoint_dir, self.path, safety=safety)

    def _open(self, place: Worktree, create: bool, force: bool) -> OpenedStore:
        opened = self._catalog.open(self._checkpoint_dir, place, create=create, force=force)
        self._found = _Found(opened.folder, _identity(opened.folder))
        return opened

    def _tend(self, at_most_s: float, hurried: bool) -> "asyncio.Future[bool] | None":
        """Let the writer look after its store; nobody does so by himself while the worktree is halted."""
        store = self._store()
        if store is None or self._over or self._state.halted is not None or self._state.phase in LEAVING:
            return None
        is_wanted = _never if hurried else self._writes.is_wanted
        tending = self._writes.submit(partial(store.writer.tend, is_wanted, at_most_s))
        tending.add_done_callback(partial(self._tended, store))
        return tending

    def _pressure(self) -> float:
        store = self._store()
        return 0.0 if store is None else store.writer.pressure

    def _tended(self, store: OpenedStore, tending: "asyncio.Future[bool]") -> None:
        """After the last moment of it, let the reader close what the writer may have taken away.

        Where space is short, after each: what is gone and open takes as much as before.
        """
        fine = not tending.cancelled() and tending.exception() is None
        done = fine and (not tending.result() or store.writer.pressure > 0)
        if done and self._reads.is_running and not self._over:
            self._reads.submit(store.reader.let_go)

    def _start_op(self, request: int) -> None:
        self._tender.busy()
        if request == AUTOSAVE:
            full = self.observer is not None and self.observer.began()
            self._submit(self._writes, request, partial(self._autosave, full))
        elif self._pending[request].exclusive:
            self._ticket = self._locks.acquire(self.path)
            self._ticket.granted.add_done_callback(partial(self._start_exclusive, request, self._ticket))
        else:
            self._submit(self._writes, request, self._pending[request].work)

    def _start_exclusive(self, request: int, ticket: Ticket, granted: asyncio.Future[None]) -> None:
        if granted.cancelled() or self._over:
            self._locks.release(ticket)
            return
        ended = self._submit(self._writes, request, self._pending[request].work)
        # By the job's own future: the lock is given back even where the actor has broken meanwhile.
        ended.add_done_callback(lambda _ended: self._locks.release(ticket))

    def _call_off(self, request: int) -> None:
        """End an operation that waits for other restores; one in its thread sees by itself that it is called off."""
        ticket = self._ticket
        if ticket is None or ticket.granted.done():
            return
        ended: asyncio.Future[object] = self._loop.create_future()
        ended.set_exception(_called_off())
        ended.add_done_callback(partial(self._op_ended, request))
        self._pending[request].ended = ended
        self._locks.release(ticket)

    def _submit(self, worker: Worker, request: int, work: Callable[[OpenedStore], object]) -> asyncio.Future[object]:
        # Of operations only one at a time comes here; reads of several owners take turns in their thread.
        owner = None if request == AUTOSAVE else self._pending[request].caller.owner
        ended = worker.submit(partial(work, self._open_or_fail()), owner)
        if request != AUTOSAVE:
            self._pending[request].ended = ended
        ended.add_done_callback(partial(self._op_ended, request))
        if worker is self._writes:
            ended.add_done_callback(lambda _ended: self._tender.between())
        return ended

    def _op_ended(self, request: int, ended: asyncio.Future[object]) -> None:
        error = ended.exception()
        if error is None:
            result = ended.result()
            saved = isinstance(result, SaveResult)
            self.post(OpDone(request, saved=saved, created=isinstance(result, SaveResult) and result.created))
            for told, data in announcements(ended.result(), automatic=request == AUTOSAVE):
                self._bus.publish(told, self._checkpoint_dir, self.path, **data)
            return
        kind = error.kind if isinstance(error, DomainError) else "internal"
        if kind == "restore_incomplete":
            self._bus.publish("restore.interrupted", self._checkpoint_dir, self.path, reason=str(error))
        if request == AUTOSAVE:
            logger.warning("autosave of %s failed: %s", to_text(self.path), error)
            self.failure = Failure(kind, error.message if isinstance(error, DomainError) else kind, time.time())
            self._bus.publish("autosave.failed", self._checkpoint_dir, self.path, reason=kind)
        self.post(OpFailed(request, kind, self._loop.time()))

    def _autosave(self, full: bool, store: OpenedStore) -> SaveResult:
        # No request has looked whether the store is still what was opened.
        self._guard()
        if not self.has_its_folder():
            folder = to_text(store.folder)
            raise DomainError("store_damaged", f"the store {folder} was removed or replaced", paths=(store.folder,))
        place = Worktree(path=to_wire(self.path))
        params = SaveParams(
            checkpoint_dir=to_wire(self._checkpoint_dir),
            worktree=place,
            token=secrets.token_hex(16),
            kind="auto",
            full=full,
        )
        return store.writer.autosave(params, Caller("ckptd"))

    def _reply(self, request: int, outcome: Outcome) -> None:
        pending = self._pending.pop(request)
        match outcome:
            case Outcome.ENDED:
                _pass_on(pending.ended, pending.waiter)
            case Outcome.NOT_OPENED:
                _pass_on(self._opening, pending.waiter)
            case Outcome.BUSY:
                _refuse(pending.waiter, self._busy())
            case Outcome.CANCELLED:
                _refuse(pending.waiter, _called_off())
            case Outcome.STOPPING:
                _refuse(pending.waiter, ActorClosedError("the actor ends"))

    def _busy(self) -> DomainError:
        waiting = self._state.limits.mailbox
        return DomainError(
            "worktree_busy",
            f"{waiting} requests are waiting for {to_text(self.path)} already",
            hint="try again when some of them are done",
            paths=(self.path,),
        )

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _dismiss(self, error: Exception) -> None:
        """Tell everyone who waits that no reply will come."""
        self._disarm()
        self._tender.stop()
        if self._ticket is not None and not self._ticket.granted.done():
            self._locks.release(self._ticket)
        for pending in self._pending.values():
            _refuse(pending.waiter, error)
        self._pending.clear()

    def _store(self) -> OpenedStore | None:
        opening = self._opening
        if opening is None or not opening.done() or opening.exception() is not None:
            return None
        return opening.result()

    def _open_or_fail(self) -> OpenedStore:
        store = self._store()
        if store is None:
            raise RuntimeError("an operation was started on a store that is not open")
        return store

    async def _close_store(self) -> None:
        """Wait for what the threads are doing, close the store and end them."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        store = self._store()
        if store is not None:
            ends = [
                self._reads.submit(store.reader.close, last=True),
                self._writes.submit(store.writer.close, last=True),
            ]
            await asyncio.wait(ends)
            for error in filter(None, (end.exception() for end in ends)):
                logger.error("the store of %s did not close cleanly", to_text(self.path), exc_info=error)
        await self._reads.close()
        await self._writes.close()


def _called_off() -> DomainError:
    return DomainError("cancelled", "the request was called off; nothing was done")


def _never() -> bool:
    return False


def _identity(folder: bytes) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _pass_on(source: asyncio.Future[R] | None, waiter: asyncio.Future[object]) -> None:
    if source is None:
        raise RuntimeError("a reply was due before its job had ended")
    error = source.exception()
    if error is not None:
        _refuse(waiter, error)
    elif not waiter.done():
        waiter.set_result(source.result())


def _refuse(waiter: asyncio.Future[object], error: BaseException) -> None:
    if not waiter.done():
        waiter.set_exception(error)
        # Marks it as seen: where the waiter is cancelled at this very moment, nobody is left to look at it.
        waiter.exception()
