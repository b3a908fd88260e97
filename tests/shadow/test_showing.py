"""Showing a checkpoint of many changes and making a patch go on in steps, and a patch holds no more than it needs."""

import base64
import gc
import os

import pytest

from ckpt_protocol import checkpoint as wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.spool import SpoolSink
from ckptd.shadow.patch import rename
from ckptd.shadow.patch.pair import Pair, Side
from ckptd.shadow.store import diffing, stepping
from ckptd.shadow.trees.compare import Delta, picking_visible
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import REGULAR
from support.worktrees import Desk, to_the_end

pytestmark = pytest.mark.core

FILES = 1200


@pytest.fixture
def wide(desk: Desk) -> Desk:
    """Two checkpoints, between which each of many files was changed."""
    for text in (b"one\n", b"two\n"):
        for number in range(FILES):
            desk.write(b"d%d/f%d" % (number % 40, number), text)
        desk.save(text.decode())
    return desk


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def begin(desk: Desk, caller: Caller):
    return desk.reader.show(wire.ShowParams(**desk.common(), id="HEAD"), caller)


def test_it_gives_way_tells_how_far_it_is_and_comes_to_the_same(wide: Desk, monkeypatch):
    whole = wide.show("HEAD")
    assert len(whole.changes) == FILES
    monkeypatch.setattr(stepping, "_STEP_S", -1.0)
    told: list[int] = []
    run = begin(wide, Caller("test", progress=lambda _phase, done, _total, _bytes: told.append(done)))
    steps = 0
    while (result := run.step()) is None:
        steps += 1
        if steps % 500 == 0:
            # Another read of the same store, by the same thread.
            assert wide.head() == whole.checkpoint.id
    assert result == whole
    # A piece for each path that differs, and for each that is told.
    assert steps > 2 * FILES
    assert max(told) >= FILES


def test_called_off_in_the_middle_it_ends(wide: Desk, monkeypatch):
    monkeypatch.setattr(stepping, "_STEP_S", -1.0)
    caller = Caller("test")
    run = begin(wide, caller)
    for _ in range(100):
        assert run.step() is None
    caller.call_off()
    with pytest.raises(DomainError, match="called off"):
        run.step()
    run.close()


@pytest.mark.parametrize("form", ["patch", "stat", "name-status"])
@pytest.mark.parametrize("to", ["WORKTREE", "#2"])
def test_others_save_while_a_patch_is_made_and_it_is_the_same(wide: Desk, form, to, monkeypatch):
    fields = {"from_id": "#1", "to_id": to, "format": form}
    if to == "WORKTREE":
        for number in range(FILES):
            wide.write(b"d%d/f%d" % (number % 40, number), b"three\n")
    whole = wide.diff(**fields)
    monkeypatch.setattr(stepping, "_STEP_S", -1.0)
    run, steps = wide.begin_diff(**fields), 0
    while (result := run.step()) is None:
        steps += 1
        if steps % 1000 == 0:
            wide.write(b"d1/f1", b"edited %d\n" % steps)
            assert wide.save().created
    assert base64.b64decode(result.data.b64) == whole[: 1 << 20]
    # A piece for each path that differs, for each pair of sides, and for each that is shown.
    assert steps > 3 * FILES


def test_a_look_at_the_worktree_that_nobody_wants_any_more_is_let_go_of(wide: Desk):
    for number in range(40):
        wide.write(b"large%d" % number, os.urandom(1 << 18))
    wide.status()
    before = descriptors()
    run = wide.begin_diff()
    # What does not fit into memory is in a file.
    assert descriptors() == before + 1
    run.close()
    assert descriptors() == before
    snapshot = wide.writer.snapshot(wire.DiffParams(**wide.common()), Caller("test"))
    assert descriptors() == before + 1
    del snapshot
    assert descriptors() == before


def test_there_are_few_looks_at_a_worktree_at_a_time(wide: Desk):
    def look() -> diffing.Snapshot | None:
        return wide.writer.snapshot(wire.DiffParams(**wide.common()), Caller("test"))

    kept = [look() for _ in range(4)]
    assert None not in kept
    assert look() is None
    kept[1].close()
    again = look()
    assert again is not None
    assert look() is None
    # One that nobody has any more is none, either.
    del again
    gc.collect()
    assert look() is not None


@pytest.mark.parametrize("form", ["patch", "stat", "name-status"])
def test_a_diff_that_is_called_off_ends_between_two_files(wide: Desk, form, monkeypatch):
    caller, loads = Caller("test"), []
    load = diffing._load

    def counting(objects, fresh, oid):
        loads.append(oid)
        if len(loads) == 10:
            caller.call_off()
        return load(objects, fresh, oid)

    monkeypatch.setattr(diffing, "_load", counting)
    if form == "name-status":
        caller.call_off()
    with pytest.raises(DomainError, match="cancel"):
        to_the_end(wide.begin_diff(caller=caller, from_id="#1", to_id="#2", format=form))
    assert len(loads) <= 12


def test_few_objects_are_made_for_each_path_of_a_diff(wide: Desk, monkeypatch):
    """Of hundreds of thousands, a look at all of them by the garbage collector would hold everybody up."""
    counts: list[int] = []
    search = rename.finding_renames

    def counting(pairs):
        gc.collect()
        counts.append(len(gc.get_objects()))
        return search(pairs)

    monkeypatch.setattr(diffing, "finding_renames", counting)
    gc.collect()
    before = len(gc.get_objects())
    wide.diff(from_id="#1", to_id="#2")
    # Two sides and the pair of them, what stands there on either side, and what the two trees hold.
    assert (counts[0] - before) / FILES < 12


def test_what_a_diff_has_read_of_the_worktree_goes_with_its_end(wide: Desk):
    wide.write(b"d1/f1", b"three\n")
    gc.collect()
    gc.disable()
    try:
        wide.diff()
        assert not any(isinstance(one, SpoolSink) for one in gc.get_objects())
    finally:
        gc.enable()


def test_renames_of_many_files_are_found_with_few_objects():
    """For each a dict or two of dicts: the collector looked at three hundred thousand while others waited."""
    pairs = [Pair(b"old/%d" % number, side(number), None) for number in range(FILES)]
    pairs += [Pair(b"new/%d" % number, None, side(number)) for number in range(FILES)]
    finding = rename.finding_renames(pairs)
    gc.collect()
    before, most, pieces = len(gc.get_objects()), 0, 0
    for _ in finding:
        pieces += 1
        most = max(most, len(gc.get_objects()))
    assert most - before < FILES
    assert pieces > 2 * FILES // 500


@pytest.mark.parametrize("number", [0, 1, 2, 3_999, 4_000, 4_001, 30_000])
def test_many_changes_are_sorted_in_parts(number: int):
    paths = {b"%d%s%d" % (one % 7, (b"/", b"-", b"", b"\xff")[one % 4], one) for one in range(number)}
    deltas = [Delta(path, None, State(REGULAR, b"%020d" % len(path), 0o644)) for path in paths]
    picking = picking_visible(deltas)
    pieces = 0
    while True:
        try:
            next(picking)
        except StopIteration as end:
            found = end.value
            break
        pieces += 1
    assert [one.path for one in found] == sorted(paths)
    # Gone through three times, 500 at a time; and each part is sorted by itself.
    assert pieces >= 3 * (number // 500) + number // 4_000


def side(number: int) -> Side:
    return Side(REGULAR, b"%020d" % number, lambda _oid: b"")
