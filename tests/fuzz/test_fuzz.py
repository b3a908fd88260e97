"""Some thousand frames, the same in each run; ``run.py`` sends as many as one likes."""

import pytest

from fuzz.run import Fuzz
from support.effort import examples

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_nothing_that_is_sent_harms_the_daemon_or_what_lies_outside() -> None:
    fuzz = Fuzz(seed=1)
    try:
        fuzz.run(examples(3000, 100_000))
    finally:
        fuzz.close()
    assert not fuzz.faults, fuzz.report()
    # Otherwise it would prove nothing.
    assert fuzz.counts["results"] > fuzz.counts["answers"] / 10
    assert fuzz.kinds["parse_error"]
    assert fuzz.kinds["invalid_params"]
    assert fuzz.counts["stores"]
