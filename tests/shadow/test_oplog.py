"""The operation log: lines that survive, numbers that never come again, answers that do."""

import gc
import os
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptd.errors import DomainError
from ckptd.shadow.record.oplog import Dropped, Intent, OperationLog, Outcome
from support.tiny_disk import fill, tiny_disk
from support.worktrees import opened_files

pytestmark = pytest.mark.core


def _intent(n: int, **fields) -> Intent:
    plain = {"verb": "save", "time": "2026-01-01T00:00:00Z", "token": f"{n:032x}", "client": "t", "next_seq": n + 1}
    return Intent(n=n, **(plain | fields))


def _log(place: Path) -> OperationLog:
    return OperationLog(os.fsencode(place / "log"))


def test_what_is_written_is_read(tmp_path: Path):
    log = _log(tmp_path)
    assert (log.next_number, log.next_seq, log.damaged_lines) == (1, 1, 0)
    intent = _intent(1, before="a", paths=("x", "é\n"), tag="t", files=3, session="s")
    log.write(intent)
    log.write(Outcome(n=1, result=msgspec.Raw(b'{"id":"x"}'), paths=("x",)))
    log.write(_intent(2))
    log.close()
    again = _log(tmp_path)
    assert again.intents == {1: intent, 2: _intent(2)}
    assert bytes(again.outcomes[1].result) == b'{"id":"x"}'
    assert (again.next_number, again.next_seq) == (3, 3)
    again.close()
    assert os.stat(tmp_path / "log").st_mode & 0o077 == 0


def test_opening_holds_no_more_than_a_line_beside_what_it_keeps(tmp_path: Path):
    log = _log(tmp_path)
    # Gone on with again and again: of all these lines one is kept.
    line = msgspec.json.encode(_intent(1, paths=["x" * 100] * 1000)) + b"\n"
    log.close()
    with open(tmp_path / "log", "ab") as file:
        for _ in range(50):
            file.write(line)
        file.write(line[:-1])
    tracemalloc.start()
    try:
        log = _log(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert list(log.intents) == [1]
    assert log.size_bytes == 50 * len(line)
    # Two of them at a time, text and what was made of it.
    assert peak < 10 * len(line)
    log.close()


def test_the_collector_has_nothing_to_look_at_however_long_a_log_is(tmp_path: Path):
    log = _log(tmp_path)
    for number in range(1, 301):
        log.write(_intent(number, paths=("a", "b"), dropped=(Dropped(seq=1, id="x"),)), durable=False)
        log.write(Outcome(n=number, result=msgspec.Raw(b"{}"), paths=("a",)), durable=False)
    log.close()
    del log
    gc.collect()
    before = len(gc.get_objects())
    log = _log(tmp_path)
    # Whether a tuple has to be looked at is found out by the first look.
    gc.collect()
    assert len(log.intents) == 300
    assert len(gc.get_objects()) - before < 100
    log.close()


def test_what_a_full_disk_refuses_comes_with_the_next_line(tmp_path: Path):
    with tiny_disk(os.fsencode(tmp_path), 64):
        log = _log(tmp_path)
        log.write(_intent(1))
        log.write(Outcome(n=1))
        with open(tmp_path / "log", "ab") as file:
            file.write(b" " * (-os.path.getsize(tmp_path / "log") % 4096 - 1) + b"\n")
        filler = fill(os.fsencode(tmp_path))
        assert not log.conclude(_intent(2, verb="drop"))
        assert not log.conclude(Outcome(n=2))
        log.catch_up()
        assert list(log.intents) == [1, 2]
        assert _read(tmp_path) == ([1], [1])
        os.unlink(filler)
        log.write(_intent(3))
        assert _read(tmp_path) == ([1, 2, 3], [1, 2])
        filler = fill(os.fsencode(tmp_path))
        with open(tmp_path / "log", "ab") as file:
            file.write(b" " * (-os.path.getsize(tmp_path / "log") % 4096 - 1) + b"\n")
        assert not log.conclude(Outcome(n=3))
        os.unlink(filler)
        log.catch_up()
        log.catch_up()
        assert _read(tmp_path) == ([1, 2, 3], [1, 2, 3])
        assert (tmp_path / "log").read_bytes().count(b'"outcome"') == 3
        log.close()


def test_a_long_outcome_that_has_no_room_holds_up_no_short_line(tmp_path: Path):
    long = Outcome(n=1, paths=tuple(f"a/path/of/a/large/restore/{number}" for number in range(2000)))
    with tiny_disk(os.fsencode(tmp_path), 256):
        log = _log(tmp_path)
        log.write(_intent(1, verb="reset"))
        filler = fill(os.fsencode(tmp_path), leave_bytes=16 * 1024)
        assert not log.conclude(long)
        log.write(_intent(2))
        log.write(Outcome(n=2))
        assert _read(tmp_path) == ([1, 2], [2])
        os.unlink(filler)
        log.write(_intent(3))
        assert _read(tmp_path) == ([1, 2, 3], [2, 1])
        assert log.outcomes[1] == long
        log.close()


def _read(place: Path) -> tuple[list[int], list[int]]:
    log = _log(place)
    try:
        return list(log.intents), list(log.outcomes)
    finally:
        log.close()


def test_answers_by_token(tmp_path: Path):
    log = _log(tmp_path)
    log.write(_intent(1))
    assert log.answered(f"{1:032x}") is None
    log.write(Outcome(n=1))
    assert log.answered(f"{1:032x}", "save") == Outcome(n=1)
    assert log.answered(f"{9:032x}", "save") is None
    with pytest.raises(DomainError, match=r"^bad_option: "):
        log.answered(f"{1:032x}", "undo", "redo")
    # given up: as if it had never been asked; the second try has the same token
    log.write(_intent(2, token="b"))
    log.write(Outcome(n=2, done=False))
    assert log.answered("b") is None
    log.write(_intent(3, token="b"))
    log.write(Outcome(n=3, paths=()))
    assert log.answered("b") == Outcome(n=3, paths=())
    log.close()


def test_a_number_of_which_only_the_outcome_is_left_is_not_used_again(tmp_path: Path):
    log = _log(tmp_path)
    log.write(_intent(1))
    log.write(Outcome(n=7))
    assert log.next_number == 8
    log.close()


@given(cut=st.integers(min_value=0, max_value=10_000))
def test_cut_anywhere(tmp_path_factory, cut: int):
    place = tmp_path_factory.mktemp("log")
    log = _log(place)
    for number in range(1, 5):
        log.write(_intent(number))
        log.write(Outcome(n=number), durable=False)
    log.close()
    with open(place / "log", "rb") as file:
        data = file.read()
    whole = data[: cut % (len(data) + 1)]
    with open(place / "log", "wb") as file:
        file.write(whole)
    again = _log(place)
    assert again.damaged_lines == 0
    assert len(again.intents) + len(again.outcomes) == whole.count(b"\n")
    number = again.next_number
    again.write(_intent(number))
    again.close()
    last = _log(place)
    assert last.damaged_lines == 0
    assert max(last.intents) == number
    last.close()


@pytest.mark.parametrize("junk", [b"\n", b"\0\0\n", b"{}\n", b'{"type":"later","n":1}\n', b"\xff\xfe\n", b"[1]\n"])
def test_lines_that_are_not_understood_are_passed_over(tmp_path: Path, junk: bytes):
    log = _log(tmp_path)
    log.write(_intent(1))
    log.close()
    with open(tmp_path / "log", "r+b") as file:
        data = file.read()
        file.seek(0)
        file.write(junk + data + junk)
    again = _log(tmp_path)
    assert again.damaged_lines == 2
    assert list(again.intents) == [1]
    again.write(Outcome(n=1))
    again.close()
    # nobody's lines are rewritten
    with open(tmp_path / "log", "rb") as file:
        assert file.read().startswith(junk + data + junk)


def test_a_later_version_s_fields_are_passed_over(tmp_path: Path):
    log = _log(tmp_path)
    log.write(_intent(1))
    log.close()
    path = tmp_path / "log"
    path.write_bytes(path.read_bytes().replace(b'"n":1', b'"n":1,"later":{"x":1}'))
    again = _log(tmp_path)
    assert (list(again.intents), again.damaged_lines) == ([1], 0)
    again.close()


def test_it_is_opened_once(tmp_path: Path):
    log = _log(tmp_path)
    with opened_files() as opened:
        for number in range(1, 5):
            log.write(_intent(number))
    assert opened == []
    log.close()


def test_a_place_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "log").mkdir()
    with pytest.raises(DomainError, match=r"^io_error: "):
        _log(tmp_path)
