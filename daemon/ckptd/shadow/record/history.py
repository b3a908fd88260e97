"""What undo and redo reverse next: a pure reading of the operation log.

The rule: a reset or rollback can be undone. undo reverses the newest that is not undone; redo reverses the newest
undo; a new reset or rollback clears what could be redone; a save changes nothing of this, and neither does a reset or
rollback that had nothing to change, or could change nothing.

A restore that was cut off can be gone on with, as long as no other restore came after it:

- The same request, sent again, goes on with it. So does a new undo where an undo was cut off or cancelled, and a new
  redo where a redo was: nothing older is reversed before that. It stays one operation with one number, and is answered
  with its first safety checkpoint.
- An undo or redo that could not change all of its paths is gone on with in the same way, by another one.
- Each pass makes a safety checkpoint of its own before it writes: what was edited between the passes is in the later
  one, and the answer names what undoing will not bring back of it.
- Undoing it takes one step, to the worktree before the first pass: a path has the state that the first safety
  checkpoint has for it, if that has one or if the first pass was to change the path. Any other path has the state of
  the first later safety checkpoint of which the same is true, unless that would need a directory that was not there.
- One that is cancelled is taken back at once, by an operation of its own. Where that fails it is as one cut off.
- A stopped undo is taken back by redo, a stopped redo by undo, from its safety checkpoints: then all is as if it had
  never begun.
- resume ends it either way, whatever it was: finish goes on with it over exactly the paths that it was to change, undo
  takes it back as the two rules above say.

Undo and redo can be asked for one session alone: then the newest of its operations counts, and a path that was changed
since is in conflict, where it would be overwritten and named otherwise.

An undo of all that a session changed reverses no operation of the log: it is one of its own, which redo reverses.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ckptd.shadow.record.oplog import NO_MARK, Intent, Mark, Outcome

__all__ = ["UNDOABLE", "History", "read_history"]

UNDOABLE: Final = 100
"""So many of the newest restores can be undone for certain; older ones as long as the log has them."""


class History(NamedTuple):
    """Numbers of operations, newest last; ``head`` is the base of comparison after all of them."""

    undoable: tuple[int, ...]
    redoable: tuple[int, ...]
    head: str | None


def read_history(intents: Iterable[Intent], outcomes: dict[int, Outcome], mark: Mark = NO_MARK) -> History:
    """Walk the operations in order, from ``mark`` on where the log has been cut.

    An operation that was given up counts for nothing. One that was cut off (no outcome) counts: some of its paths
    may be written, and undoing it brings back all of them.
    """
    undoable: list[int] = []
    redoable: list[int] = []
    head = mark.head
    seen: dict[int, Intent] = {}
    for intent in intents:
        seen[intent.n] = intent
        outcome = outcomes.get(intent.n)
        if outcome is not None and not outcome.done:
            continue
        moved = intent.verb == "save" or (outcome is not None and not outcome.head_stays)
        if moved and intent.n not in mark.older:
            head = intent.after
        if _changed_nothing(intent, outcome):
            continue
        if intent.verb in ("reset", "rollback"):
            undoable.append(intent.n)
            redoable.clear()
        elif intent.verb == "undo":
            _take(undoable, intent.undoes)
            redoable.append(_reversed_by(intent, seen, outcomes))
        elif intent.verb == "redo":
            _take(redoable, intent.undoes)
            undoable.append(_reversed_by(intent, seen, outcomes))
    return History(tuple(undoable), tuple(redoable), head)


def _changed_nothing(intent: Intent, outcome: Outcome | None) -> bool:
    if intent.verb not in ("reset", "rollback"):
        return False
    if outcome is not None and (outcome.head_stays or outcome.paths is not None):
        # Also where all that it was to change could not be changed.
        return not outcome.paths and (outcome.head_stays or intent.before == intent.after)
    return intent.safety is None and intent.before == intent.after


def _reversed_by(intent: Intent, seen: dict[int, Intent], outcomes: dict[int, Outcome]) -> int:
    """Give what there is to reverse after an undo or redo: what it took back was perhaps never done to its end."""
    undone = seen.get(intent.undoes or 0)
    if undone is None or undone.undoes is None:
        return intent.n
    outcome = outcomes.get(undone.n)
    return undone.undoes if outcome is None or outcome.head_stays else intent.n


def _take(stack: list[int], number: int | None) -> None:
    if number in stack:
        stack.remove(number)
