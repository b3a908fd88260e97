"""How a restore goes: plan, question, and then exactly that plan; where it is out of date, the question again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from fabricatio_checkpoint.errors import StateError
from fabricatio_checkpoint.record import RestoreResult
from fabricatio_checkpoint.ui.preview import Preview, Verb, Wish, done, is_empty, nothing, preview

__all__ = ["Restores", "restore"]


class Restores(Protocol):
    """Who can plan a restore, and carry it out; both raise CheckpointError."""

    async def plan(self, wish: Wish, *, skip_conflicts: bool) -> RestoreResult:
        """Say what would be done."""

    async def carry_out(self, wish: Wish, digest: str, *, skip_conflicts: bool) -> RestoreResult:
        """Do exactly what a plan said."""


async def restore(
    restores: Restores, wish: Wish, ask: Callable[[Preview], Awaitable[str]], size: Callable[[], tuple[int, int]]
) -> tuple[str, bool] | None:
    """Restore if somebody agrees to it. Give what to say of it, and whether all is well; None where it was not wanted.

    ``ask`` shows the plan and answers ``cancel``, ``go`` or ``skip``; ``size`` is the room that it has for that.
    """
    again = skipping = False
    while True:
        plan, wish = await _plan(restores, wish, skipping)
        if is_empty(plan):
            return nothing(wish), True
        answer = await ask(preview(plan, wish, size(), again=again, skipping=skipping))
        if answer == "skip":
            skipping, again = True, False
        elif answer != "go":
            return None
        else:
            try:
                return done(await restores.carry_out(wish, plan.digest, skip_conflicts=skipping), wish)
            except StateError as error:
                if error.kind != "plan_changed":
                    raise
                again = True


async def _plan(restores: Restores, wish: Wish, skipping: bool) -> tuple[RestoreResult, Wish]:
    try:
        return await restores.plan(wish, skip_conflicts=skipping), wish
    except StateError as error:
        if error.kind != "worktree_missing" or wish.verb is not Verb.RESET or wish.recreate:
            raise
    # Who lost the whole directory wants it back all the more.
    wish = replace(wish, recreate=True)
    return await restores.plan(wish, skip_conflicts=skipping), wish
