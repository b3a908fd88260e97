"""Names, messages, times and sizes in the text output; the worktree that is meant."""

import calendar
import datetime
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricatio_checkpoint.cli import clock, text
from fabricatio_checkpoint.cli.worktree import innermost_tracked, is_whole

pytestmark = pytest.mark.core


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"src/main.py", "src/main.py"),
        ("grüße 日本.txt".encode(), "grüße 日本.txt"),
        (b"two\nlines", '"two\\nlines"'),
        (b"tab\there", '"tab\\there"'),
        (b"esc\x1b[31m", '"esc\\033[31m"'),
        (b'quo"te', '"quo\\"te"'),
        (b"back\\slash", '"back\\\\slash"'),
        (b"caf\xe9", '"caf\\351"'),
        ("a\u202eb".encode(), '"a\\342\\200\\256b"'),
    ],
)
def test_names_are_quoted_as_git_does(name, shown):
    assert text.quoted(os.fsdecode(name)) == shown


@given(st.binary(min_size=1).filter(lambda name: b"\0" not in name))
def test_a_shown_name_is_one_printable_line(name):
    assert text.quoted(name.decode("utf-8", "surrogateescape")).isprintable()


def test_git_reads_our_quoting(tmp_path):
    names = [b"a\nb", b'x"y', b"caf\xe9", b"t\tz", b"b\\s", "ü".encode(), b"\x01\x1f\x7f"]
    quoted = "\n".join(text.quoted(os.fsdecode(name)) for name in names)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    command = ["git", "-C", tmp_path, "update-index", "--add", "--index-info"]
    empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    lines = "".join(f"100644 {empty}\t{line}\n" for line in quoted.split("\n"))
    subprocess.run(command, input=lines.encode(), check=True)
    found = subprocess.run(["git", "-C", tmp_path, "ls-files", "-z"], capture_output=True, check=True).stdout
    assert sorted(found.split(b"\0")[:-1]) == sorted(names)


def test_messages_cannot_steer_the_terminal():
    assert text.visible("\x1b[2J\u202e") == "\\x1b[2J\\u202e"
    assert text.first_line("one\ntwo") == "one"
    assert text.first_line("\n  one  \ntwo") == "one"
    assert text.first_line(None) == text.first_line("") == text.first_line(" \n") == "-"


def test_numbers():
    assert text.counted(1, "file") == "1 file"
    assert text.counted(0, "file") == "0 files"
    assert text.size(1023) == "1023 B"
    assert text.size(1536) == "1.5 KiB"
    assert text.size(5 * 1024**3) == "5.0 GiB"
    assert text.size(3000 * 1024**4) == "3000.0 TiB"


@given(st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2200, 1, 1)))
def test_times_are_read_as_datetime_does(moment):
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{moment.microsecond:06d}Z"
    expected = calendar.timegm(moment.timetuple()) + moment.microsecond / 1e6
    assert clock.epoch(stamp) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("stamp", ["", "2026-11-30", "2026-11-30T10:00:00+01:00", "x" * 20])
def test_other_times_are_refused(stamp):
    with pytest.raises(ValueError):
        clock.epoch(stamp)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-50, "just now"),
        (0, "just now"),
        (2, "2 seconds ago"),
        (60, "1 minute ago"),
        (7199, "1 hour ago"),
        (3 * 86400, "3 days ago"),
        (800 * 86400, "2 years ago"),
    ],
)
def test_ages(seconds, shown):
    stamp = "2026-11-30T10:00:00Z"
    assert clock.age(stamp, clock.epoch(stamp) + seconds) == shown


def test_local_time():
    assert len(clock.local("2026-11-30T10:00:00Z")) == 19


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        (".", True),
        ("./", True),
        ("a/..", True),
        ("/work tree", True),
        ("/work tree/.", True),
        ("", False),
        ("a", False),
    ],
)
def test_the_worktree_itself_as_a_path(argument, expected):
    assert is_whole(b"/work tree", argument) is expected


def test_the_innermost_tracked_directory_is_found():
    asked = []

    def tracked(path):
        asked.append(path)
        return path in (b"/a", b"/a/b")

    assert innermost_tracked(b"/a/b/c/d", tracked) == b"/a/b"
    assert asked == [b"/a/b/c/d", b"/a/b/c", b"/a/b"]
    assert innermost_tracked(b"/x/y", tracked) is None
    assert asked[3:] == [b"/x/y", b"/x", b"/"]
