"""What the daemon tells without being asked for each: events, progress; and what calls a request off."""

from typing import Annotated, Literal

import msgspec

from ckpt_protocol.structs import Request, Result, WirePath, Worktree

__all__ = [
    "EVENT",
    "Detail",
    "Event",
    "EventKind",
    "SubscribeParams",
    "SubscribeResult",
    "UnsubscribeParams",
    "UnsubscribeResult",
]

EVENT = "event"
"""The method of the notification whose params are an Event."""

EventKind = Literal[
    "checkpoint.created",
    "worktree.changed",
    "restore.interrupted",
    "autosave.failed",
    "autosave.halted",
    "watcher.changed",
    "store.pruned",
]

Detail = str | int | bool | None


class SubscribeParams(Request, frozen=True, kw_only=True):
    """``events.subscribe``: notifications ``event`` on this connection, from now on and until it ends.

    Only those of a checkpoint directory, of a worktree, of some kinds; all where nothing is given. ``limit`` events
    wait at most for a slow reader, before the oldest are dropped.
    """

    checkpoint_dir: WirePath | None = None
    worktree: Worktree | None = None
    kinds: list[EventKind] = []
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000


class SubscribeResult(Result, frozen=True, kw_only=True):
    """``seq`` is the number of the newest event so far: the first one told has a higher one."""

    subscription: int
    seq: int


class UnsubscribeParams(Request, frozen=True, kw_only=True):
    """``events.unsubscribe``: no event of this subscription comes after the answer."""

    subscription: int


class UnsubscribeResult(Result, frozen=True, kw_only=True):
    """``known`` tells whether there was such a subscription on this connection."""

    known: bool


class Event(Result, frozen=True, kw_only=True):
    """The params of a notification ``event``: something is true on disk now.

    ``seq`` counts all events of a daemon's life, so a filtered subscription sees gaps. ``lost`` tells that events
    were dropped right before this one because they were not read in time, and ``missed`` how many: whoever needs to
    know looks at the worktree again. ``data`` depends on the kind: ``id`` of a checkpoint, with ``seq``,
    ``complete`` and ``automatic`` (nobody asked for it) or ``safety``; counts of a restore; the ``reason`` of a
    failure.
    """

    subscription: int
    seq: int
    time: str
    kind: EventKind
    checkpoint_dir: WirePath
    worktree: WirePath | None
    data: dict[str, Detail]
    lost: bool = False
    missed: int = 0
