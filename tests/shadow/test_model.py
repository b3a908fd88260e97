"""The model of what the last scan saw: its file form, and what is left of it when objects are lost."""

import gc
import hashlib
import random
import sys
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as effort_settings
from hypothesis import strategies as st

from ckptd.shadow.objects.pieces import drained
from ckptd.shadow.scan.entry import OID, pack_entry
from ckptd.shadow.scan.model import DirNode, iter_nodes, without_lost
from ckptd.shadow.scan.modelfile import FORMAT, checking_model, dump_model, load_model, pack_model
from ckptd.shadow.trees.tree import DIRECTORY
from support.effort import examples
from support.worktrees import Desk, names

pytestmark = pytest.mark.core

IDS = st.binary(min_size=20, max_size=20)
ENTRY = st.builds(
    lambda oid, sign, racy: pack_entry(oid, sign, racy=racy), IDS, st.binary(min_size=36, max_size=36), st.booleans()
)
PRINT = b"fingerprint"


def nodes() -> st.SearchStrategy[DirNode]:
    def node(children: st.SearchStrategy[dict[bytes, DirNode]]) -> st.SearchStrategy[DirNode]:
        return st.builds(
            DirNode,
            st.dictionaries(names(), ENTRY, max_size=4),
            children,
            st.frozensets(names(), max_size=3),
            st.integers(0, 0o7777),
            st.one_of(st.just(b""), IDS),
            st.one_of(st.none(), st.just(b""), IDS),
            st.just(None),
        )

    return st.recursive(
        node(st.just({})), lambda below: node(st.dictionaries(names(), below, max_size=3)), max_leaves=12
    )


def plain(node: DirNode) -> tuple[object, ...]:
    children = {name: plain(child) for name, child in node.children.items()}
    return node.entries, children, node.ignored, node.perm, node.tree, node.modes, node.files_below


def leaf(*oids: bytes, tree: bytes = b"t" * 20, modes: bytes | None = None, **children: DirNode) -> DirNode:
    entries = {b"f%d" % number: pack_entry(oid, bytes(36), racy=False) for number, oid in enumerate(oids)}
    below = {name.encode(): child for name, child in children.items()}
    return DirNode(entries, below, frozenset(), 0o755, tree, modes, object())


@given(nodes(), st.binary(max_size=20))
@effort_settings(max_examples=examples(100))
def test_a_model_comes_back_from_its_file(root: DirNode, fingerprint: bytes):
    loaded = load_model(dump_model(root, fingerprint))
    assert loaded is not None
    assert plain(loaded[0]) == plain(root)
    assert loaded[1] == fingerprint
    assert drained(checking_model(dump_model(root, fingerprint)))
    assert [path for path, _ in iter_nodes(loaded[0])] == [path for path, _ in iter_nodes(root)]


@given(nodes(), st.data())
@effort_settings(max_examples=examples(60))
def test_a_damaged_file_is_no_model(root: DirNode, data: st.DataObject):
    whole = dump_model(root, PRINT)
    at = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (bytes(flipped), whole[:at], whole + b"\0"):
        assert load_model(damaged) is None
        assert not drained(checking_model(damaged))


def sealed(*messages: object) -> bytes:
    packed = map(msgspec.msgpack.encode, messages)
    return signed(zlib.compress(b"".join(len(one).to_bytes(4) + one for one in packed)))


def signed(body: bytes) -> bytes:
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


HEAD = [FORMAT, PRINT]
RECORD = [b"", 0, 0o755, b"", None, [], {}]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        signed(b""),
        signed(b"text"),
        signed(zlib.compress(b"")),
        signed(zlib.compress(b"text")),
        signed(zlib.compress(b"\0\0\0\x09cut")),
        hashlib.sha1(msgspec.msgpack.encode([2, PRINT, [RECORD]])).digest()
        + msgspec.msgpack.encode([2, PRINT, [RECORD]]),
        sealed([FORMAT - 1, PRINT], [RECORD]),
        sealed([FORMAT + 1, PRINT], [RECORD]),
        sealed(HEAD),
        sealed(HEAD, []),
        sealed(HEAD, [RECORD, RECORD]),
        sealed(HEAD, [RECORD], [RECORD]),
        sealed(HEAD, [[b"", 1, 0o755, b"", None, [], {}]]),
        sealed(HEAD, [RECORD, [b"", -1, 0o755, b"", None, [], {}]]),
        sealed(HEAD, [[b"", 0, "x", b"", None, [], {}]]),
        sealed({"format": FORMAT}, [RECORD]),
        sealed(HEAD, {"records": []}),
    ],
)
def test_another_format_is_no_model(data: bytes):
    assert load_model(data) is None
    assert not drained(checking_model(data))


def test_a_model_is_checked_a_directory_at_a_time():
    inside = {b"d%d" % number: leaf(b"%020d" % number) for number in range(300)}
    root = DirNode({}, inside, frozenset(), 0o755, b"r" * 20, None, None)
    checking, pieces, most = checking_model(dump_model(root, PRINT)), 0, 0
    del root, inside
    before = nodes_alive()
    for _ in checking:
        pieces += 1
        if not pieces % 60:
            most = max(most, nodes_alive())
    assert pieces >= 300
    # To let go of a hundred thousand files is one call, which nobody comes in between.
    assert most == before


def nodes_alive() -> int:
    return sum(isinstance(one, DirNode) for one in gc.get_objects())


def test_the_format_that_is_known():
    loaded = load_model(sealed(HEAD, [RECORD]))
    assert loaded is not None
    assert plain(loaded[0]) == ({}, {}, frozenset(), 0o755, b"", None, 0)


def test_a_model_is_packed_in_pieces_of_a_bounded_size():
    def folder(files: int, number: int = 0) -> DirNode:
        entries = {
            b"%d-%d" % (number, one): pack_entry(random.randbytes(20), bytes(36), racy=False) for one in range(files)
        }
        return DirNode(entries, {}, frozenset(), 0o755, b"t" * 20, None, None)

    random.seed(7)
    small = DirNode(
        {}, {b"d%d" % one: folder(20, one) for one in range(500)}, frozenset(), 0o755, b"r" * 20, None, None
    )
    pieces = [*pack_model(small, PRINT)]
    # Of ten thousand files, some two hundred and fifty at a time.
    assert len(pieces) >= 10_000 // 300
    assert load_model(b"".join(pieces)) is not None
    # One directory is one record, and yet is not compressed in one go.
    pieces = [*pack_model(folder(10_000), PRINT)]
    assert len(pieces) >= 10
    assert max(map(len, pieces)) < 150_000
    loaded = load_model(b"".join(pieces))
    assert loaded is not None
    assert loaded[0].files_below == 10_000


def test_a_very_deep_model():
    node = leaf(b"a" * 20)
    for _ in range(5000):
        node = DirNode({}, {b"d": node}, frozenset(), 0o755, b"", None, None)
    loaded = load_model(dump_model(node, PRINT))
    assert loaded is not None
    assert loaded[0].files_below == 1
    assert without_lost(node, lambda _oid: True).files_below == 1
    assert sum(1 for _ in iter_nodes(node)) == 5001


def test_nothing_changes_where_nothing_is_lost():
    root = leaf(b"a" * 20, d=leaf(b"b" * 20, modes=b"m" * 20), e=leaf())
    assert without_lost(root, lambda _oid: True) is root


def test_a_lost_file_takes_the_trees_above_it_along():
    kept = leaf(b"a" * 20)
    root = leaf(b"b" * 20, kept=kept, d=leaf(d=leaf(b"c" * 20, b"x" * 20)))
    found = without_lost(root, lambda oid: oid != b"x" * 20)
    assert found.children[b"kept"] is kept
    below = found.children[b"d"].children[b"d"]
    assert list(below.entries) == [b"f0"]
    assert (below.tree, found.children[b"d"].tree, found.tree) == (b"", b"", b"")
    assert found.modes == b""
    assert found.files_below == 3
    assert found.basis is root.basis


@pytest.mark.parametrize("lost", [b"t", b"m"])
def test_a_lost_tree_is_made_again_and_its_files_stay(lost: bytes):
    inner = DirNode(leaf(b"a" * 20).entries, {}, frozenset(), 0o755, b"t" * 20, b"m" * 20, None)
    root = DirNode({}, {b"d": inner}, frozenset(), 0o755, b"r" * 20, None, None)
    found = without_lost(root, lambda oid: oid != lost * 20)
    assert found.tree == found.children[b"d"].tree == b""
    assert found.children[b"d"].entries == inner.entries


@given(nodes(), st.randoms(use_true_random=False))
@effort_settings(max_examples=examples(60))
def test_what_is_left_rests_on_what_is_there(root: DirNode, chance: object):
    everything = {entry[OID] for _, node in iter_nodes(root) for entry in node.entries.values()}
    everything |= {oid for _, node in iter_nodes(root) for oid in (node.tree, node.modes) if oid}
    there = {oid for oid in everything if chance.random() < 0.7}
    found = without_lost(root, there.__contains__)
    for _, node in iter_nodes(found):
        assert all(entry[OID] in there for entry in node.entries.values())
        assert not node.tree or node.tree in there
        assert not node.modes or node.modes in there
        # A tree's id stands only for a directory whose parts are all there.
        assert not node.tree or all(child.tree for child in node.children.values())


def test_a_node_is_a_view_of_its_directory(desk: Desk):
    desk.write(b"a", b"1", 0o600)
    desk.write(b"d/b", b"2")
    desk.link(b"l", b"a")
    desk.save("m")
    root = desk.repo.model
    assert root is not None
    assert sorted(root.files()) == [b"a", b"l"]
    assert sorted(root.dirs()) == [b"d"]
    state = root.file(b"a")
    assert state is not None
    assert state.perm == 0o600
    assert root.file(b"d") is root.dir(b"a") is None
    assert root.state().mode == DIRECTORY


def test_a_file_takes_little_memory():
    """Twenty files a directory, with names as long as those of sources."""
    folders = {
        b"module_%d" % one: DirNode(
            {b"file_%d.py" % (one * 20 + two): pack_entry(bytes(20), bytes(36), racy=False) for two in range(20)},
            {}, frozenset(set()), 0o755, b"%020d" % one, None, None, b"%032d" % one,
        )
        for one in range(500)
    }  # fmt: skip
    root = DirNode({}, folders, frozenset(), 0o755, b"", None, None)
    assert memory_of(root) < 210 * root.files_below


def memory_of(root: DirNode) -> int:
    """The bytes of a model's own objects, each as large as the allocator makes it."""
    parts: dict[int, object] = {}
    for _, node in iter_nodes(root):
        own = (node, node.entries, node.children, node.ignored, node.tree, node.modes, node.sign)
        for part in (*own, *node.ignored, *node.children, *node.entries, *node.entries.values()):
            parts[id(part)] = part
    return sum((sys.getsizeof(part) + 15) // 16 * 16 for part in parts.values())


def test_what_directories_do_not_have_takes_no_memory():
    one, other = (DirNode({}, {}, frozenset(), 0o755, b"", None, None) for _ in range(2))
    assert (id(one.entries), id(one.children)) == (id(other.entries), id(other.children))
