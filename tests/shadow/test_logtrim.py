"""A log that has grown is cut, and nothing that anybody could ask for is lost by it."""

import contextlib
import os
import resource
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from ckpt_protocol.checkpoint import DropParams, SaveParams
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.record.history import History, read_history
from ckptd.shadow.record.logtrim import Bounds, Split, split_log
from ckptd.shadow.record.oplog import Intent, OperationLog, Outcome
from ckptd.shadow.store.recovery import unfinished
from support.effort import examples

pytestmark = pytest.mark.core

NONE = History((), (), None)
SMALL = Bounds(most=10, most_bytes=100_000, newest=4, newest_bytes=50_000)


def intent(n: int, verb="save", **fields) -> Intent:
    plain = {"time": "", "token": f"{n:032x}", "client": "t", "next_seq": n + 1}
    return Intent(n=n, verb=verb, **(plain | fields))


def saves(count: int) -> dict[int, Intent]:
    return {n: intent(n) for n in range(1, count + 1)}


def test_a_small_log_stays():
    assert split_log(saves(10), dict.fromkeys(range(1, 11), 10_000), (), NONE, SMALL) is None


def test_the_newest_stay_and_what_is_needed_of_the_old():
    found = split_log(saves(20), dict.fromkeys(range(1, 21), 10), {3}, History((5, 18), (), None), SMALL)
    assert found == Split((3, 5), (17, 18, 19, 20))


def test_what_an_undo_reversed_stays_with_it():
    log = saves(20) | {5: intent(5, "reset"), 7: intent(7, "undo", undoes=5), 9: intent(9, "redo", undoes=7)}
    found = split_log(log, dict.fromkeys(range(1, 21), 10), (), History((9,), (), None), SMALL)
    assert found == Split((5, 7, 9), (17, 18, 19, 20))


def test_only_a_hundred_restores_keep_the_log_long():
    log = {n: intent(n, "rollback") for n in range(1, 1001)}
    found = split_log(log, dict.fromkeys(log, 10), (), History(tuple(log), (), None), SMALL)
    assert found == Split(tuple(range(901, 997)), (997, 998, 999, 1000))


def test_few_operations_that_are_large_are_cut_by_size():
    sizes = dict.fromkeys(range(1, 9), 30_000)
    assert split_log(saves(8), sizes, (), NONE, SMALL) == Split((), (8,))


def test_what_cannot_be_halved_stays():
    assert split_log(saves(11), dict.fromkeys(range(1, 12), 10), set(range(1, 8)), NONE, SMALL) is None


MOVES = st.lists(
    st.sampled_from(["reset", "rollback", "undo", "redo", "save", "nothing", "given-up", "cut-off", "cut"]), max_size=60
)


@given(MOVES)
@hypothesis_settings(max_examples=examples(200))
def test_cutting_changes_no_answer(tmp_path_factory, moves):
    """The same operations go into a log that is never cut and into one that is: undo, redo and head stay the same."""
    place = os.fsencode(tmp_path_factory.mktemp("log"))
    whole, cut = OperationLog(place + b"/whole"), OperationLog(place + b"/cut")
    head: str | None = None
    for move in moves:
        history = read_history(whole.intents.values(), whole.outcomes)
        if move == "cut":
            cut_log(cut)
            continue
        lines = operation(move, whole.next_number, history, head)
        for line in lines:
            whole.write(line, durable=False)
            cut.write(line, durable=False)
        head = read_history(whole.intents.values(), whole.outcomes).head
        assert read_history(cut.intents.values(), cut.outcomes, cut.mark) == read_history(
            whole.intents.values(), whole.outcomes
        )
        assert (cut.next_number, cut.next_seq) == (whole.next_number, whole.next_seq)
    cut.close()
    again = OperationLog(place + b"/cut")
    assert again.damaged_lines == 0
    assert read_history(again.intents.values(), again.outcomes, again.mark) == read_history(
        whole.intents.values(), whole.outcomes
    )
    again.close()
    whole.close()


def cut_log(log: OperationLog) -> None:
    bounds = Bounds(most=3, most_bytes=10**9, newest=2, newest_bytes=10**9)
    history = read_history(log.intents.values(), log.outcomes, log.mark)
    split = split_log(log.intents, log.sizes(), log.intents.keys() - log.outcomes.keys(), history, bounds)
    if split is None:
        return
    before = list(log.intents.values())[: list(log.intents).index(split.newest[0])]
    log.cut(split.old, split.newest, read_history(before, log.outcomes, log.mark).head)
    assert list(log.intents) == [*split.old, *split.newest]


def operation(move: str, n: int, history: History, head: str | None) -> list[Intent | Outcome]:
    if move == "save":
        return [intent(n, before=head, after=f"{n}"), Outcome(n=n)]
    if move == "undo" and history.undoable:
        return [intent(n, "undo", undoes=history.undoable[-1], before=head, after=f"u{n}", safety="s"), Outcome(n=n)]
    if move == "redo" and history.redoable:
        return [intent(n, "redo", undoes=history.redoable[-1], before=head, after=f"r{n}", safety="s"), Outcome(n=n)]
    if move in ("undo", "redo", "nothing"):
        return [intent(n, "rollback", before=head, after=head), Outcome(n=n)]
    verb = move if move in ("reset", "rollback") else "reset"
    after = head if verb == "rollback" else f"{n}"
    first = intent(n, verb, before=head, after=after, safety="s")
    return [first] if move == "cut-off" else [first, Outcome(n=n, done=move != "given-up")]


def test_an_old_operation_that_is_gone_on_with_moves_head(tmp_path):
    log = OperationLog(os.fsencode(tmp_path / "log"))
    log.write(intent(1, "reset", before=None, after="target", safety="s"))
    for n in range(2, 9):
        log.write(intent(n, before="x", after=f"{n}"))
        log.write(Outcome(n=n))
    cut_log(log)
    assert read_history(log.intents.values(), log.outcomes, log.mark).head == "8"
    log.write(intent(1, "reset", before=None, after="target", safety="s"))
    log.write(Outcome(n=1))
    assert read_history(log.intents.values(), log.outcomes, log.mark).head == "target"
    log.close()
    again = OperationLog(os.fsencode(tmp_path / "log"))
    assert read_history(again.intents.values(), again.outcomes, again.mark).head == "target"
    again.close()


def test_the_log_as_it_was_stays_beside(tmp_path):
    log = OperationLog(os.fsencode(tmp_path / "log"))
    for n in range(1, 9):
        log.write(intent(n))
        log.write(Outcome(n=n, result=msgspec.Raw(b'{"id":"x"}')))
    before = (tmp_path / "log").read_bytes()
    cut_log(log)
    assert (tmp_path / "log.old").read_bytes() == before
    assert log.answered(f"{8:032x}") is not None
    assert log.answered(f"{2:032x}") is None
    assert sorted(os.listdir(tmp_path)) == ["log", "log.old"]
    # What is written afterwards goes into the new file.
    log.write(intent(9))
    log.close()
    assert (tmp_path / "log.old").read_bytes() == before
    assert b'"n":9' in (tmp_path / "log").read_bytes()


def test_a_store_goes_on_over_a_cut(desk):
    """Undo reaches back over it, sequence numbers and head go on, a request that is sent again is done once."""
    desk.configure(log_bounds=Bounds(most=12, most_bytes=10**9, newest=4, newest_bytes=10**9))
    desk.write(b"a", b"0")
    first = desk.save("first").id
    desk.write(b"a", b"wrecked")
    desk.reset(first)
    for number in range(30):
        desk.write(b"b", b"%d" % number)
        params = SaveParams(**desk.common(), token=desk.token(), message=f"{number}")
        last = desk.writer.save(params, Caller("test"))
    assert len(desk.repo.log.intents) <= 13
    assert desk.writer.save(params, Caller("test")) == last
    desk.reopen()
    assert desk.head() == last.id
    desk.undo()
    assert Path(os.fsdecode(desk.path(b"a"))).read_bytes() == b"wrecked"
    desk.write(b"b", b"after")
    assert desk.save().seq > last.seq + 1


@pytest.mark.parametrize("step", ["log-kept", "file-written", "file-named", "log-cut"])
def test_a_cut_that_ends_at_any_step_loses_no_line(tmp_path, step):
    """What is written afterwards is in the file that counts, also where no other file can be opened any more."""
    log = OperationLog(os.fsencode(tmp_path / "log"))
    for n in range(1, 9):
        log.write(intent(n, before="x", after=f"{n}"))
        log.write(Outcome(n=n))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def refuse(name: str, path: bytes) -> None:
        if name == step:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))

    end = listen(refuse)
    try:
        with contextlib.suppress(DomainError):
            cut_log(log)
        log.write(intent(9, before="x", after="9"))
    finally:
        end()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    log.write(Outcome(n=9))
    again = OperationLog(os.fsencode(tmp_path / "log"))
    assert again.intents == log.intents
    assert again.outcomes == log.outcomes
    assert (again.next_number, again.mark) == (10, log.mark)
    again.close()
    log.close()
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".tmp-")]


def test_the_newest_restore_stays_for_it_ends_what_was_cut_off_before(desk):
    """One that had nothing to change can't be undone; yet nobody goes on any more with what came before it."""
    desk.configure(log_bounds=Bounds(most=12, most_bytes=10**9, newest=4, newest_bytes=10**9))
    log = desk.repo.log
    desk.write(b"a", b"0")
    first = desk.save("first").id
    log.write(intent(log.next_number, "reset", before=first, after=first, safety=first, paths=["a"]))
    stopped = log.next_number - 1
    assert unfinished(log).n == stopped
    desk.repo.log.write(intent(log.next_number, "reset", before=first, after=first))
    log.write(Outcome(n=log.next_number - 1))
    assert unfinished(log) is None
    for number in range(30):
        desk.write(b"b", b"%d" % number)
        desk.save()
    assert len(log.intents) <= 13
    assert stopped in log.intents
    assert unfinished(log) is None


def test_a_checkpoint_that_was_dropped_is_not_taken_for_a_lost_one(desk):
    """Its content is in the store until it is collected, and the refs of all others may be lost by then."""
    desk.configure(log_bounds=Bounds(most=12, most_bytes=10**9, newest=4, newest_bytes=10**9))
    desk.write(b"secret", b"0")
    dropped = desk.save("secret").id
    desk.remove(b"secret")
    desk.write(b"a", b"0")
    desk.save("first")
    desk.writer.drop(DropParams(**desk.common(), token=desk.token(), ids=[dropped]), Caller("test"))
    for number in range(30):
        desk.write(b"b", b"%d" % number)
        desk.save()
    assert len(desk.repo.log.intents) <= 13
    kept = set(desk.repo.lookup.ids())
    assert bytes.fromhex(dropped) in desk.repo.objects
    desk.close()
    shutil.rmtree(desk.folder + b"/refs")
    desk.open()
    assert set(desk.repo.lookup.ids()) == kept
