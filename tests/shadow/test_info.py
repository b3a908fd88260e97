"""What is told beside a checkpoint, and permission bits: written, read back, and refused where they are malformed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import hash_object
from ckptd.shadow.objects.pack import HashOnly
from ckptd.shadow.record.checkpoint import load_info, root_of
from ckptd.shadow.record.info import NO_INFO, Info, OutsideRules, read_info, write_info_tree
from ckptd.shadow.scan.exclusion import LARGE, UNREADABLE, Exclusion
from ckptd.shadow.trees.modes import format_exceptions, is_exception, parse_exceptions
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import DIRECTORY, EXECUTABLE, LINK, REGULAR, TreeEntry, format_tree, parse_tree
from ckptd.shadow.trees.view import StoredTree, find_state, find_view
from support.worktrees import Desk, names

pytestmark = pytest.mark.core


class Shelf(HashOnly):
    """Objects in memory."""

    def __init__(self) -> None:
        self.objects: dict[bytes, bytes] = {}

    def add(self, kind: bytes, data: bytes) -> bytes:
        oid = hash_object(kind, data)
        self.objects[oid] = data
        return oid

    def read(self, oid: bytes, kind: bytes) -> bytes:
        if oid not in self.objects:
            raise DomainError("object_missing", oid.hex())
        return self.objects[oid]


_PATHS = st.lists(names(), min_size=1, max_size=3).map(b"/".join)
_LEFT_OUT = st.lists(
    st.builds(Exclusion, _PATHS, st.sampled_from([LARGE, UNREADABLE]), st.none() | st.text(max_size=5)),
    max_size=3,
)
_FILES = st.lists(st.tuples(_PATHS, st.binary(max_size=20)), max_size=2)
_RULES = st.builds(
    OutsideRules,
    options=st.lists(st.binary(max_size=5), max_size=2),
    global_excludes=st.none() | st.binary(max_size=20),
    git_excludes=_FILES,
    gitignores=_FILES,
    ckptignores=_FILES,
)


@given(skipped=_LEFT_OUT, excluded=_LEFT_OUT, rules=_RULES)
def test_round_trip(skipped: list[Exclusion], excluded: list[Exclusion], rules: OutsideRules):
    shelf = Shelf()
    info = Info(skipped, excluded, rules, None)
    tree = write_info_tree(shelf, info)
    if tree is None:
        assert info == NO_INFO
    else:
        assert read_info(shelf, tree) == info


def test_nothing_to_tell():
    shelf = Shelf()
    assert write_info_tree(shelf, NO_INFO) is None
    assert shelf.objects == {}


_NO_RECORDS = [b"{", b"[]\n", b"\xff\n", None]
_NO_PATHS = [b'{"path":1,"reason":"x"}\n', b'{"path":"/abs"}\n']


@pytest.mark.parametrize(
    ("name", "data"),
    [
        *((name, data) for name in (b"skipped", b"excluded") for data in [*_NO_RECORDS, *_NO_PATHS]),
        *((b"rules", data) for data in _NO_RECORDS),
    ],
)
def test_malformed(name: bytes, data: bytes | None):
    shelf = Shelf()
    oid = shelf.add(b"blob", data) if data is not None else b"\1" * 20
    tree = shelf.add(b"tree", format_tree({name: TreeEntry(REGULAR, oid)}))
    with pytest.raises(DomainError) as caught:
        read_info(shelf, tree)
    assert caught.value.kind == ("store_damaged" if data is not None else "object_missing")


# -- permission bits


@given(st.dictionaries(names(), st.integers(min_value=0, max_value=0o7777)))
def test_exceptions_round_trip(perms: dict[bytes, int]):
    assert parse_exceptions(format_exceptions(perms)) == perms


def test_what_is_an_exception():
    assert [is_exception(REGULAR, perm) for perm in (0o644, 0o600, 0o664, 0o4644)] == [False, True, True, True]
    assert [is_exception(EXECUTABLE, perm) for perm in (0o755, 0o700, 0o4755)] == [False, True, True]
    assert [is_exception(DIRECTORY, perm) for perm in (0o755, 0o700, 0o1777)] == [False, True, True]
    assert not is_exception(LINK, 0o777)


@pytest.mark.parametrize("data", [b"x name\0", b"9 name\0", b" name\0"])
def test_malformed_exceptions(data: bytes):
    with pytest.raises(DomainError, match=r"^store_damaged: "):
        parse_exceptions(data)


# -- trees


@pytest.mark.parametrize(
    "data",
    [
        b"100644 a",
        b"100644 a\0" + b"1" * 19,
        b"100664 a\0" + b"1" * 20,
        b"160000 a\0" + b"1" * 20,
        b"040000 a\0" + b"1" * 20,
        b"100644 \0" + b"1" * 20,
        (b"100644 a\0" + b"1" * 20) * 2,
        b"a\0" + b"1" * 20,
        b"\0" * 30,
        *(b"100644 " + name + b"\0" + b"1" * 20 for name in (b".", b"..", b"a/b", b".git", b".GIT", b".gIt")),
    ],
)
def test_trees_that_no_save_writes_are_refused_as_a_whole(data: bytes):
    with pytest.raises(DomainError, match=r"^store_damaged: "):
        parse_tree(b"100644 0\0" + b"1" * 20 + data)


@given(st.dictionaries(names(), st.sampled_from([REGULAR, EXECUTABLE, LINK, DIRECTORY])))
def test_trees_round_trip(modes: dict[bytes, int]):
    entries = {name: TreeEntry(mode, hash_object(b"blob", name)) for name, mode in modes.items()}
    assert parse_tree(format_tree(entries)) == entries


def test_a_stored_tree_with_its_bits(desk: Desk):
    desk.write(b"a/f", b"1", 0o600)
    desk.write(b"a/+", b"1", 0o640)
    desk.write(b"a/=", b"1", 0o660)
    desk.write(b"a/+d/f", b"1", 0o400)
    desk.write(b"g", b"1", 0o755)
    desk.mkdir(b"a/=d/e", 0o700)
    desk.link(b"l", b"x")
    saved = desk.save()
    checkpoint = desk.repo.lookup.load(saved.id)
    root = root_of(desk.repo.objects, checkpoint, load_info(desk.repo.objects, checkpoint))
    perms = {b"a/f": 0o600, b"a/+": 0o640, b"a/=": 0o660, b"a/+d/f": 0o400, b"g": 0o755, b"a/=d/e": 0o700, b"a": 0o755}
    for path, perm in perms.items():
        state = find_state(root, path)
        assert state is not None
        assert state.perm == perm, path
    assert find_state(root, b"l") == State(LINK, hash_object(b"blob", b"x"), None)
    for path in (b"none", b"a/none", b"g/x", b"l/x", b"none/x"):
        assert find_state(root, path) is None
    assert find_view(root, b"") is root
    assert find_view(root, b"g") is None
    unknown = root_of(desk.repo.objects, checkpoint, None)
    state = find_state(unknown, b"a/f")
    assert state is not None
    assert state.perm is None


def test_missing_is_not_absent():
    shelf = Shelf()
    tree = shelf.add(b"tree", format_tree({b"d": TreeEntry(DIRECTORY, b"\1" * 20)}))
    root = StoredTree(shelf, tree, None)
    with pytest.raises(DomainError, match=r"^object_missing: "):
        find_state(root, b"d/f")


# -- in a store


def test_a_save_tells_what_it_left_out_and_by_which_rules(desk: Desk):
    desk.configure(max_file_bytes=100, exclude=(b"*.o",))
    desk.write(b"large", b"x" * 101)
    desk.write(b"x.o", b"x")
    desk.write(b".gitignore", b".gitignore\n*.log\n")
    saved = desk.save("m")
    info = desk.repo.lookup.open(saved.id).info
    assert info is not None
    assert [(item.path, item.reason) for item in info.excluded] == [(b"large", LARGE)]
    assert info.rules.options == [b"*.o"]
    assert [content for _, content in info.rules.gitignores] == [b".gitignore\n*.log\n"]
    assert saved.complete
