"""What the state machine wants done: the actor carries it out."""

from dataclasses import dataclass
from enum import Enum

__all__ = [
    "ArmTimer",
    "CallOff",
    "CloseStore",
    "DisarmTimer",
    "Effect",
    "OpenStore",
    "Outcome",
    "Reply",
    "StartOp",
    "StartRead",
]


class Outcome(Enum):
    """What a request is answered with."""

    ENDED = "the job's own result or error"
    NOT_OPENED = "the error that opening the store gave"
    BUSY = "too many requests are waiting"
    CANCELLED = "it was called off"
    STOPPING = "the actor ends; a new one can be asked"


@dataclass(frozen=True, slots=True)
class OpenStore:
    """Open the store on the terms of this request."""

    id: int


@dataclass(frozen=True, slots=True)
class StartOp:
    """Run this request, or the autosave, on the writer's thread."""

    id: int


@dataclass(frozen=True, slots=True)
class StartRead:
    """Run this request on the reader's thread."""

    id: int


@dataclass(frozen=True, slots=True)
class CallOff:
    """End the operation that runs if it has not really begun yet; else it is asked to end by itself."""

    id: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer this request."""

    id: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Report QuietElapsed at this time, and not at one asked for earlier."""

    deadline: float


@dataclass(frozen=True, slots=True)
class DisarmTimer:
    """Forget the timer."""


@dataclass(frozen=True, slots=True)
class CloseStore:
    """Close the store if it is open; nothing comes after it."""


Effect = OpenStore | StartOp | StartRead | CallOff | Reply | ArmTimer | DisarmTimer | CloseStore
