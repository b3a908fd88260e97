"""Saves a worktree while people and programs edit it: tells the actor of changes, and looks after the watcher.

The actor decides when to save. What is told by a watcher only wakes it up; that nothing is told proves nothing, so it
is also woken up from time to time: rarely where a watcher has proved to work, often where there is none.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup

from ckpt_protocol.wirepath import to_text
from ckptd.autosave import Autosave
from ckptd.core.event import AUTOSAVE, EditsSeen, Event, OpDone, OpFailed, WatchLost, WatchOff, WatchOn
from ckptd.core.machine import Phase
from ckptd.core.ports import Watches, WatchPlan
from ckptd.core.watcher import (
    ACTIVE,
    IDLE_RESCAN_S,
    LONGEST_PAUSE_S,
    POLLING,
    Counters,
    Health,
    health_of,
    pause_s,
    rescan_s,
)

__all__ = ["Autosaver", "Subject"]

_logger = logging.getLogger(__name__)

_STEPS: Final = 2
"""A watcher tells of a change after so many of its steps at the latest."""
_LONGEST_STEP_S: Final = 1.0
_MOST_MISSED: Final = 3
"""A watcher that so many scans in a row have proved to be blind is not relied on any more."""
_BREAKS_KEPT_S: Final = 600.0


class Subject(Protocol):
    """What an autosaver needs of a worktree's actor."""

    @property
    def path(self) -> bytes:
        """The worktree's real path."""
        ...

    def post(self, event: Event) -> None:
        """Put an event into the actor's mailbox."""
        ...

    def plan(self) -> Awaitable[WatchPlan]:
        """Give what is worth watching, once the operations that were begun have ended.

        Raises RuntimeError where the store is closed.
        """
        ...


class Autosaver:
    """Exactly one task runs run(). ``tell`` is called with the health of the watcher when that changes."""

    def __init__(
        self,
        subject: Subject,
        watches: Watches,
        options: Autosave,
        *,
        tell: Callable[[Health], None] = lambda _health: None,
        idle_rescan_s: float = IDLE_RESCAN_S,
    ) -> None:
        self.options = options
        self.health = Health()
        self.counters: Final = Counters()
        self._subject = subject
        self._watches = watches
        self._tell = tell
        self._idle_rescan_s = idle_rescan_s
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._plan: WatchPlan | None = None
        self._cover_at: float | None = None
        self._rescan_at = self._loop.time() + idle_rescan_s
        self._verdict_at: float | None = None
        self._try_out = True
        self._afresh = False
        self._structure = True
        self._over_budget = False
        self._covering = False
        self._halted = False
        self._suspect: int | None = None
        self._missed_in_a_row = 0
        self._check_all = False
        self._began = 0.0
        self._scan_s = 0.0

    @property
    def step_s(self) -> float:
        """How long a watcher may gather changes before it tells."""
        return min(_LONGEST_STEP_S, self.options.quiet_s / 2)

    async def run(self) -> None:
        """Watch until stop(). A bug here must end neither the daemon nor autosave."""
        with self._scope:
            while True:
                try:
                    await self._watch()
                except Exception:
                    _logger.exception("autosave of %s broke; it begins again", to_text(self._subject.path))
                    await anyio.sleep(LONGEST_PAUSE_S)

    async def _watch(self) -> None:
        number = self._watches.add(self._subject.path, self.step_s, self)
        self._subject.post(WatchOn(self._loop.time(), self.options.quiet_s, self.options.max_wait_s))
        self._cover_soon(0.0, try_out=True)
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    self._act(number, tasks)
                    await self._rest()
        finally:
            self._watches.remove(number)

    def stop(self, *, for_good: bool) -> None:
        """End run(); ``for_good`` where autosave is not wanted any more, rather than the actor at its end."""
        self._scope.cancel()
        if for_good:
            self._subject.post(WatchOff())

    def again(self, options: Autosave) -> None:
        """Begin anew, as somebody wants it: what has stopped autosave, and what broke the watcher, is tried again."""
        self.options = options
        self._missed_in_a_row = 0
        self._over_budget = False
        self.counters.breaks.clear()
        self._subject.post(WatchOn(self._loop.time(), options.quiet_s, options.max_wait_s))
        self._cover_soon(0.0, try_out=True)

    # -- what the watcher tells

    def seen(self, paths: Sequence[bytes], *, more: bool) -> None:
        """Something has changed; what rules leave out is of no interest."""
        plan = self._plan
        if plan is not None and not more:
            paths = [path for path in paths if not plan.leaves_out(path)]
        if not paths and not more:
            return
        self._structure |= more or plan is None or any(map(plan.is_directory, paths))
        self.counters.seen += 1
        now = self._loop.time()
        self._subject.post(EditsSeen(now, since=now - _STEPS * self.step_s))

    def broken(self, reason: str, *, over_budget: bool = False) -> None:
        """Nothing is told any more: look for changes meanwhile, and try again after a pause."""
        now = self._loop.time()
        breaks = self.counters.breaks
        breaks[:] = [*(one for one in breaks if now - one < _BREAKS_KEPT_S), now]
        self._over_budget = over_budget
        self._set_health(Health(POLLING, reason))
        self._subject.post(WatchLost(now))
        if over_budget:
            # Its place is another's until there is something to save here.
            self._cover_at = None
        else:
            self._cover_soon(pause_s(len(breaks)), afresh=True)
        self._wake.set()

    # -- what the actor does

    def observe(self, event: Event, phase: Phase) -> None:
        """Hear of each step of the actor: the event, and the phase after it."""
        match event:
            case OpDone(number, saved=True, created=created):
                self._on_saved(automatic=number == AUTOSAVE, created=created)
            case OpFailed(number) if number == AUTOSAVE:
                self.counters.failed += 1
                self._plan_rescan()
        halted = phase is Phase.HALTED
        if self._halted and phase in (Phase.IDLE, Phase.DIRTY):
            # Cured: the worktree may be another directory by now.
            self._cover_soon(0.0, try_out=True)
            self._subject.post(WatchLost(self._loop.time()))
        if halted or phase in (Phase.IDLE, Phase.DIRTY):
            self._halted = halted

    def began(self) -> bool:
        """Hear that an autosave begins; say that it is to look at everything where it checks who watches."""
        self._began = self._loop.time()
        full, self._check_all = self._check_all, False
        return full

    def _on_saved(self, *, automatic: bool, created: bool) -> None:
        now = self._loop.time()
        if automatic:
            self._scan_s = now - self._began
            self.counters.saved += created
        if self._suspect is not None:
            if automatic and created and self._suspect == self.counters.seen:
                # It may have been told, and be on its way.
                self._verdict_at = now + (_STEPS + 1) * self.step_s
            else:
                self._suspect = None
                self._missed_in_a_row = 0 if not created else self._missed_in_a_row
        if created or not self._over_budget:
            self._cover_soon(self.step_s)
        self._plan_rescan()

    # -- the task

    def _act(self, number: int, tasks: TaskGroup) -> None:
        now = self._loop.time()
        if self._cover_at is not None and now >= self._cover_at and not self._halted and not self._covering:
            self._cover_at, self._covering = None, True
            # Beside the rest: a file system that hangs must not keep changes from being looked for.
            tasks.start_soon(self._cover, number)
        if self._verdict_at is not None and now >= self._verdict_at:
            self._judge()
        if now >= self._rescan_at and not self._halted:
            self._rescan(now)

    async def _rest(self) -> None:
        due = [self._rescan_at] if not self._halted else []
        if self._cover_at is not None and not self._halted and not self._covering:
            due.append(self._cover_at)
        if self._verdict_at is not None:
            due.append(self._verdict_at)
        left = max(0.0, min(due) - self._loop.time()) if due else None
        with anyio.move_on_after(left):
            await self._wake.wait()
        self._wake.clear()

    async def _cover(self, number: int) -> None:
        try:
            await self._cover_now(number)
        except RuntimeError:
            # The store is closed: the actor ends, and this with it.
            _logger.info("no plan for %s", to_text(self._subject.path), exc_info=True)
        finally:
            self._covering = False
            self._wake.set()

    async def _cover_now(self, number: int) -> None:
        """Watch what the last scan says is worth it, unless that is being done."""
        plan = await self._subject.plan()
        known, self._plan = self._plan, plan
        same = known is not None and known.directories == plan.directories
        wanted = self._structure or self._try_out or self._afresh or self.health.state == POLLING
        if same and not wanted:
            return
        try_out, afresh = self._try_out, self._afresh
        self._try_out = self._afresh = self._structure = self._over_budget = False
        coverage = await self._watches.cover(number, plan.directories, try_out=try_out, afresh=afresh)
        self.counters.directories = coverage.watched
        if coverage.native and self._missed_in_a_row >= _MOST_MISSED:
            self._set_health(Health(POLLING, f"changes were not told {self._missed_in_a_row} times in a row"))
        else:
            self._set_health(health_of(coverage))
        if coverage.fresh:
            self.counters.rebuilt += 1
            # What was changed before the watches were put is not known: the scan comes after them.
            self._subject.post(WatchLost(self._loop.time()))
        if not coverage.native:
            self._cover_soon(LONGEST_PAUSE_S, try_out=True)
        self._plan_rescan()

    def _rescan(self, now: float) -> None:
        self.counters.rescans += 1
        checks = self.health.state == ACTIVE
        self._suspect = self.counters.seen if checks else None
        self._check_all |= checks
        # What the kernel watches is compared, too.
        self._structure = True
        self._subject.post(WatchLost(now))
        self._plan_rescan()

    def _judge(self) -> None:
        """Decide whether a scan has found what the watcher should have told."""
        self._verdict_at = None
        if self._suspect is None or self._suspect != self.counters.seen:
            self._suspect = None
            return
        self._suspect = None
        self.counters.missed += 1
        self._missed_in_a_row += 1
        _logger.warning("the watcher of %s has missed changes; they are saved", to_text(self._subject.path))
        self._cover_soon(0.0, try_out=True, afresh=True)

    def _plan_rescan(self) -> None:
        quiet_s, wait_s = self.options.quiet_s, self.options.max_wait_s
        wait = rescan_s(self.health.state, quiet_s, wait_s, self._scan_s, self._idle_rescan_s)
        self._rescan_at = self._loop.time() + wait

    def _cover_soon(self, delay_s: float, *, try_out: bool = False, afresh: bool = False) -> None:
        self._try_out |= try_out
        self._afresh |= afresh
        at = self._loop.time() + delay_s
        self._cover_at = at if self._cover_at is None else max(at, self._cover_at) if delay_s else at
        self._wake.set()

    def _set_health(self, health: Health) -> None:
        if health == self.health:
            return
        before, self.health = self.health, health
        self._plan_rescan()
        level = logging.INFO if health.state == ACTIVE else logging.WARNING
        _logger.log(
            level,
            "watching %s: %s (%s), was %s",
            to_text(self._subject.path),
            health.state,
            health.reason,
            before.state,
        )
        self._tell(health)
