"""The line that says how far a long command is."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricatio_checkpoint.cli.progress import Line, bar, text

pytestmark = pytest.mark.core


def told(**changes):
    return {"phase": "hash", "done": 0, "total": 0, "bytes": 0, **changes}


@pytest.mark.parametrize(
    ("progress", "seconds", "before", "expected"),
    [
        (told(phase="waiting"), 3.0, (0, 0), "waiting for others"),
        (told(phase="scan"), 0.0, (0, 0), "looking"),
        (told(done=1), 0.0, (1, 0), "reading, 1 file"),
        (told(done=300, bytes=1_500_000), 2.0, (100, 500_000), "reading, 300 files, 1.5 MB, 0.5 MB/s"),
        (told(done=300), 2.0, (100, 0), "reading, 300 files, 100 files/s"),
        (told(done=50, total=200), 10.0, (0, 0), "reading, 50/200 files, 5 files/s, 0:30 left"),
        (told(done=10, total=1000), 10.0, (0, 0), "reading, 10/1000 files, 1 file/s, 16:30 left"),
        (told(phase="write", done=200, total=200), 10.0, (200, 0), "writing, 200/200 files"),
        (told(phase="safety", total=3), 1.0, (0, 0), "saving what is there, 0/3 files"),
        (
            told(phase="packs", done=7, total=9, bytes=3_000_000),
            2.0,
            (1, 1_000_000),
            "checking packs, 77 %, 3.0 MB, 1.0 MB/s, 0:01 left",
        ),
        (
            told(phase="search", done=5, total=20),
            5.0,
            (0, 0),
            "searching, 5/20 checkpoints, 1 checkpoint/s, 0:15 left",
        ),
        (told(phase="holders", done=7), 2.0, (0, 0), "looking for what else holds it"),
        (told(phase="of the future", done=2), 1.0, (2, 0), "of the future, 2 files"),
    ],
)
def test_text(progress, seconds, before, expected):
    assert text(progress, seconds, *before) == expected


def notice(**changes):
    return {"method": "$/progress", "params": told(**changes)}


def line_on(stream):
    clock = iter(float(number) for number in range(100))
    return Line(stream, lambda: next(clock))


def test_it_begins_with_the_second_one_and_leaves_nothing():
    stream = io.StringIO()
    line = line_on(stream)
    line.tell(notice(done=1))
    assert stream.getvalue() == ""
    line.clear()
    assert stream.getvalue() == ""
    line.tell(notice(bytes=100_000_000))
    line.tell(notice(phase="write"))
    line.clear()
    before, first, second, blank, after = stream.getvalue().split("\r")
    assert (before, after, blank.strip()) == ("", "", "")
    assert first.endswith(" reading, 100.0 MB, 100.0 MB/s")
    assert second.rstrip().endswith(" writing")
    assert len(first) == len(second)
    assert len(blank) == len(second.rstrip())


def test_a_rate_counts_from_the_beginning_of_its_phase():
    stream = io.StringIO()
    line = line_on(stream)
    line.tell(notice(phase="hash", bytes=10_000_000))
    line.tell(notice(phase="hash", bytes=12_000_000))
    line.tell(notice(phase="write", bytes=1_000_000))
    line.tell(notice(phase="write", bytes=4_000_000))
    shown = [each.partition(" ")[2].strip() for each in stream.getvalue().split("\r")[1:]]
    assert shown == ["reading, 12.0 MB, 2.0 MB/s", "writing, 1.0 MB", "writing, 4.0 MB, 3.0 MB/s"]


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(10, 30), st.integers(0, 10**6))
def test_a_bar_is_as_wide_as_it_has_to_be(done, total, width, tick):
    before, full, after = bar(done, total, width, tick)
    assert before + full + after == width
    assert min(before, full, after) >= 0
    if total and done:
        assert before == 0
        assert (full == width) == (done >= total)


def shown_at(columns, monkeypatch, encoding="utf-8", colour=False, **progress):
    """The one line of a terminal so wide."""
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    line = Line(stream, lambda: 0.0, colour=colour)
    line.tell(notice(**progress))
    line.tell(notice(**progress))
    return stream.buffer.getvalue().decode(encoding).removeprefix("\r")


def test_the_bar_takes_what_the_words_leave(monkeypatch):
    half = {"done": 10, "total": 20}
    assert shown_at(80, monkeypatch, **half) == "━" * 15 + "─" * 15 + " reading, 10/20 files"
    assert shown_at(80, monkeypatch, "latin-1", **half) == "#" * 15 + "-" * 15 + " reading, 10/20 files"
    assert shown_at(40, monkeypatch, **half) == "━" * 9 + "─" * 9 + " reading, 10/20 files"
    assert shown_at(30, monkeypatch, **half) == "reading, 10/20 files"
    assert shown_at(11, monkeypatch, **half) == "reading, 1"


def test_colour_only_where_it_is_wanted(monkeypatch):
    half = {"done": 10, "total": 20}
    coloured = shown_at(80, monkeypatch, colour=True, **half)
    assert "\x1b[32m━━" in coloured
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == shown_at(80, monkeypatch, **half)


@pytest.mark.parametrize("other", [{"method": "event", "params": {}}, {"method": "$/progress"}, {"params": told()}])
def test_other_notifications_are_passed_over(other):
    stream = io.StringIO()
    line = line_on(stream)
    for _ in range(3):
        line.tell(other)
    assert stream.getvalue() == ""


class Gone(io.StringIO):
    def write(self, _text):
        raise OSError("gone")


def test_a_terminal_that_went_away_is_no_reason_to_fail():
    line = line_on(Gone())
    for number in range(3):
        line.tell(notice(done=number))
    line.clear()
