"""A few dozen of the kills of ``drive.py``, at named steps and at random times: nothing acknowledged is lost."""

import random
from collections.abc import Iterator

import pytest

from support import effort, isolation
from support.killing import Driver
from support.killplan import DUE_STEPS, OPEN_STEPS, PLAN
from support.mortal import Mortal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SEED = 20260101
SHARES = 4

IN_EVERY_RUN = [
    ("reset", "worktree-exchanged", 1),
    ("reset", "worktree-aside", 1),
    ("undo", "worktree-unlinked", 2),
    ("redo", "synced", 1),
    ("rollback", "worktree-verified", 1),
    ("reset", "concluded", 1),
    ("drop", "ref-deleted", 1),
    ("gc", "merged", 1),
    ("gc", "pack-hidden", 1),
]
"""What a restore has half done: the rest of the plan is taken as chance has it."""


@pytest.fixture
def driver() -> Iterator[Driver]:
    base = isolation.short_directory("ckk")
    made = Driver(Mortal(base), SEED)
    yield made
    made.end()
    isolation.remove(base)


@pytest.mark.parametrize("share", range(SHARES))
def test_killed_at_named_steps(driver: Driver, share: int):
    plan = random.Random(SEED).sample(PLAN, len(PLAN))[: effort.examples(12, len(PLAN))]
    for verb, step, nth in [*plan, *IN_EVERY_RUN][share::SHARES]:
        driver.kill_at(verb, step, nth)
    driver.check_restores(2)
    assert driver.kills.total() > 4


def test_killed_while_it_opens_a_store_that_was_killed(driver: Driver):
    for step in OPEN_STEPS:
        assert driver.kill_at("reset", "worktree-unlinked", then="leave")
        driver.kill_while_opening(step)
    assert driver.kills.total() == 2 * len(OPEN_STEPS)


def test_killed_while_it_keeps_house(driver: Driver):
    for step in DUE_STEPS:
        driver.kill_when_due(step)
    driver.check_restores(3)


@pytest.mark.parametrize("verb", ["prune", "forget"])
def test_killed_while_it_deletes_a_store(driver: Driver, verb: str):
    driver.delete_killed(verb, "store-aside")
    assert driver.kills.total() == 1


def test_killed_at_random_times_while_three_clients_save(driver: Driver):
    for _ in range(effort.examples(4)):
        driver.kill_while_busy()
    assert driver.tally["acknowledged"] > 1
