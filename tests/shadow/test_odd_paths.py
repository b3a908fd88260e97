"""Trees are git's own, whatever the names: checked against trees that git makes of the same directories."""

import os
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings

from ckptd.shadow.objects.blob import EMPTY_TREE
from support.worktrees import Desk, Executable, Link, Tree, git_tree, trees

pytestmark = pytest.mark.core

_DEEP: Tree = {b"bottom": b"x"}
for _ in range(60):
    _DEEP = {b"d" * 20: _DEEP}

CASES: dict[str, Tree] = {
    "nothing": {},
    "empty file": {b"a": b""},
    "executable": {b"a": Executable(b"#!"), b"b": b"#!"},
    "links": {b"to": b"x", b"l": Link(b"to"), b"up": Link(b".."), b"abs": Link(b"/etc/passwd"), b"dir": Link(b".")},
    "dangling link": {b"l": Link(b"nowhere"), b"n": Link(b"\xff\n")},
    "link loop": {b"a": Link(b"b"), b"b": Link(b"a"), b"self": Link(b"self")},
    "long names": {b"x" * 255: b"1", b"y" * 255: {b"z" * 255: b"2"}},
    "not utf-8": {b"\xff": b"1", b"\xc3": {b"\x80": b"2"}, b"caf\xe9": b"3"},
    "newline and quotes": {b"a\nb": b"1", b'q"': b"2", b"q'": b"3", b"t\t": b"4", b"\\": b"5", b"\r": b"6"},
    "normal forms": {unicodedata.normalize(form, "é").encode(): form.encode() for form in ("NFC", "NFD")},
    "case twins": {b"A": b"1", b"a": b"2", b"B": {b"x": b"3"}, b"b": {b"x": b"4"}},
    "dots and spaces": {b"a.": b"1", b"a ": b"2", b" ": b"3", b"...": b"4", b". ": b"5", b"..a": b"6", b" a": b"7"},
    "around the slash": {
        b"a": {b"x": b"1"},
        b"a.": b"2",
        b"a-b": b"3",
        b"a0": b"4",
        b"a..": {b"y": b"5"},
        b"a\x01": b"6",
    },
    "directories around the slash": {b"a": {}, b"a-": {b"f": b"1"}, b"a.b": {b"f": b"2"}, b"a0": {b"f": b"3"}},
    "empty directories": {b"a": {}, b"b": {b"c": {}, b"d": {}}, b"f": b""},
    "deep": _DEEP,
    "options": {b"-": b"1", b"--help": b"2", b"-rf": {b"*": b"3"}},
    "of windows": {b"nul": b"1", b"con.txt": b"2", b"git~1": b"3", b"a:b": b"4", b"GIT~1": {b"config": b"5"}},
    "like git's": {b"HEAD": b"x", b"objects": {b"a": b"1"}, b".gitmodules": b"[", b".gitattributes": b"* text=auto"},
    "almost .git": {b".git ": b"1", b".git.": b"2", b".gi": b"3", b"..git": b"4", ".g\u200cit".encode(): b"5"},
    "line ends": {b"crlf": b"a\r\nb\r\n", b"lf": b"a\n", b".gitattributes": b"* text eol=crlf\n*.x filter=lfs\n"},
}


@pytest.mark.parametrize("tree", CASES.values(), ids=CASES.keys())
def test_table(desk: Desk, tree: Tree):
    desk.plant(tree)
    saved = desk.save()
    assert desk.tree_of(saved.id) == git_tree(desk.root)
    assert saved.complete
    assert not saved.skipped + saved.excluded
    assert desk.changes() == []


def test_an_empty_worktree_is_the_empty_tree(desk: Desk):
    assert desk.tree_of(desk.save().id) == EMPTY_TREE.hex()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=trees())
def test_any_tree(desk: Desk, tree: Tree):
    """The worktree goes from one tree to the next, so that what the scan remembers is tried as well."""
    for name in os.listdir(desk.root):
        desk.remove(name)
    desk.plant(tree)
    saved = desk.save(force=True)
    assert desk.tree_of(saved.id) == git_tree(desk.root)
    assert desk.changes() == []
