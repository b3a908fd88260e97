"""The question before a restore, and what follows from the answers."""

import pytest

pytest.importorskip("textual", reason="the timeline needs textual, which is not installed")

from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.record import CheckpointRecord, LeftOut, RestoreResult
from fabricatio_checkpoint.ui.flow import restore
from fabricatio_checkpoint.ui.fold import dialog_size
from fabricatio_checkpoint.ui.preview import Verb, Wish, done, named, preview, shares
from fabricatio_checkpoint.ui.span import plain, width

SIZE = dialog_size(80, 24)
RESET = Wish(Verb.RESET, "abc", "#3 (before)")
FILES = Wish(Verb.ROLLBACK, "abc", "#3", ("a\n", "b"))
CONFLICT = LeftOut("pipe", "special", "a FIFO")


def result(written=(), deleted=(), **more) -> RestoreResult:
    values = {"kept": (), "conflicts": (), "edited": (), "safety": None, "head": None, "weak": False, "dry_run": True}
    values |= {"digest": "d1", "target": "abc", **more}
    return RestoreResult(written=tuple(written), deleted=tuple(deleted), **values)


def text_of(plan, wish=RESET, size=SIZE, again=False, skipping=False) -> list[str]:
    question = preview(plan, wish, size, again=again, skipping=skipping)
    assert all(width(line) <= size[0] for line in question.lines)
    assert len(question.lines) <= size[1]
    return [plain(line) for line in question.lines]


def test_it_says_how_many_and_the_first_of_each():
    lines = text_of(result(["w\x1b", "x"], ["gone"], kept=("k",)))
    assert lines[0] == "2 to write   1 to delete   1 to keep   no conflicts"
    assert lines[2:6] == ["delete    gone", 'write     "w\\033"', "write     x", "keep      k"]
    assert lines[-1] == "u takes this back."


def test_many_paths_leave_room_for_each_kind():
    plan = result([f"w{n}" for n in range(5000)], [f"d{n}" for n in range(300)], kept=[f"k{n}" for n in range(9)])
    lines = text_of(plan)
    assert lines[2:].index("delete    and 297 more") == 3
    assert "write     and 4998 more" in lines
    assert "keep      and 7 more" in lines
    assert text_of(plan, size=dialog_size(44, 12))[:2] == [
        "5000 to write   300 to delete   9 to…",
        "delete    and 300 more",
    ]


def test_rows_are_shared():
    assert shares([5, 0, 5], 8) == [3, 0, 3]
    assert shares([2, 1], 20) == [2, 1]
    assert shares([100, 2], 5) == [2, 2]
    assert shares([9, 9, 9], 0) == [0, 0, 0]
    assert shares([1, 1], 1) == [1, 1]


def test_a_conflict_stops_it_unless_it_is_left_out():
    stuck = preview(result(["a"], conflicts=(CONFLICT,)), RESET, SIZE, again=False, skipping=False)
    assert (stuck.go, stuck.skip) == (None, True)
    assert "conflict  pipe (special: a FIFO)" in [plain(line) for line in stuck.lines]
    rest = preview(result(["a"], conflicts=(CONFLICT,)), RESET, SIZE, again=False, skipping=True)
    assert (rest.go, rest.skip) == ("Restore", False)
    only = preview(result(conflicts=(CONFLICT,)), RESET, SIZE, again=False, skipping=False)
    assert (only.go, only.skip) == (None, False)


def test_what_a_person_might_not_expect_is_said():
    plan = result(["a"], weak=True, edited=("e",), notes=("a note\x1b",))
    lines = text_of(plan, again=True)
    assert lines[0].startswith("Something has changed in between")
    assert "edited    e" in lines
    assert "a note\\x1b" in lines
    assert any(line.startswith("This file system cannot") for line in lines)
    missing = text_of(plan, Wish(Verb.RESET, "abc", "#3", recreate=True))
    assert missing[0].startswith("The worktree is gone")
    assert text_of(plan, Wish(Verb.UNDO))[-1] == "U takes this back."


def test_titles_and_outcomes():
    record = CheckpointRecord("a" * 40, 3, "2030-01-01T00:00:00Z", "manual", "[b]\nx", (), {}, True)
    assert named(record) == "#3 ([b])"
    assert FILES.title() == "Restore 2 files from #3?"
    assert Wish(Verb.ROLLBACK, "a", "#3", ("a\n",)).title() == 'Restore "a\\n" from #3?'
    assert Wish(Verb.UNDO).title() == "Undo the last restore?"
    assert Wish(Verb.REDO).title() == "Redo what was undone?"
    text, well = done(result(["a"], safety="s"), RESET)
    assert (text, well) == ("restored to #3 (before): 1 written, 0 deleted, 0 kept. u takes it back", True)
    text, well = done(result(["a"], conflicts=(CONFLICT,), safety="s"), Wish(Verb.UNDO))
    assert not well
    assert (
        text == "undone: 1 written, 0 deleted, 0 kept; 1 conflict left alone: pipe (special: a FIFO). U takes it back"
    )


class Restorer:
    """Plans and carries out as the test has written; ``asked`` is what it was asked, in order."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.asked: list[tuple] = []

    def _next(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def plan(self, wish, *, skip_conflicts):
        self.asked.append(("plan", wish.recreate, skip_conflicts))
        return self._next()

    async def carry_out(self, wish, digest, *, skip_conflicts):
        self.asked.append(("do", digest, skip_conflicts))
        return self._next()


async def play(restorer, *answers, wish=RESET):
    """Restore, giving these answers; give what comes of it and the questions."""
    questions, given = [], list(answers)

    async def ask(question):
        questions.append(question)
        return given.pop(0)

    said = await restore(restorer, wish, ask, lambda: SIZE)
    assert not given
    return said, questions


async def test_no_is_no():
    restorer = Restorer(result(["a"]))
    assert (await play(restorer, "cancel"))[0] is None
    assert restorer.asked == [("plan", False, False)]


async def test_what_is_done_is_the_plan_that_was_shown():
    restorer = Restorer(result(["a"], digest="d7"), result(["a"], dry_run=False, safety="s"))
    said, _ = await play(restorer, "go")
    assert said is not None
    assert restorer.asked[-1] == ("do", "d7", False)


async def test_a_plan_out_of_date_is_shown_anew():
    stale = error_of("plan_changed", "another plan")
    restorer = Restorer(result(["a"]), stale, result(["a", "b"], digest="d2"), result(["a", "b"], dry_run=False))
    _, questions = await play(restorer, "go", "go")
    assert restorer.asked[-1] == ("do", "d2", False)
    assert not plain(questions[0].lines[0]).startswith("Something")
    assert plain(questions[1].lines[0]).startswith("Something has changed in between")


async def test_conflicts_are_left_out_when_that_is_chosen():
    plan = result(["a"], conflicts=(CONFLICT,))
    restorer = Restorer(plan, plan, result(["a"], conflicts=(CONFLICT,), dry_run=False))
    said, questions = await play(restorer, "skip", "go")
    assert said is not None
    assert not said[1]
    assert restorer.asked == [("plan", False, False), ("plan", False, True), ("do", "d1", True)]
    assert questions[1].go == "Restore"


async def test_with_nothing_to_do_nobody_is_asked():
    assert (await play(Restorer(result())))[0] == ("nothing to restore: everything is as in #3 (before) already", True)
    assert (await play(Restorer(result()), wish=FILES))[0] == ("nothing to restore: 2 files as in #3 already", True)
    assert (await play(Restorer(result()), wish=Wish(Verb.UNDO)))[0] == ("there is nothing to change", True)


async def test_a_worktree_that_is_gone_comes_back():
    restorer = Restorer(error_of("worktree_missing", "gone"), result(["a"]), result(["a"], dry_run=False))
    _, questions = await play(restorer, "go")
    assert restorer.asked[:2] == [("plan", False, False), ("plan", True, False)]
    assert plain(questions[0].lines[0]).startswith("The worktree is gone")


async def test_other_errors_come_out():
    for wish in (FILES, Wish(Verb.UNDO)):
        with pytest.raises(Exception, match="gone"):
            await play(Restorer(error_of("worktree_missing", "gone")), wish=wish)
    with pytest.raises(Exception, match="full"):
        await play(Restorer(result(["a"]), error_of("no_space", "full")), "go")
