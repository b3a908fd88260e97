"""A round of each kind of ``drive.py``, small, with a real daemon: each save has the tree of what is on disk."""

import os
import sys

import pytest

from support.equality import SCENARIOS, Equality
from support.live import Place, open_place

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's"),
]

COUNTS = {"starved": 40, "burst": 3_000, "burst while stopped": 30_000}


def test_each_kind_of_edits_by_other_processes():
    with open_place() as place:
        place.environ["FABRICATIO_EXT__CHECKPOINT__SCAN_BUDGET_MS"] = "0"
        equality = begin(place)
        try:
            for scenario in SCENARIOS:
                equality.round(scenario, COUNTS.get(scenario, 30))
            tally, fall_backs = equality.tally, equality.fall_backs()
        finally:
            equality.close()
    assert tally["saves: watched"] > 2, (tally, fall_backs)
    # More than the system keeps for somebody who does not come for it.
    assert fall_backs["overflow"] > 0, (tally, fall_backs)


def test_full_scans_after_edits_by_other_processes():
    with open_place() as place:
        equality = begin(place, full=True)
        try:
            for scenario in ("plain", "during saves", "moves", "links", "moves", "plain"):
                equality.round(scenario, 30)
            tally = equality.tally
        finally:
            equality.close()
    assert tally["saves: full"] == tally["saves"] == 6, tally


def begin(place: Place, *, full: bool = False) -> Equality:
    before = dict(os.environ)
    os.environ.update(place.environ)
    try:
        return Equality(place.base, seed=7, full=full)
    finally:
        os.environ.clear()
        os.environ.update(before)
