"""What can happen to a worktree's actor: the input of the state machine."""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = [
    "AUTOSAVE",
    "Cancel",
    "EditsSeen",
    "Event",
    "Halt",
    "IdleElapsed",
    "Kind",
    "OpDone",
    "OpFailed",
    "OpenFailed",
    "Opened",
    "QuietElapsed",
    "Request",
    "Stop",
    "WatchLost",
    "WatchOff",
    "WatchOn",
]

AUTOSAVE: Final = 0
"""The id of the actor's own operation. Requests count from 1."""


class Kind(Enum):
    """How a request is run: WRITE one after the other, READ beside them."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody asks for something. ``terms`` is all that opening a store for this request depends on.

    Requests of several owners take turns.
    """

    id: int
    kind: Kind
    terms: Hashable = None
    owner: Hashable = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody wants this request any more. One that has ended, or is not known, is nothing to cancel."""

    id: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The store is open."""


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """The store could not be opened on the terms of the first request in the queue."""


@dataclass(frozen=True, slots=True)
class OpDone:
    """An operation or a read has ended well.

    ``saved`` tells that the worktree was saved as it is, ``created`` that a checkpoint was made for that.
    """

    id: int
    saved: bool = False
    created: bool = False


@dataclass(frozen=True, slots=True)
class OpFailed:
    """An operation or a read has ended with an error of this kind, at this time (seconds, any origin)."""

    id: int
    kind: str
    at: float


@dataclass(frozen=True, slots=True)
class EditsSeen:
    """Files have changed, and autosave is on. ``since`` is when the first of them can have been, at the earliest."""

    at: float
    since: float | None = None


@dataclass(frozen=True, slots=True)
class WatchLost:
    """The watcher has missed something: anything may have changed."""

    at: float


@dataclass(frozen=True, slots=True)
class WatchOn:
    """Autosave is wanted from now on, with these delays in seconds: whatever has stopped it is looked at again."""

    at: float
    quiet_s: float
    max_wait_s: float


@dataclass(frozen=True, slots=True)
class WatchOff:
    """Autosave is not wanted any more."""


@dataclass(frozen=True, slots=True)
class QuietElapsed:
    """The timer has run out."""


@dataclass(frozen=True, slots=True)
class Halt:
    """The worktree is gone, replaced or suddenly empty, or its store is damaged: nothing goes on by itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class IdleElapsed:
    """The store has not been used for long, and others need its place."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Finish what runs and close the store."""


Event = (
    Request
    | Cancel
    | Opened
    | OpenFailed
    | OpDone
    | OpFailed
    | EditsSeen
    | WatchLost
    | WatchOn
    | WatchOff
    | QuietElapsed
    | Halt
    | IdleElapsed
    | Stop
)
