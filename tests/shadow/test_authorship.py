"""Whose a change is: against worlds of sessions, hands and autosaves in which the truth is known."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptd.shadow.record.authorship import Ledger, Save, Why, share_of, workers
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import REGULAR

pytestmark = pytest.mark.core

PATHS = [b"a", b"b", b"c"]
HAND = "by hand"
WHY = Why("edited", "")

Files = dict[bytes, int]


class Edit(NamedTuple):
    path: bytes
    before: int
    after: int
    author: str


class World:
    """Files whose content is a number (0: not there), the saves that were made, and every edit as it truly was."""

    def __init__(self) -> None:
        self.files: Files = dict.fromkeys(PATHS, 0)
        self.saves: list[Save] = []
        self.seen: list[Files] = []
        self.edits: list[Edit] = []
        self.open: set[str] = set()

    def save(self, save: Save) -> None:
        self.saves.append(save)
        self.seen.append(dict(self.files))

    def edit(self, author: str, path: bytes, number: int) -> None:
        if self.files[path] != number:
            self.edits.append(Edit(path, self.files[path], number, author))
            self.files[path] = number

    def begin(self, session: str) -> None:
        self.save(Save(session, begins=True, is_call=True))
        self.open.add(session)

    def end(self, session: str) -> None:
        self.save(Save(session))
        self.open.discard(session)

    def verdicts(self, session: str) -> dict[bytes, int | str]:
        """For each path what is to stand there again, or "blocked"; those with nothing to take back are left out."""
        ledger, working = Ledger(), workers(self.saves)
        states = [*self.seen, self.files]
        for number, save in enumerate(self.saves):
            share = share_of(session, working[number], save)
            for path in PATHS:
                before, after = state(states[number][path]), state(states[number + 1][path])
                if before == after:
                    continue
                if share == "own":
                    ledger.own(path, before, after, "")
                elif share == "unclear":
                    ledger.unclear(path, before, after, "", WHY)
                else:
                    ledger.other(path, after, WHY)
        return {
            path: "blocked" if entry.why is not None else number_of(entry.origin)
            for path, entry in ledger.entries.items()
        }


def state(number: int) -> State | None:
    return State(REGULAR, bytes([number]) * 20) if number else None


def number_of(one: State | None) -> int:
    return one.oid[0] if one is not None else 0


def by_hand_of(world: World, session: str) -> dict[bytes, int | str]:
    """The plain simulation: follow each path through the edits as they truly were."""
    found: dict[bytes, int | str] = {}
    for path in PATHS:
        origin: int | None = None
        left = 0
        others = is_mixed = False
        for edit in (one for one in world.edits if one.path == path):
            if edit.author == session:
                if origin is None:
                    origin, others, is_mixed = edit.before, False, False
                left, is_mixed = edit.after, is_mixed or others
            else:
                others = is_mixed or edit.after != left
            if edit.after == origin:
                origin = None
        if origin is not None:
            found[path] = "blocked" if others or is_mixed else origin
    return found


edits = st.dictionaries(st.sampled_from(PATHS), st.integers(0, 3), max_size=2)
turns = st.lists(
    st.tuples(st.sampled_from(["A", "B", HAND, "autosave"]), edits, st.booleans()), min_size=1, max_size=12
)


@given(turns)
def test_where_calls_do_not_overlap_all_is_as_it_truly_was(history):
    world = World()
    world.save(Save())
    lives = {"A": 0, "B": 0}
    for who, changes, is_interrupted in history:
        author = f"{who}{lives[who]}" if who in lives else who
        if who in lives:
            world.begin(author)
        for path, number in changes.items():
            if who != "autosave":
                world.edit(author, path, number)
        if who in lives and not is_interrupted:
            world.end(author)
        elif who in lives:
            # Nothing more is heard of it; what it did is saved by somebody.
            lives[who] += 1
            world.save(Save())
        else:
            # Two edits by hand that nobody saves between are one.
            world.save(Save())
    for session in (*{edit.author for edit in world.edits if edit.author != HAND}, "nobody"):
        assert world.verdicts(session) == by_hand_of(world, session)


steps = st.lists(
    st.tuples(st.sampled_from(["begin", "end", "edit", "autosave"]), st.sampled_from("AB"), edits), max_size=24
)


@given(steps)
def test_nothing_of_others_is_ever_taken_back(history):
    """Calls overlap as they like: what is taken back was the session's alone, and leads to what was there before."""
    world = World()
    world.save(Save())
    for what, who, changes in history:
        if what == "begin":
            world.begin(who)
        elif what == "end" and who in world.open:
            world.end(who)
        elif what == "autosave":
            world.save(Save())
        elif what == "edit":
            for path, number in changes.items():
                # A hand edits while nobody is at work: nothing else can be told from the saves around calls.
                if who in world.open or not world.open:
                    world.edit(who if who in world.open else HAND, path, number)
    for who in list(world.open):
        world.end(who)
    for session in "AB":
        for path, verdict in world.verdicts(session).items():
            if verdict == "blocked":
                continue
            mine = [edit for edit in world.edits if edit.path == path]
            at = max(number for number, edit in enumerate(mine) if edit.before == verdict)
            assert_all_by(session, mine[at:])


def assert_all_by(session: str, edits: list[Edit]) -> None:
    """What others did in between has come to nothing: whatever they began with, they left."""
    assert edits[0].author == session
    began: int | None = None
    for edit in edits:
        if edit.author != session and began is None:
            began = edit.before
        elif edit.author == session:
            assert began is None
        if edit.after == began:
            began = None
    assert began is None


def share_after(saves: list[Save], number: int, session: str) -> str:
    return share_of(session, workers(saves)[number], saves[number])


CALL = Save("A", begins=True, is_call=True)


def test_a_tool_call_lasts_to_the_session_s_next_save():
    saves = [CALL, Save(), Save("A"), Save()]
    assert [share_after(saves, number, "A") for number in range(4)] == ["own", "own", "other", "other"]


def test_what_may_be_no_tool_call_lasts_to_the_next_save_of_anybody():
    saves = [Save("A", begins=True), Save(), Save("A"), Save("A", begins=True)]
    assert [share_after(saves, number, "A") for number in range(4)] == ["own", "other", "other", "own"]


def test_a_call_of_which_nothing_more_was_heard_lasts_to_the_next_save():
    saves = [CALL, Save(), Save("B", begins=True, is_call=True)]
    assert [share_after(saves, number, "A") for number in range(3)] == ["own", "other", "other"]
    assert share_after(saves, 2, "B") == "own"


def test_two_at_once_cannot_be_told_apart():
    saves = [CALL, Save("B", begins=True, is_call=True), Save("A"), Save("B")]
    assert [share_after(saves, number, "A") for number in range(4)] == ["own", "unclear", "other", "other"]
    assert [share_after(saves, number, "B") for number in range(4)] == ["other", "unclear", "own", "other"]


def test_a_save_that_came_late_may_have_come_after_the_beginning():
    saves = [Save(), CALL._replace(late=True), Save("A")]
    assert [share_after(saves, number, "A") for number in range(3)] == ["own", "own", "other"]
    saves = [Save("B", begins=True), CALL._replace(late=True), Save("A")]
    assert share_after(saves, 0, "B") == "unclear"


def test_where_checkpoints_are_gone_nothing_is_certain():
    saves = [CALL._replace(gap=True), Save("A", gap=True, lost=frozenset({"A"})), Save(gap=True)]
    assert [share_after(saves, number, "A") for number in range(3)] == ["unclear", "unclear", "other"]
