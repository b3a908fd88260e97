"""The wire's times (RFC 3339, UTC) as people read them. Without ``datetime``, which costs an import."""

from __future__ import annotations

import time

__all__ = ["age", "epoch", "local", "span", "stamp"]

_UNITS = ((86400 * 365, "year"), (86400 * 30, "month"), (86400, "day"), (3600, "hour"), (60, "minute"))


def epoch(stamp: str) -> float:
    """Turn ``2026-11-30T19:49:00.25Z`` into seconds since 1970; raises ValueError for another form."""
    if len(stamp) < 20 or stamp[10] not in "Tt" or stamp[-1] not in "Zz":
        raise ValueError(f"not a time in UTC: {stamp!r}")
    days = _days(int(stamp[:4]), int(stamp[5:7]), int(stamp[8:10]))
    return days * 86400 + int(stamp[11:13]) * 3600 + int(stamp[14:16]) * 60 + float(stamp[17:-1])


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01, by the Gregorian calendar counted from March."""
    if month < 3:
        year, month = year - 1, month + 12
    leaps = year // 4 - year // 100 + year // 400
    return year * 365 + leaps + (153 * (month - 3) + 2) // 5 + day - 719469


def stamp() -> str:
    """Give the time now, as the wire has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def local(stamp: str) -> str:
    """Show a time in the local zone, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch(stamp)))


def age(stamp: str, now: float | None = None) -> str:
    """Say how long ago a time was, in its largest unit; a time to come (a clock set back) is ``just now``."""
    passed = (time.time() if now is None else now) - epoch(stamp)
    return f"{span(passed)} ago" if passed >= 2 else "just now"


def span(seconds: float) -> str:
    """Say how long something lasts, in its largest unit."""
    for length, unit in _UNITS:
        if seconds >= length:
            number = int(seconds // length)
            return f"{number} {unit}{'s' if number > 1 else ''}"
    return f"{int(seconds)} second{'s' if int(seconds) != 1 else ''}"
