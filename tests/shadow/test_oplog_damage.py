"""What is left of an operation log after a bad line or a full disk, and whose answer a token gets."""

import os
from pathlib import Path

import msgspec
import pytest

from ckptd.errors import DomainError
from ckptd.shadow.record.oplog import Intent, OperationLog, Outcome
from support.tiny_disk import fill, tiny_disk

pytestmark = pytest.mark.core


@pytest.fixture
def path(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path / "log")


def intent(n: int, token: str = "", **fields: object) -> Intent:
    usual: dict[str, object] = {"verb": "save", "time": "2026-01-01T00:00:00Z", "client": "test", "next_seq": n + 1}
    return Intent(n=n, token=token or f"{n:032x}", **{**usual, **fields})


def content(path: bytes) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def put(path: bytes, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def write(path: bytes, *lines: Intent | Outcome) -> None:
    log = OperationLog(path)
    for line in lines:
        log.write(line)
    log.close()


@pytest.mark.parametrize("junk", [b"", b"junk", b"\0" * 200, b"\xff\xfe", b"{}", b'{"type":"other","n":99}'])
def test_a_damaged_line_in_the_middle_costs_that_line(path: bytes, junk: bytes):
    write(path, intent(1), intent(2), Outcome(n=2))
    first, second, third = content(path).splitlines(keepends=True)
    for damaged in (first + junk + b"\n" + third, first + second[:-9] + junk + b"\n" + third):
        put(path, damaged)
        log = OperationLog(path)
        assert (set(log.intents), set(log.outcomes), log.damaged_lines) == ({1}, {2}, 1)
        # The operation whose intent is lost had its number: it is not given to another.
        assert log.next_number == 3
        log.close()
        assert content(path) == damaged


def test_sequence_numbers_never_go_back(path: bytes):
    write(path, intent(1, next_seq=50), intent(2, next_seq=3), Outcome(n=9))
    log = OperationLog(path)
    assert (log.next_seq, log.next_number) == (50, 10)
    log.close()


def test_cut_off_and_given_up_requests_were_not_answered(path: bytes):
    done, open_, given_up, unseen = (f"{number:032x}" for number in range(100, 104))
    write(path, intent(1, done), Outcome(n=1), intent(2, open_), intent(3, given_up), Outcome(n=3, done=False))
    log = OperationLog(path)
    assert log.answered(done, "save", "undo") == Outcome(n=1)
    assert [log.answered(token) for token in (open_, given_up, unseen)] == [None] * 3
    assert log.unanswered(open_) == intent(2, open_)
    assert [log.unanswered(token) for token in (done, given_up, unseen)] == [None] * 3
    with pytest.raises(DomainError, match=r"^bad_option"):
        log.answered(done, "reset", "rollback")
    log.close()


def test_a_token_that_is_used_again_stands_for_the_later_request(path: bytes):
    token = "a" * 32
    write(path, intent(1, token), Outcome(n=1, done=False), intent(2, token), Outcome(n=2, result=msgspec.Raw(b"2")))
    log = OperationLog(path)
    found = log.answered(token, "save")
    assert found is not None
    assert found.n == 2
    log.close()


def test_a_full_disk_leaves_no_half_line(tmp_path: Path):
    with tiny_disk(os.fsencode(tmp_path)) as place:
        path = os.path.join(place, b"log")
        log = OperationLog(path)
        log.write(intent(1))
        filler = fill(place)
        before = content(path)
        with pytest.raises(DomainError, match=r"^no_space"):
            log.write(intent(2, paths=["x" * 50_000]))
        assert content(path) == before
        assert log.next_number == 2
        assert log.unanswered(intent(2).token) is None
        os.unlink(filler)
        log.write(intent(2))
        log.close()
        again = OperationLog(path)
        assert (set(again.intents), again.damaged_lines) == ({1, 2}, 0)
        again.close()
