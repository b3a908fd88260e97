"""What undo and redo reverse next: a pure reading of the operation log.

The rule: a reset or rollback can be undone. undo reverses the newest that is not undone; redo reverses the newest
undo; a new reset or rollback clears what could be redone; a save changes nothing of this, and neither does a reset or
rollback that had nothing to change.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ckptd.shadow.record.oplog import Intent, Outcome

__all__ = ["History", "read_history"]


class History(NamedTuple):
    """Numbers of operations, newest last; ``head`` is the base of comparison after all of them."""

    undoable: tuple[int, ...]
    redoable: tuple[int, ...]
    head: str | None


def read_history(intents: Iterable[Intent], outcomes: dict[int, Outcome]) -> History:
    """Walk the operations in order.

    An operation that was given up counts for nothing. One that was cut off (no outcome) counts: some of its paths
    may be written, and undoing it brings back all of them.
    """
    undoable: list[int] = []
    redoable: list[int] = []
    head: str | None = None
    for intent in intents:
        outcome = outcomes.get(intent.n)
        if outcome is not None and not outcome.done:
            continue
        if outcome is not None or intent.verb == "save":
            head = intent.after
        if _changed_nothing(intent):
            continue
        if intent.verb in ("reset", "rollback"):
            undoable.append(intent.n)
            redoable.clear()
        elif intent.verb == "undo":
            _take(undoable, intent.undoes)
            redoable.append(intent.n)
        elif intent.verb == "redo":
            _take(redoable, intent.undoes)
            undoable.append(intent.n)
    return History(tuple(undoable), tuple(redoable), head)


def _changed_nothing(intent: Intent) -> bool:
    return intent.verb in ("reset", "rollback") and intent.safety is None and intent.before == intent.after


def _take(stack: list[int], number: int | None) -> None:
    if number in stack:
        stack.remove(number)
