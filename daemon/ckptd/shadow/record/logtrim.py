"""Which operations the log goes on holding when it has grown: a pure decision.

A daemon that lives for months makes tens of thousands of operations, and all that the log holds is in memory. Kept are
the newest, whose requests may be sent again; those that undo or redo can still reverse; and what was cut off. What
the rest said about head and about numbers is one line.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from ckptd.shadow.record.history import UNDOABLE, History
from ckptd.shadow.record.oplog import Intent

__all__ = ["DEFAULT_BOUNDS", "Bounds", "Split", "split_log"]


class Bounds(NamedTuple):
    """Above ``most`` operations or ``most_bytes`` the log is cut to ``newest`` operations of ``newest_bytes``."""

    most: int
    most_bytes: int
    newest: int
    newest_bytes: int


DEFAULT_BOUNDS: Final = Bounds(most=2_000, most_bytes=16 * 1024 * 1024, newest=500, newest_bytes=4 * 1024 * 1024)


class Split(NamedTuple):
    """Numbers of operations in their order: the ``old`` ones that stay, then the ``newest``."""

    old: tuple[int, ...]
    newest: tuple[int, ...]


def split_log(
    intents: Mapping[int, Intent],
    sizes: Mapping[int, int],
    wanted: Collection[int],
    history: History,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> Split | None:
    """Divide a log; None where it is small enough, or where cutting it would not even halve it.

    ``sizes`` gives the bytes of each operation's lines, in order; ``wanted`` those that have to stay in any case.
    """
    total = sum(sizes.values())
    if len(sizes) <= bounds.most and total <= bounds.most_bytes:
        return None
    newest = _newest(sizes, bounds)
    needed = _with_reversed(
        {*newest, *wanted, *history.undoable[-UNDOABLE:], *history.redoable[-UNDOABLE:]}, intents
    ).difference(newest)
    old = tuple(number for number in sizes if number in needed)
    kept_bytes = sum(sizes[number] for number in (*old, *newest))
    if (len(old) + len(newest)) * 2 > len(sizes) and kept_bytes * 2 > total:
        return None
    return Split(old, newest)


def _with_reversed(numbers: set[int], intents: Mapping[int, Intent]) -> set[int]:
    """Add what an undo or redo reversed, and what reversed it: one of them alone would be understood otherwise."""
    found = set(numbers)
    for number in reversed(list(intents)):
        undone = intents[number].undoes
        if number in found and undone is not None and undone in intents:
            found.add(undone)
    for number, intent in intents.items():
        if intent.undoes in found:
            found.add(number)
    return found


def _newest(sizes: Mapping[int, int], bounds: Bounds) -> tuple[int, ...]:
    """The last operation stays whatever its size: its request is the most likely one to be sent again."""
    found: list[int] = []
    left = bounds.newest_bytes
    for number in reversed(list(sizes)):
        left -= sizes[number]
        if found and (left < 0 or len(found) == bounds.newest):
            break
        found.append(number)
    return tuple(reversed(found))
