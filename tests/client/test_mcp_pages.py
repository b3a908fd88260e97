"""What a model is shown at once: pages of paths, patches and files that leave nothing out and fit."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_protocol.wirepath import encode
from fabricatio_checkpoint.errors import StateError
from fabricatio_checkpoint.mcp.gist import Gist
from fabricatio_checkpoint.mcp.page import BUDGET_BYTES, clipped, head_of, paged
from fabricatio_checkpoint.mcp.shelf import Kept, Shelf
from fabricatio_checkpoint.mcp.slice import as_text, file_names, lines_end, patch_end

names = st.binary(min_size=1, max_size=12).filter(lambda name: b"\0" not in name)


def all_pages(result, along, limit):
    seen = {name: [] for name in along}
    after, pages = None, 0
    while True:
        page = paged(result, along, (), limit, after)
        for name in along:
            seen[name] += page[name]
        assert sum(len(page[name]) for name in along) <= limit
        pages += 1
        if "next_after_path" not in page:
            return seen, pages
        assert "after_path" in page["hint"]
        after = page["next_after_path"]


@given(st.lists(names, unique=True), st.integers(1, 7), st.data())
def test_the_pages_of_several_lists_are_together_all_of_them_once(paths, limit, data):
    lists = {"written": [], "deleted": [], "kept": []}
    for path in sorted(paths):
        lists[data.draw(st.sampled_from(sorted(lists)))].append(encode(path))
    seen, pages = all_pages(lists, tuple(lists), limit)
    assert seen == lists
    assert pages == max(1, -(-len(paths) // limit))
    assert paged(lists, tuple(lists), (), limit)["counts"] == {name: len(found) for name, found in lists.items()}


def test_a_page_fits_however_long_the_paths_are():
    changes = [{"path": f"{number:05}/" + "x" * 3000, "change": "added"} for number in range(100)]
    page = paged({"changes": changes, "skipped": changes}, ("changes",), ("skipped",), 100)
    assert 0 < len(page["changes"]) < 100
    assert len(json.dumps(page)) < BUDGET_BYTES + 4000
    assert page["counts"] == {"changes": 100, "skipped": 100}
    assert "skipped" in page["hint"]
    assert page["next_after_path"] == page["changes"][-1]["path"]
    assert all_pages({"changes": changes}, ("changes",), 100)[0] == {"changes": changes}


def test_what_must_be_seen_is_on_every_page():
    result = {"written": ["a", "b", "c"], "conflicts": [{"path": "z", "reason": "special", "detail": None}]}
    page = paged(result, ("written",), ("conflicts",), 1, "a")
    assert page["written"] == ["b"]
    assert page["conflicts"] == [{"path": "z", "reason": "special"}]


def test_nothing_comes_after_the_last_path():
    page = paged({"changes": [{"path": "a", "change": "added", "dir": False}]}, ("changes",), (), 10, "a")
    assert page == {"changes": [], "counts": {"changes": 1}}


def test_the_first_entry_is_shown_even_if_it_is_too_large():
    assert head_of(["x" * 100, "y"], 5, 10) == ["x" * 100]
    assert head_of([], 5, 10) == []


def test_a_long_text_says_what_is_missing():
    assert clipped("short") == "short"
    assert clipped("x" * 310) == "x" * 300 + "… (10 more characters)"


@given(st.binary(max_size=200), st.integers(4, 30))
def test_the_pieces_of_a_file_are_together_the_file(data, most):
    at = 0
    while at < len(data):
        end = lines_end(data, at, most)
        assert at < end <= at + most
        at = end


@given(st.text(max_size=60), st.integers(4, 20))
def test_no_character_is_cut(text, most):
    data, at = text.encode("utf-8", "replace"), 0
    while at < len(data):
        end = lines_end(data, at, most)
        data[at:end].decode("utf-8")
        at = end


def test_a_piece_ends_with_a_line_if_one_fits():
    assert lines_end(b"one\ntwo\nthree", 0, 9) == 8
    assert lines_end(b"one\ntwo\nthree", 4, 3) == 7
    assert lines_end(b"one\ntwo\nthree", 8, 9) == 13


FIRST = b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+two\n"
SECOND = b"diff --git a/some b/b.txt b/some b/b.txt\nold mode 100644\nnew mode 100755\n"
THIRD = b'diff --git "a/\\377" "b/\\377"\nrename from x\n'


def test_a_page_of_a_patch_ends_before_a_file():
    patch = FIRST + SECOND + THIRD
    assert patch_end(patch, 0, len(FIRST)) == len(FIRST)
    assert patch_end(patch, 0, len(FIRST) + 5) == len(FIRST)
    assert patch_end(patch, len(FIRST), len(SECOND)) == len(FIRST) + len(SECOND)
    assert patch_end(patch, 0, len(patch)) == len(patch)
    # One that is larger than a page ends with a line.
    assert patch_end(patch, 0, 30) == 27


def test_the_files_that_follow_are_named():
    patch = FIRST + SECOND + THIRD
    assert file_names(patch, 0) == (3, ["a", "some b/b.txt", '"\\377"'])
    assert file_names(patch, len(FIRST)) == (2, ["some b/b.txt", '"\\377"'])
    assert file_names(patch, len(FIRST) + 3) == (1, ['"\\377"'])
    assert file_names(b"diff --git a/old name b/new name\n", 0) == (1, ["new name"])
    many = b"".join(b"diff --git a/%d b/%d\n" % (number, number) for number in range(50))
    assert file_names(many, 0)[0] == 50
    assert len(file_names(many, 0)[1]) == 20


def test_what_is_not_utf8_is_counted_and_what_is_not_text_is_said():
    assert as_text(b"fine") == ("fine", 0, False)
    assert as_text(b"caf\xe9, na\xefve") == ("caf\ufffd, na\ufffdve", 2, False)
    assert as_text("\ufffd".encode()) == ("\ufffd", 0, False)
    assert as_text(b"\0\1").binary


BINARY = b"diff --git a/p.png b/p.png\nindex 1..2 100644\nGIT binary patch\nliteral 3\nKcmZQ\n\nliteral 0\nHcmV\n\n"


def gist_of(patch: bytes, cuts: list[int], most: int = 10_000) -> Gist:
    gist = Gist(most)
    places = [0, *sorted(cut % (len(patch) + 1) for cut in cuts), len(patch)]
    for start, end in itertools.pairwise(places):
        gist.feed(patch[start:end])
    gist.end()
    return gist


@given(st.lists(st.integers(0, 10_000), max_size=6))
def test_the_content_of_binary_files_is_left_out_however_a_patch_arrives(cuts):
    text = b"diff --git a/t b/t\n+GIT binary patch\n-a\rb\n\\ No newline at end of file\n"
    found = gist_of(FIRST + BINARY + text + BINARY, cuts)
    content = len(BINARY) - BINARY.index(b"literal 3")
    said = b"diff --git a/p.png b/p.png\nindex 1..2 100644\nBinary content differs (%d bytes of patch left out)\n"
    assert bytes(found.text) == FIRST + said % content + text + said % content
    assert not found.full


@given(st.lists(st.integers(0, 10_000), max_size=6), st.integers(0, 300))
def test_a_gist_keeps_whole_lines_and_no_more_than_it_may(cuts, most):
    patch = FIRST * 4
    found = gist_of(patch, cuts, most)
    assert len(found.text) <= most
    assert patch.startswith(bytes(found.text))
    assert found.text == b"" or found.text.endswith(b"\n")
    assert found.full == (most < len(patch))


def test_a_cursor_leads_to_the_very_same_patch_until_others_need_the_place():
    shelf = Shelf()
    keys = [shelf.put(Kept(b"text %d" % number, 0)) for number in range(5)]
    assert shelf.find(f"{keys[4]}:6") == (keys[4], Kept(b"text 4", 0), 6)
    for cursor in (f"{keys[0]}:0", f"{keys[4]}:7", f"{keys[4]}:-1", keys[4], "", "nonsense:0"):
        with pytest.raises(StateError) as raised:
            shelf.find(cursor)
        assert raised.value.kind == "expired_cursor"
