"""How the timeline is put together from pages and news, filtered, and where the cursor goes meanwhile."""

import pytest

pytest.importorskip("textual", reason="the timeline needs textual, which is not installed")

from fabricatio_checkpoint.record import CheckpointRecord
from fabricatio_checkpoint.ui.timeline import NOW, Timeline, cursor_after, page_size, wants_page


def one(seq, message="m", kind="manual", tags=(), mark="a") -> CheckpointRecord:
    return CheckpointRecord(f"{mark}{seq:039x}", seq, "2030-01-01T00:00:00Z", kind, message, tuple(tags), {}, True)


def some(newest, oldest) -> list[CheckpointRecord]:
    return [one(seq) for seq in range(newest, oldest - 1, -1)]


def seqs(timeline) -> list[int]:
    return [record.seq for record in timeline.records]


def test_ten_thousand_come_page_by_page():
    timeline, stored = Timeline(), some(10_000, 1)
    while timeline.more:
        below = [each for each in stored if not timeline.records or each.seq < timeline.records[-1].seq]
        timeline = timeline.extended(below[:200], more=len(below) > 200)
    assert seqs(timeline) == list(range(10_000, 0, -1))
    assert len(timeline.rows("")) == 10_001
    assert timeline.rows("")[0] is NOW


def test_a_page_that_overlaps_adds_nothing_twice():
    timeline = Timeline(tuple(some(9, 5)), True).extended(some(6, 3), more=False)
    assert seqs(timeline) == [9, 8, 7, 6, 5, 4, 3]
    assert not timeline.more


def test_news_come_on_top_and_the_rest_stays():
    timeline = Timeline(tuple(some(50, 11)), True).renewed(some(52, 43), more=True)
    assert seqs(timeline) == list(range(52, 10, -1))
    assert timeline.more


def test_what_has_gone_goes():
    page = [each for each in some(50, 41) if each.seq not in (44, 45)]
    timeline = Timeline(tuple(some(50, 31)), False).renewed(page, more=True)
    assert seqs(timeline) == [50, 49, 48, 47, 46, 43, 42, 41, *range(40, 30, -1)]
    assert not timeline.more
    assert seqs(Timeline(tuple(some(5, 1)), False).renewed(some(3, 2), more=False)) == [3, 2]
    assert seqs(Timeline(tuple(some(5, 1)), False).renewed([], more=False)) == []


def test_nothing_is_left_out_in_between():
    # 300 new ones, and a page has 200: what was known cannot be joined to it.
    timeline = Timeline(tuple(some(100, 1)), False).renewed(some(400, 201), more=True)
    assert (seqs(timeline)[-1], timeline.more) == (201, True)
    # Everything that was known is in the page: whether there is more below is the page's word.
    assert Timeline(tuple(some(3, 2)), False).renewed(some(4, 2), more=True).more


def test_old_checkpoints_of_a_legacy_store_come_last():
    timeline = Timeline(tuple(some(2, 1)), True).extended([one(0), one(-1)], more=False)
    assert seqs(timeline) == [2, 1, 0, -1]


@pytest.mark.parametrize(
    ("query", "found"),
    [("", True), ("AGENT", True), ("before good", True), ("goo", True), ("auto", True), ("#12", True), ("#2", False),
     ("a000", True), ("a00", False), ("000c", False), ("nothing", False), ("agent nothing", False), ("safety", False)],
)  # fmt: skip
def test_a_filter_looks_at_message_tags_kind_number_and_id(query, found):
    made = one(12, "Before the Agent", "auto", ("good", "v1"))
    assert (made in Timeline((made,)).rows(query)) is found


def test_the_row_of_now_is_never_filtered_away():
    assert Timeline(tuple(some(3, 1))).rows("zzz") == (NOW,)


def test_the_cursor_stays_with_its_checkpoint():
    before = (NOW, *some(9, 5))
    assert cursor_after(before, 3, (NOW, *some(11, 5))) == 5
    assert cursor_after(before, 0, (NOW, *some(11, 5))) == 0


def test_without_its_checkpoint_the_cursor_goes_to_the_next_older_one():
    before = (NOW, *some(9, 5))
    assert cursor_after(before, 2, (NOW, one(9), one(6), one(5))) == 2
    assert cursor_after(before, 5, (NOW, one(9), one(8))) == 2
    assert cursor_after(before, 2, (NOW,)) == 0
    assert cursor_after(before, 99, (NOW, *some(9, 5))) == 0


def test_pages_are_asked_for_before_they_are_needed():
    timeline = Timeline(tuple(some(500, 1)), True)
    assert not wants_page(timeline, 501, 30)
    assert wants_page(timeline, 501, 420)
    assert wants_page(timeline, 3, 3)
    assert not wants_page(Timeline((), False), 1, 1)
    assert page_size("") < page_size("x")
