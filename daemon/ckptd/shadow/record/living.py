"""Which checkpoints there have to be: a pure reading of the operation log."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ckptd.shadow.record.oplog import Intent, Outcome

__all__ = ["Known", "known_checkpoints"]


class Known(NamedTuple):
    """Full ids: ``living`` were answered for and never dropped; ``gone`` were dropped, or never came to be."""

    living: frozenset[str]
    gone: frozenset[str]


def known_checkpoints(intents: Iterable[Intent], outcomes: Mapping[int, Outcome]) -> Known:
    """Tell what the log knows of checkpoints. One that was cut off (no outcome) says nothing of those it planned.

    An id never comes again, so the order of the operations does not matter.
    """
    living: set[str] = set()
    gone: set[str] = set()
    for intent in intents:
        gone.update(one.id for one in intent.dropped)
        outcome = outcomes.get(intent.n)
        if outcome is not None:
            made = intent.id if intent.verb == "save" else intent.safety
            (living if outcome.done else gone).update([made] if made is not None else [])
    return Known(frozenset(living - gone), frozenset(gone))
