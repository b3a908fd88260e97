"""Times as people write them."""

import time

import pytest

from ckptd.errors import DomainError
from ckptd.shadow.record.moment import parse_moment

pytestmark = pytest.mark.core

NOW_S = time.mktime((2026, 11, 30, 14, 30, 15, 0, 0, -1))


def local(*parts: int) -> float:
    return time.mktime((*parts, *(0,) * (6 - len(parts)), 0, 0, -1))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-11-30 14:00", local(2026, 11, 30, 14)),
        ("2026-11-30T14:00:05", local(2026, 11, 30, 14, 0, 5)),
        ("2026-11-30", local(2026, 11, 30)),
        ("1970-01-02T00:00:00Z", 86400),
        ("1970-01-02 00:01z", 86460),
        ("14:00", local(2026, 11, 30, 14)),
        ("9:05:07", local(2026, 11, 30, 9, 5, 7)),
        ("today 9:05", local(2026, 11, 30, 9, 5)),
        ("yesterday 14:00", local(2026, 11, 29, 14)),
        ("yesterday", NOW_S - 86400),
        ("now", NOW_S),
        ("1 hour ago", NOW_S - 3600),
        ("an hour ago", NOW_S - 3600),
        ("A minute ago", NOW_S - 60),
        ("  90   seconds ago ", NOW_S - 90),
        ("90s ago", NOW_S - 90),
        ("5min ago", NOW_S - 300),
        ("2h ago", NOW_S - 7200),
        ("3 days ago", NOW_S - 3 * 86400),
        ("2 weeks ago", NOW_S - 14 * 86400),
        ("1 month ago", NOW_S - 30 * 86400),
        ("1 year ago", NOW_S - 365 * 86400),
    ],
)
def test_what_is_meant(text, meant):
    assert parse_moment(text, NOW_S) == meant


def test_yesterday_of_the_first_of_a_month():
    first = local(2027, 1, 1, 8)
    assert parse_moment("yesterday 7:00", first) == local(2026, 12, 31, 7)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "25:00",
        "1 hour",
        "hour ago",
        "-1 hour ago",
        "1 fortnight ago",
        "2026-13-01",
        "1e3 s ago",
        "٣ days ago",
    ],
)
def test_what_cannot_be_read_says_how_to_write_it(text):
    with pytest.raises(DomainError) as caught:
        parse_moment(text, NOW_S)
    assert caught.value.kind == "unknown_checkpoint"
    assert "1 hour ago" in (caught.value.hint or "")
