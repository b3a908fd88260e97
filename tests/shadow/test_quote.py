"""Quoting of names, against git's own listing."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptd.shadow.patch.quote import quote, quote_prefixed
from ckptd.shadow.trees.tree import REGULAR
from support.git_trees import GitTrees

pytestmark = pytest.mark.core


def test_every_byte_is_quoted_as_git_does(tmp_path: Path) -> None:
    names = sorted(b"n" + bytes([byte]) + b"m" for byte in range(1, 256) if byte != ord("/"))
    git = GitTrees(tmp_path / "repo")
    (tree,) = git.write(dict.fromkeys(names, (REGULAR, b"")))
    listed = git.run("ls-tree", "-r", "--name-only", tree)
    assert b"".join(quote(name) + b"\n" for name in names) == listed


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"plain-name_1.txt", b"plain-name_1.txt"),
        (b"with space", b"with space"),
        (b"a\tb", rb'"a\tb"'),
        (b'"', rb'"\""'),
        (b"\\", rb'"\\"'),
        (b"\x00\x1b\x7f", rb'"\000\033\177"'),
        ("\u00e9".encode(), rb'"\303\251"'),
        (b"", b""),
    ],
)
def test_examples(name: bytes, expected: bytes) -> None:
    assert quote(name) == expected


def test_a_prefix_stands_inside_the_quotes() -> None:
    assert quote_prefixed(b"a/", b"x y") == b"a/x y"
    assert quote_prefixed(b"b/", b"\n") == rb'"b/\n"'


@given(st.binary())
def test_quoted_names_are_one_line_of_ascii_and_lose_nothing(name: bytes) -> None:
    quoted = quote(name)
    assert quoted.isascii()
    assert b"\n" not in quoted
    if quoted != name:
        assert quoted[:1] == quoted[-1:] == b'"'
        assert quoted[1:-1].decode("unicode_escape").encode("latin-1") == name
