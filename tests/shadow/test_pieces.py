"""Housekeeping in pieces: none of them is large, whatever there is; and what saves merge by the way is little."""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as effort_settings
from hypothesis import strategies as st

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import CHUNK_BYTES
from ckptd.shadow.objects.deltas import Plain, delta_candidates
from ckptd.shadow.objects.merge import merging, replacing
from ckptd.shadow.objects.pieces import PIECE_BYTES, PIECE_OBJECTS, Pieces, beside, drained, emptying
from ckptd.shadow.objects.surveying import MANY_ALIKE, alike, pack_sizes, small_beside_others, survey
from ckptd.shadow.store import housekeeping
from support.bare import Bare
from support.effort import examples
from support.merged import wait_at_once
from support.worktrees import Desk, verify

pytestmark = pytest.mark.core

KIB, MIB = 1 << 10, 1 << 20


@contextmanager
def nothing() -> Iterator[None]:
    yield


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    """A repository with three packs of 2,000 small objects, some in the same, and one large object."""
    bare = Bare(os.fsencode(tmp_path))
    chance = random.Random(1)
    for pack in range(3):
        blobs = [chance.randbytes(40) for _ in range(2_000)]
        bare.put(*blobs, *([chance.randbytes(5 * MIB)] if pack == 1 else []))
    return bare


class Counted:
    """Counts what each piece reads of packs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = self.bytes = 0
        self.worst = (0, 0)
        self.pieces = 0
        real = os.pread

        def read(fd: int, length: int, offset: int) -> bytes:
            data = real(fd, length, offset)
            self.reads += 1
            self.bytes += len(data)
            return data

        monkeypatch.setattr(os, "pread", read)

    def run(self, pieces: Pieces[object]) -> None:
        while True:
            self.reads = self.bytes = 0
            try:
                next(pieces)
            except StopIteration:
                return
            self.pieces += 1
            self.worst = max(self.worst[0], self.reads), max(self.worst[1], self.bytes)


def test_merging_reads_and_copies_little_in_each_piece(bare: Bare, monkeypatch: pytest.MonkeyPatch):
    sizes = pack_sizes(bare.pack_dir)
    counted = Counted(monkeypatch)
    counted.run(merging(bare.objects(), sizes, nothing))
    # Of each object the head, the bytes to prove them, and those to copy; and what a pack begins and ends with.
    assert counted.worst[0] <= 3 * PIECE_OBJECTS + 4
    assert counted.worst[1] <= PIECE_BYTES + CHUNK_BYTES
    assert counted.pieces > 2 * 6_000 // PIECE_OBJECTS
    assert len(bare.packs()) == 1
    bare.verify()


@pytest.mark.parametrize("what", ["survey", "deltas"])
def test_looking_through_packs_takes_little_in_each_piece(bare: Bare, monkeypatch: pytest.MonkeyPatch, what: str):
    counted = Counted(monkeypatch)
    if what == "survey":
        counted.run(survey(bare.pack_dir, lambda _oid: True))
    else:
        counted.run(delta_candidates(bare.pack_dir, 1 << 60, {}, 1 << 60))
    assert counted.worst[0] <= 310
    assert counted.pieces >= 10


def test_what_was_looked_into_once_is_not_looked_into_again(bare: Bare, monkeypatch: pytest.MonkeyPatch):
    known: dict[bytes, Plain] = {}
    counted = Counted(monkeypatch)
    counted.run(delta_candidates(bare.pack_dir, 0, known, 1 << 60))
    assert counted.worst[0] > 0
    again = Counted(monkeypatch)
    again.run(delta_candidates(bare.pack_dir, 0, known, 1 << 60))
    assert again.worst == (0, 0)
    assert known.keys() == pack_sizes(bare.pack_dir).keys()


def test_all_that_was_hidden_is_out_of_sight_at_once_and_gone_in_the_end(bare: Bare):
    stems = list(pack_sizes(bare.pack_dir))
    pieces = replacing(bare.objects(), stems, nothing, at_once=True)
    next(pieces, None)
    assert pack_sizes(bare.pack_dir) == {}
    drained(pieces)
    assert not [name for name in os.listdir(bare.pack_dir) if name.startswith(b"tmp_")]


def test_what_is_done_beside_is_waited_for_and_may_fail():
    def fail() -> None:
        raise DomainError("no_space", "none left")

    done: list[int] = []
    assert drained(beside(lambda: done.append(1))) is None
    assert done == [1]
    with pytest.raises(DomainError, match="none left"):
        drained(beside(fail))
    go_on = threading.Event()
    given_up = beside(lambda: go_on.wait(60) and done.append(2))
    assert next(given_up)
    go_on.set()
    given_up.close()
    assert done == [1, 2]


def test_a_set_is_emptied_in_pieces():
    many = {number.to_bytes(20) for number in range(25_000)}
    assert len(list(emptying(many))) == 2
    assert not many


# -- which packs are merged


def test_so_many_of_about_the_same_size_are_merged_the_smallest_first():
    small = {b"s%d" % number: 3 * KIB for number in range(MANY_ALIKE - 1)}
    medium = {b"m%d" % number: 40 * KIB for number in range(MANY_ALIKE)}
    large = {b"l%d" % number: 300 * KIB for number in range(40)}
    assert alike(small | large) == []
    assert sorted(alike(small | medium | large)) == sorted(medium)
    assert sorted(alike(small | {b"one more": 2 * KIB} | medium)) == sorted([*small, b"one more"])
    assert sorted(alike(small | medium | {b"one more": 2 * KIB, b"two more": 2 * KIB})) == sorted(
        [*small, b"one more", b"two more"]
    )
    assert alike({b"%d" % number: number for number in range(100)}) == [b"%d" % number for number in range(32)]


def test_what_is_large_beside_the_others_is_left_alone():
    small = {b"s%02d" % number: 3 * KIB for number in range(24)}
    assert small_beside_others({**small, b"large": 40 * MIB}, 1 << 40) == sorted(small)
    assert small_beside_others({b"a": 1, b"b": 2, b"c": 6, b"d": 18}, 1 << 40) == []
    assert small_beside_others({b"a": 1, b"b": 2, b"c": 5, b"d": 18}, 1 << 40) == [b"a", b"b", b"c"]
    assert small_beside_others({**small, b"too large": 65 * MIB, b"as large": 66 * MIB}, 1 << 40) == sorted(small)
    assert small_beside_others({}, 1 << 40) == []


@given(st.dictionaries(st.binary(min_size=1, max_size=3), st.integers(1, 60 * MIB), max_size=40))
@effort_settings(max_examples=examples(200), derandomize=True, deadline=None, database=None)
def test_after_a_merge_each_is_twice_as_large_as_all_smaller_ones(sizes: dict[bytes, int]):
    chosen = small_beside_others(sizes, 1 << 40)
    merged = sum(sizes[stem] for stem in chosen)
    left = sorted([size for stem, size in sizes.items() if stem not in chosen] + ([merged] if chosen else []))
    assert len(chosen) != 1
    for number, size in enumerate(left):
        assert size > 64 * MIB or size >= 2 * sum(left[:number])


@pytest.mark.parametrize("size", [300, 3 * KIB, 16 * KIB, 17 * KIB, 100 * KIB])
def test_ten_thousand_saves_without_a_rest_copy_each_byte_a_few_times(size: int):
    """By the sizes alone: each merge is done twelve saves after it began."""
    packs: dict[bytes, int] = {b"first": 40 * MIB}
    copied = most = 0
    under_way: tuple[int, list[bytes]] | None = None
    for number in range(10_000):
        packs[b"%d" % number] = size
        if under_way is None and (chosen := alike(packs)):
            under_way = number + 12, chosen
        elif under_way is not None and number == under_way[0]:
            total = sum(packs.pop(stem) for stem in under_way[1])
            packs[b"merged at %d" % number], copied, under_way = total, copied + total, None
        most = max(most, len([one for one in packs.values() if one <= 256 * KIB]))
    assert copied <= 4 * 10_000 * size
    assert most < 60
    # What has become large by that waits for a moment of rest.
    assert len(packs) - most <= 10_000 * size // (256 * KIB)


def test_many_saves_leave_few_packs_and_no_save_does_much(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    wait_at_once(monkeypatch)
    counted = Counted(monkeypatch)
    pieces: list[int] = []
    worst: list[tuple[int, int]] = []
    real = housekeeping.Housekeeper.saved

    def saved(keeper: housekeeping.Housekeeper) -> None:
        counted.reads = counted.bytes = 0
        real(keeper)
        worst.append((counted.reads, counted.bytes))

    monkeypatch.setattr(housekeeping.Housekeeper, "saved", saved)
    for number in range(200):
        desk.write(b"d/file", b"%d" % number)
        desk.save()
        pieces.append(desk.repo.objects.pack_count)
    assert max(pieces) < 60
    assert pieces[-1] < 40
    assert max(reads for reads, _ in worst) <= PIECE_OBJECTS
    assert sum(size for _, size in worst) < 4 * sum(desk.repo.objects.pack_sizes.values())
    assert [desk.cat(f"#{number}", b"d/file") for number in (1, 100, 200)] == [b"0", b"99", b"199"]
    verify(desk.folder)


def test_saves_of_many_files_merge_more_at_a_time(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    wait_at_once(monkeypatch)
    most = 0
    for number in range(60):
        for name in range(40):
            desk.write(b"d%d/f" % name, b"%d %d" % (number, name))
        desk.save()
        most = max(most, desk.repo.objects.pack_count)
    assert most < 3 * MANY_ALIKE
    verify(desk.folder)


def test_packs_that_somebody_keeps_are_not_looked_at_by_each_save(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    for number in range(MANY_ALIKE - 1):
        desk.write(b"f", b"%d" % number)
        desk.save()
    for name in os.listdir(desk.repo.objects.pack_dir):
        if name.endswith(b".pack"):
            open(os.path.join(desk.repo.objects.pack_dir, name[:-5] + b".keep"), "w").close()
    kept = set(os.listdir(desk.repo.objects.pack_dir))
    wait_at_once(monkeypatch)
    begun: list[int] = []
    real = housekeeping.merging
    monkeypatch.setattr(housekeeping, "merging", lambda *given: begun.append(len(given[1])) or real(*given))
    for number in range(20):
        desk.write(b"f", b"again %d" % number)
        desk.save()
    assert kept <= set(os.listdir(desk.repo.objects.pack_dir))
    # The one that nobody kept, and then sixteen that came since.
    assert begun[1:] in ([], [MANY_ALIKE])


def test_no_save_waits_for_the_disk_or_removes_a_file_for_what_is_merged(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    threads: list[tuple[str, bool]] = []
    inside: list[bool] = [False]
    real = housekeeping.Housekeeper.saved

    def saved(keeper: housekeeping.Housekeeper) -> None:
        inside[0] = True
        real(keeper)
        inside[0] = False

    def noted(name: str) -> None:
        call = getattr(os, name)

        def told(*given: object, **options: object) -> object:
            result = call(*given, **options)
            beside_it = threading.current_thread() is not threading.main_thread()
            if inside[0] or beside_it:
                threads.append((name, beside_it))
            return result

        monkeypatch.setattr(os, name, told)

    for name in ("fsync", "unlink"):
        noted(name)
    monkeypatch.setattr(housekeeping.Housekeeper, "saved", saved)
    for number in range(60):
        desk.write(b"f", b"%d" % number)
        desk.save()
    desk.close()
    assert ("fsync", True) in threads
    assert ("unlink", True) in threads
    assert not [name for name, beside_it in threads if not beside_it]


def test_a_moment_ends_after_the_piece_in_which_somebody_comes(desk: Desk):
    for number in range(12):
        for name in range(20):
            desk.write(b"d%d/f" % name, b"%d %d" % (number, name))
        desk.save()
    assert desk.repo.objects.pack_count == 12
    moments = 1
    while desk.writer.tend(lambda: True):
        moments += 1
    assert desk.repo.objects.pack_count == 1
    assert moments > 2 * desk.repo.objects.object_count // PIECE_OBJECTS
    verify(desk.folder)
