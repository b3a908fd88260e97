"""The autosavers of one daemon, by worktree."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from anyio.abc import TaskGroup

from ckpt_protocol.worktree import Watcher, WatchFailure
from ckptd.autosave import Autosave
from ckptd.core.actor import Actor
from ckptd.core.autosaver import Autosaver
from ckptd.core.bus import Bus
from ckptd.core.ports import Coverage, News, Watches
from ckptd.core.watcher import OFF, Counters, Health

__all__ = ["Autosavers", "Unwatched"]

Key = tuple[bytes, bytes]


class Unwatched:
    """Fulfils the port Watches where nothing can be watched: changes are looked for."""

    def add(self, _path: bytes, _step_s: float, _news: News) -> int:
        """Take a worktree."""
        return 1

    def remove(self, _number: int) -> None:
        """Forget it."""

    async def cover(
        self, _number: int, directories: Sequence[bytes], *, try_out: bool = False, afresh: bool = False
    ) -> Coverage:
        """Say that it cannot be watched."""
        return Coverage(False, False, 0, len(directories), "this daemon has no watcher")


class Autosavers:
    """Which worktrees are saved by themselves, at this time. Used in the event loop only."""

    def __init__(self, watches: Watches, bus: Bus, idle_rescan_s: float) -> None:
        self._watches = watches
        self._bus = bus
        self._idle_rescan_s = idle_rescan_s
        self._running: dict[Key, Autosaver] = {}

    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._running)

    def has(self, key: Key) -> bool:
        """Whether a worktree has one."""
        return key in self._running

    def health(self, key: Key) -> Health | None:
        """How the watcher of a worktree is; None where it has none."""
        autosaver = self._running.get(key)
        return None if autosaver is None else autosaver.health

    def begin(self, key: Key, actor: Actor, options: Autosave, tasks: TaskGroup) -> None:
        """Save a worktree by itself from now on; where it is already, begin anew."""
        running = self._running.get(key)
        if running is not None:
            running.again(options)
            return
        autosaver = Autosaver(
            actor, self._watches, options, tell=partial(self._tell, key), idle_rescan_s=self._idle_rescan_s
        )
        self._running[key] = actor.observer = autosaver
        tasks.start_soon(autosaver.run)

    def stop(self, key: Key) -> None:
        """Save a worktree no more without being asked."""
        autosaver = self._running.pop(key, None)
        if autosaver is not None:
            autosaver.stop(for_good=True)

    def end(self, key: Key) -> None:
        """End with the worktree's actor; the next one begins again."""
        autosaver = self._running.pop(key, None)
        if autosaver is not None:
            autosaver.stop(for_good=False)

    def describe(self, key: Key, actor: Actor | None) -> Watcher:
        """Tell how it is for a worktree."""
        autosaver = self._running.get(key)
        health = Health(OFF, None) if autosaver is None else autosaver.health
        counters = Counters() if autosaver is None else autosaver.counters
        options = Autosave() if autosaver is None else autosaver.options
        return Watcher(
            state=health.state,
            reason=health.reason,
            quiet_s=options.quiet_s,
            max_wait_s=options.max_wait_s,
            directories=counters.directories,
            seen=counters.seen,
            saved=counters.saved,
            failed=counters.failed,
            rescans=counters.rescans,
            missed=counters.missed,
            rebuilt=counters.rebuilt,
            failure=None if actor is None else _failure_of(actor),
        )

    def _tell(self, key: Key, health: Health) -> None:
        self._bus.publish("watcher.changed", *key, state=health.state, reason=health.reason)


def _failure_of(actor: Actor) -> WatchFailure | None:
    failure = actor.failure
    if failure is None:
        return None
    deadline = actor.state.deadline
    left = None if deadline is None else max(0.0, round(deadline - asyncio.get_running_loop().time(), 1))
    time = datetime.fromtimestamp(failure.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return WatchFailure(kind=failure.kind, message=failure.message, time=time, retry_in_s=left)
