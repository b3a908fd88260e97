"""What thinning may take, written once more from the rule alone, and held against what it took."""

import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

__all__ = ["Heard", "Removal", "Rules", "judge", "kept_by_rule"]


class Heard(NamedTuple):
    """A checkpoint: ``time_s`` is its commit's, ``kind`` manual, auto or safety."""

    seq: int
    id: str
    time_s: int
    kind: str


class Rules(NamedTuple):
    """The options ``keep_*``, and ``max_store_bytes``."""

    last: int
    hourly: int
    daily: int
    weekly: int
    max_bytes: int


class Removal(NamedTuple):
    """One operation that removed checkpoints: ``total`` is what the store needed before, by its own word.

    ``head`` is head at that time, ``next_seq`` above every number by then; ``thinned`` false: somebody dropped them.
    """

    n: int
    next_seq: int
    head: str | None
    ids: frozenset[str]
    total: int
    thinned: bool


def kept_by_rule(autos: Iterable[Heard], rules: Rules) -> set[str]:
    """Give the automatic ones that stay: the newest, and the newest of the newest hours, days and weeks."""
    newest_first = sorted(autos, key=lambda one: one.seq, reverse=True)
    kept = {one.id for one in newest_first[: rules.last]}
    for form, count in (("%Y-%m-%d %H", rules.hourly), ("%Y-%m-%d", rules.daily), ("%G-%V", rules.weekly)):
        seen: list[str] = []
        for one in newest_first:
            period = time.strftime(form, time.gmtime(one.time_s))
            if period not in seen:
                seen.append(period)
                if len(seen) <= count:
                    kept.add(one.id)
    return kept


def judge(
    known: Collection[Heard], removals: Iterable[Removal], rules: Rules, fixed: Collection[str]
) -> tuple[list[str], int, int]:
    """Say what went against the rules, how many went by rule, and how many by the size cap.

    ``known`` are all checkpoints that there have ever been. ``fixed`` never goes: what has a tag, and safety
    checkpoints that an undo needs; other safety checkpoints may.
    """
    wrong: list[str] = []
    gone: set[str] = set()
    by_rule = by_cap = 0
    for removal in sorted(removals, key=lambda one: one.n):
        there = [one for one in known if one.seq < removal.next_seq and one.id not in gone]
        gone |= removal.ids
        if not removal.thinned or not there:
            continue
        untouchable = {removal.head, max(there).id, *fixed}
        kept = kept_by_rule([one for one in there if one.kind == "auto"], rules)
        went = [one for one in there if one.id in removal.ids]
        where = f"operation {removal.n}"
        wrong += [f"{where} took #{one.seq}, which never goes" for one in went if one.id in untouchable]
        wrong += [f"{where} took #{one.seq}, a manual one" for one in went if one.kind == "manual"]
        due = {one.id for one in there if one.kind == "auto" and one.id not in kept and one.id not in untouchable}
        wrong += [f"{where} left #{one.seq}, which is due" for one in there if one.id in due - removal.ids]
        more = [one for one in went if one.kind == "auto" and one.id not in due]
        if more and removal.total <= rules.max_bytes:
            wrong.append(f"{where} took {len(more)} more than the rules say, of a store below its cap")
        by_rule += len(went) - len(more)
        by_cap += len(more)
    return wrong, by_rule, by_cap
