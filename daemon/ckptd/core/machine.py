"""The life of a worktree's actor as a pure function: (state, event) gives (state, effects)."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

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
from ckptd.core.event import (
    AUTOSAVE,
    Cancel,
    EditsSeen,
    Event,
    Halt,
    IdleElapsed,
    Kind,
    OpDone,
    Opened,
    OpenFailed,
    OpFailed,
    QuietElapsed,
    Request,
    Stop,
    WatchLost,
    WatchOff,
    WatchOn,
)
from ckptd.core.turns import Turns, next_of

__all__ = [
    "DEFAULT_LIMITS",
    "HALTING",
    "LEAVING",
    "RESTING",
    "Edits",
    "Limits",
    "Phase",
    "Running",
    "State",
    "advance",
    "check",
]

HALTING: Final = frozenset({"worktree_missing", "worktree_replaced", "worktree_empty", "store_damaged", "rules_drop"})
"""Kinds of errors after which nothing may go on by itself, whoever met them."""

BACK_OFF: Final = 4.0
"""By this factor the quiet period grows with each failed autosave."""

MAX_BACK_OFF_S: Final = 600.0
"""A failed autosave is tried again after this time at the latest (or the quiet period, if that is longer)."""


class Phase(Enum):
    """Where the actor is. OPENING, IDLE and so on are the names that users see."""

    OPENING = "the store is being opened"
    IDLE = "nothing to do"
    DIRTY = "edits were seen, the autosave timer is armed"
    BUSY = "exactly one operation runs"
    HALTED = "only what is asked for is done, nothing by itself"
    CLOSING = "what runs is being finished"
    CLOSED = "over"


RESTING: Final = frozenset({Phase.IDLE, Phase.DIRTY, Phase.HALTED})
LEAVING: Final = frozenset({Phase.CLOSING, Phase.CLOSED})


class Limits(NamedTuple):
    """``mailbox`` requests may wait; an autosave comes after ``quiet_s`` without edits, at most ``max_wait_s``."""

    mailbox: int = 256
    quiet_s: float = 2.0
    max_wait_s: float = 30.0


DEFAULT_LIMITS: Final = Limits()


class Edits(NamedTuple):
    """When the first and the last edit were seen that no save has covered."""

    since: float
    last: float


class Opening(NamedTuple):
    """An attempt to open the store, on these terms."""

    terms: Hashable


class Running(NamedTuple):
    """The operation that runs.

    ``taken`` are the edits seen before it began: a save covers them, anything else gives them back. ``cures``
    tells whether a save ends the halt; it does not where the reason came up after it had begun.
    """

    id: int
    taken: Edits | None
    cures: bool = True


@dataclass(frozen=True, slots=True)
class State:
    """All that decides what happens next.

    ``opening`` is None until the first request has come. ``reads`` are the reads that were handed to the reader's
    thread, ``unheard`` those of them that were called off and answered. ``turns`` says whose request comes next.
    ``failures`` counts the autosaves that failed in a row.
    """

    limits: Limits = DEFAULT_LIMITS
    phase: Phase = Phase.OPENING
    opening: Opening | None = None
    queue: tuple[Request, ...] = ()
    turns: Turns = ()
    running: Running | None = None
    reads: frozenset[int] = frozenset()
    unheard: frozenset[int] = frozenset()
    edits: Edits | None = None
    deadline: float | None = None
    halted: str | None = None
    failures: int = 0


Effects = tuple[Effect, ...]
Step = tuple[State, Effects]


def advance(state: State, event: Event) -> Step:
    """Give the state after an event, and what has to be done, in order.

    Raises ValueError for the end of an operation that does not run: the caller has lost count.
    """
    match event:
        case Request():
            return _on_request(state, event)
        case Cancel(request):
            return _on_cancel(state, request)
        case Opened():
            return _on_opened(state)
        case OpenFailed():
            return _on_open_failed(state)
        case OpDone():
            return _on_done(state, event)
        case OpFailed():
            return _on_failed(state, event)
        case EditsSeen(at, since):
            return _on_edits(state, Edits(at if since is None else min(at, since), at))
        case WatchLost(at):
            return (state, ()) if state.phase is Phase.DIRTY else _on_edits(state, Edits(at, at))
        case WatchOn():
            return _on_watch(state, event)
        case WatchOff():
            return _on_unwatch(state)
        case QuietElapsed():
            return _start(state, AUTOSAVE) if state.phase is Phase.DIRTY else (state, ())
        case Halt(reason):
            return _on_halt(state, reason)
        case IdleElapsed():
            unused = state.phase in (Phase.IDLE, Phase.HALTED) and not state.reads
            return _leave(state, ()) if unused else (state, ())
        case Stop():
            return _on_stop(state)


def _on_request(state: State, event: Request) -> Step:
    if state.phase in LEAVING:
        return state, (Reply(event.id, Outcome.STOPPING),)
    if state.phase in RESTING and event.kind is Kind.WRITE:
        return _start(replace(state, turns=(event.owner,)), event.id)
    beside = event.kind is Kind.READ and state.phase is not Phase.OPENING
    if len(state.reads if beside else state.queue) >= state.limits.mailbox:
        return state, (Reply(event.id, Outcome.BUSY),)
    if beside:
        return replace(state, reads=state.reads | {event.id}), (StartRead(event.id),)
    queued = replace(state, queue=(*state.queue, event))
    if state.phase is not Phase.OPENING or state.opening is not None:
        return queued, ()
    return replace(queued, opening=Opening(event.terms)), (OpenStore(event.id),)


def _on_cancel(state: State, request: int) -> Step:
    if state.running is not None and state.running.id == request:
        return state, (CallOff(request),)
    if request in state.reads - state.unheard:
        return replace(state, unheard=state.unheard | {request}), (Reply(request, Outcome.CANCELLED),)
    left = tuple(waiting for waiting in state.queue if waiting.id != request)
    if len(left) == len(state.queue):
        return state, ()
    return replace(state, queue=left), (Reply(request, Outcome.CANCELLED),)


def _on_opened(state: State) -> Step:
    if state.phase in LEAVING:
        return state, ()
    reads = [request.id for request in state.queue if request.kind is Kind.READ]
    writes = tuple(request for request in state.queue if request.kind is Kind.WRITE)
    started = tuple(StartRead(request) for request in reads)
    return _settle(replace(state, opening=None, queue=writes, reads=frozenset(reads)), started)


def _on_open_failed(state: State) -> Step:
    """Answer whoever asked on the same terms; others may ask for more, or see the worktree rightly."""
    if state.phase in LEAVING or state.opening is None:
        return state, ()
    tried = state.opening.terms
    replies = tuple(Reply(request.id, Outcome.NOT_OPENED) for request in state.queue if request.terms == tried)
    left = tuple(request for request in state.queue if request.terms != tried)
    if not left:
        return _leave(replace(state, opening=None, queue=()), replies)
    again = replace(state, opening=Opening(left[0].terms), queue=left)
    return again, (*replies, OpenStore(left[0].id))


def _on_done(state: State, event: OpDone) -> Step:
    if event.id in state.reads:
        return _read_ended(state, event.id)
    running = _running(state, event.id)
    if not event.saved:
        return _settle(replace(state, edits=_merge(running.taken, state.edits)), _reply(event.id))
    halted = None if running.cures else state.halted
    return _settle(replace(state, halted=halted, failures=0), _reply(event.id))


def _on_failed(state: State, event: OpFailed) -> Step:
    if event.id in state.reads:
        ended, effects = _read_ended(state, event.id)
        if event.kind not in HALTING:
            return ended, effects
        after, more = _on_halt(ended, event.kind)
        return after, effects + more
    running = _running(state, event.id)
    edits = _merge(running.taken, state.edits)
    failures = state.failures
    if event.id == AUTOSAVE:
        # The delay counts from the failure, not from the edits, which may be long ago.
        edits, failures = Edits(event.at, event.at), failures + 1
    halted = state.halted or (event.kind if event.kind in HALTING else None)
    return _settle(replace(state, edits=edits, failures=failures, halted=halted), _reply(event.id))


def _on_edits(state: State, edits: Edits) -> Step:
    if state.phase is Phase.HALTED or state.phase in LEAVING:
        return state, ()
    seen = replace(state, edits=_merge(state.edits, edits))
    return _rest(seen, ()) if state.phase in RESTING else (seen, ())


def _on_watch(state: State, event: WatchOn) -> Step:
    if state.phase in LEAVING:
        return state, ()
    limits = state.limits._replace(quiet_s=event.quiet_s, max_wait_s=event.max_wait_s)
    awake = replace(state, limits=limits, halted=None, failures=0)
    if state.phase in RESTING:
        awake = replace(awake, phase=Phase.IDLE, deadline=None)
        return _on_edits(awake, Edits(event.at, event.at))
    return _on_edits(awake, Edits(event.at, event.at))


def _on_unwatch(state: State) -> Step:
    running = state.running and state.running._replace(taken=None)
    forgotten = replace(state, running=running, edits=None, failures=0)
    if state.phase is not Phase.DIRTY:
        return forgotten, ()
    return _rest(replace(forgotten, deadline=None), _disarm(state))


def _on_halt(state: State, reason: str) -> Step:
    if state.phase in LEAVING:
        return state, ()
    running = state.running and state.running._replace(cures=False)
    # The first reason stays: what follows from it explains less.
    marked = replace(state, running=running, halted=state.halted or reason)
    return _rest(marked, _disarm(state)) if state.phase in RESTING else (marked, ())


def _on_stop(state: State) -> Step:
    if state.phase in LEAVING:
        return state, ()
    replies = tuple(Reply(request.id, Outcome.STOPPING) for request in state.queue)
    return _leave(replace(state, opening=None, queue=(), deadline=None), _disarm(state) + replies)


def _start(state: State, request: int) -> Step:
    running = Running(request, taken=state.edits)
    busy = replace(state, phase=Phase.BUSY, running=running, edits=None, deadline=None)
    return busy, (*_disarm(state), StartOp(request))


def _settle(state: State, effects: Effects) -> Step:
    """Go on when no operation runs any more: with what is queued, or by leaving, or to rest."""
    free = replace(state, running=None)
    if state.phase is Phase.CLOSING:
        return _leave(free, effects)
    if not state.queue:
        return _rest(free, effects)
    chosen, others, turns = next_of(state.queue, state.turns)
    busy, more = _start(replace(free, queue=others, turns=turns), chosen.id)
    return busy, effects + more


def _rest(state: State, effects: Effects) -> Step:
    if state.halted is not None:
        return replace(state, phase=Phase.HALTED, edits=None, deadline=None), effects
    if state.edits is None:
        return replace(state, phase=Phase.IDLE), effects
    deadline = _deadline(state.edits, state.limits, state.failures)
    return replace(state, phase=Phase.DIRTY, deadline=deadline), (*effects, ArmTimer(deadline))


def _leave(state: State, effects: Effects) -> Step:
    if state.running is not None or state.reads:
        return replace(state, phase=Phase.CLOSING), effects
    return replace(state, phase=Phase.CLOSED, edits=None), (*effects, CloseStore())


def _read_ended(state: State, request: int) -> Step:
    replies = () if request in state.unheard else _reply(request)
    less = replace(state, reads=state.reads - {request}, unheard=state.unheard - {request})
    return _leave(less, replies) if state.phase is Phase.CLOSING else (less, replies)


def _running(state: State, request: int) -> Running:
    if state.running is None or state.running.id != request:
        raise ValueError(f"operation {request} ended, but {state.running} runs")
    return state.running


def _reply(request: int) -> Effects:
    return () if request == AUTOSAVE else (Reply(request, Outcome.ENDED),)


def _disarm(state: State) -> Effects:
    return (DisarmTimer(),) if state.phase is Phase.DIRTY else ()


def _merge(earlier: Edits | None, later: Edits | None) -> Edits | None:
    if earlier is None or later is None:
        return earlier or later
    return Edits(min(earlier.since, later.since), max(earlier.last, later.last))


def _deadline(edits: Edits, limits: Limits, failures: int) -> float:
    # The exponent is bounded, or a disk that is full for weeks would make an infinite number of it.
    grown = limits.quiet_s * float(BACK_OFF ** min(failures, 10))
    delay = min(grown, max(limits.quiet_s, MAX_BACK_OFF_S))
    return min(edits.last + delay, edits.since + max(limits.max_wait_s, delay))


def check(state: State) -> None:
    """Raise AssertionError where a state breaks what always holds."""
    phase, ids = state.phase, [request.id for request in state.queue]
    ids += [*state.reads, *([state.running.id] if state.running else [])]
    rules = {
        "an operation runs while BUSY, and maybe while CLOSING": (state.running is not None) == (phase is Phase.BUSY)
        or phase is Phase.CLOSING,
        "the store is being opened while OPENING, if anybody waits for it": phase is not Phase.OPENING
        or state.opening is not None
        or not state.queue,
        "an attempt to open it ends with OPENING": state.opening is None or phase is Phase.OPENING,
        "only reads that run are unheard": state.unheard <= state.reads,
        "requests wait only while OPENING or BUSY": not state.queue or phase in (Phase.OPENING, Phase.BUSY),
        "the mailbox keeps its limit": max(len(state.queue), len(state.reads)) <= state.limits.mailbox,
        "the timer is armed exactly in DIRTY": (state.deadline is not None) == (phase is Phase.DIRTY),
        "no request is in two places": len(ids) == len(set(ids)),
        "reads run only on an open store": not state.reads or phase not in (Phase.OPENING, Phase.CLOSED),
        "HALTED has a reason, and IDLE and DIRTY have none": phase not in RESTING
        or (state.halted is not None) == (phase is Phase.HALTED),
        "edits at rest mean DIRTY": phase not in RESTING or (state.edits is not None) == (phase is Phase.DIRTY),
        "CLOSING waits for something": phase is not Phase.CLOSING or bool(state.running or state.reads),
    }
    broken = [rule for rule, holds in rules.items() if not holds]
    if broken:
        raise AssertionError(f"{broken} in {state}")
