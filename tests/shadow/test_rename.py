"""Renames: which deletions and creations are joined, and how much work that may be."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptd.shadow.patch import rename
from ckptd.shadow.patch.pair import Pair, Side
from ckptd.shadow.patch.rename import find_renames
from ckptd.shadow.patch.similarity import MAX_SCORE, fingerprint, is_binary, percent, score
from ckptd.shadow.patch.summary import render_name_status
from ckptd.shadow.trees.tree import EXECUTABLE, LINK, REGULAR
from support.git_trees import Files, GitTrees, pairs_of

pytestmark = pytest.mark.core


def lines(word: str, start: int, end: int) -> tuple[int, bytes]:
    return REGULAR, b"".join(b"%s %d\n" % (word.encode(), number) for number in range(start, end))


def found(old: Files, new: Files, *, limit: int = 1000, similarity: float = 0.5) -> dict[bytes, bytes | None]:
    pairs = find_renames(pairs_of(old, new), limit=limit, similarity=similarity)
    return {pair.path: pair.old_path for pair in pairs}


def unreadable(seed: int) -> Side:
    def load(_oid: bytes) -> bytes:
        raise AssertionError("must not be read")

    return Side(REGULAR, bytes([seed]) * 20, load)


def test_a_rename_stands_at_its_new_path_and_others_stay() -> None:
    old = {b"a": lines("x", 0, 9), b"k": lines("k", 0, 9), b"z": lines("z", 0, 9)}
    new = {b"k": lines("k", 0, 8), b"m": lines("x", 0, 9), b"n": lines("n", 0, 9)}
    assert list(found(old, new).items()) == [(b"k", None), (b"m", b"a"), (b"n", None), (b"z", None)]


def test_the_same_content_is_found_without_reading_it() -> None:
    one, two = unreadable(1), unreadable(2)
    pairs = [Pair(b"a", one, None), Pair(b"b", None, one), Pair(b"c", two, None), Pair(b"d", None, two)]
    assert find_renames(pairs) == [Pair(b"b", one, one, b"a"), Pair(b"d", two, two, b"c")]


def test_among_the_same_content_the_base_name_decides() -> None:
    same = lines("x", 0, 5)
    old = {b"p/a": same, b"p/b": same, b"p/c": same}
    assert found(old, {b"q/b": same, b"q/c": same, b"r": same}) == {b"q/b": b"p/b", b"q/c": b"p/c", b"r": b"p/a"}


def test_a_source_is_used_once() -> None:
    assert found({b"a": lines("x", 0, 9)}, {b"b": lines("x", 0, 9), b"c": lines("x", 0, 9)}) == {b"b": b"a", b"c": None}
    assert found({b"a": lines("x", 0, 50)}, {b"b": lines("x", 0, 49), b"c": lines("x", 0, 50)}) == {
        b"b": None,
        b"c": b"a",
    }


def test_the_most_similar_pair_comes_first() -> None:
    old = {b"a": lines("x", 0, 100), b"b": lines("x", 0, 80)}
    assert found(old, {b"c": lines("x", 0, 82), b"d": lines("x", 0, 98)}) == {b"c": b"b", b"d": b"a"}


def test_links_directories_type_changes_and_edits_are_no_renames() -> None:
    data = lines("x", 0, 9)
    assert found({b"a": (LINK, b"t")}, {b"b": (LINK, b"t")}) == {b"a": None, b"b": None}
    assert found({b"a": (LINK, b"t")}, {b"b": (REGULAR, b"t")}) == {b"a": None, b"b": None}
    assert found({b"a": data, b"b": (LINK, b"t")}, {b"b": data}) == {b"a": None, b"b": None}
    assert found({b"a": data}, {b"b": (EXECUTABLE, data[1])}) == {b"b": b"a"}


def test_similarity_is_a_lower_limit() -> None:
    old, new = {b"a": lines("x", 10, 70)}, {b"b": lines("x", 40, 100)}
    assert found(old, new) == {b"b": b"a"}
    assert found(old, new, similarity=0.6) == {b"a": None, b"b": None}
    nothing_shared = {b"b": lines("y", 40, 100)}
    assert found(old, nothing_shared, similarity=0.0) == {b"a": None, b"b": None}


def test_beyond_the_limit_only_the_same_content_and_base_names_are_looked_at() -> None:
    old = {b"a/%d" % n: lines(f"w{n}", 0, 30) for n in range(4)} | {b"a/same": lines("s", 0, 9)}
    new = {b"b/x%d" % n: lines(f"w{n}", 0, 29) for n in range(3)} | {b"b/3": lines("w3", 0, 29)}
    new[b"c"] = lines("s", 0, 9)
    moved = {b"b/3": b"a/3", b"c": b"a/same"}
    assert {path: was for path, was in found(old, new, limit=2).items() if was} == moved
    assert {path: was for path, was in found(old, new, limit=3).items() if was} == moved | {
        b"b/x%d" % n: b"a/%d" % n for n in range(3)
    }


def test_large_files_are_found_only_if_they_are_the_same() -> None:
    large = lines("some more words", 0, 60_000)
    assert len(large[1]) > rename.MAX_FILE_BYTES
    assert found({b"a": large}, {b"b": large}) == {b"b": b"a"}
    assert found({b"a": large}, {b"b": (REGULAR, large[1] + b"x")}) == {b"a": None, b"b": None}


def test_reading_ends_when_enough_was_read() -> None:
    size = rename.MAX_FILE_BYTES
    count = rename.MAX_TOTAL_BYTES // size
    read: list[int] = []

    def reader(number: int) -> Callable[[bytes], bytes]:
        def load(_oid: bytes) -> bytes:
            read.append(number)
            return bytes(size)

        return load

    pairs = [
        Pair(b"%05d" % number, *((None, each) if number % 2 else (each, None)))
        for number in range(4 * count)
        for each in [Side(REGULAR, number.to_bytes(20, "big"), reader(number))]
    ]
    find_renames(pairs)
    assert len(read) <= count
    assert len(set(read)) == len(read)


def test_many_files_take_bounded_time() -> None:
    old = {b"old/%d" % n: lines("common", 0, 40 + n % 7) for n in range(900)}
    new = {b"new/x%d" % n: lines("common", 0, 50 + n % 7) for n in range(900)}
    pairs = find_renames(pairs_of(old, new))
    assert any(pair.old_path for pair in pairs)


@pytest.mark.parametrize("seed", range(12))
def test_whole_moves_are_found_as_git_finds_them(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    old: Files = {}
    new: Files = {}
    for number in range(25):
        body = [b"%d %d %s\n" % (number, line, b"w" * chance.randrange(90)) for line in range(chance.randrange(3, 60))]
        name = b"%s/f%d.c" % (chance.choice((b"src", b"lib/x")), number)
        old[name] = (REGULAR, b"".join(body))
        for _ in range(chance.choice((0, 0, 1, 5, 20))):
            body[chance.randrange(len(body))] = b"%x\n" % chance.randrange(1 << 60)
        to = chance.choice((name, b"new/" + name.rpartition(b"/")[2], b"new/g%d.c" % number))
        new[to] = (chance.choice((REGULAR, EXECUTABLE)), b"".join(body))
    git = GitTrees(tmp_path / "repo")
    listed = b"".join(render_name_status(find_renames(pairs_of(old, new))))
    assert listed == git.diff(*git.write(old, new), "--name-status", "-M")


def test_scores() -> None:
    half = fingerprint(b"a\nb\n"), fingerprint(b"a\nc\n")
    assert score(*half) == MAX_SCORE // 2
    assert score(*half, minimum=MAX_SCORE) == MAX_SCORE // 2
    assert score(fingerprint(b"a\n" * 10), fingerprint(b"a\n"), minimum=MAX_SCORE // 2) == 0
    assert score(fingerprint(b"a\n"), fingerprint(b"")) == 0
    assert percent(b"", b"") == 100
    assert percent(b"a\r\nb\r\n", b"a\nb\n") == 66
    assert percent(b"a\nb\n", b"b\na\n") == 100


def test_chunks_are_lines_of_at_most_64_bytes() -> None:
    text = b"x" * 64 + b"\n" + b"y" * 63 + b"\n" + b"z" * 130
    assert sorted(map(len, fingerprint(text).chunks.elements())) == [1, 2, 64, 64, 64, 64]
    assert sum(map(len, fingerprint(b"q" * 200_000).chunks.elements())) == 200_000


def test_a_nul_early_makes_it_binary() -> None:
    assert is_binary(b"a" * 7999 + b"\0")
    assert not is_binary(b"a" * 8000 + b"\0")
