"""What goes by rule: the rule itself on many times, and what it does to a store."""

import datetime
import os
import random

import pytest

from ckpt_protocol.checkpoint import DropParams, TagParams
from ckpt_protocol.store import GcParams, ThinParams, ThinResult
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.objects.pieces import drained
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.record.thinning import Item, Keep, over_cap, thinned
from ckptd.shadow.store import stepping
from support.worktrees import Desk, in_child, opened_files, to_the_end, verify

pytestmark = pytest.mark.core

DAY_S = 86_400
NOW_S = int(datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC).timestamp())


def by_calendar(items: list[Item], keep: Keep) -> set[int]:
    """The automatic ones that stay, by the calendar instead of by divisions."""
    newest_first = sorted(items, reverse=True)
    stay = {one.seq for one in newest_first[: keep.last]}
    for count, name in ((keep.hourly, "%Y-%m-%d %H"), (keep.daily, "%Y-%m-%d"), (keep.weekly, "%G-%V")):
        seen: list[str] = []
        for one in newest_first:
            period = datetime.datetime.fromtimestamp(one.time_s, datetime.UTC).strftime(name)
            if period not in seen:
                seen.append(period)
                if len(seen) <= count:
                    stay.add(one.seq)
    return stay


@pytest.mark.parametrize(
    "keep",
    [
        Keep(),
        Keep(last=0),
        Keep(last=10, hourly=0, daily=0, weekly=0),
        Keep(0, 0, 0, 3),
        Keep(1, 2, 3, 4),
        Keep(0, 0, 0, 0),
    ],
)
@pytest.mark.parametrize("spread_days", [1, 30, 400])
def test_five_hundred_times_against_the_calendar(keep, spread_days):
    chance = random.Random(spread_days)
    times = sorted(NOW_S - chance.randrange(spread_days * DAY_S) for _ in range(500))
    items = [Item(number, time_s, "auto") for number, time_s in enumerate(times, 1)]
    gone = thinned(items, keep, NOW_S)
    assert {one.seq for one in items} - set(gone) == by_calendar(items, keep)
    assert gone == sorted(set(gone))


def test_the_default_of_one_every_minute_for_a_day():
    items = [Item(number, NOW_S - (1440 - number) * 60, "auto") for number in range(1, 1441)]
    gone = thinned(items, Keep(), NOW_S)
    # The newest hundred are in three hours; of the 21 hours before, each keeps its last.
    assert len(items) - len(gone) == 100 + 21
    assert 1440 not in gone


def test_what_is_decided_again_is_decided_alike():
    chance = random.Random(7)
    items = [Item(n, NOW_S - chance.randrange(60 * DAY_S), "auto") for n in range(1, 300)]
    gone = set(thinned(items, Keep(last=5), NOW_S))
    assert thinned([one for one in items if one.seq not in gone], Keep(last=5), NOW_S) == []


def test_kinds_and_what_is_fixed():
    old = NOW_S - 400 * DAY_S
    items = [
        Item(1, old, "manual"),
        Item(2, old, "manual", fixed=True),
        Item(3, old, "auto"),
        Item(4, old, "auto", fixed=True),
        Item(5, old, "safety"),
        Item(6, old, "safety", fixed=True),
        Item(7, NOW_S, "manual"),
    ]
    nothing = Keep(0, 0, 0, 0)
    assert thinned(items, nothing, NOW_S) == [3, 5]
    assert thinned(items, nothing._replace(manual_days=399), NOW_S) == [1, 3, 5]
    assert thinned(items, nothing._replace(manual_days=401), NOW_S) == [3, 5]


def test_numbers_and_not_clocks_say_what_is_newest():
    items = [Item(1, NOW_S + 10 * DAY_S, "auto"), Item(2, NOW_S, "auto"), Item(3, NOW_S + 60, "auto")]
    assert thinned(items, Keep(1, 0, 0, 0), NOW_S) == [1, 2]
    assert thinned(items, Keep(0, 1, 0, 0), NOW_S) == [1, 2]


def test_over_the_cap_the_oldest_automatic_ones_go_that_free_something():
    frees = {1: 10, 2: 0, 3: 10, 4: 10, 5: 10}
    kinds = {1: "manual", 2: "auto", 3: "auto", 4: "safety", 5: "auto"}
    items = [Item(seq, 0, kind) for seq, kind in kinds.items()]
    assert over_cap(items, 100, 100, frees.__getitem__) == ([], 100)
    assert over_cap(items, 100, 95, frees.__getitem__) == ([3], 90)
    assert over_cap(items, 100, 1, frees.__getitem__) == ([3, 5], 80)
    assert over_cap([one._replace(fixed=True) for one in items], 100, 1, frees.__getitem__) == ([], 100)


# a store


def thin(desk: Desk, **fields) -> ThinResult:
    params = {"token": desk.token(), **fields}
    return to_the_end(desk.writer.thin(ThinParams(**desk.common(), **params), Caller("test")))


def seqs(desk: Desk) -> list[int]:
    return sorted(one.seq for one in desk.list(limit=1000).checkpoints)


@pytest.fixture
def mixed(desk: Desk) -> Desk:
    """Ten checkpoints: the third and the tenth are manual, the sixth automatic one has a tag."""
    desk.configure(keep=Keep(2, 0, 0, 0))
    for number in range(1, 11):
        desk.write(b"f", b"%d\n" % number * 100)
        desk.save(kind="manual" if number in (3, 10) else "auto", tag="six" if number == 6 else None)
    return desk


def test_a_store_is_thinned(mixed):
    ids = {one.seq: one.id for one in mixed.list().checkpoints}
    planned = thin(mixed, dry_run=True)
    assert [one.seq for one in planned.dropped] == [1, 2, 4, 5, 7]
    assert seqs(mixed) == list(range(1, 11))
    done = thin(mixed)
    assert done.dropped == planned.dropped
    assert (done.frees_bytes, done.over_cap) == (planned.frees_bytes, False)
    assert done.frees_bytes > 0
    assert {one.seq: one.id for one in mixed.list().checkpoints} == {seq: ids[seq] for seq in (3, 6, 8, 9, 10)}
    assert mixed.head() == ids[10]
    mixed.reopen()
    assert seqs(mixed) == [3, 6, 8, 9, 10]
    assert thin(mixed).dropped == []
    assert mixed.cat("six", b"f") == b"6\n" * 100


def test_what_thinning_says_it_frees_is_what_the_collection_frees(mixed):
    result = thin(mixed)
    run = mixed.writer.gc(GcParams(**mixed.common(), token=mixed.token()), Caller("test"))
    while (collected := run.step()) is None:
        pass
    assert collected.removed_bytes == result.frees_bytes
    verify(mixed.folder)


def test_safety_checkpoints_go_when_no_undo_needs_them(desk):
    for number in (1, 2):
        desk.write(b"f", b"%d" % number)
        desk.save()
    desk.reset("#1")
    assert thin(desk).dropped == []
    desk.undo()
    # What redo needs is the safety checkpoint of the undo.
    assert [(one.seq, one.kind) for one in thin(desk).dropped] == [(3, "safety")]
    desk.redo()
    assert [(one.seq, one.kind) for one in thin(desk).dropped] == [(4, "safety")]
    desk.undo()
    with open(desk.path(b"f"), "rb") as file:
        assert file.read() == b"2"


def test_head_and_the_newest_stay(desk):
    desk.configure(keep=Keep(0, 0, 0, 0))
    for number in range(4):
        desk.write(b"f", b"%d" % number)
        desk.save(kind="auto")
    desk.reset("#2")
    assert [one.seq for one in thin(desk).dropped] == [1, 3, 4]
    assert desk.head() == desk.list().checkpoints[-1].id


def test_over_the_cap(desk):
    desk.configure(keep=Keep(max_bytes=1))
    for number in range(4):
        desk.write(b"f", b"%d" % number * 3000)
        desk.save(kind="auto" if number else "manual")
    result = thin(desk)
    assert [one.seq for one in result.dropped] == [2, 3]
    assert result.over_cap
    assert "ckpt drop" in result.notes[0]


def begin(desk: Desk, **fields):
    params = {"token": desk.token(), **fields}
    return desk.writer.thin(ThinParams(**desk.common(), **params), Caller("test"))


def test_others_come_in_between_and_what_they_did_counts(mixed, monkeypatch):
    monkeypatch.setattr(stepping, "_STEP_S", -1.0)
    run, token, steps = begin(mixed), mixed.token(), 0
    again = begin(mixed, token=token)
    while (result := run.step()) is None:
        steps += 1
        if steps == 3:
            mixed.write(b"f", b"eleven")
            mixed.save(kind="auto")
        if steps == 6:
            # What it was made of goes with it, whether or not it was weighed by then.
            mixed.writer.drop(DropParams(**mixed.common(), token=mixed.token(), ids=["#1"]), Caller("test"))
            to_the_end(mixed.writer.gc(GcParams(**mixed.common(), token=mixed.token()), Caller("test")))
        if steps == 9:
            assert again.step() is None
    # A piece for each checkpoint at least.
    assert steps > 10
    assert [one.seq for one in result.dropped] == [2, 4, 5, 7, 8]
    assert seqs(mixed) == [3, 6, 9, 10, 11]
    assert to_the_end(again).dropped == []


def test_the_same_request_sent_twice_at_once_is_done_once(mixed, monkeypatch):
    monkeypatch.setattr(stepping, "_STEP_S", -1.0)
    token = mixed.token()
    first, second = begin(mixed, token=token), begin(mixed, token=token)
    assert (first.step(), second.step()) == (None, None)
    result = to_the_end(first)
    assert [one.seq for one in result.dropped] == [1, 2, 4, 5, 7]
    assert to_the_end(second) == result


def test_called_off_it_removes_nothing(mixed, monkeypatch):
    monkeypatch.setattr(stepping, "_STEP_S", -1.0)
    caller = Caller("test")
    run = mixed.writer.thin(ThinParams(**mixed.common(), token=mixed.token()), caller)
    for _ in range(5):
        assert run.step() is None
    caller.call_off()
    with pytest.raises(DomainError, match="called off"):
        run.step()
    run.close()
    assert seqs(mixed) == list(range(1, 11))


def test_nothing_goes_while_something_is_damaged(mixed):
    mixed.damaged = True
    tree = mixed.tree_of(mixed.list().checkpoints[-1].id)
    index = next(one for one in mixed.repo.objects._indexes.values() if one.find(bytes.fromhex(tree)) is not None)
    os.chmod(index.pack_path, 0o600)
    with open(index.pack_path, "r+b") as file:
        file.seek(index.find(bytes.fromhex(tree)) + 4)
        file.write(b"\xff\xff")
    with pytest.raises(DomainError) as caught:
        thin(mixed)
    assert caught.value.kind == "store_damaged"
    assert seqs(mixed) == list(range(1, 11))


def test_the_same_request_is_done_once(mixed):
    token = mixed.token()
    first = thin(mixed, token=token)
    assert thin(mixed, token=token) == first
    mixed.reopen()
    assert thin(mixed, token=token) == first


@pytest.mark.parametrize("step", ["log-written", "log-durable", "refs-packed", "ref-deleted"])
def test_a_death_at_any_step_ends_in_all_or_nothing(mixed, step):
    mixed.close()

    def die() -> None:
        mixed.open()
        listen(lambda name, _path: os._exit(9) if name == step else None)
        thin(mixed)

    in_child(die)
    assert seqs(mixed) in (list(range(1, 11)), [3, 6, 8, 9, 10])
    thin(mixed)
    assert seqs(mixed) == [3, 6, 8, 9, 10]
    verify(mixed.folder)


def test_many_go_by_one_new_file(desk):
    """Of packed refs, however many go, one file is written, and none is opened for each of them."""
    desk.configure(keep=Keep(3, 0, 0, 0))
    for number in range(40):
        desk.write(b"f", b"%d" % number)
        desk.save(kind="auto")
    drained(desk.repo.refs.pack(1))
    # A file that has just changed is read again each time, for it can change again within the tick of its clock.
    os.utime(os.path.join(desk.folder, b"packed-refs"), (1, 1))
    desk.reopen()
    thin(desk, dry_run=True)
    with opened_files() as opened:
        assert len(thin(desk).dropped) == 37
    assert len([path for path in opened if b"refs" in path and path.startswith(desk.folder)]) < 8
    assert set(Refs(desk.folder).checkpoints()) == {38, 39, 40}


def test_drop_and_thin_know_each_other(mixed):
    mixed.writer.drop(DropParams(**mixed.common(), token=mixed.token(), ids=["#1"]), Caller("test"))
    mixed.writer.tag(TagParams(**mixed.common(), token=mixed.token(), id="#2", name="two"), Caller("test"))
    assert [one.seq for one in thin(mixed).dropped] == [4, 5, 7]
