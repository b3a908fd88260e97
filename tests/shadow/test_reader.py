"""Listing, showing and reading checkpoints."""

import base64
import os
import random

import pytest

from ckpt_protocol import checkpoint as wire
from ckpt_protocol.structs import from_wire, to_wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.store.reader import StoreReader
from support.worktrees import Desk, opened_files, to_the_end

pytestmark = pytest.mark.core


def kind_of(call, *arguments: object, **fields: object) -> str:
    with pytest.raises(DomainError) as caught:
        call(*arguments, **fields)
    return caught.value.kind


def seqs(desk: Desk, **fields: object) -> list[int]:
    return [one.seq for one in desk.list(**fields).checkpoints]


def history(desk: Desk) -> list[str]:
    """Seven checkpoints that differ in kind, metadata and what they changed."""
    ids = []

    def save(message: str, **fields: object) -> None:
        ids.append(desk.save(message, **fields).id)

    desk.write(b"a", b"1")
    desk.write(b"d/b", b"1")
    save("one", meta={"run": "x"}, tag="first")
    desk.write(b"a", b"2")
    save("two", kind="auto")
    desk.remove(b"d/b")
    save("three", meta={"run": "x", "step": "2"})
    desk.write(b"c", b"1")
    save("four", meta={"run": "y"})
    desk.write(b"d/b", b"3")
    save("five", kind="auto", meta={"run": "x"})
    os.chmod(desk.path(b"a"), 0o600)
    save("six")
    desk.remove(b"d")
    save("seven", tag="last")
    return ids


def test_a_list_is_newest_first(desk: Desk):
    ids = history(desk)
    listed = desk.list()
    assert [one.id for one in listed.checkpoints] == ids[::-1]
    assert (listed.head, listed.more, listed.damaged) == (ids[-1], False, 0)
    first = listed.checkpoints[-1]
    assert (first.seq, first.kind, first.message, first.tags, first.meta) == (
        1,
        "manual",
        "one",
        ["first"],
        {"run": "x"},
    )
    assert (first.complete, first.base, first.client) == (True, None, "test")
    assert listed.checkpoints[0].base == ids[-2]


def test_an_empty_list(desk: Desk):
    listed = desk.list()
    assert (listed.checkpoints, listed.head, listed.more, listed.damaged) == ([], None, False, 0)
    assert kind_of(desk.head) == "no_checkpoint"
    assert kind_of(desk.show, "HEAD") == "no_checkpoint"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"kind": "manual"}, [7, 6, 4, 3, 1]),
        ({"kind": "auto"}, [5, 2]),
        ({"kind": "safety"}, []),
        ({"meta": {"run": "x"}}, [5, 3, 1]),
        ({"meta": {"run": "x", "step": "2"}}, [3]),
        ({"meta": {"run": "z"}}, []),
        ({"meta": {"none": ""}}, []),
        ({"paths": [b"a"]}, [6, 2, 1]),
        ({"paths": [b"c"]}, [4]),
        # Deleted, made again, and deleted with its directory.
        ({"paths": [b"d/b"]}, [7, 5, 3, 1]),
        ({"paths": [b"d"]}, [7, 5, 3, 1]),
        ({"paths": [b"a", b"c"]}, [6, 4, 2, 1]),
        ({"paths": [b"none", b"a/x", b"d/b/x"]}, []),
        ({"paths": [b"a"], "kind": "auto"}, [2]),
        ({"before_seq": 4}, [3, 2, 1]),
        ({"before_seq": 1}, []),
        ({"before_seq": 0}, []),
        ({"before_seq": 10**12, "kind": "auto"}, [5, 2]),
        ({"limit": 3}, [7, 6, 5]),
    ],
    ids=str,
)
def test_filters(desk: Desk, fields: dict[str, object], expected: list[int]):
    history(desk)
    assert seqs(desk, **fields) == expected


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("fields", [{}, {"kind": "manual"}, {"paths": [b"d/b"]}], ids=str)
def test_pages_make_the_whole(desk: Desk, limit: int, fields: dict[str, object]):
    history(desk)
    whole = seqs(desk, **fields)
    found, before = [], None
    while True:
        page = desk.list(limit=limit, before_seq=before, **fields)
        found += [one.seq for one in page.checkpoints]
        assert len(page.checkpoints) <= limit
        if not page.more:
            break
        assert len(page.checkpoints) == limit
        before = found[-1]
    assert found == whole


def test_safety_checkpoints_are_listed_as_such(desk: Desk):
    ids = history(desk)
    desk.write(b"a", b"lost?")
    done = desk.reset(ids[0])
    (safety,) = desk.list(kind="safety").checkpoints
    assert safety.id == done.safety
    assert desk.list().head == ids[0]


def test_one_that_cannot_be_read_is_counted_and_passed_over(desk: Desk):
    ids = history(desk)
    desk.close()
    desk.damaged = True
    refs = Refs(desk.folder)
    refs.write_checkpoint(8, b"1" * 40, None)
    refs.write_checkpoint(2, desk.git("hash-object", "-w", "--stdin", data=b"a blob").strip(), None)
    with open(os.path.join(desk.folder, b"refs", b"checkpoints", b"0000000003"), "wb") as file:
        file.write(b"junk")
    reader = StoreReader(desk.folder)
    listed = to_the_end(reader.list(wire.ListParams(**desk.common()), Caller("test")))
    assert [one.seq for one in listed.checkpoints] == [7, 6, 5, 4, 1]
    assert listed.damaged == 2
    # The next one that can be read is compared with the last that could.
    listed = to_the_end(reader.list(wire.ListParams(**desk.common(), paths=["a"]), Caller("test")))
    assert ([one.seq for one in listed.checkpoints], listed.damaged) == ([6, 4, 1], 2)
    shown = to_the_end(reader.show(wire.ShowParams(**desk.common(), id=ids[3]), Caller("test")))
    assert (shown.checkpoint.message, shown.base) == ("four", ids[0])
    for lost in ("#8", "#2"):
        run = reader.show(wire.ShowParams(**desk.common(), id=lost), Caller("test"))
        assert kind_of(run.step) == "object_missing"
    reader.close()


def changes(shown: wire.ShowResult) -> list[tuple[bytes, str, bool]]:
    return [(from_wire(one.path), one.change, one.dir) for one in shown.changes]


def test_show_compares_with_the_base(desk: Desk):
    ids = history(desk)
    assert changes(desk.show(ids[0])) == [(b"a", "added", False), (b"d/b", "added", False)]
    assert desk.show(ids[0]).base is None
    assert changes(desk.show(ids[1])) == [(b"a", "modified", False)]
    # The directory stays, and is empty now; that is nothing added.
    assert changes(desk.show(ids[2])) == [(b"d/b", "deleted", False)]
    assert changes(desk.show(ids[5])) == [(b"a", "mode", False)]
    assert changes(desk.show("last")) == [(b"d/b", "deleted", False)]
    # After a reset the base is what head was then, not what came before by number.
    desk.reset(ids[0])
    desk.write(b"new", b"x")
    saved = desk.save("eight")
    shown = desk.show(saved.id)
    assert shown.base == ids[0]
    assert changes(shown) == [(b"new", "added", False)]


def test_show_without_its_base_compares_with_the_one_before(desk: Desk):
    ids = history(desk)
    desk.git("update-ref", "-d", "refs/checkpoints/0000000003")
    shown = desk.show(ids[3])
    assert shown.base == ids[1]
    assert changes(shown) == [(b"c", "added", False), (b"d/b", "deleted", False)]
    desk.git("update-ref", "-d", "refs/checkpoints/0000000001")
    assert desk.show(ids[1]).base is None
    assert changes(desk.show(ids[1])) == [(b"a", "added", False), (b"d/b", "added", False)]


def test_show_tells_types_links_and_empty_directories(desk: Desk):
    desk.write(b"x", b"1")
    desk.write(b"y/z", b"1")
    desk.mkdir(b"e")
    desk.save("one")
    desk.remove(b"x")
    desk.link(b"x", b"y")
    desk.remove(b"y")
    desk.write(b"y", b"1")
    desk.remove(b"e")
    desk.mkdir(b"n/m")
    desk.write(b"caf\xe9", b"1")
    assert changes(desk.show(desk.save("two").id)) == [
        (b"caf\xe9", "added", False),
        (b"e", "deleted", True),
        (b"n/m", "added", True),
        (b"x", "type", False),
        (b"y", "type", False),
        (b"y/z", "deleted", False),
    ]


def test_show_tells_what_was_left_out(desk: Desk):
    desk.configure(max_file_bytes=10)
    desk.write(b"large", bytes(11))
    os.mkfifo(desk.path(b"pipe"))
    shown = desk.show(desk.save("m").id)
    assert {(one.path, one.reason) for one in shown.excluded} == {("large", "large"), ("pipe", "special")}
    assert shown.skipped == []


def cat(desk: Desk, id: str, path: bytes, **fields: object) -> wire.CatResult:
    return desk.reader.cat(wire.CatParams(**desk.common(), id=id, path=to_wire(path), **fields))


@pytest.mark.parametrize("size", [0, 1, 1000, 1_048_576, 1_048_577, 3_000_000])
def test_cat_in_pieces(desk: Desk, size: int):
    data = random.Random(size).randbytes(size)
    desk.write(b"f", data)
    saved = desk.save("m")
    for length in (1_048_576, 700_001):
        found = b""
        while True:
            piece = cat(desk, saved.id, b"f", offset=len(found), length=length)
            assert (piece.total_bytes, piece.offset, piece.id) == (size, len(found), saved.id)
            found += base64.b64decode(piece.data.b64)
            if len(found) == size:
                break
        assert found == data


def test_cat_of_any_range(desk: Desk):
    desk.write(b"f", b"0123456789")
    saved = desk.save("m")
    for offset, length in ((0, 1), (3, 4), (9, 1), (9, 100), (10, 5), (11, 5), (1 << 70, 5)):
        piece = cat(desk, saved.id, b"f", offset=offset, length=length)
        assert base64.b64decode(piece.data.b64) == b"0123456789"[offset : offset + length]
        assert piece.offset == offset


def test_cat_tells_modes_and_gives_links_targets(desk: Desk):
    desk.write(b"x", b"run", 0o755)
    desk.write(b"caf\xe9/f", b"odd")
    desk.link(b"l", b"/etc/passwd")
    desk.link(b"dangling", b"\xff")
    desk.save("m", tag="t")
    assert (cat(desk, "t", b"x").mode, desk.cat("t", b"x")) == ("100755", b"run")
    assert (cat(desk, "HEAD", b"l").mode, desk.cat("HEAD", b"l")) == ("120000", b"/etc/passwd")
    assert desk.cat("#1", b"dangling") == b"\xff"
    assert (cat(desk, "t", b"caf\xe9/f").mode, desk.cat("t", b"caf\xe9/f")) == ("100644", b"odd")


def test_cat_of_what_is_no_file(desk: Desk):
    desk.write(b"d/f", b"1")
    desk.link(b"l", b"d")
    desk.save("m")
    assert kind_of(desk.cat, "HEAD", b"d") == "not_a_file"
    for path in (b"none", b"d/none", b"d/f/x"):
        assert kind_of(desk.cat, "HEAD", path) == "path_not_in_checkpoint"
    assert kind_of(desk.cat, "HEAD", b"l/f") == "beyond_symlink"
    assert kind_of(desk.cat, "none", b"d/f") == "unknown_checkpoint"


def test_cat_of_two_files_in_turn(desk: Desk):
    one, other = random.Random(1).randbytes(3000), random.Random(2).randbytes(3000)
    desk.write(b"one", one)
    desk.write(b"other", other)
    desk.save("m")
    for offset in (0, 1000, 2000):
        for path, data in ((b"one", one), (b"other", other)):
            assert desk.cat("HEAD", path, offset=offset, length=1000) == data[offset : offset + 1000]


def test_cat_of_damaged_content_gives_nothing_wrong(desk: Desk):
    data = random.Random(1).randbytes(5000)
    desk.write(b"f", data)
    desk.write(b"g", b"fine")
    desk.save("m")
    pack = next(name for name in os.listdir(os.path.join(desk.folder, b"objects", b"pack")) if name.endswith(b".pack"))
    path = os.path.join(desk.folder, b"objects", b"pack", pack)
    with open(path, "rb") as file:
        at = file.read().index(data[1000:1100])
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(b"damage")
    assert kind_of(desk.cat, "HEAD", b"f") == "store_damaged"
    assert desk.cat("HEAD", b"g") == b"fine"
    # The next save finds out, and writes it again from the worktree.
    desk.write(b"h", b"new")
    desk.save("again")
    assert desk.cat("HEAD", b"f") == desk.cat("#1", b"f") == data
    desk.damaged = True


def test_a_page_after_saves_looks_for_no_ref_again(desk: Desk):
    """What the writer has written itself, the reader of the same store knows."""
    desk.write(b"f", b"0")
    desk.save()
    assert len(desk.list().checkpoints) == 1
    for number in range(1, 6):
        desk.write(b"f", b"%d" % number)
        desk.save(tag="five" if number == 5 else None)
    with opened_files() as opened:
        page = desk.list(limit=3)
    assert [one.seq for one in page.checkpoints] == [6, 5, 4]
    assert page.checkpoints[0].tags == ["five"]
    assert page.head == page.checkpoints[0].id
    assert [path for path in opened if b"/refs/checkpoints/" in path] == []
