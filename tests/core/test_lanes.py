"""Jobs of several owners: turns, order, the end."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptd.core.lanes import Lanes
from support.effort import examples

pytestmark = pytest.mark.core


def given_by(lanes):
    """Run the jobs in the order in which they are given."""
    while (job := lanes.get()) is not None:
        job()


def order_of(owners):
    lanes, order = Lanes(), []
    for number, owner in enumerate(owners):
        lanes.put(lambda number=number: order.append(number), owner)
    lanes.end()
    given_by(lanes)
    return order


def test_one_owner_is_served_in_order():
    assert order_of([None] * 5) == [0, 1, 2, 3, 4]


def test_a_flood_goes_before_nobody():
    assert order_of("aaaaabbc") == [0, 5, 7, 1, 6, 2, 3, 4]


@given(st.lists(st.sampled_from("abc"), max_size=20))
@settings(max_examples=examples(100), derandomize=True, deadline=None, database=None)
def test_every_job_once_each_owners_in_order_and_nobody_twice_while_another_waits(owners):
    order = order_of(owners)
    assert sorted(order) == list(range(len(owners)))
    left = {owner: [number for number in order if owners[number] == owner] for owner in "abc"}
    assert all(numbers == sorted(numbers) for numbers in left.values())
    for place, number in enumerate(order[1:], 1):
        if owners[number] == owners[order[place - 1]]:
            assert {owners[later] for later in order[place:]} == {owners[number]}


def test_the_last_ones_come_after_those_that_came_later():
    lanes, order = Lanes(), []
    lanes.put_last(lambda: order.append("last"))
    lanes.put(lambda: order.append("a"), "a")
    lanes.put_last(lambda: order.append("very last"))
    lanes.put(lambda: order.append("b"), "b")
    lanes.end()
    given_by(lanes)
    assert order == ["a", "b", "last", "very last"]


def test_threads_put_while_another_one_gets():
    lanes, order = Lanes(), []
    getting = threading.Thread(target=given_by, args=(lanes,))
    getting.start()

    def put(owner):
        for number in range(200):
            lanes.put(lambda number=number: order.append((owner, number)), owner)

    putting = [threading.Thread(target=put, args=(owner,)) for owner in "abcd"]
    for thread in putting:
        thread.start()
    for thread in putting:
        thread.join()
    lanes.end()
    getting.join(20)
    assert len(order) == 800
