"""Counting a text in a content that comes in pieces: as if it had come whole."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptd.shadow.patch.needle import Needle, Tally

pytestmark = pytest.mark.core

# Few letters, so that texts overlap themselves and lie across the ends of pieces; one has cases of unequal length.
LETTERS = ["a", "A", "b", "\n", "é", "É", "ⱥ", "Ⱥ", "ß", "\udcff"]
texts = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=4).map("".join)


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def count(text: bytes, *pieces: bytes, ignore_case: bool = False) -> int:
    tally = Tally(Needle(text, ignore_case=ignore_case))
    for piece in pieces:
        tally.add(piece)
    return tally.total()


@st.composite
def contents(draw) -> list[bytes]:
    data = encoded("".join(draw(st.lists(st.sampled_from(LETTERS), max_size=40))))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(texts, contents())
def test_pieces_count_as_the_whole(text, pieces):
    assert count(encoded(text), *pieces) == b"".join(pieces).count(encoded(text))


@given(texts, contents())
def test_either_case_counts_as_the_whole(text, pieces):
    def other(char: str) -> str:
        return "".join({char, *(each for each in (char.lower(), char.upper()) if len(each) == 1)})

    pattern = "".join(f"[{other(char)}]" for char in text)
    whole = b"".join(pieces).decode("utf-8", "surrogateescape")
    assert count(encoded(text), *pieces, ignore_case=True) == len(re.findall(pattern, whole))


@pytest.mark.parametrize(
    ("text", "pieces", "expected"),
    [
        (b"aa", [b"aaa"], 1),
        (b"aa", [b"a", b"a", b"a", b"a"], 2),
        (b"aba", [b"ab", b"aba"], 1),
        (b"a", [], 0),
        (b"abc", [b"a", b"", b"b", b"c"], 1),
    ],
)
def test_occurrences_do_not_overlap(text, pieces, expected):
    assert count(text, *pieces) == expected


def test_the_whole_is_never_held():
    tally = Tally(Needle(b"x" * 100))
    for _ in range(100):
        tally.add(b"x" * 99 + b"y" * 1000)
    assert len(tally._rest) < 100
