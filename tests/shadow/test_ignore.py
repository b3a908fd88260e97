"""The ignore rules, with git as the oracle where git has the same rule, and ours alone where it has none."""

import json
import os
import pathlib

import pytest

from ckptd.shadow.ignore.chain import IgnoreChain, IgnoreFile, IgnoreRules
from support.ignore_oracle import GitOracle, rules_of_tree

pytestmark = pytest.mark.core

# Bytes that are not UTF-8 stand in the file as lone surrogates, as os.fsdecode gives them.
CASES = json.loads(pathlib.Path(__file__).with_name("ignore_cases.json").read_text("ascii"))


def to_bytes(text):
    return text.encode("utf-8", "surrogateescape")


def parents(path):
    return {path[:at] for at in range(len(path)) if path[at : at + 1] == b"/"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_git_and_we_agree(case, tmp_path):
    gitignore = {to_bytes(directory): to_bytes(text) for directory, text in case["gitignore"].items()}
    paths = [to_bytes(path) for path in case["paths"] if "//" not in path]
    directories = {to_bytes(path) for path in case["directories"]}.union(*(parents(path) for path in paths))
    exclude, excludes = (to_bytes(case[name]) if name in case else None for name in ("exclude", "excludes"))
    oracle = GitOracle(str(tmp_path), gitignore, directories)
    if exclude is not None:
        oracle.set_exclude(exclude)
    if excludes is not None:
        oracle.set_global_excludes(excludes)
    rules = rules_of_tree(gitignore, exclude=exclude, global_excludes=excludes)
    ours = {path: rules.ignored(path, path in directories) for path in paths}
    assert ours == oracle.ignored(paths)


def test_there_are_enough_cases():
    assert sum(len(case["paths"]) for case in CASES) > 600


def test_classes_know_the_same_bytes_as_git(tmp_path):
    names = [
        "alnum",
        "alpha",
        "blank",
        "cntrl",
        "digit",
        "graph",
        "lower",
        "print",
        "punct",
        "space",
        "upper",
        "xdigit",
    ]
    brackets = [*(f"[[:{name}:]]" for name in names), *(f"[![:{name}:]]" for name in names), "?", "[!a]", "[ -~]"]
    gitignore = {b"d%d" % number: bracket.encode() + b"x\n" for number, bracket in enumerate(brackets)}
    paths = [b"%s/%cx" % (directory, byte) for directory in gitignore for byte in range(1, 256) if byte != ord("/")]
    rules = rules_of_tree(gitignore)
    expected = GitOracle(str(tmp_path), gitignore).ignored(paths)
    assert {path: rules.ignored(path, False) for path in paths} == expected


def test_long_lines_and_many_rules(tmp_path):
    lines = [
        b"?" * 5000,
        b"x" * 100_000,
        b"*/" * 3000 + b"z*",
        b"[" + b"a-c" * 20_000 + b"]long",
        b"*" * 50_000 + b"end",
    ]
    lines += [b"*n%dm*" % number for number in range(300)] + [b"!?n2%d*" % number for number in range(10)]
    gitignore = {b"": b"\n".join(lines)}
    paths = [
        b"b" * 200,
        b"blong",
        b"dlong",
        b"the_end",
        b"xn7my",
        b"xn299my",
        b"xn25m",
        b"xn300",
        b"n0m",
        b"a/" * 60 + b"z1",
    ]
    rules = rules_of_tree(gitignore)
    directories = set().union(*(parents(path) for path in paths))
    expected = GitOracle(str(tmp_path), gitignore, directories).ignored(paths)
    assert {path: rules.ignored(path, False) for path in paths} == expected


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (b"*a" * 60 + b"*b", b"a" * 250),
        (b"*?a[ab]" * 30 + b"*b", b"a" * 250),
        (b"x/" + b"*a" * 60 + b"*b/y", b"x/" + b"a" * 250 + b"/y"),
        (b"**/a/" * 60 + b"b", b"a/" * 1000 + b"c"),
        (b"**/a*a*a/*/" * 40 + b"b?", b"aaaaaaaaaaaa/" * 300 + b"c"),
        (b"**/*/" * 300 + b"b?", b"a/" * 1000 + b"cc"),
        (rb"**\/" * 300 + b"b?", b"a/" * 1000 + b"cc"),
        (b"/" + b"*/" * 900 + b"?b", b"a/" * 900 + b"cc"),
        (b"?" * 1_000_000, b"a" * 250),
        (b"**/" * 100_000 + b"b?", b"a/" * 1000 + b"cc"),
        (b"[" + b"[:" * 1_000_000 + b"x]", b"b" * 250),
    ],
    ids=range(11),
)
def test_no_pattern_takes_for_ever(pattern, path):
    # Backtracking would need years for the first of these, and the test's own deadline would end it.
    # A short glob beside it, since a pattern longer than the path may not even be compiled for it.
    file = IgnoreFile(b"?no?\n" + pattern, b"")
    for _ in range(5):
        assert file.verdict(path, path[path.rfind(b"/") + 1 :], False) is None


def test_ckptignore_has_the_last_word_over_gitignore():
    rules = rules_of_tree(
        {b"": b"*.log\nsecret\n", b"deep": b"*.tmp\n!x.bin\n"},
        ckptignore={b"": b"!keep.log\n*.bin\n!deep/y.tmp\n"},
    )
    assert rules.ignored(b"a.log", False)
    assert not rules.ignored(b"keep.log", False)
    assert not rules.ignored(b"deep/keep.log", False)
    # A root .ckptignore stands above even a deeper .gitignore, in both directions.
    assert rules.ignored(b"deep/x.bin", False)
    assert not rules.ignored(b"deep/y.tmp", False)
    assert rules.ignored(b"deep/z.tmp", False)
    assert rules.ignored(b"secret", False)


def test_the_deepest_ckptignore_speaks_first():
    rules = rules_of_tree({b"": b"*.a\n"}, ckptignore={b"": b"!*.a\n*.b\n", b"s": b"*.a\n!*.b\n", b"s/t": b"!/x.a\n"})
    answers = {
        path: rules.ignored(path, False) for path in (b"x.a", b"x.b", b"s/x.a", b"s/x.b", b"s/t/x.a", b"s/t/y.a")
    }
    assert answers == {
        b"x.a": False,
        b"x.b": True,
        b"s/x.a": True,
        b"s/x.b": False,
        b"s/t/x.a": False,
        b"s/t/y.a": True,
    }


def test_ckptignore_reopens_a_directory_that_gitignore_closes():
    rules = rules_of_tree({b"": b"dist/\n", b"dist": b"*.map\n"}, ckptignore={b"": b"!dist/\n", b"dist/x": b"*\n"})
    assert not rules.ignored(b"dist", True)
    assert not rules.ignored(b"dist/a.js", False)
    assert rules.ignored(b"dist/a.map", False)
    assert rules.ignored(b"dist/x/a.js", False)


def test_options_stand_above_all_files_and_are_anchored_at_the_root():
    rules = rules_of_tree(
        {b"": b"!*.iso\n"},
        ckptignore={b"": b"!*.iso\n*.keep\n", b"s": b"!/top\n"},
        options=[b"*.iso", b"/top", b"s/*.x", b"!y.keep", b"# no rule"],
    )
    assert rules.ignored(b"a.iso", False)
    assert rules.ignored(b"s/a.iso", False)
    assert rules.ignored(b"top", False)
    assert not rules.ignored(b"s/top", False)
    assert rules.ignored(b"s/a.x", False)
    assert not rules.ignored(b"s/t/a.x", False)
    assert not rules.ignored(b"y.keep", False)
    assert rules.ignored(b"z.keep", False)
    assert not rules.ignored(b"# no rule", False)


def test_the_exclude_file_of_a_nested_repository():
    files = {
        b"": (b"*.a\n*.c\n", None, b"*.b\n*.d\n"),
        b"sub": (b"!x.c\n", None, b"!*.a\n!*.b\nx.c\n/only\n"),
    }
    rules = IgnoreRules(IgnoreChain.root(), lambda directory: files.get(directory, (None, None, None)))
    assert rules.ignored(b"x.a", False)
    assert rules.ignored(b"x.b", False)
    assert not rules.ignored(b"sub/x.a", False)
    assert not rules.ignored(b"sub/deep/x.b", False)
    # Its own .gitignore stands above it, the outer files below.
    assert not rules.ignored(b"sub/x.c", False)
    assert rules.ignored(b"sub/y.c", False)
    assert rules.ignored(b"sub/y.d", False)
    assert rules.ignored(b"sub/only", False)
    assert not rules.ignored(b"only", False)


def test_global_excludes_speak_last():
    chain = IgnoreChain.root(global_excludes=b"*.a\n*.b\n*.c\n")
    inside = chain.enter(b"", gitignore=b"!x.a\n", git_exclude=b"!x.b\n")
    assert [inside.ignored(name, False) for name in (b"x.a", b"x.b", b"x.c")] == [False, False, True]


def test_a_directory_without_rules_shares_its_parents_chain():
    chain = IgnoreChain.root(options=[b"*.o"])
    assert chain.enter(b"a") is chain
    assert chain.enter(b"a", gitignore=b"", ckptignore=b"# nothing\n\n", git_exclude=b"!\n/\n") is chain
    entered = chain.enter(b"a", gitignore=b"x\n")
    assert entered is not chain
    assert not chain.ignored(b"a/x", False)
    assert entered.ignored(b"a/x", False)


def test_verdicts_of_one_file():
    file = IgnoreFile(b"*.a\n!b.a\nd/\n/top\n", b"s/t")
    assert file.verdict(b"s/t/x.a", b"x.a", False) is True
    assert file.verdict(b"s/t/u/b.a", b"b.a", False) is False
    assert file.verdict(b"s/t/d", b"d", False) is None
    assert file.verdict(b"s/t/d", b"d", True) is True
    assert file.verdict(b"s/t/top", b"top", False) is True
    assert file.verdict(b"s/t/u/top", b"top", False) is None


def test_ignore_files_are_read_once_and_never_below_an_ignored_directory():
    asked = []

    def read(directory):
        asked.append(directory)
        return b"gone/\n", None, None

    rules = IgnoreRules(IgnoreChain.root(), read)
    for _ in range(2):
        assert rules.ignored(b"a/gone/b/c/d", False)
        assert rules.ignored(b"a/gone", True)
        assert not rules.ignored(b"a/gone", False)
        assert not rules.ignored(b"a/b/c", False)
    assert asked == [b"", b"a", b"a/b"]


def test_a_path_may_have_thousands_of_components():
    rules = rules_of_tree({b"": b"x\n"})
    deep = b"/".join([b"d"] * 5000)
    assert not rules.ignored(deep + b"/y", False)
    assert rules.ignored(deep + b"/x/y", False)


def test_a_file_that_cannot_be_read_is_not_taken_for_an_absent_one():
    broken = [OSError("no"), OSError("no")]

    def read(directory):
        if directory == b"a" and broken:
            raise broken.pop()
        return (b"*.o\n" if directory == b"a" else None), None, None

    rules = IgnoreRules(IgnoreChain.root(), read)
    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            rules.ignored(b"a/b/x.o", False)
    assert rules.ignored(b"a/b/x.o", False)


def test_the_order_of_questions_changes_nothing():
    gitignore = {b"": b"*.a\nq/\n", b"s": b"!x.a\n", b"s/q": b"!*\n"}
    paths = [b"s/q/x.a", b"s/x.a", b"x.a", b"s/t/x.a", b"q/x.a", b"s/b"]
    forward, backward = rules_of_tree(gitignore), rules_of_tree(gitignore)
    first = {path: forward.ignored(path, False) for path in paths}
    second = {path: backward.ignored(path, False) for path in reversed(paths)}
    assert first == second == dict(zip(paths, [True, False, True, False, True, False], strict=True))


def test_the_environment_of_the_user_does_not_reach_the_oracle(tmp_path):
    assert not GitOracle(str(tmp_path), {}).ignored([b"a", b"a.swp", b".DS_Store"])[b"a.swp"]
    assert os.path.isdir(tmp_path / "env" / "h")
