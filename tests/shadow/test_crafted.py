"""Stores that somebody has tampered with: nothing is restored from them, and it is said why."""

import os

import pytest

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import hash_object
from support.restores import content, left_out, refused, stats

pytestmark = pytest.mark.core

BLOB = hash_object(b"blob", b"mine")
EMPTY = hash_object(b"tree", b"")


@pytest.fixture
def store(desk):
    """A desk with one good checkpoint of ``good``, and a helper to point the next number to crafted objects."""
    desk.damaged = True
    desk.write(b"good", b"mine")
    desk.save()
    return desk


def write(desk, kind: bytes, data: bytes) -> bytes:
    made = desk.git("hash-object", "-t", kind, "-w", "--stdin", "--literally", data=data).strip()
    return bytes.fromhex(made.decode())


def commit_of(desk, tree: bytes) -> bytes:
    message = b"crafted\n\nCkpt-Seq: 99\nCkpt-Kind: manual\nCkpt-Scan: full\nCkpt-Complete: true\n"
    text = b"tree %s\nauthor c <c> 1 +0000\ncommitter c <c> 1 +0000\n\n%s" % (tree.hex().encode(), message)
    return write(desk, b"commit", text)


def point(desk, text: bytes, number: int = 99) -> None:
    with open(os.path.join(desk.folder, b"refs/checkpoints/%010d" % number), "wb") as file:
        file.write(text + b"\n")
    desk.reopen()


def craft(desk, *records: bytes) -> str:
    commit = commit_of(desk, write(desk, b"tree", b"".join(records))).hex()
    point(desk, commit.encode())
    return commit


def record(mode: bytes, name: bytes, oid: bytes = BLOB) -> bytes:
    return b"%s %s\0%s" % (mode, name, oid)


MALFORMED = {
    "a name twice": record(b"100644", b"x") * 2,
    "a file and a directory of one name": record(b"100644", b"x") + record(b"40000", b"x", EMPTY),
    "a submodule": record(b"160000", b"x"),
    "an odd mode": record(b"100664", b"x"),
    "a mode with a zero in front": record(b"040000", b"x", EMPTY),
    "no mode": record(b"", b"x"),
    "a cut entry": record(b"100644", b"x")[:-1],
    "no end of the name": b"100644 x",
    "a git directory": record(b"40000", b".GiT", EMPTY),
}


@pytest.mark.parametrize("tree", MALFORMED.values(), ids=MALFORMED.keys())
@pytest.mark.parametrize("verb", ["reset", "rollback", "dry run"])
def test_a_tree_that_no_save_writes_is_refused_as_a_whole(store, tree, verb):
    crafted = craft(store, record(b"100644", b"aaa"), tree)
    with refused(store, "store_damaged"):
        if verb == "rollback":
            store.rollback(crafted, b"aaa")
        else:
            store.reset(crafted, dry_run=verb == "dry run")


def test_a_file_whose_content_is_a_tree_or_a_directory_that_is_a_file(store):
    tree = write(store, b"tree", record(b"100644", b"inside"))
    crafted = craft(store, record(b"100644", b"x", tree), record(b"100644", b"y"))
    with refused(store, "object_missing", b"x"):
        store.reset(crafted)
    crafted = craft(store, record(b"40000", b"x", BLOB))
    with refused(store, "store_damaged"):
        store.reset(crafted)


@pytest.mark.parametrize("target", [b"", b"a\0b", b"x" * 70_000])
def test_a_link_that_no_link_can_be_is_found_before_anything_is_written(store, target):
    blob = write(store, b"blob", target)
    crafted = craft(store, record(b"100644", b"a"), record(b"120000", b"link", blob))
    before = stats(store)
    with refused(store, "conflicts", b"link"):
        store.reset(crafted)
    assert stats(store) == before
    result = store.reset(crafted, skip_conflicts=True)
    assert (left_out(result.conflicts), content(store, b"a")) == ([(b"link", "bad_link")], b"mine")


def test_a_name_that_no_file_system_takes_is_found_before_anything_is_written(store):
    deep = write(store, b"tree", record(b"100644", b"x"))
    crafted = craft(store, record(b"100644", b"a"), record(b"40000", b"n" * 300, deep))
    with refused(store, "conflicts", b"n" * 300):
        store.reset(crafted)
    result = store.reset(crafted, skip_conflicts=True)
    assert (left_out(result.conflicts), content(store, b"a")) == ([(b"n" * 300, "bad_name")], b"mine")


def test_a_ref_that_names_no_checkpoint_restores_nothing(store):
    before = stats(store)
    tag = b"object %s\ntype commit\ntag t\ntagger c <c> 1 +0000\n\nt\n" % store.head().encode()
    texts = [
        BLOB.hex().encode(),
        write(store, b"tree", record(b"100644", b"x")).hex().encode(),
        write(store, b"tag", tag).hex().encode(),
        b"f" * 40,
        b"ref: refs/checkpoints/0000000099",
        b"ref: refs/checkpoints/0000000098",
        b"../../../../etc/passwd",
        b"",
        b"\xff" * 40,
    ]
    point(store, b"ref: refs/checkpoints/0000000099", 98)
    for text in texts:
        point(store, text)
        for ask in (store.reset, lambda id, **fields: store.rollback(id, b"good", **fields)):
            for fields in ({}, {"dry_run": True}):
                with pytest.raises(DomainError) as caught:
                    ask("#99", **fields)
                assert caught.value.kind in ("store_damaged", "object_missing", "unknown_checkpoint")
    assert stats(store) == before
    # Whatever lies beside it, the good one goes on working.
    store.write(b"good", b"other")
    assert store.reset().written == ["good"]


def test_a_commit_that_no_save_made_is_refused(store):
    tree = write(store, b"tree", record(b"100644", b"good")).hex().encode()
    for text in (
        b"tree %s\n\nx\n" % tree,
        b"x",
        b"tree %s\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nmine\n" % tree,
    ):
        point(store, write(store, b"commit", text).hex().encode())
        with pytest.raises(DomainError) as caught:
            store.reset("#99")
        assert caught.value.kind == "store_damaged"


def test_names_that_only_other_file_systems_fold_are_ordinary_here(store):
    names = [b".git\xe2\x80\x8c", b".gi\xe2\x80\x8dt", b"git~1", b".git ", b".git.", b".git::$INDEX_ALLOCATION", b"..."]
    crafted = craft(store, *[record(b"100644", name) for name in sorted(names)])
    store.reset(crafted)
    assert [content(store, name) for name in names] == [b"mine"] * len(names)
