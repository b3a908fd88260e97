"""Pieces of work that are done beside whoever gives them."""

import threading

import pytest

from ckptd.shadow.restore.finisher import Finisher

pytestmark = pytest.mark.core


class BrokenError(Exception):
    pass


def broken() -> None:
    raise BrokenError


def test_without_threads_it_is_done_at_once_and_by_the_giver():
    done: list[int] = []
    finisher = Finisher(0)
    finisher.take(lambda: done.append(threading.get_ident()))
    assert done == [threading.get_ident()]
    with pytest.raises(BrokenError):
        finisher.take(broken)
    finisher.check()
    finisher.wait()
    finisher.close()


def test_with_threads_several_are_done_at_once():
    both = threading.Barrier(3)
    finisher = Finisher(2)
    for _ in range(2):
        finisher.take(lambda: both.wait(60) and None)
    both.wait(60)
    finisher.wait()
    finisher.close()


def test_all_is_done_after_waiting_however_much_was_given():
    done: list[int] = []
    finisher = Finisher(3)
    for number in range(200):
        finisher.take(lambda number=number: done.append(number))
    finisher.wait()
    assert sorted(done) == list(range(200))
    finisher.close()


def test_what_a_piece_raises_is_told_once_and_the_others_are_done():
    done: list[int] = []
    finisher = Finisher(2)
    finisher.take(broken)
    for number in range(50):
        finisher.take(lambda number=number: done.append(number))
    with pytest.raises(BrokenError):
        finisher.wait()
    assert len(done) == 50
    finisher.wait()
    finisher.close()


def test_where_no_thread_can_be_had_it_is_done_without(monkeypatch: pytest.MonkeyPatch):
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[int] = []
    finisher = Finisher(2)
    finisher.take(lambda: done.append(threading.get_ident()))
    finisher.wait()
    finisher.close()
    assert done == [threading.get_ident()]


def test_closing_waits_and_leaves_no_thread():
    before = threading.active_count()
    done: list[int] = []
    finisher = Finisher(2)
    for number in range(10):
        finisher.take(lambda number=number: done.append(number))
    finisher.close()
    assert len(done) == 10
    assert threading.active_count() == before
