"""Taking back what one session changed: its own and nothing else, by the saves of a hook around its calls."""

import os
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpt_protocol import checkpoint as wire
from ckpt_protocol.structs import from_wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from support.restores import Copy, content, refused, untouched
from support.worktrees import Desk, desk_fixture, in_child

pytestmark = pytest.mark.core


def begin(desk: Desk, session: str, **meta: str) -> wire.SaveResult:
    return desk.save("before", kind="auto", meta={"session": session, "event": "PreToolUse", **meta})


def end(desk: Desk, session: str) -> wire.SaveResult:
    return desk.save("after", kind="auto", meta={"session": session, "event": "PostToolUse"})


@contextmanager
def call(desk: Desk, session: str):
    """The saves around a tool call."""
    begin(desk, session)
    yield
    end(desk, session)


def undo(desk: Desk, session: str, **fields) -> wire.RestoreResult:
    return desk.undo(session=session, whole_session=True, **fields)


def names(paths) -> set[bytes]:
    return {from_wire(path) for path in paths}


def why(result: wire.RestoreResult) -> dict[bytes, tuple[str, str]]:
    return {from_wire(one.path): (one.reason, one.detail) for one in result.conflicts}


def look(desk: Desk, *paths: bytes) -> list[bytes | None]:
    return [content(desk, path) if os.path.lexists(desk.path(path)) else None for path in paths]


def plan_of(desk: Desk, session: str) -> wire.RestoreResult:
    with untouched(desk):
        return undo(desk, session, dry_run=True, skip_conflicts=True)


@pytest.fixture
def planted(desk: Desk) -> Desk:
    for name in (b"a", b"b", b"c", b"d/x"):
        desk.write(name, b"0")
    desk.save("start")
    return desk


def test_all_that_it_changed_and_nothing_else(planted: Desk):
    desk = planted
    clean = Copy(desk)
    with call(desk, "A"):
        desk.write(b"a", b"A1")
        desk.write(b"new/deep", b"A")
        desk.remove(b"d")
    with call(desk, "A"):
        desk.write(b"a", b"A2")
        os.chmod(desk.path(b"c"), 0o600)
    wrecked = Copy(desk, b"wrecked")
    plan = plan_of(desk, "A")
    done = undo(desk, "A", digest=plan.digest)
    assert (names(done.written), names(done.deleted)) == ({b"a", b"c", b"d/x"}, {b"new/deep"})
    assert (done.conflicts, done.edited, plan.dry_run) == ([], [], True)
    assert clean.differences() == []
    with refused(desk, "nothing_to_undo"):
        undo(desk, "A")
    desk.redo()
    assert wrecked.differences() == []
    assert names(undo(desk, "A").written) == {b"a", b"c", b"d/x"}
    assert clean.differences() == []
    assert desk.redo(session="A").conflicts == []
    assert wrecked.differences() == []


def test_the_others_stay(planted: Desk):
    desk = planted
    with call(desk, "A"):
        desk.write(b"a", b"A")
    with call(desk, "B"):
        desk.write(b"b", b"B")
    desk.write(b"c", b"by hand")
    done = undo(desk, "A")
    assert (names(done.written), look(desk, b"a", b"b", b"c")) == ({b"a"}, [b"0", b"B", b"by hand"])
    assert (names(undo(desk, "B").written), look(desk, b"b", b"c")) == ({b"b"}, [b"0", b"by hand"])
    with refused(desk, "nothing_to_undo"):
        undo(desk, "C")


def test_it_stops_at_what_others_have_been_at_and_says_who(planted: Desk):
    desk = planted
    with call(desk, "A"):
        for name in (b"a", b"b", b"c", b"d/x"):
            desk.write(name, b"A")
    with call(desk, "B"):
        desk.write(b"a", b"B")
    desk.write(b"b", b"by hand")
    last = desk.save("by hand").seq
    desk.write(b"c", b"not saved")
    with refused(desk, "conflicts", b"a", b"b", b"c"):
        undo(desk, "A")
    plan = plan_of(desk, "A")
    assert why(plan) == {
        b"a": ("other_session", "session B changed it between #4 and #5"),
        b"b": ("edited", f"it was changed between #5 and #{last}, by no session that saved"),
        b"c": ("edited", f"it was changed after #{last}, by no session that saved"),
    }
    done = undo(desk, "A", skip_conflicts=True, digest=plan.digest)
    assert (names(done.written), why(done)) == ({b"d/x"}, why(plan))
    assert look(desk, b"a", b"b", b"c", b"d/x") == [b"B", b"by hand", b"not saved", b"0"]


def test_somebody_else_in_between_is_in_the_way_too(planted: Desk):
    desk = planted
    with call(desk, "A"):
        desk.write(b"a", b"A1")
    with call(desk, "B"):
        desk.write(b"a", b"B")
    with call(desk, "A"):
        desk.write(b"a", b"A2")
    assert why(plan_of(desk, "A")) == {b"a": ("other_session", "session B changed it between #4 and #5")}
    # What B found is what A had left; A has been there since.
    assert why(plan_of(desk, "B")) == {b"a": ("other_session", "session A changed it between #6 and #7")}


def test_what_was_taken_back_by_hand_is_no_longer_its_work(planted: Desk):
    desk = planted
    with call(desk, "A"):
        desk.write(b"a", b"A1")
        desk.write(b"b", b"A1")
    desk.write(b"a", b"0")
    desk.save("by hand")
    desk.write(b"a", b"by hand")
    desk.save("by hand again")
    assert names(undo(desk, "A").written) == {b"b"}
    assert look(desk, b"a", b"b") == [b"by hand", b"0"]


def test_what_others_took_back_themselves_is_not_in_the_way(planted: Desk):
    desk = planted
    with call(desk, "A"):
        desk.write(b"a", b"A")
        desk.write(b"b", b"A1")
    with call(desk, "B"):
        desk.write(b"a", b"B")
        desk.write(b"b", b"B")
    with call(desk, "A"):
        desk.write(b"b", b"A2")
    assert names(undo(desk, "B", skip_conflicts=True).written) == {b"a"}
    assert why(plan_of(desk, "A")) == {b"b": ("other_session", "session B changed it between #4 and #5")}
    assert names(undo(desk, "A", skip_conflicts=True).written) == {b"a"}
    assert look(desk, b"a", b"b") == [b"0", b"A2"]


def test_two_at_once_cannot_be_told_apart(planted: Desk):
    desk = planted
    begin(desk, "A")
    desk.write(b"a", b"A")
    begin(desk, "B")
    desk.write(b"b", b"B, or A")
    end(desk, "A")
    desk.write(b"c", b"B")
    end(desk, "B")
    both = {b"b": ("unclear", "session B was at work as well between #3 and #4")}
    assert why(plan_of(desk, "A")) == both
    assert (names(undo(desk, "A", skip_conflicts=True).written), look(desk, b"a")) == ({b"a"}, [b"0"])
    assert why(plan_of(desk, "B")) == {b"b": ("unclear", "session A was at work as well between #3 and #4")}


def test_an_open_call_is_the_session_s_up_to_now(planted: Desk):
    desk = planted
    begin(desk, "A")
    desk.write(b"a", b"A")
    assert names(undo(desk, "A").written) == {b"a"}
    # Its own restore is the last thing that is known, and so it is after a redo.
    desk.redo()
    assert names(undo(desk, "A").written) == {b"a"}


def test_autosaves_during_a_call_change_nothing_of_whose_it_is(planted: Desk):
    desk = planted
    begin(desk, "A")
    desk.write(b"a", b"A1")
    desk.save(kind="auto")
    desk.write(b"a", b"A2")
    desk.write(b"b", b"A2")
    end(desk, "A")
    assert names(undo(desk, "A").written) == {b"a", b"b"}
    assert look(desk, b"a", b"b") == [b"0", b"0"]


def test_saves_that_only_name_a_session_count_up_to_the_next_one(planted: Desk):
    desk = planted
    desk.save(meta={"session": "A"})
    desk.write(b"a", b"A")
    desk.save(meta={"session": "B"})
    desk.write(b"b", b"B")
    desk.save("by hand")
    desk.write(b"c", b"by hand")
    assert names(undo(desk, "A").written) == {b"a"}
    assert names(undo(desk, "B").written) == {b"b"}
    assert look(desk, b"a", b"b", b"c") == [b"0", b"0", b"by hand"]


def restore(desk: Desk, session: str | None, id: str, path: str) -> None:
    params = {**desk.common(), "token": desk.token(), "id": id, "paths": [path]}
    desk.writer.restore(wire.RestoreParams(**params), Caller("agent", session))


def test_its_own_restores_count(planted: Desk):
    desk = planted
    first = desk.head()
    with call(desk, "A"):
        desk.write(b"b", b"A")
    desk.write(b"a", b"by hand")
    restore(desk, "A", first, "a")
    # By this one it has taken back itself what it did before.
    restore(desk, "A", first, "b")
    desk.write(b"c", b"by hand")
    assert (names(undo(desk, "A").written), look(desk, b"a", b"b", b"c")) == ({b"a"}, [b"by hand", b"0", b"by hand"])


def test_restores_of_others_are_in_the_way_or_have_done_it_already(planted: Desk):
    desk = planted
    first = desk.head()
    desk.write(b"d/x", b"1")
    other = desk.save("another").id
    desk.write(b"d/x", b"0")
    with call(desk, "A"):
        for name in (b"a", b"b", b"c", b"d/x"):
            desk.write(name, b"A")
    restore(desk, "B", other, "d/x")
    restore(desk, "B", first, "b")
    restore(desk, None, first, "a")
    desk.write(b"a", b"by hand")
    plan = plan_of(desk, "A")
    assert (names(plan.written), why(plan)) == (
        {b"c"},
        {b"d/x": ("other_session", "a rollback of session B changed it after #5")},
    )


def test_an_undo_of_a_restore_is_as_if_it_had_not_been(planted: Desk):
    desk = planted
    first = desk.head()
    with call(desk, "A"):
        desk.write(b"a", b"A")
    desk.reset(first)
    with refused(desk, "nothing_to_undo"):
        undo(desk, "A")
    desk.undo()
    assert names(undo(desk, "A").written) == {b"a"}
    assert look(desk, b"a") == [b"0"]


def test_a_restore_of_others_during_a_call(planted: Desk):
    desk = planted
    first = desk.head()
    begin(desk, "A")
    desk.write(b"a", b"A1")
    desk.write(b"b", b"A1")
    desk.rollback(first, b"a")
    desk.write(b"a", b"A2")
    end(desk, "A")
    assert names(undo(desk, "A").written) == {b"a", b"b"}
    assert look(desk, b"a", b"b") == [b"0", b"0"]
    with call(desk, "A"):
        desk.write(b"a", b"A3")
    other = desk.head()
    begin(desk, "A")
    desk.write(b"a", b"A4")
    desk.rollback(other, b"a")
    end(desk, "A")
    (told,) = why(plan_of(desk, "A")).values()
    assert told[0] == "edited"
    assert told[1].startswith("a rollback changed it after #")


def test_what_rules_leave_out_is_not_what_it_made(planted: Desk):
    desk = planted
    desk.write(b".gitignore", b"*.log\n")
    desk.write(b"x.log", b"mine")
    desk.write(b"y.dat", b"mine")
    desk.save("rules")
    with call(desk, "A"):
        desk.write(b".gitignore", b"*.dat\n")
    told = why(plan_of(desk, "A"))
    assert {path: one[0] for path, one in told.items()} == {b"x.log": "unclear", b"y.dat": "unclear"}
    done = undo(desk, "A", skip_conflicts=True)
    assert names(done.written) == {b".gitignore"}
    assert look(desk, b"x.log", b"y.dat") == [b"mine", b"mine"]


def test_a_directory_that_holds_others_work_makes_no_room(planted: Desk):
    desk = planted
    with call(desk, "A"):
        desk.remove(b"a")
        desk.write(b"a/own", b"A")
        desk.remove(b"b")
        desk.write(b"b/own", b"A")
    desk.write(b"a/theirs", b"by hand")
    told = why(plan_of(desk, "A"))
    assert told == {b"a": ("unclear", "what others made is below it")}
    undo(desk, "A", skip_conflicts=True)
    assert look(desk, b"a/own", b"a/theirs", b"b") == [None, b"by hand", b"0"]


def test_a_directory_stays_for_what_is_in_it(planted: Desk):
    desk = planted
    with call(desk, "A"):
        desk.write(b"new/own", b"A")
    desk.write(b"new/theirs", b"by hand")
    done = undo(desk, "A")
    assert (names(done.deleted), done.conflicts) == ({b"new/own"}, [])
    assert look(desk, b"new/theirs") == [b"by hand"]


def test_paths_come_from_several_checkpoints(planted: Desk):
    desk = planted
    with call(desk, "A"):
        desk.write(b"a", b"A")
    desk.write(b"b", b"by hand")
    desk.write(b"deep/er/y", b"by hand")
    desk.save("by hand")
    with call(desk, "A"):
        desk.write(b"b", b"A")
        desk.remove(b"deep")
        desk.write(b"c", b"A")
    assert names(undo(desk, "A").written) == {b"a", b"b", b"c", b"deep/er/y"}
    assert look(desk, b"a", b"b", b"c", b"deep/er/y") == [b"0", b"by hand", b"0", b"by hand"]


def test_where_checkpoints_are_gone_nothing_is_guessed(planted: Desk):
    desk = planted
    with call(desk, "A"):
        desk.write(b"a", b"A")
    begin(desk, "A")
    desk.write(b"b", b"A")
    gone = desk.save(kind="auto")
    desk.write(b"b", b"by whom?")
    end(desk, "A")
    params = {**desk.common(), "token": desk.token(), "ids": [gone.id]}
    desk.writer.drop(wire.DropParams(**params), Caller("test"))
    assert why(plan_of(desk, "A")) == {
        b"b": ("unclear", "what was saved or restored between #4 and #6 is not known any more")
    }
    assert names(undo(desk, "A", skip_conflicts=True).written) == {b"a"}


def test_conditions_hold_and_nonsense_is_refused(planted: Desk):
    desk = planted
    with call(desk, "A"):
        desk.write(b"a", b"A")
    with refused(desk, "precondition_failed", b"a"):
        undo(desk, "A", expect=[wire.Expected(path="a", oid="absent")])
    with refused(desk, "plan_changed"):
        undo(desk, "A", digest="0" * 64)
    with refused(desk, "bad_option"):
        desk.undo(whole_session=True)
    with refused(desk, "bad_option"):
        desk.redo(whole_session=True, session="A")


def test_a_store_without_checkpoints(desk: Desk):
    with refused(desk, "nothing_to_undo"):
        undo(desk, "A")


def test_the_same_request_is_done_once(planted: Desk):
    desk = planted
    with call(desk, "A"):
        desk.write(b"a", b"A")
    token = desk.token()
    done = undo(desk, "A", token=token)
    desk.write(b"a", b"A again")
    assert undo(desk, "A", token=token) == done
    assert look(desk, b"a") == [b"A again"]


@pytest.mark.parametrize("way", ["again", "finish", "undo", "plain"])
def test_one_that_was_cut_off_is_ended_either_way(planted: Desk, way: str):
    desk = planted
    with call(desk, "A"):
        desk.write(b"a", b"A")
        desk.write(b"z", b"A")
    desk.write(b"b", b"by hand")
    desk.write(b"deep/er/y", b"by hand")
    desk.save("by hand")
    with call(desk, "A"):
        desk.write(b"b", b"A")
        desk.remove(b"deep")
    before = Copy(desk)
    die(desk, lambda: undo(desk, "A"))
    assert desk.status().interruption.verb == "undo"
    if way == "undo":
        desk.resume("undo")
        assert before.differences() == []
        return
    done = {
        "again": lambda: undo(desk, "A"),
        "finish": lambda: desk.resume("finish"),
        "plain": lambda: desk.undo(),
    }[way]()
    assert names(done.written) == {b"a", b"b", b"deep/er/y"}
    assert look(desk, b"a", b"b", b"deep/er/y", b"z") == [b"0", b"by hand", b"by hand", None]
    desk.redo()
    assert before.differences() == []


def die(desk: Desk, work) -> None:
    def hook(name: str, _path: bytes) -> None:
        if name == "unlinked":
            os._exit(9)

    desk.configure(hooks=hook)
    assert os.waitstatus_to_exitcode(in_child(work)) == 9
    desk.configure(hooks=lambda _name, _path: None)
    desk.open(create=False)


turns = st.lists(
    st.tuples(
        st.sampled_from(["A", "B", "hand"]),
        st.dictionaries(st.sampled_from([b"a", b"b", b"d/x", b"d/y"]), st.sampled_from([None, b"1", b"2"]), max_size=2),
    ),
    min_size=2,
    max_size=5,
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(turns)
def test_each_path_is_as_without_the_session_or_stays(history):
    """Sessions and hands take turns; a path that A alone has changed since is as it was before A."""
    for desk in desk_fixture():
        desk.settle()
        world: dict[bytes, bytes] = {b"stays": b"x"}
        desk.write(b"stays", b"x")
        desk.save("start", rehash=True)
        found: dict[bytes, tuple[bytes | None, bool]] = {}
        left: dict[bytes, bytes | None] = {}
        mixed: set[bytes] = set()
        for who, changes in history:
            if who != "hand":
                desk.save(rehash=True, kind="auto", meta={"session": who, "event": "PreToolUse"})
            for path, data in changes.items():
                before = world.pop(path, None)
                if data is not None:
                    world[path] = data
                    desk.write(path, data)
                elif before is not None:
                    desk.remove(path)
                if data == before:
                    continue
                if who == "A":
                    found.setdefault(path, (before, True))
                    left[path] = data
                    mixed |= {path} if not found[path][1] else set()
                elif path in found:
                    found[path] = (found[path][0], path not in mixed and data == left[path])
                if path in found and found[path][0] == data:
                    del found[path]
                    mixed.discard(path)
            if who != "hand":
                desk.save(rehash=True, kind="auto", meta={"session": who, "event": "PostToolUse"})
            else:
                desk.save("by hand", rehash=True)
        expected = {path: before if is_own else world.get(path) for path, (before, is_own) in found.items()}
        files = {path for path, (_, is_own) in found.items() if not is_own}
        if expected:
            done = undo(desk, "A", skip_conflicts=True)
            assert {path for path in why(done) if not path.endswith(b"d")} == files
        else:
            # A directory may be left of what others have taken back.
            try:
                done = undo(desk, "A", skip_conflicts=True)
            except DomainError as error:
                kind = error.kind
            else:
                kind = "nothing_to_undo" if names([*done.written, *done.deleted]) <= {b"d"} else str(done)
            assert kind == "nothing_to_undo"
        for path in (b"a", b"b", b"d/x", b"d/y", b"stays"):
            assert look(desk, path) == [expected.get(path, world.get(path))], path
