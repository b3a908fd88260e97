"""The time that a person means: ``2026-11-30 14:00``, ``14:00``, ``yesterday``, ``1 hour ago``."""

import calendar
import re
import time
from typing import Final

from ckptd.errors import DomainError

__all__ = ["parse_moment"]

_FORMS: Final = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d")
_HOURS: Final = ("%H:%M:%S", "%H:%M")
_AGO: Final = re.compile(r"(an?|[0-9]{1,9}) ?([a-z]+?)s? ago")
_DAYS: Final = {"today": 0, "yesterday": 1}
_UNITS_S: Final = {
    "second": 1, "sec": 1, "s": 1,
    "minute": 60, "min": 60, "m": 60,
    "hour": 3600, "h": 3600,
    "day": 86400, "d": 86400,
    "week": 604800, "w": 604800,
    "month": 2592000,
    "year": 31536000, "y": 31536000,
}  # fmt: skip
"""Lengths in seconds; a month is 30 days and a year 365, as in the ages that lists show."""


def parse_moment(text: str, now_s: float) -> float:
    """Give the seconds since 1970 that a text means; local time where it does not end in ``Z``.

    A day alone is its beginning, an hour alone is today's, ``yesterday`` is a day before now and takes an hour, too.
    Raises DomainError ``unknown_checkpoint`` for anything else.
    """
    plain = " ".join(text.replace("T", " ").lower().split())
    for read in (_absolute, _of_the_day, _ago):
        found = read(plain, now_s)
        if found is not None:
            return found
    raise DomainError(
        "unknown_checkpoint", f"cannot read the time {text!r}", hint="write @{2026-11-30 14:00} or @{1 hour ago}"
    )


def _absolute(plain: str, _now_s: float) -> float | None:
    utc = plain.endswith("z")
    for form in _FORMS:
        try:
            read = time.strptime(plain.removesuffix("z"), form)
            return calendar.timegm(read) if utc else time.mktime(read)
        except (ValueError, OverflowError):
            continue
    return None


def _of_the_day(plain: str, now_s: float) -> float | None:
    """Read ``now``, ``14:00``, ``yesterday``, ``yesterday 14:00``."""
    if plain == "now":
        return now_s
    word, _, hour = plain.partition(" ")
    back = _DAYS.get(word)
    if back is None:
        back, hour = 0, plain
    elif not hour:
        return now_s - back * 86400
    day = time.localtime(now_s)
    for form in _HOURS:
        try:
            read = time.strptime(hour, form)
        except ValueError:
            continue
        # mktime() sets day 0 or -1 right, and finds out about summer time by itself.
        clock = (day.tm_year, day.tm_mon, day.tm_mday - back, read.tm_hour, read.tm_min, read.tm_sec, 0, 0, -1)
        return time.mktime(clock)
    return None


def _ago(plain: str, now_s: float) -> float | None:
    match = _AGO.fullmatch(plain)
    if match is None:
        return None
    # "s" ends both the unit of seconds and every plural.
    length = _UNITS_S.get(match[2]) or _UNITS_S.get(match[2] + "s")
    if length is None:
        return None
    return now_s - (int(match[1]) if match[1].isdigit() else 1) * length
