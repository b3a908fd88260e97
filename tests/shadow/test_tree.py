"""Reading one name of a tree object is the same as reading all of them and looking one up."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptd.errors import DomainError
from ckptd.shadow.trees.tree import (
    DIRECTORY,
    REGULAR,
    TreeEntry,
    find_entry,
    format_tree,
    mode_text,
    parse_tree,
    storable,
)

pytestmark = pytest.mark.core

NAMES = st.one_of(
    st.binary(min_size=1, max_size=6),
    # Names that look like records of other names.
    st.sampled_from([b"a", b"x100644 a", b"40000 a", b"100644 a", b"a.b", b"a+", b"(", b"\n", b".", b"..", b".git"]),
).filter(storable)
IDS = st.one_of(
    st.binary(min_size=20, max_size=20),
    # Ids that hold what looks like a record, or its beginning.
    st.sampled_from(
        [b"100644 a\0" * 2 + b"10", b"\0" * 20, b"0" * 12 + b"40000 a\0", b"\0" * 14 + b"100644", b"\n" * 20]
    ),
)
ENTRIES = st.builds(TreeEntry, st.sampled_from([REGULAR, 0o100755, 0o120000, DIRECTORY]), IDS)


@given(st.dictionaries(NAMES, ENTRIES, max_size=8), st.lists(NAMES, max_size=3))
def test_it_is_what_the_whole_tree_says(entries, others):
    data = format_tree(entries)
    assert parse_tree(data) == entries
    for name in [*entries, *others]:
        assert find_entry(data, name) == entries.get(name)


@pytest.mark.parametrize(
    "tail",
    [b"100644 x\0" + b"1" * 19, b"160000 x\0" + b"1" * 20, b"100644 x", b"100644 d/x\0" + b"1" * 20, b"junk"],
    ids=["cut", "submodule", "no id", "a path", "junk"],
)
def test_a_name_that_is_not_in_a_malformed_tree_may_be_there_all_the_same(tail):
    data = b"%s a\0%s" % (mode_text(REGULAR), b"1" * 20) + tail
    assert find_entry(data, b"a") == TreeEntry(REGULAR, b"1" * 20)
    with pytest.raises(DomainError, match="store_damaged"):
        find_entry(data, b"b")


def test_a_long_tree_is_no_trouble():
    entries = {b"%06d" % number: TreeEntry(REGULAR, os.urandom(20)) for number in range(50_000)}
    data = format_tree(entries)
    assert find_entry(data, b"049999") == entries[b"049999"]
    assert find_entry(data, b"none") is None
