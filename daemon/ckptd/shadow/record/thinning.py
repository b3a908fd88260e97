"""Which checkpoints history can do without: a pure decision by the options ``keep_*`` and ``max_store_bytes``.

- Never: those that are *fixed*: tagged, head, the newest, and what an undo, redo or interrupted restore needs.
- Automatic ones stay if they are among the newest ``last`` of their kind, or the newest of one of the last ``hourly``
  hours, ``daily`` days or ``weekly`` weeks that have any. Hours, days and weeks are UTC's; weeks begin on Monday.
- Safety checkpoints that are not fixed go.
- Manual ones stay; only with ``manual_days`` above 0 those go that are older.
- Above ``max_bytes`` automatic ones go as well, the oldest first, each only if that frees something.

What is new and what is old is told by the numbers, for clocks go wrong; a clock only says in which hour one belongs.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

__all__ = ["Item", "Keep", "over_cap", "thinned"]

_HOUR_S: Final = 3600
_DAY_S: Final = 24 * _HOUR_S
_WEEK_S: Final = 7 * _DAY_S
_MONDAY_S: Final = 3 * _DAY_S
"""The first of January 1970 was a Thursday, three days after a week had begun."""


class Keep(NamedTuple):
    """The options, as they are called without ``keep_``; ``max_bytes`` is ``max_store_bytes``."""

    last: int = 100
    hourly: int = 24
    daily: int = 14
    weekly: int = 8
    manual_days: int = 0
    max_bytes: int = 2 * 1024 * 1024 * 1024


class Item(NamedTuple):
    """A checkpoint; ``fixed``: it stays whatever the rules say."""

    seq: int
    time_s: int
    kind: str
    fixed: bool = False


def thinned(items: Iterable[Item], keep: Keep, now_s: float) -> list[int]:
    """Give the numbers of the checkpoints that go by rule, sorted."""
    ordered = sorted(items, reverse=True)
    stay = _kept_automatic([one for one in ordered if one.kind == "auto"], keep)
    return sorted(one.seq for one in ordered if not one.fixed and _goes(one, stay, keep, now_s))


def _goes(one: Item, stay: set[int], keep: Keep, now_s: float) -> bool:
    if one.kind == "auto":
        return one.seq not in stay
    if one.kind == "safety":
        return True
    return keep.manual_days > 0 and one.time_s < now_s - keep.manual_days * _DAY_S


def _kept_automatic(newest_first: Sequence[Item], keep: Keep) -> set[int]:
    stay = {one.seq for one in newest_first[: keep.last]}
    for count, period_s, shift_s in (
        (keep.hourly, _HOUR_S, 0),
        (keep.daily, _DAY_S, 0),
        (keep.weekly, _WEEK_S, _MONDAY_S),
    ):
        newest_of: dict[int, int] = {}
        for one in newest_first:
            newest_of.setdefault((one.time_s + shift_s) // period_s, one.seq)
        stay.update(list(newest_of.values())[:count])
    return stay


def over_cap(
    items: Iterable[Item], total_bytes: int, max_bytes: int, remove: Callable[[int], int]
) -> tuple[list[int], int]:
    """Give the automatic ones that go because the store is too large, and what it takes without them.

    ``remove`` takes a number out of the reckoning and gives the bytes that this frees, or 0 and leaves it in.
    """
    gone: list[int] = []
    for one in sorted(items):
        if total_bytes <= max_bytes:
            break
        if one.kind == "auto" and not one.fixed:
            freed = remove(one.seq)
            if freed:
                gone.append(one.seq)
                total_bytes -= freed
    return gone, total_bytes
