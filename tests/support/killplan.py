"""Where a daemon is killed: verbs and the steps that they reach; and a round of all of it."""

import random
from collections import Counter
from collections.abc import Callable

from support.killing import Driver

__all__ = ["DUE_STEPS", "OPEN_STEPS", "PLAN", "Totals", "one_round"]

_PACK = ("pack-written", "pack-synced", "index-synced", "pack-named", "index-named", "pack-durable")
_SAVE = [
    *((step, 1) for step in ("scanned", *_PACK, "checkpoint-durable", "info-durable", "head-written")),
    *((step, nth) for step in ("log-written", "log-durable") for nth in (1, 2)),
    *((step, nth) for step in ("file-written", "file-named") for nth in (1, 2, 3, 4)),
]
_WORKTREE = [
    f"worktree-{step}"
    for step in (
        "opened",
        "staged",
        "before-create",
        "created",
        "before-exchange",
        "exchanged",
        "before-aside",
        "aside",
        "before-mkdir",
        "mkdir",
        "before-chmod",
        "before-verify",
        "verified",
        "before-unlink",
        "unlinked",
    )
]
_RESTORE = [
    *((step, 1) for step in ("scanned", "planned", "safe", "begun", "restored", "synced", "concluded", *_PACK)),
    *((step, nth) for step in ("log-written", "log-durable", "file-written", "file-named") for nth in (1, 2)),
    *((step, nth) for step in _WORKTREE for nth in (1, 2)),
]
_RESUME = ("scanned", "safe", "begun", "log-durable", "checkpoint-durable", "restored", "synced", "concluded")
_RESUME += ("worktree-created", "worktree-exchanged", "worktree-aside", "worktree-verified", "worktree-unlinked")
_DROP = [
    *((step, nth) for step in ("log-written", "log-durable", "ref-deleted") for nth in (1, 2)),
    *((step, 1) for step in ("head-written", "file-named", "refs-packed")),
]
_GC = [
    *((step, nth) for step in ("ref-deleted", "pack-hidden") for nth in (1, 2, 3)),
    *((step, 1) for step in ("refs-packed", "merged", "packs-gone", *_PACK)),
]
PLAN = [
    *(("save", *one) for one in _SAVE),
    *(("tagged save", step, 1) for step in ("checkpoint-durable", "tag-durable", "log-durable")),
    *(
        ("first save", step, 1)
        for step in ("store-written", "store-named", "opened", "settled", "pack-synced", "model-written")
    ),
    *((verb, *one) for verb in ("reset", "rollback", "undo", "redo") for one in _RESTORE),
    *((verb, step, 1) for verb in ("finish", "take back") for step in _RESUME),
    *(("drop", *one) for one in _DROP),
    *(("gc", *one) for one in _GC),
    *(("thin", step, nth) for step in ("log-durable", "log-written", "ref-deleted") for nth in (1, 2)),
]
"""Verb, step and the how-manieth time that the step is reached."""

OPEN_STEPS = ("opened", "swept", "recovered", "settled")
DUE_STEPS = ("merged", "pack-hidden", "packs-gone", "log-kept", "log-cut")
"""Steps of what saves do every now and then."""


class Totals:
    """The counts of several drivers."""

    def __init__(self) -> None:
        self.kills: Counter[str] = Counter()
        self.tally: Counter[str] = Counter()

    def add(self, driver: Driver) -> None:
        """Count what one has done."""
        self.kills += driver.kills
        self.tally += driver.tally

    def show(self, lost: int) -> None:
        """Print them, as a Markdown table."""
        print("\n| killed at | times |\n|---|---:|")
        for name, times in sorted(self.kills.items()):
            print(f"| {name} | {times} |")
        print(f"\nkills {sum(self.kills.values()):,}, " + ", ".join(f"{k} {v:,}" for k, v in self.tally.items()))
        print(f"lost {lost}")


def one_round(driver: Driver, chance: random.Random, is_over: Callable[[], bool] = lambda: False) -> None:
    """Kill at each step of the plan once, in any order; stop where the time is over."""
    plan = chance.sample(PLAN, len(PLAN))
    for number, (verb, step, nth) in enumerate(plan):
        if is_over():
            return
        driver.kill_at(verb, step, nth)
        if number % 3 == 0:
            driver.kill_while_busy()
        if number % 10 == 0:
            driver.kill_while_opening(chance.choice(OPEN_STEPS))
            driver.check_restores(2)
    for step in DUE_STEPS:
        driver.kill_when_due(step)
    for verb in ("prune", "forget"):
        driver.delete_killed(verb, "store-aside")
    driver.check_restores(5)
