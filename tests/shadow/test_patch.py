"""Patches: git applies them, both ways, and writes the same bytes itself."""

import random
import re
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ckptd.errors import DomainError
from ckptd.shadow.patch import hunks
from ckptd.shadow.patch.base85 import decode_lines, deflated_section
from ckptd.shadow.patch.rename import find_renames
from ckptd.shadow.patch.render import Pair, Side, render_name_status, render_patch, render_stat
from ckptd.shadow.trees.tree import DIRECTORY, EXECUTABLE, LINK, REGULAR
from support.git_trees import Files, GitTrees, pairs_of, side

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory) -> GitTrees:
    return GitTrees(Path(tmp_path_factory.mktemp("git")) / "repo")


def patch_of(pairs: list[Pair], context_lines: int = 3) -> bytes:
    return b"".join(render_patch(pairs, context_lines))


def comparable(patch: bytes) -> bytes:
    """Give the bytes themselves, or, where Python's deflate is not the one git has, with binary sections inflated."""
    if "ng" not in zlib.ZLIB_RUNTIME_VERSION:
        return patch
    section = re.compile(rb"^((?:literal|delta) \d+\n)((?:[A-Za-z].+\n)+)\n", re.M)
    return section.sub(lambda match: match[1] + zlib.decompress(decode_lines(match[2])), patch)


def text(*lines: str, end: str = "\n") -> tuple[int, bytes]:
    return REGULAR, ("\n".join(lines) + end).encode()


def numbered(count: int, word: str = "line") -> list[str]:
    return [f"{word} {number}" for number in range(count)]


def random_bytes(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


LONG = numbered(60)
NOISE = random_bytes(3000)
BLOCKS = [[f"def {name}():", '    """Doc."""', "    return", ""] for name in "abc"]
CODE = ["def first():", "    a = 1", "    return a", "", "", "def second():", *numbered(9, "    b"), "    return b"]

NAMES = [
    *(b"with space", b"a b/c d", b"tab\there", b"tab and\t space", b'quo"te', b"back\\slash", b"new\nline"),
    *(b"bell\a\b\v\f\r", b"\x01\x7f", b"\xff\xfe", b"a\xc3", "h\u00e9".encode(), "he\u0301".encode()),
    *("\u65e5\u672c/\U0001f600".encode(), b"-dash", b"--", b"a/b", b"b/a", b"a/a/a", b"dev/null", b"trailing "),
    *(b"dot.", b" leading", b"'single'", b"$HOME `x`", b"git~1", b"#x", b"=> {x}", b"x => y", b"*?[", b"~", b"con"),
    *(b"@@ -1 +1 @@", b"long/" + b"n" * 200),
]

TABLE: dict[str, tuple[Files, Files]] = {
    "edit": ({b"f": text(*LONG)}, {b"f": text(*LONG[:30], "new", *LONG[31:])}),
    "two hunks": ({b"f": text(*LONG)}, {b"f": text("first", *LONG[1:-1], "last")}),
    "function in the hunk's header": ({b"f": text(*CODE)}, {b"f": text(*CODE[:-1], "    return 2")}),
    "added function": ({b"f": text(*CODE)}, {b"f": text(*CODE, "", "", "def third():", "    a = 1", "    return a")}),
    "a block among its like": (
        {b"f": text(*BLOCKS[0], *BLOCKS[2])},
        {b"f": text(*BLOCKS[0], *BLOCKS[1], *BLOCKS[2])},
    ),
    "a block twice": ({b"f": text(*BLOCKS[0], *BLOCKS[2])}, {b"f": text(*BLOCKS[0], *BLOCKS[0], *BLOCKS[2])}),
    "indentation decides where a hunk stands": (
        {b"f": text("", "", "", "    a = 1")},
        {b"f": text("", "", "", "    a = 1", "", "    a = 1")},
    ),
    "create": ({}, {b"f": text("a", "b")}),
    "delete": ({b"f": text("a", "b")}, {}),
    "create empty": ({}, {b"f": (REGULAR, b"")}),
    "delete empty": ({b"f": (REGULAR, b"")}, {}),
    "create executable": ({}, {b"f": (EXECUTABLE, b"#!\n")}),
    "empty to content": ({b"f": (REGULAR, b"")}, {b"f": text("a")}),
    "content to empty": ({b"f": text("a")}, {b"f": (REGULAR, b"")}),
    "no newline at end, old": ({b"f": text("a", "b", end="")}, {b"f": text("a", "b")}),
    "no newline at end, new": ({b"f": text("a", "b")}, {b"f": text("a", "b", end="")}),
    "no newline at end, both": ({b"f": text("a", "b", end="")}, {b"f": text("a", "c", end="")}),
    "no newline at end, kept": ({b"f": text(*LONG, end="")}, {b"f": text("x", *LONG, end="")}),
    "no newline, created": ({}, {b"f": text("a", end="")}),
    "only a newline": ({b"f": (REGULAR, b"\n")}, {b"f": (REGULAR, b"\n\n")}),
    "crlf": ({b"f": (REGULAR, b"a\r\nb\r\n")}, {b"f": (REGULAR, b"a\r\nc\r\n")}),
    "crlf to lf": ({b"f": (REGULAR, b"a\r\nb\r\n")}, {b"f": (REGULAR, b"a\nb\n")}),
    "lone carriage returns": ({b"f": (REGULAR, b"a\rb\r")}, {b"f": (REGULAR, b"a\rc\r")}),
    "not utf-8": ({b"f": (REGULAR, b"\xff\xfe\n")}, {b"f": (REGULAR, b"\xff\xfd\n")}),
    "utf-16 mark without nul": ({b"f": (REGULAR, b"\xff\xfea\n")}, {b"f": (REGULAR, b"\xfe\xffb\n")}),
    "control bytes are text": ({b"f": (REGULAR, b"\x01\x02\x03\n" * 9)}, {b"f": (REGULAR, b"\x01\x02\x04\n" * 9)}),
    "binary create": ({}, {b"f": (REGULAR, NOISE)}),
    "binary delete": ({b"f": (REGULAR, NOISE)}, {}),
    "binary edit": ({b"f": (REGULAR, NOISE)}, {b"f": (REGULAR, NOISE[:900] + b"\0x" + NOISE[900:])}),
    "binary replaced": ({b"f": (REGULAR, NOISE)}, {b"f": (REGULAR, random_bytes(2000, 2))}),
    "text to binary": ({b"f": text("a")}, {b"f": (REGULAR, b"a\0b")}),
    "binary to text": ({b"f": (REGULAR, b"\0")}, {b"f": text("a")}),
    "binary to empty": ({b"f": (REGULAR, b"\0")}, {b"f": (REGULAR, b"")}),
    "nul at 7999": ({b"f": (REGULAR, b"a" * 7999 + b"\0")}, {b"f": (REGULAR, b"b" * 7999 + b"\0")}),
    "nul at 8000": ({b"f": (REGULAR, b"a\n" * 4000 + b"\0")}, {b"f": (REGULAR, b"a\n" * 4000 + b"\0\0")}),
    "binary and mode": ({b"f": (REGULAR, b"\0")}, {b"f": (EXECUTABLE, b"\0\0")}),
    "mode only": ({b"f": text("a")}, {b"f": (EXECUTABLE, b"a\n")}),
    "mode only, back": ({b"f": (EXECUTABLE, b"a\n")}, {b"f": text("a")}),
    "mode of a binary": ({b"f": (EXECUTABLE, b"\0")}, {b"f": (REGULAR, b"\0")}),
    "mode and content": ({b"f": text("a")}, {b"f": (EXECUTABLE, b"b\n")}),
    "link target": ({b"l": (LINK, b"old")}, {b"l": (LINK, b"new")}),
    "link created": ({}, {b"l": (LINK, b"target with space")}),
    "link deleted": ({b"l": (LINK, b"x")}, {}),
    "file to link": ({b"f": text("a")}, {b"f": (LINK, b"a")}),
    "link to file": ({b"f": (LINK, b"a")}, {b"f": text("a")}),
    "link to a file of the same bytes": ({b"f": (LINK, b"a")}, {b"f": (REGULAR, b"a")}),
    "empty file to link": ({b"f": (REGULAR, b"")}, {b"f": (LINK, b"a")}),
    "executable binary to link": ({b"f": (EXECUTABLE, b"\0")}, {b"f": (LINK, b"a")}),
    "file to directory": ({b"a": text("a"), b"a.b": text("x")}, {b"a/b": text("b"), b"a/c/d": text("c")}),
    "directory to file": ({b"a/b": text("b"), b"a/c/d": text("c")}, {b"a": text("a"), b"a-b": text("x")}),
    "patch in a file": ({b"f": text("--- a/f", "+++ b/f", "@@ -1 +1 @@")}, {b"f": text("--- a/f", "+++ b/f", "GIT")}),
    "many": (
        {b"d/%d" % n: text(*numbered(n)) for n in range(12)},
        {b"d/%d" % n: text(*numbered(n + 1)) for n in range(3, 15)},
    ),
}  # fmt: skip

RENAMES: dict[str, tuple[Files, Files]] = {
    "same": ({b"a": text(*LONG)}, {b"b": text(*LONG)}),
    "edited": ({b"a": text(*LONG)}, {b"b": text(*LONG[:-1], "x")}),
    "much edited": ({b"a": text(*LONG)}, {b"b": text(*LONG[:35], *numbered(25, "other"))}),
    "too much edited": ({b"a": text(*LONG)}, {b"b": text(*LONG[:20], *numbered(40, "other"))}),
    "mode too": ({b"a": text(*LONG)}, {b"b": (EXECUTABLE, text(*LONG)[1])}),
    "edited and mode": ({b"a": text(*LONG)}, {b"b": (EXECUTABLE, text(*LONG, "x")[1])}),
    "binary": ({b"a": (REGULAR, NOISE + b"\n")}, {b"b": (REGULAR, NOISE + b"\n")}),
    "binary edited": ({b"a": (REGULAR, b"\0" + text(*LONG)[1])}, {b"b": (REGULAR, b"\0" + text(*LONG, "x")[1])}),
    "line ends": (
        {b"a": (REGULAR, text(*LONG)[1].replace(b"\n", b"\r\n"))},
        {b"b": text(*LONG, "x")},
    ),
    # (where both lack it, older git did not count the last line, and states one per cent less)
    "no newline at end": ({b"a": text(*LONG)}, {b"b": text(*LONG, end="")}),
    "long lines": ({b"a": text(*["x" * 200 + n for n in LONG])}, {b"b": text(*["x" * 200 + n for n in LONG[3:]])}),
    "into a directory": ({b"src/a.py": text(*LONG)}, {b"lib/x/a.py": text(*LONG, "x")}),
    "shared folders": ({b"p/q/old/s/t.c": text(*LONG)}, {b"p/q/new/s/t.c": text(*LONG)}),
    "one folder deeper": ({b"p/s/t.c": text(*LONG)}, {b"p/n/s/t.c": text(*LONG)}),
    "case only": ({b"README": text(*LONG)}, {b"readme": text(*LONG)}),
    "odd names": ({b'q"\t': text(*LONG)}, {b"with space\xff": text(*LONG, "x")}),
    "names with spaces": ({b"old name": text(*LONG)}, {b"new name": text(*LONG, "x")}),
    "swapped with base names": (
        {b"a/x": text(*LONG), b"a/y": text(*numbered(60, "other"))},
        {b"b/x": text(*LONG, "1"), b"b/y": text(*numbered(60, "other"), "2")},
    ),
    "a base name that is not alike enough": (
        {b"a/x": text(*LONG)},
        {b"b/x": text(*LONG[:38], *numbered(22, "other")), b"b/z": text(*LONG, "1")},
    ),
    "two of one content": ({b"a/x": text(*LONG), b"a/y": text(*LONG)}, {b"b/y": text(*LONG), b"c/x": text(*LONG)}),
    "no copies": ({b"a": text(*LONG)}, {b"b": text(*LONG), b"c": text(*LONG)}),
    "empty files": ({b"a/__init__.py": (REGULAR, b"")}, {b"b/__init__.py": (REGULAR, b"")}),
    "emptied": ({b"a": text("a")}, {b"b": (REGULAR, b"")}),
    "file to directory of the same": ({b"a": text(*LONG)}, {b"a/a": text(*LONG)}),
    "not into a link": ({b"a": (REGULAR, b"target")}, {b"b": (LINK, b"target")}),
    "beside other changes": (
        {b"a": text(*LONG), b"k": text("1"), b"t": text("x")},
        {b"z": text(*LONG, "x"), b"k": text("2"), b"t": (LINK, b"x")},
    ),
}


def test_the_table_is_as_git_writes_it_and_applies_both_ways(git: GitTrees) -> None:
    for title, (old, new) in TABLE.items():
        before, after = git.write(old, new)
        expected = git.diff(before, after, "--full-index", "--binary", "--no-renames")
        patch = patch_of(pairs_of(old, new))
        assert comparable(patch) == comparable(expected), title
        assert git.apply(before, patch) == after, title
        assert git.apply(after, patch, "-R") == before, title


@pytest.mark.parametrize("kind", ["edit", "create", "mode", "type", "rename"])
def test_names_are_quoted_as_git_quotes_them(git: GitTrees, kind: str) -> None:
    old_file, new_file = {
        "edit": (text("a", "b"), text("a", "c")),
        "create": (None, text("a")),
        "mode": (text("a"), (EXECUTABLE, b"a\n")),
        "type": (text("a"), (LINK, b"b")),
        "rename": (text(*LONG), text(*LONG, "x")),
    }[kind]
    for name in NAMES:
        old_name = b"was/" + name + b".x" if kind == "rename" else name
        old, new = ({old_name: old_file} if old_file else {}), {name: new_file}
        before, after = git.write(old, new)
        pairs = find_renames(pairs_of(old, new))
        assert kind != "rename" or pairs[0].old_path == old_name
        patch = patch_of(pairs)
        assert patch == git.diff(before, after, "--full-index", "--binary", "-M"), name
        assert git.apply(before, patch) == after, name
        assert git.apply(after, patch, "-R") == before, name
        assert b"".join(render_name_status(pairs)) == git.diff(before, after, "--name-status", "-M"), name


def test_renames_are_as_git_writes_them_and_apply_both_ways(git: GitTrees) -> None:
    for title, (old, new) in RENAMES.items():
        before, after = git.write(old, new)
        pairs = find_renames(pairs_of(old, new))
        patch = patch_of(pairs)
        assert comparable(patch) == comparable(git.diff(before, after, "--full-index", "--binary", "-M")), title
        assert git.apply(before, patch) == after, title
        assert git.apply(after, patch, "-R") == before, title


def test_short_forms_are_as_git_writes_them(git: GitTrees) -> None:
    for title, (old, new) in (TABLE | RENAMES).items():
        before, after = git.write(old, new)
        pairs = find_renames(pairs_of(old, new))
        assert b"".join(render_name_status(pairs)) == git.diff(before, after, "--name-status", "-M"), title
        assert b"".join(render_stat(pairs)) == git.diff(before, after, "--stat=80", "-M"), title


@pytest.mark.parametrize("longest", [5, 40, 62, 90, 200])
def test_a_stat_shares_its_columns_as_git_does(git: GitTrees, longest: int) -> None:
    chance = random.Random(longest)
    old: Files = {}
    new: Files = {}
    for number in range(30):
        name = b"d%d/" % number + b"n" * chance.randrange(1, longest) + b"/e/" * (number % 2) + b"f"
        size = chance.choice((0, 1, 3, 40, 1500))
        old[name] = text(*numbered(chance.choice((size, 2)), "old"))
        new[name] = text(*numbered(chance.choice((size, 1)), "new"))
    trees = [(old, new), (old | {b"bin": (REGULAR, b"\0")}, new | {b"bin": (REGULAR, NOISE)})]
    for older, newer in trees:
        before, after = git.write(older, newer)
        pairs = pairs_of(older, newer)
        assert b"".join(render_stat(pairs)) == git.diff(before, after, "--stat=80", "--no-renames")


@pytest.mark.parametrize("context_lines", [0, 1, 10])
def test_context_lines(git: GitTrees, context_lines: int) -> None:
    old, new = {b"f": text(*LONG)}, {b"f": text("x", *LONG[1:20], *LONG[23:40], "y", *LONG[40:])}
    options = ("--unidiff-zero",) if context_lines == 0 else ()
    patch = git.check(old, new, lambda pairs: patch_of(pairs, context_lines), *options)
    assert patch == git.diff(*git.write(old, new), "--full-index", f"-U{context_lines}")


def test_large_content_becomes_a_binary_patch_of_our_own(git: GitTrees) -> None:
    old_text = text(*numbered(100_000, "some words"))
    new_text = (REGULAR, b"first\n" + old_text[1])
    assert len(old_text[1]) > hunks.LARGE_BYTES
    noise = random_bytes(hunks.LARGE_BINARY_BYTES + 51)
    old = {b"text": old_text, b"bin": (REGULAR, noise), b"gone": (EXECUTABLE, noise[1:]), b"mode": (REGULAR, noise)}
    new = {
        b"text": new_text,
        b"bin": (REGULAR, noise[:-1]),
        b"made": (REGULAR, noise[2:]),
        b"mode": (EXECUTABLE, noise),
    }
    patch = git.check(old, new, patch_of)
    assert patch.count(b"\nGIT binary patch\nliteral ") == 4
    assert b"\n@@" not in patch
    sizes = b"".join(render_stat(pairs_of(old, new)))
    assert b" text | Bin %d -> %d bytes\n" % (len(old_text[1]), len(new_text[1])) in sizes


@pytest.mark.parametrize("size", [*range(110), 53_247, 53_248, 53_249, 300_000])
def test_our_binary_patches_are_exact_at_any_size(size: int) -> None:
    data = random_bytes(size, size)
    packed = b"".join(deflated_section(b"literal", data))
    assert packed.endswith(b"\n\n")
    assert _unpack(packed) == data
    assert zlib.decompress(decode_lines(packed.split(b"\n", 1)[1].strip())) == data


def test_text_that_is_long_to_compare_is_not_given_to_libgit2(git: GitTrees) -> None:
    chance = random.Random(7)
    lines = [chance.choice("ab") for _ in range(2 * hunks.LARGE_SPAN_LINES)]
    swapped = [chance.choice("ab") for _ in lines]
    assert b"GIT binary patch" in git.check({b"f": text(*lines)}, {b"f": text(*swapped)}, patch_of)
    # where few lines lie between the first and the last difference, or one side has few, it is quick
    edited = [*lines[:9000], "x", *lines[9001:9500], "y", *lines[9500:]]
    assert b"\n@@" in git.check({b"f": text(*lines)}, {b"f": text(*edited)}, patch_of)
    assert b"\n@@" in git.check({}, {b"f": text(*lines)}, patch_of)


def test_empty_directories_are_listed_but_not_in_patches() -> None:
    directory = Side(DIRECTORY, b"", _fail)
    a_file = side(*text("a"))
    pairs = [
        Pair(b"a", None, directory),
        Pair(b"b\t", directory, None),
        Pair(b"c", directory, a_file),
        Pair(b"d", a_file, directory),
        Pair(b"e", directory, directory),
    ]
    assert b"".join(render_name_status(pairs)) == b'A\ta/\nD\t"b\\t/"\nD\tc/\nA\tc\nD\td\nA\td/\n'
    patch = patch_of(pairs)
    assert re.findall(rb"^(?:diff|new|deleted) .*$", patch, re.M) == [
        b"diff --git a/c b/c",
        b"new file mode 100644",
        b"diff --git a/d b/d",
        b"deleted file mode 100644",
    ]
    assert b"".join(render_stat(pairs)).count(b" | ") == 2
    assert find_renames(pairs)[:2] == pairs[:2]


def test_nothing_is_shown_where_nothing_differs() -> None:
    same = side(*text("a"))
    assert patch_of([Pair(b"a", same, same)]) == b""
    assert list(render_stat([])) == []
    assert patch_of([]) == b""


def test_content_is_read_only_where_it_is_needed() -> None:
    old = Side(REGULAR, b"\1" * 20, _fail)
    assert b"new mode" in patch_of([Pair(b"a", old, replace(old, mode=EXECUTABLE))])
    assert b"similarity index 100%" in patch_of([Pair(b"a", old, old, b"b")])
    assert list(render_name_status([Pair(b"a", old, old, b"b")])) == [b"R100\tb\ta\n"]


def test_what_a_load_raises_goes_through() -> None:
    with pytest.raises(DomainError, match="object_missing"):
        patch_of([Pair(b"a", None, Side(REGULAR, b"\1" * 20, _fail))])


def test_attributes_of_a_tree_have_no_say() -> None:
    old = {b"f": text("a"), b".gitattributes": text("* binary -diff eol=crlf")}
    patch = patch_of(pairs_of(old, old | {b"f": text("b")}))
    assert patch.endswith(b"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n")


_bodies = st.one_of(
    st.lists(st.sampled_from([b"a", b"b", b"", b"\r", b"  x", b"def f():", b"\xff", b"--- a", b"+"]), max_size=30).map(
        b"\n".join
    ),
    st.binary(max_size=200),
    st.sampled_from([b"", b"\n", b"\0", b"a\n"]),
)
_files = st.one_of(
    st.tuples(st.sampled_from([REGULAR, EXECUTABLE]), _bodies),
    st.tuples(st.just(LINK), st.sampled_from([b"x", b"../y", b"\xff z"])),
)
_parts = st.sampled_from([b"a", b"b", b"a.b", b"a b", b'"', b"\t", b"\xff", b"-x", "\u00e9".encode(), b"\n", b"dev"])


def _without_clashes(files: Files) -> Files:
    paths = sorted(files)
    return {path: files[path] for path in paths if not any(path.startswith(other + b"/") for other in paths)}


_trees = st.dictionaries(st.lists(_parts, min_size=1, max_size=3).map(b"/".join), _files, max_size=6).map(
    _without_clashes
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(old=_trees, new=_trees, data=st.data())
def test_any_two_trees(git: GitTrees, old: Files, new: Files, data: st.DataObject) -> None:
    moved = {data.draw(_parts) + b"2": old[path] for path in old if data.draw(st.booleans())}
    new = _without_clashes(new | moved)
    git.check(old, new, patch_of)
    git.check(old, new, lambda pairs: patch_of(find_renames(pairs)))
    git.check(old, new, lambda pairs: patch_of(find_renames(pairs, similarity=0.1)))


def _fail(_oid: bytes) -> bytes:
    raise DomainError("object_missing", "not to be read")


def _unpack(packed: bytes) -> bytes:
    """Read a binary patch in git's letters, by arithmetic rather than by the encoder's counterpart."""
    letters = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    deflated = b""
    for line in packed.splitlines()[1:-1]:
        length = line[0] - 64 if line[0] < 97 else line[0] - 96 + 26
        groups = [line[at : at + 5] for at in range(1, len(line), 5)]
        numbers = [sum(letters.index(char) * 85 ** (4 - at) for at, char in enumerate(group)) for group in groups]
        deflated += b"".join(number.to_bytes(4, "big") for number in numbers)[:length]
    return zlib.decompress(deflated)
