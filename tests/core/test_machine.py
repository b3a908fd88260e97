"""The state machine: its table, cell by cell, and its invariants under any order of events."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ckptd.core.effect import ArmTimer, CallOff, CloseStore, DisarmTimer, OpenStore, Outcome, Reply, StartOp, StartRead
from ckptd.core.event import (
    AUTOSAVE,
    Cancel,
    EditsSeen,
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
from ckptd.core.machine import (
    HALTING,
    MAX_BACK_OFF_S,
    Edits,
    Limits,
    Opening,
    Phase,
    Running,
    State,
    advance,
    check,
)
from support.effort import examples

pytestmark = pytest.mark.core

LIMITS = Limits(mailbox=3, quiet_s=2.0, max_wait_s=30.0)


def write(number, terms="plain"):
    return Request(number, Kind.WRITE, terms)


def read(number, terms="plain"):
    return Request(number, Kind.READ, terms)


START = State(limits=LIMITS)
FIRST = Opening("plain")
OPENING = replace(START, opening=FIRST, queue=(write(1), read(2), write(3)))
DESERTED = replace(START, opening=FIRST)
IDLE = replace(START, phase=Phase.IDLE)
DIRTY = replace(START, phase=Phase.DIRTY, edits=Edits(10.0, 11.0), deadline=13.0)
BUSY = replace(START, phase=Phase.BUSY, running=Running(1, None))
QUEUED = replace(BUSY, queue=(write(2), write(3)))
AUTOSAVING = replace(BUSY, running=Running(AUTOSAVE, Edits(10.0, 11.0)))
HALTED = replace(START, phase=Phase.HALTED, halted="worktree_missing")
CURING = replace(BUSY, halted="worktree_missing")
CLOSING = replace(START, phase=Phase.CLOSING, running=Running(1, None))
CLOSED = replace(START, phase=Phase.CLOSED)
READING = replace(IDLE, reads=frozenset({7}))

ON = WatchOn(20.0, quiet_s=1.0, max_wait_s=5.0)

ENDED, STOPPING, CANCELLED = Outcome.ENDED, Outcome.STOPPING, Outcome.CANCELLED

# Per row: state, event, the phase after it, the effects.
TABLE = [
    (START, write(1), Phase.OPENING, [OpenStore(1)]),
    (OPENING, Opened(), Phase.BUSY, [StartRead(2), StartOp(1)]),
    (replace(START, opening=FIRST, queue=(read(1),)), Opened(), Phase.IDLE, [StartRead(1)]),
    (
        OPENING,
        OpenFailed(),
        Phase.CLOSED,
        [Reply(1, Outcome.NOT_OPENED), Reply(2, Outcome.NOT_OPENED), Reply(3, Outcome.NOT_OPENED), CloseStore()],
    ),
    (OPENING, write(4), Phase.OPENING, [Reply(4, Outcome.BUSY)]),
    (OPENING, EditsSeen(1.0), Phase.OPENING, []),
    (OPENING, Halt("x"), Phase.OPENING, []),
    (OPENING, WatchLost(1.0), Phase.OPENING, []),
    (OPENING, QuietElapsed(), Phase.OPENING, []),
    (OPENING, IdleElapsed(), Phase.OPENING, []),
    (OPENING, Cancel(1), Phase.OPENING, [Reply(1, CANCELLED)]),
    (OPENING, Cancel(2), Phase.OPENING, [Reply(2, CANCELLED)]),
    (OPENING, Cancel(9), Phase.OPENING, []),
    (DESERTED, Opened(), Phase.IDLE, []),
    (DESERTED, OpenFailed(), Phase.CLOSED, [CloseStore()]),
    (DESERTED, write(2, "create"), Phase.OPENING, []),
    (DESERTED, Stop(), Phase.CLOSED, [CloseStore()]),
    (START, Cancel(1), Phase.OPENING, []),
    (IDLE, Cancel(1), Phase.IDLE, []),
    (BUSY, Cancel(1), Phase.BUSY, [CallOff(1)]),
    (QUEUED, Cancel(2), Phase.BUSY, [Reply(2, CANCELLED)]),
    (QUEUED, Cancel(9), Phase.BUSY, []),
    (AUTOSAVING, Cancel(1), Phase.BUSY, []),
    (READING, Cancel(7), Phase.IDLE, [Reply(7, CANCELLED)]),
    (replace(READING, unheard=frozenset({7})), Cancel(7), Phase.IDLE, []),
    (replace(READING, unheard=frozenset({7})), OpDone(7), Phase.IDLE, []),
    (replace(READING, unheard=frozenset({7})), OpFailed(7, "store_damaged", 1.0), Phase.HALTED, []),
    (replace(READING, unheard=frozenset({7})), Stop(), Phase.CLOSING, []),
    (CLOSING, Cancel(1), Phase.CLOSING, [CallOff(1)]),
    (CLOSED, Cancel(1), Phase.CLOSED, []),
    (OPENING, Stop(), Phase.CLOSED, [Reply(1, STOPPING), Reply(2, STOPPING), Reply(3, STOPPING), CloseStore()]),
    (IDLE, write(1), Phase.BUSY, [StartOp(1)]),
    (IDLE, read(1), Phase.IDLE, [StartRead(1)]),
    (IDLE, EditsSeen(5.0), Phase.DIRTY, [ArmTimer(7.0)]),
    (IDLE, QuietElapsed(), Phase.IDLE, []),
    (IDLE, Halt("x"), Phase.HALTED, []),
    (IDLE, WatchLost(5.0), Phase.DIRTY, [ArmTimer(7.0)]),
    (IDLE, IdleElapsed(), Phase.CLOSED, [CloseStore()]),
    (IDLE, Stop(), Phase.CLOSED, [CloseStore()]),
    (READING, OpDone(7), Phase.IDLE, [Reply(7, ENDED)]),
    (READING, OpFailed(7, "object_missing", 1.0), Phase.IDLE, [Reply(7, ENDED)]),
    (READING, OpFailed(7, "store_damaged", 1.0), Phase.HALTED, [Reply(7, ENDED)]),
    (READING, IdleElapsed(), Phase.IDLE, []),
    (READING, Stop(), Phase.CLOSING, []),
    (DIRTY, write(1), Phase.BUSY, [DisarmTimer(), StartOp(1)]),
    (DIRTY, read(1), Phase.DIRTY, [StartRead(1)]),
    (DIRTY, EditsSeen(12.0), Phase.DIRTY, [ArmTimer(14.0)]),
    (DIRTY, EditsSeen(39.0), Phase.DIRTY, [ArmTimer(40.0)]),
    (DIRTY, QuietElapsed(), Phase.BUSY, [DisarmTimer(), StartOp(AUTOSAVE)]),
    (DIRTY, Halt("x"), Phase.HALTED, [DisarmTimer()]),
    (DIRTY, WatchLost(12.0), Phase.DIRTY, []),
    (DIRTY, IdleElapsed(), Phase.DIRTY, []),
    (DIRTY, Stop(), Phase.CLOSED, [DisarmTimer(), CloseStore()]),
    (BUSY, write(2), Phase.BUSY, []),
    (BUSY, read(2), Phase.BUSY, [StartRead(2)]),
    (BUSY, EditsSeen(5.0), Phase.BUSY, []),
    (BUSY, QuietElapsed(), Phase.BUSY, []),
    (BUSY, Halt("x"), Phase.BUSY, []),
    (BUSY, WatchLost(5.0), Phase.BUSY, []),
    (BUSY, IdleElapsed(), Phase.BUSY, []),
    (BUSY, OpDone(1), Phase.IDLE, [Reply(1, ENDED)]),
    (BUSY, OpFailed(1, "no_space", 1.0), Phase.IDLE, [Reply(1, ENDED)]),
    (BUSY, OpFailed(1, "worktree_missing", 1.0), Phase.HALTED, [Reply(1, ENDED)]),
    (QUEUED, OpDone(1), Phase.BUSY, [Reply(1, ENDED), StartOp(2)]),
    (QUEUED, OpFailed(1, "no_space", 1.0), Phase.BUSY, [Reply(1, ENDED), StartOp(2)]),
    (QUEUED, Stop(), Phase.CLOSING, [Reply(2, STOPPING), Reply(3, STOPPING)]),
    (replace(BUSY, edits=Edits(5.0, 6.0)), OpDone(1, saved=True), Phase.DIRTY, [Reply(1, ENDED), ArmTimer(8.0)]),
    (AUTOSAVING, OpDone(AUTOSAVE, saved=True), Phase.IDLE, []),
    (AUTOSAVING, OpFailed(AUTOSAVE, "no_space", 20.0), Phase.DIRTY, [ArmTimer(28.0)]),
    (AUTOSAVING, OpFailed(AUTOSAVE, "worktree_empty", 20.0), Phase.HALTED, []),
    (replace(AUTOSAVING, failures=1), OpFailed(AUTOSAVE, "no_space", 20.0), Phase.DIRTY, [ArmTimer(52.0)]),
    (replace(AUTOSAVING, failures=2), OpFailed(AUTOSAVE, "no_space", 20.0), Phase.DIRTY, [ArmTimer(148.0)]),
    (replace(AUTOSAVING, failures=900), OpFailed(AUTOSAVE, "no_space", 20.0), Phase.DIRTY, [ArmTimer(620.0)]),
    (AUTOSAVING, OpFailed(AUTOSAVE, "rules_drop", 20.0), Phase.HALTED, []),
    (START, ON, Phase.OPENING, []),
    (IDLE, ON, Phase.DIRTY, [ArmTimer(21.0)]),
    (DIRTY, ON, Phase.DIRTY, [ArmTimer(15.0)]),
    (HALTED, ON, Phase.DIRTY, [ArmTimer(21.0)]),
    (BUSY, ON, Phase.BUSY, []),
    (CLOSING, ON, Phase.CLOSING, []),
    (CLOSED, ON, Phase.CLOSED, []),
    (START, WatchOff(), Phase.OPENING, []),
    (IDLE, WatchOff(), Phase.IDLE, []),
    (DIRTY, WatchOff(), Phase.IDLE, [DisarmTimer()]),
    (HALTED, WatchOff(), Phase.HALTED, []),
    (AUTOSAVING, WatchOff(), Phase.BUSY, []),
    (CLOSING, WatchOff(), Phase.CLOSING, []),
    (CLOSED, WatchOff(), Phase.CLOSED, []),
    (IDLE, EditsSeen(5.0, since=4.0), Phase.DIRTY, [ArmTimer(7.0)]),
    (DIRTY, EditsSeen(39.0, since=5.0), Phase.DIRTY, [ArmTimer(35.0)]),
    (HALTED, write(1), Phase.BUSY, [StartOp(1)]),
    (HALTED, read(1), Phase.HALTED, [StartRead(1)]),
    (HALTED, EditsSeen(5.0), Phase.HALTED, []),
    (HALTED, QuietElapsed(), Phase.HALTED, []),
    (HALTED, Halt("x"), Phase.HALTED, []),
    (HALTED, WatchLost(5.0), Phase.HALTED, []),
    (HALTED, IdleElapsed(), Phase.CLOSED, [CloseStore()]),
    (HALTED, Stop(), Phase.CLOSED, [CloseStore()]),
    (CURING, OpDone(1, saved=True), Phase.IDLE, [Reply(1, ENDED)]),
    (CURING, OpDone(1), Phase.HALTED, [Reply(1, ENDED)]),
    (CURING, OpFailed(1, "no_space", 1.0), Phase.HALTED, [Reply(1, ENDED)]),
    (CLOSING, write(2), Phase.CLOSING, [Reply(2, STOPPING)]),
    (CLOSING, read(2), Phase.CLOSING, [Reply(2, STOPPING)]),
    (CLOSING, EditsSeen(5.0), Phase.CLOSING, []),
    (CLOSING, Halt("x"), Phase.CLOSING, []),
    (CLOSING, IdleElapsed(), Phase.CLOSING, []),
    (CLOSING, Stop(), Phase.CLOSING, []),
    (CLOSING, OpDone(1), Phase.CLOSED, [Reply(1, ENDED), CloseStore()]),
    (CLOSING, OpFailed(1, "no_space", 1.0), Phase.CLOSED, [Reply(1, ENDED), CloseStore()]),
    (replace(CLOSING, reads=frozenset({7})), OpDone(1), Phase.CLOSING, [Reply(1, ENDED)]),
    (replace(CLOSING, running=None, reads=frozenset({7})), OpDone(7), Phase.CLOSED, [Reply(7, ENDED), CloseStore()]),
    (CLOSED, write(1), Phase.CLOSED, [Reply(1, STOPPING)]),
    (CLOSED, read(1), Phase.CLOSED, [Reply(1, STOPPING)]),
    (CLOSED, Opened(), Phase.CLOSED, []),
    (CLOSED, OpenFailed(), Phase.CLOSED, []),
    (CLOSED, EditsSeen(5.0), Phase.CLOSED, []),
    (CLOSED, Stop(), Phase.CLOSED, []),
]


@pytest.mark.parametrize(
    ("state", "event", "phase", "effects"), TABLE, ids=[f"{row[0].phase.name}-{row[1]}" for row in TABLE]
)
def test_table(state, event, phase, effects):
    check(state)
    after, given = advance(state, event)
    check(after)
    assert (after.phase, list(given)) == (phase, effects)


def test_full_mailbox_refuses_at_once_and_takes_nothing():
    full = replace(BUSY, queue=(write(2), write(3), write(4)))
    assert advance(full, write(5)) == (full, (Reply(5, Outcome.BUSY),))
    reading = replace(BUSY, reads=frozenset({6, 7, 8}))
    assert advance(reading, read(9)) == (reading, (Reply(9, Outcome.BUSY),))


def test_failed_opening_answers_its_own_terms_and_tries_the_next():
    state = replace(
        START, opening=FIRST, queue=(write(1, "plain"), write(2, "create"), read(3, "plain"), write(4, "create"))
    )
    after, effects = advance(state, OpenFailed())
    assert effects == (Reply(1, Outcome.NOT_OPENED), Reply(3, Outcome.NOT_OPENED), OpenStore(2))
    assert [request.id for request in after.queue] == [2, 4]
    assert advance(after, Opened())[1] == (StartOp(2),)


def test_who_asked_for_the_opening_may_leave_and_others_are_answered_by_their_own_terms():
    state = replace(START, opening=FIRST, queue=(write(1, "plain"), write(2, "create")))
    left, _ = advance(state, Cancel(1))
    after, effects = advance(left, OpenFailed())
    assert (effects, after.opening) == ((OpenStore(2),), Opening("create"))
    assert advance(left, Opened())[1] == (StartOp(2),)


def owned(number, owner):
    return Request(number, Kind.WRITE, "plain", owner)


def served(requests):
    """The order in which requests run that come while another one runs."""
    state, _ = advance(replace(IDLE, limits=Limits(mailbox=100)), requests[0])
    for request in requests[1:]:
        state, _ = advance(state, request)
    order = [requests[0].id]
    while state.running:
        state, effects = advance(state, OpDone(state.running.id))
        check(state)
        order += [effect.id for effect in effects if isinstance(effect, StartOp)]
    return order


def test_owners_take_turns_and_each_keeps_its_order():
    flood = [owned(number, "a") for number in range(1, 7)]
    assert served(flood) == [1, 2, 3, 4, 5, 6]
    assert served([*flood, owned(7, "b"), owned(8, "b"), owned(9, "c")]) == [1, 7, 9, 2, 8, 3, 4, 5, 6]


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_nobody_is_passed_over_twice_by_the_same(owners):
    requests = [owned(number, owner) for number, owner in enumerate(owners, 1)]
    order = [requests[number - 1] for number in served(requests)]
    assert sorted(request.id for request in order) == [request.id for request in requests]
    for owner in "abc":
        own = [request.id for request in order if request.owner == owner]
        assert own == sorted(own)
    for place, request in enumerate(order[1:], 1):
        waited_since = max((at for at in range(place) if order[at].owner == request.owner), default=0)
        between = [one.owner for one in order[waited_since + 1 : place]]
        assert len(between) == len(set(between))


def test_edits_before_anything_but_a_save_are_kept():
    busy, _ = advance(DIRTY, write(1))
    assert advance(busy, OpDone(1))[0].edits == DIRTY.edits
    assert advance(busy, OpFailed(1, "no_space", 20.0))[0].edits == DIRTY.edits
    assert advance(busy, OpDone(1, saved=True))[0].edits is None


def test_edits_during_a_save_are_not_covered_by_it():
    busy, _ = advance(DIRTY, QuietElapsed())
    busy, _ = advance(busy, EditsSeen(14.0))
    after, effects = advance(busy, OpDone(AUTOSAVE, saved=True))
    assert after.edits == Edits(14.0, 14.0)
    assert effects == (ArmTimer(16.0),)


def test_a_watch_that_is_turned_off_forgets_what_was_edited_before_and_during_an_operation():
    busy, _ = advance(DIRTY, write(1))
    busy, _ = advance(busy, EditsSeen(14.0))
    off, _ = advance(busy, WatchOff())
    after, effects = advance(off, OpDone(1))
    assert (after.phase, after.edits, effects) == (Phase.IDLE, None, (Reply(1, ENDED),))


def test_a_watch_that_is_turned_on_ends_a_halt_and_forgets_failures():
    after, _ = advance(replace(HALTED, failures=4), ON)
    assert (after.halted, after.failures, after.limits) == (None, 0, Limits(3, 1.0, 5.0))


def test_what_halts_while_a_watch_is_turned_on_halts():
    busy, _ = advance(replace(AUTOSAVING, halted=None), ON)
    assert advance(busy, OpFailed(AUTOSAVE, "worktree_missing", 21.0))[0].halted == "worktree_missing"


def test_a_failing_autosave_is_tried_for_ever_with_delays_that_grow_up_to_a_limit():
    state, now, delays = DIRTY, 13.0, []
    for _ in range(8):
        state, _ = advance(state, QuietElapsed())
        state, (timer,) = advance(state, OpFailed(AUTOSAVE, "no_space", now))
        check(state)
        delays.append(timer.deadline - now)
        now = timer.deadline
    assert delays == [8.0, 32.0, 128.0, 512.0, *[MAX_BACK_OFF_S] * 4]
    state, _ = advance(state, QuietElapsed())
    assert advance(state, OpDone(AUTOSAVE, saved=True))[0].failures == 0


def test_halt_during_a_save_outlives_it():
    busy, _ = advance(IDLE, write(1))
    marked, _ = advance(busy, Halt("worktree_missing"))
    after, _ = advance(marked, OpDone(1, saved=True))
    assert (after.phase, after.halted) == (Phase.HALTED, "worktree_missing")


def test_first_reason_of_a_halt_stays():
    assert advance(HALTED, Halt("store_damaged"))[0].halted == "worktree_missing"


def test_halt_of_an_earlier_actor_holds_after_opening():
    state, _ = advance(State(limits=LIMITS, halted="worktree_empty"), read(1))
    assert advance(state, Opened())[0].phase is Phase.HALTED


def test_successful_save_resets_the_count_of_failures():
    failed = replace(BUSY, failures=2)
    assert advance(failed, OpDone(1, saved=True))[0].failures == 0
    assert advance(failed, OpDone(1))[0].failures == 2


@pytest.mark.parametrize("state", [IDLE, BUSY, CLOSED])
def test_end_of_an_operation_that_does_not_run_is_a_bug(state):
    with pytest.raises(ValueError, match="operation 9"):
        advance(state, OpDone(9))


@pytest.mark.parametrize(
    "broken",
    [
        replace(IDLE, running=Running(1, None)),
        replace(BUSY, running=None),
        replace(IDLE, queue=(write(1),)),
        replace(BUSY, queue=tuple(write(number) for number in range(2, 6))),
        replace(IDLE, deadline=1.0),
        replace(DIRTY, deadline=None),
        replace(BUSY, reads=frozenset({1})),
        replace(READING, unheard=frozenset({8})),
        replace(START, queue=(write(1),)),
        replace(IDLE, opening=FIRST),
        replace(CLOSED, reads=frozenset({1})),
        replace(HALTED, halted=None),
        replace(IDLE, halted="x"),
        replace(IDLE, edits=Edits(1.0, 1.0)),
        replace(CLOSING, running=None),
    ],
)
def test_check_sees_broken_states(broken):
    with pytest.raises(AssertionError):
        check(broken)


class AnyOrder(RuleBasedStateMachine):
    """Feeds events in any order that the actor can produce, and keeps the books from the effects alone."""

    def __init__(self):
        super().__init__()
        self.state = START
        self.now = 0.0
        self.requests = 0
        self.replies: dict[int, int] = {}
        self.opening = self.armed = False
        self.running: list[int] = []
        self.reads: set[int] = set()
        self.closes = 0
        self.unheard: set[int] = set()

    def feed(self, event):
        self.now += 0.5
        before = self.state
        self.state, effects = advance(before, event)
        for effect in effects:
            self.note(effect)
        if isinstance(event, Request) and len(before.queue) >= LIMITS.mailbox and event.kind is Kind.WRITE:
            assert Reply(event.id, Outcome.BUSY) in effects

    def note(self, effect):
        assert not self.closes or isinstance(effect, Reply), f"{effect} after the store was closed"
        match effect:
            case OpenStore():
                assert not self.opening
                self.opening = True
            case StartOp(number):
                assert not self.running
                assert not self.opening
                self.running.append(number)
            case StartRead(number):
                self.reads.add(number)
            case CallOff(number):
                assert self.running == [number]
            case Reply(number, outcome):
                assert number not in self.running
                if outcome is Outcome.CANCELLED and number in self.reads:
                    self.unheard.add(number)
                assert number not in self.reads - self.unheard
                self.replies[number] = self.replies.get(number, 0) + 1
            case ArmTimer(deadline):
                assert deadline > self.now - 40.0
                self.armed = True
            case DisarmTimer():
                self.armed = False
            case CloseStore():
                assert not self.running
                assert not self.reads
                self.closes += 1

    @rule(
        kind=st.sampled_from(Kind),
        terms=st.sampled_from(["plain", "create", "force"]),
        owner=st.sampled_from(["a", "b"]),
    )
    def request(self, kind, terms, owner):
        self.requests += 1
        self.feed(Request(self.requests, kind, terms, owner))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel(self, data):
        number = data.draw(st.integers(1, self.requests + 1))
        answered, running = self.replies.get(number, 0), number in self.running
        self.feed(Cancel(number))
        known = number <= self.requests and not answered and not running
        assert self.replies.get(number, 0) == answered + known

    @precondition(lambda self: self.opening)
    @rule(well=st.booleans())
    def opening_ends(self, well):
        self.opening = False
        if not self.closes:
            self.feed(Opened() if well else OpenFailed())

    @precondition(lambda self: self.running)
    @rule(saved=st.booleans())
    def operation_ends_well(self, saved):
        self.feed_end(OpDone(self.running[0], saved or self.running[0] == AUTOSAVE))

    @precondition(lambda self: self.running)
    @rule(kind=st.sampled_from(["no_space", "internal", *sorted(HALTING)]))
    def operation_fails(self, kind):
        self.feed_end(OpFailed(self.running[0], kind, self.now))

    def feed_end(self, event):
        self.running.clear()
        self.feed(event)

    @precondition(lambda self: self.reads)
    @rule(kind=st.sampled_from([None, "object_missing", "store_damaged"]))
    def read_ends(self, kind):
        number = self.reads.pop()
        self.feed(OpDone(number) if kind is None else OpFailed(number, kind, self.now))

    @precondition(lambda self: self.armed)
    @rule()
    def timer_runs_out(self):
        self.feed(QuietElapsed())

    @precondition(lambda self: not self.closes)
    @rule(event=st.sampled_from([EditsSeen, WatchLost]))
    def something_moved(self, event):
        self.feed(event(self.now))

    @precondition(lambda self: not self.closes)
    @rule(event=st.sampled_from([WatchOff(), None]))
    def watching_changes(self, event):
        self.feed(event or WatchOn(self.now, quiet_s=1.0, max_wait_s=4.0))

    @precondition(lambda self: not self.closes)
    @rule(event=st.sampled_from([Halt("worktree_replaced"), QuietElapsed(), IdleElapsed()]))
    def something_else(self, event):
        self.feed(event)

    @precondition(lambda self: self.requests > 5 and not self.closes)
    @rule()
    def stop(self):
        self.feed(Stop())

    @invariant()
    def books_agree(self):
        check(self.state)
        assert self.armed == (self.state.phase is Phase.DIRTY)
        assert self.running == ([self.state.running.id] if self.state.running else [])
        assert self.reads == self.state.reads
        assert bool(self.closes) == (self.state.phase is Phase.CLOSED)
        assert self.unheard & self.reads == self.state.unheard
        heard = self.reads - self.unheard
        waiting = {request.id for request in self.state.queue} | {*self.running, *heard} - {AUTOSAVE}
        answered = set(self.replies)
        assert waiting.isdisjoint(answered)
        assert waiting | answered == set(range(1, self.requests + 1))

    def teardown(self):
        if not self.closes:
            self.feed(Stop())
        while self.running:
            self.operation_ends_well(False)
        while self.reads:
            self.read_ends(None)
        assert self.closes == 1
        assert self.replies == dict.fromkeys(range(1, self.requests + 1), 1)


AnyOrder.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, derandomize=True, deadline=None, database=None
)
TestAnyOrder = AnyOrder.TestCase
