"""What the daemon tells without being asked for each: events, progress; and what calls a request off."""

from typing import Annotated, Literal

import msgspec

from ckpt_protocol.structs import Part, Request, Result, WirePath, Worktree

__all__ = [
    "CANCEL",
    "EVENT",
    "PROGRESS",
    "PROGRESS_CAPABILITY",
    "CancelParams",
    "Detail",
    "Event",
    "EventKind",
    "Progress",
    "SubscribeParams",
    "SubscribeResult",
    "UnsubscribeParams",
    "UnsubscribeResult",
]

EVENT = "event"
"""The method of the notification whose params are an Event."""

PROGRESS = "$/progress"
"""The method of the notification whose params are a Progress; for peers whose hello has this capability."""

CANCEL = "$/cancel"
"""The method of the notification, from the client, that calls a request off."""

PROGRESS_CAPABILITY = "progress"
"""In a hello: the client wants to be told how far its requests are."""


class CancelParams(Part, frozen=True, kw_only=True):
    """``$/cancel``: the request of this connection with this ``id`` is no longer wanted.

    It is answered all the same, once: with ``cancelled`` where that came in time, else with what it has done. An id
    without a request, or of one that was answered, means nothing.
    """

    id: str | int


class Progress(Result, frozen=True, kw_only=True):
    """How far the request ``id`` is, told at least every 500 ms while it has no answer, and never after it.

    ``phase`` is ``waiting`` until its turn comes; of a save ``scan``, ``hash``, ``write``; of a restore ``plan``,
    ``safety``, ``write``; of a status ``scan``, ``hash``, ``compare``; of a diff ``scan``, ``hash``, ``render``;
    others have phases of their own, which can become more.
    ``done`` counts files, or paths of a restore, ``total`` how many there will be (0: not known), ``bytes`` what was
    read or written. The same values again mean that it is alive.
    """

    id: str | int | None
    phase: str
    done: int
    total: int
    bytes: int


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
