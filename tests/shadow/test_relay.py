"""What is done by a thread of its own: in order, never too much at once, and nothing after a failure."""

import threading

import pytest

from ckptd.shadow.store import relay
from ckptd.shadow.store.relay import Relay
from support.faulty_stores import Gate
from support.poll import until

pytestmark = pytest.mark.core


@pytest.fixture
def made():
    one = Relay("ckptd-test")
    yield one
    one.end()
    one.join(20)


def wait(pieces) -> int:
    """Wait as whoever gives way does; tell whether there was reason to."""
    waits = 0
    for piece in pieces:
        assert piece is True
        waits += 1
    return waits


def test_it_does_things_in_order_in_one_thread(made):
    done, threads = [], set()

    def work(number: int) -> None:
        threads.add(threading.current_thread().name)
        done.append(number)

    for number in range(1000):
        made.put(lambda number=number: work(number))
    wait(made.settled())
    assert (done, threads) == (list(range(1000)), {"ckptd-test"})


@pytest.mark.parametrize("sizes", [[0] * 5, [10, 90]], ids=["many", "large"])
def test_there_is_no_room_while_much_waits(made, sizes, monkeypatch):
    monkeypatch.setattr(relay, "_MOST", 5)
    monkeypatch.setattr(relay, "_MOST_BYTES", 100)
    gate = Gate()
    for size in sizes[:-1]:
        made.put(gate.wait, size)
    assert wait(made.room()) == 0
    made.put(lambda: None, sizes[-1])
    assert next(made.room()) is True
    gate.open()
    wait(made.room())
    wait(made.settled())


def test_a_failure_is_told_and_nothing_is_done_after_it(made):
    done = []

    def fail() -> None:
        raise OSError(28, "No space left on device")

    made.put(fail)
    for number in range(5):
        made.put(lambda number=number: done.append(number))
    for told in (made.settled, made.room):
        with pytest.raises(OSError, match="No space"):
            wait(told())
    made.put(lambda: done.append(9))
    made.end(lambda: done.append("end"))
    made.join(20)
    assert done == ["end"]


def test_the_end_comes_after_what_is_under_way_and_instead_of_the_rest(made):
    gate, done = Gate(), []
    made.put(gate.wait)
    made.put(lambda: done.append("rest"))
    until(gate.reached.is_set)
    made.end(lambda: done.append("last"))
    made.end(lambda: done.append("second"))
    made.join(0.05)
    assert done == []
    gate.open()
    made.join(20)
    assert done == ["last"]


def test_without_anything_begun_there_is_nothing_to_end(made):
    done = []
    made.end(lambda: done.append("last"))
    made.join(20)
    assert done == []
