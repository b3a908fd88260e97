"""What may have changed since the scan that counts: nothing is forgotten before a scan has looked at it for good."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptd.doubt import Doubt
from ckptd.exact.dirt import MOST_NAMES, Dirt

pytestmark = pytest.mark.core


def known() -> Dirt:
    dirt = Dirt()
    dirt.look()
    dirt.adopted(whole=True)
    return dirt


def test_it_begins_as_not_known():
    dirt = Dirt()
    dirt.add(b"", b"a")
    assert dirt.look() is None


def test_only_a_whole_scan_makes_it_known():
    dirt = Dirt()
    dirt.look()
    dirt.adopted(whole=False)
    assert dirt.look() is None
    dirt.adopted(whole=True)
    assert dirt.look() == {}


def test_what_was_looked_at_in_vain_comes_again():
    dirt = known()
    dirt.add(b"d", b"a")
    assert dirt.look() == {b"d": {b"a"}}
    dirt.add(b"d", b"b")
    assert dirt.look() == {b"d": {b"a", b"b"}}
    dirt.adopted(whole=False)
    assert dirt.look() == {}


def test_what_comes_during_a_scan_is_for_the_next_one():
    dirt = known()
    dirt.add(b"", b"a")
    dirt.look()
    dirt.add(b"", b"a")
    dirt.add_folder(b"x")
    dirt.adopted(whole=True)
    assert dirt.look() == {b"": {b"a"}, b"x": {b""}}


def test_a_loss_during_a_scan_is_not_healed_by_it():
    dirt = known()
    dirt.look()
    dirt.lose(Doubt("overflow", "too many events at once"))
    dirt.adopted(whole=True)
    assert dirt.look() is None
    dirt.adopted(whole=True)
    assert dirt.look() == {}


def test_the_first_reason_of_a_loss_stays_until_everything_was_looked_at():
    dirt = Dirt()
    assert dirt.lost_for.kind == "starting"
    dirt.lose(Doubt("overflow", "too many events at once"))
    dirt.lose(Doubt("cookie", "its cookie did not come back"))
    assert dirt.lost_for.kind == "overflow"
    dirt.look()
    dirt.adopted(whole=True)
    dirt.lose(Doubt("cookie", "its cookie did not come back"))
    assert dirt.lost_for.kind == "cookie"


def test_a_scan_that_nobody_can_vouch_for_heals_nothing():
    dirt = Dirt()
    dirt.look()
    dirt.look_away()
    dirt.adopted(whole=True)
    assert dirt.look() is None


def test_too_many_names_are_a_loss():
    dirt = known()
    for number in range(MOST_NAMES + 1):
        dirt.add(b"%d" % (number % 7), b"%d" % number)
    assert dirt.look() is None
    assert dirt.lost_for.kind == "too_many"


STEPS = st.lists(st.sampled_from(["add", "look", "part", "whole", "lose"]), max_size=60)


@given(STEPS)
def test_no_name_is_ever_missed(steps):
    """Whatever changed after the begin of the last scan that counts is in the next answer, or that is "not known"."""
    dirt, count, losses = Dirt(), 0, 1
    changed: set[bytes] = set()
    healed_losses = 0
    looked: tuple[set[bytes], int, bool] | None = None
    for step in steps:
        if step == "add":
            count += 1
            dirt.add(b"", b"%d" % count)
            changed.add(b"%d" % count)
        elif step == "lose":
            losses += 1
            dirt.lose(Doubt("error", "test"))
        elif step == "look":
            found = dirt.look()
            assert found is None or (losses == healed_losses and changed <= found.get(b"", set()))
            looked = (set(changed), losses, found is not None)
        elif looked is not None and (step == "whole" or looked[2]):
            # Who was told names looks at them; who was told nothing looks at everything.
            dirt.adopted(whole=step == "whole")
            changed -= looked[0]
            healed_losses = looked[1] if step == "whole" else healed_losses
            looked = None
    assert dirt.look() is None or losses == healed_losses
