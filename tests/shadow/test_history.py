"""What undo and redo reverse next, over random sequences of operations."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ckptd.shadow.record.history import History, read_history
from ckptd.shadow.record.oplog import Intent, Outcome
from support.effort import examples

pytestmark = pytest.mark.core


class Log:
    """Operations as the engine writes them."""

    def __init__(self) -> None:
        self.intents: list[Intent] = []
        self.outcomes: dict[int, Outcome] = {}
        self.head: str | None = None

    def add(self, verb, *, after="same", undoes=None, safety="s", done: bool | None = True) -> int:
        number = len(self.intents) + 1
        wanted = self.head if after == "same" else after
        fields = {"time": "", "token": f"{number:032x}", "client": "test", "next_seq": 1}
        self.intents.append(
            Intent(n=number, verb=verb, before=self.head, after=wanted, undoes=undoes, safety=safety, **fields)
        )
        if done is not None:
            self.outcomes[number] = Outcome(n=number, done=done)
        if done or (done is None and verb == "save"):
            self.head = wanted
        return number

    @property
    def history(self) -> History:
        return read_history(self.intents, self.outcomes)

    def undo(self, **fields) -> int:
        return self.add("undo", undoes=self.history.undoable[-1], **fields)

    def redo(self, **fields) -> int:
        return self.add("redo", undoes=self.history.redoable[-1], **fields)


def test_nothing_has_happened():
    assert Log().history == History((), (), None)


def test_undo_takes_the_newest_and_redo_brings_it_back():
    log = Log()
    first, second = log.add("reset", after="a"), log.add("rollback")
    assert log.history.undoable == (first, second)
    undone = log.undo()
    assert (log.history.undoable, log.history.redoable) == ((first,), (undone,))
    redone = log.redo()
    assert (log.history.undoable, log.history.redoable) == ((first, redone), ())


def test_a_new_restore_clears_redo_and_a_save_does_not():
    log = Log()
    log.add("reset", after="a")
    undone = log.undo()
    log.add("save", after="b", safety=None)
    assert log.history.redoable == (undone,)
    newer = log.add("rollback")
    assert (log.history.undoable, log.history.redoable) == ((newer,), ())


@pytest.mark.parametrize("verb", ["reset", "rollback"])
def test_a_restore_that_had_nothing_to_change_counts_for_nothing(verb):
    log = Log()
    first = log.add("reset", after="a")
    undone = log.undo()
    log.add(verb, safety=None)
    assert (log.history.undoable, log.history.redoable) == ((), (undone,))
    assert first not in log.history.undoable


@pytest.mark.parametrize(("after", "counts"), [("same", False), ("b", True)])
def test_a_reset_that_could_change_nothing_counts_only_if_it_moved_head(after, counts):
    log = Log()
    log.add("save", after="a", safety=None)
    reset = log.add("reset", after=after)
    log.outcomes[reset] = Outcome(n=reset, paths=())
    assert log.history.undoable == ((reset,) if counts else ())


def test_a_reset_that_only_moved_head_can_be_undone():
    log = Log()
    log.add("save", after="a", safety=None)
    moved = log.add("reset", after="b", safety=None)
    assert (log.history.undoable, log.history.head) == ((moved,), "b")


def test_what_was_given_up_counts_for_nothing_and_what_was_cut_off_counts():
    log = Log()
    log.add("reset", after="a", done=False)
    assert log.history == History((), (), None)
    cut_off = log.add("reset", after="a", done=None)
    # Its files may be half written; head has not moved.
    assert log.history == History((cut_off,), (), None)


def test_a_save_whose_outcome_was_lost_is_done():
    log = Log()
    log.add("save", after="a", safety=None, done=None)
    assert log.history.head == "a"


def test_an_undo_that_changed_no_file_still_undoes():
    log = Log()
    log.add("rollback")
    undone = log.undo(safety=None)
    assert (log.history.undoable, log.history.redoable) == ((), (undone,))


def test_an_undo_that_was_cut_off_and_taken_back_counts_as_never_begun():
    log = Log()
    reset = log.add("reset")
    stopped = log.undo(done=None)
    assert (log.history.undoable, log.history.redoable) == ((), (stopped,))
    log.redo()
    assert (log.history.undoable, log.history.redoable) == ((reset,), ())


@pytest.mark.parametrize(("paths", "counts"), [([], False), (["a"], True)])
def test_a_cancelled_reset_moves_no_head_and_counts_if_it_changed_anything(paths, counts):
    log = Log()
    log.add("save", after="a", safety=None)
    cancelled = log.add("reset", after="b")
    log.outcomes[cancelled] = Outcome(n=cancelled, paths=paths, head_stays=True)
    assert log.history == History((cancelled,) if counts else (), (), "a")


MOVES = st.lists(st.sampled_from(["reset", "rollback", "undo", "redo", "save", "nothing", "given-up"]), max_size=30)


@given(MOVES)
@hypothesis_settings(max_examples=examples(300))
def test_the_rule_holds_for_every_sequence(moves):
    """Against a list of states: undo goes one back, redo one forward, a restore cuts off what lies ahead."""
    log = Log()
    states, at = [0], 0
    reached = {}
    for count, move in enumerate(moves, 1):
        if move in ("reset", "rollback"):
            del states[at + 1 :]
            reached[log.add(move)] = (at, at + 1)
            states.append(count)
            at += 1
        elif move == "undo" and at:
            reached[log.undo()] = (at, at - 1)
            at -= 1
        elif move == "redo" and at + 1 < len(states):
            reached[log.redo()] = (at, at + 1)
            at += 1
        elif move == "save":
            log.add("save", after=str(count), safety=None)
        elif move == "nothing":
            log.add("rollback", safety=None)
        elif move == "given-up":
            log.add("reset", done=False)
        history = log.history
        assert len(history.undoable) == at
        assert len(history.redoable) == len(states) - 1 - at
        # Each reverses a step between this state and the one next to it.
        if history.undoable:
            assert reached[history.undoable[-1]] == (at - 1, at)
        if history.redoable:
            assert reached[history.redoable[-1]] == (at + 1, at)
        assert history.head == log.head
