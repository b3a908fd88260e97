"""Pieces of work that are done side by side."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from ckptd.shadow.restore.crew import MEASURED, Crew

pytestmark = pytest.mark.core


class BrokenError(Exception):
    pass


def broken() -> None:
    raise BrokenError


def numbered(done: list[int], count: int) -> list[Callable[[], None]]:
    return [lambda number=number: done.append(number) for number in range(count)]  # type: ignore[misc]


def test_without_helpers_all_is_done_in_order_by_the_caller():
    threads: set[int] = set()
    done: list[int] = []
    Crew(0).do([*numbered(done, 50), lambda: threads.add(threading.get_ident())])
    assert (done, threads) == (list(range(50)), {threading.get_ident()})
    with pytest.raises(BrokenError):
        Crew(0).do([broken, *numbered(done, 50)])
    assert len(done) == 50


def test_with_helpers_several_are_done_at_once():
    threads: set[int] = set()
    every = threading.Barrier(3)

    def meet() -> None:
        threads.add(threading.get_ident())
        every.wait(60)

    Crew(2, 0).do([meet] * 6)
    assert len(threads) == 3
    assert threading.get_ident() in threads


def noting(crew: Crew, waits_s: list[float], threads: list[int], kind: str = "unlink") -> list[Callable[[], None]]:
    def note(wait_s: float) -> None:
        threads.append(threading.get_ident())
        crew.note(kind, wait_s)

    return [partial(note, wait_s) for wait_s in waits_s]


def test_helpers_come_when_what_is_waited_for_takes_long():
    both = threading.Barrier(2)
    threads: list[int] = []

    def meet() -> None:
        both.wait(60)

    crew = Crew(1, 0.001)
    crew.do([*noting(crew, [0.0011] * MEASURED, threads), meet, meet])
    assert set(threads) == {threading.get_ident()}
    # And from then on at once.
    crew.do([meet, meet])


@pytest.mark.parametrize(
    "waits_s",
    [
        [0.001] * MEASURED,
        # Too few to tell; then less than half, held up by something else; and what comes later.
        [1.0] * (MEASURED - 1),
        [*[1.0] * (MEASURED // 2 - 1), *[0.0] * MEASURED],
        [*[0.0] * MEASURED, *[1.0] * MEASURED],
    ],
)
def test_no_helpers_come_where_nothing_takes_long(waits_s: list[float]):
    threads: list[int] = []
    crew = Crew(2, 0.001)
    crew.do(noting(crew, waits_s, threads))
    crew.do([lambda: threads.append(threading.get_ident())] * 50)
    assert set(threads) == {threading.get_ident()}


def test_each_kind_of_call_is_judged_by_itself():
    threads: list[int] = []
    crew = Crew(1, 0.001)
    crew.do(noting(crew, [0.0] * MEASURED, threads, "create"))
    half = MEASURED // 2
    crew.do([*noting(crew, [0.1] * half, threads, "unlink"), *noting(crew, [0.1] * half, threads, "rename")])
    assert set(threads) == {threading.get_ident()}
    both = threading.Barrier(2)
    crew.do([*noting(crew, [0.1] * half, threads, "unlink"), lambda: both.wait(60), lambda: both.wait(60)])


def test_all_is_done_in_the_end_however_much_there_is():
    for count in (0, 1, 2, 10, 200):
        done: list[int] = []
        Crew(3, 0).do(numbered(done, count))
        assert sorted(done) == list(range(count))


def test_one_piece_alone_is_done_by_the_caller():
    threads: set[int] = set()
    Crew(2, 0).do([lambda: threads.add(threading.get_ident())])
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("helpers", [0, 1, 3])
def test_what_a_piece_raises_is_told_when_all_that_was_begun_has_ended(helpers: int):
    every = threading.Barrier(helpers + 1)
    begun: list[int] = []
    ended: list[int] = []
    late: list[int] = []

    def meet(fails: bool) -> None:
        begun.append(1)
        every.wait(60)
        if fails:
            raise BrokenError
        ended.append(1)

    meeting = [lambda: meet(True), *[lambda: meet(False)] * helpers]
    with pytest.raises(BrokenError):
        Crew(helpers, 0).do([*meeting, *numbered(late, 1000)])
    assert len(begun) == helpers + 1
    assert len(ended) == helpers
    # The others may have begun some more before they heard of it.
    assert helpers or not late


def test_where_no_thread_can_be_had_it_is_done_without(monkeypatch: pytest.MonkeyPatch):
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    threads: set[int] = set()
    Crew(2, 0).do([lambda: threads.add(threading.get_ident())] * 10)
    assert threads == {threading.get_ident()}


def test_no_thread_is_left():
    before = threading.active_count()
    done: list[int] = []
    Crew(2, 0).do(numbered(done, 10))
    with pytest.raises(BrokenError):
        Crew(2, 0).do([broken] * 10)
    assert len(done) == 10
    assert threading.active_count() == before
