"""The line that says how far a long command is."""

import io

import pytest

from fabricatio_checkpoint.cli.progress import Line, text

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
        (told(done=50, total=200), 10.0, (0, 0), "reading, 50/200 files, 0:30 left"),
        (told(done=10, total=1000), 10.0, (0, 0), "reading, 10/1000 files, 16:30 left"),
        (told(phase="write", done=200, total=200), 10.0, (0, 0), "writing, 200/200 files"),
        (told(phase="safety", total=3), 1.0, (0, 0), "saving what is there, 0/3 files"),
        (
            told(phase="packs", done=7, total=9, bytes=3_000_000),
            2.0,
            (1, 1_000_000),
            "checking packs, 3.0 MB, 1.0 MB/s",
        ),
        (told(phase="search", done=5, total=20), 5.0, (0, 0), "searching, 5/20 checkpoints, 0:15 left"),
        (told(phase="of the future", done=2), 1.0, (0, 0), "of the future, 2 files"),
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
    line.tell(notice(done=100_000))
    line.tell(notice(phase="write"))
    line.clear()
    shown = stream.getvalue().split("\r")
    assert shown == ["", "reading, 100000 files", "writing".ljust(21), " " * 7, ""]


def test_a_rate_counts_from_the_beginning_of_its_phase():
    stream = io.StringIO()
    line = line_on(stream)
    line.tell(notice(phase="hash", bytes=10_000_000))
    line.tell(notice(phase="hash", bytes=12_000_000))
    line.tell(notice(phase="write", bytes=1_000_000))
    line.tell(notice(phase="write", bytes=4_000_000))
    shown = [each.strip() for each in stream.getvalue().split("\r")[1:]]
    assert shown == ["reading, 12.0 MB, 2.0 MB/s", "writing, 1.0 MB", "writing, 4.0 MB, 3.0 MB/s"]


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
