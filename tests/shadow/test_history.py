"""What undo and redo reverse next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptd.shadow.history import History, read_history
from ckptd.shadow.oplog import Intent, Outcome

pytestmark = pytest.mark.core


class Log:
    """Operations one after another, as a store would write them."""

    def __init__(self) -> None:
        self.intents: list[Intent] = []
        self.outcomes: dict[int, Outcome] = {}
        self.head: str | None = None

    def add(
        self, verb: str, *, after: str | None = None, undoes: int | None = None, outcome: bool | None = True
    ) -> int:
        number = len(self.intents) + 1
        after = self.head if after is None else after
        self.intents.append(
            Intent(
                n=number,
                verb=verb,
                time="",
                token=str(number),
                client="t",
                next_seq=1,
                before=self.head,
                after=after,
                safety=None if verb == "save" else f"safety{number}",
                undoes=undoes,
            )
        )
        if outcome is not None:
            self.outcomes[number] = Outcome(n=number, done=outcome)
        if outcome:
            self.head = after
        return number

    def read(self) -> History:
        return read_history(self.intents, self.outcomes)


def test_nothing():
    assert Log().read() == History((), (), None)


def test_undo_and_redo_walk_back_and_forth():
    log = Log()
    log.add("save", after="a")
    first = log.add("reset", after="b")
    second = log.add("rollback")
    assert log.read() == History((first, second), (), "b")
    undo2 = log.add("undo", undoes=second)
    assert log.read() == History((first,), (undo2,), "b")
    undo1 = log.add("undo", undoes=first, after="a")
    assert log.read() == History((), (undo2, undo1), "a")
    redo1 = log.add("redo", undoes=undo1, after="b")
    assert log.read() == History((redo1,), (undo2,), "b")
    redo2 = log.add("redo", undoes=undo2)
    assert log.read() == History((redo1, redo2), (), "b")


def test_a_new_restore_clears_redo_and_a_save_does_not():
    log = Log()
    log.add("save", after="a")
    first = log.add("reset", after="b")
    undo = log.add("undo", undoes=first, after="a")
    log.add("save", after="c")
    assert log.read() == History((), (undo,), "c")
    new = log.add("rollback")
    assert log.read() == History((new,), (), "c")


def test_what_was_given_up_counts_for_nothing():
    log = Log()
    log.add("save", after="a")
    log.add("reset", after="b", outcome=False)
    log.add("save", after="x", outcome=False)
    assert log.read() == History((), (), "a")


def test_what_was_cut_off_can_be_undone_and_has_not_moved_head():
    log = Log()
    log.add("save", after="a")
    cut = log.add("reset", after="b", outcome=None)
    assert log.read() == History((cut,), (), "a")


def test_an_undo_of_something_unknown_breaks_nothing():
    log = Log()
    log.add("undo", undoes=77)
    assert log.read().undoable == ()


@given(st.lists(st.sampled_from(["save", "reset", "rollback", "undo", "redo"]), max_size=40))
def test_against_two_plain_stacks(verbs: list[str]):
    log = Log()
    undo: list[int] = []
    redo: list[int] = []
    for number, verb in enumerate(verbs, 1):
        if verb in ("reset", "rollback"):
            undo.append(log.add(verb, after=f"h{number}"))
            redo.clear()
        elif verb == "undo" and undo:
            redo.append(log.add("undo", undoes=undo.pop()))
        elif verb == "redo" and redo:
            undo.append(log.add("redo", undoes=redo.pop()))
        elif verb == "save":
            log.add("save", after=f"h{number}")
        assert log.read() == History(tuple(undo), tuple(redo), log.head)
