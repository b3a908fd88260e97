"""The history of a path: across deletion, re-creation and renames, page by page."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckpt_protocol import checkpoint as wire
from ckpt_protocol.structs import from_wire, to_wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.store import trail
from support.worktrees import Desk, desk_fixture, git_log, to_the_end

pytestmark = pytest.mark.core

LINES = b"".join(b"line %d\n" % number for number in range(40))


def move(desk: Desk, old: bytes, new: bytes, data: bytes | None = None) -> None:
    os.makedirs(os.path.dirname(desk.path(new)), exist_ok=True)
    os.rename(desk.path(old), desk.path(new))
    if data is not None:
        desk.write(new, data)


def renames_of(record) -> dict[bytes, bytes]:
    return {from_wire(one.path): from_wire(one.renamed_from) for one in record.renames}


def trail_of(desk: Desk, *paths: bytes, **fields) -> list[tuple[int, dict[bytes, bytes]]]:
    """Numbers and renames, of the whole and of pages of every size, which must say the same."""
    whole = desk.list(paths=paths, follow=[], **fields)
    assert not whole.more
    for limit in (1, 2):
        found, before, followed = [], None, []
        while True:
            page = desk.list(paths=paths, follow=followed, limit=limit, before_seq=before, **fields)
            found += page.checkpoints
            if not page.more:
                break
            before, followed = page.checkpoints[-1].seq, page.followed
        assert found == whole.checkpoints
    return [(one.seq, renames_of(one)) for one in whole.checkpoints]


def test_a_renamed_file_is_followed_under_its_former_names(desk: Desk):
    desk.write(b"old", LINES)
    desk.write(b"other", b"x")
    desk.save("one")
    desk.write(b"other", b"y")
    desk.save("two")
    move(desk, b"old", b"src/mid", LINES + b"edited\n")
    desk.save("three")
    desk.write(b"src/mid", LINES)
    desk.write(b"old", b"another file")
    desk.save("four")
    move(desk, b"src/mid", b"new")
    desk.save("five")
    assert trail_of(desk, b"new") == [
        (5, {b"new": b"src/mid"}),
        (4, {}),
        (3, {b"src/mid": b"old"}),
        (1, {}),
    ]
    assert desk.list(paths=[b"new"], follow=[]).followed == ["src/mid", "old"]
    assert trail_of(desk, b"src") == [(5, {}), (4, {}), (3, {})]
    assert trail_of(desk, b"new", b"other") == [
        (5, {b"new": b"src/mid"}),
        (4, {}),
        (3, {b"src/mid": b"old"}),
        (2, {}),
        (1, {}),
    ]


def test_without_being_asked_nothing_is_followed(desk: Desk):
    desk.write(b"old", LINES)
    desk.save("one")
    move(desk, b"old", b"new")
    desk.save("two")
    listed = desk.list(paths=[b"new"])
    assert ([one.seq for one in listed.checkpoints], listed.checkpoints[0].renames, listed.followed) == ([2], [], [])


def test_deleted_made_again_and_renamed(desk: Desk):
    desk.write(b"beside", b"it")
    desk.write(b"app", b"of the beginning\n")
    desk.save("one")
    desk.remove(b"app")
    desk.write(b"old", LINES)
    desk.save("two")
    move(desk, b"old", b"app")
    desk.save("three")
    desk.remove(b"app")
    desk.save("four")
    desk.write(b"app", b"new and different\n")
    desk.save("five")
    # The name was a file's before the other one took it: that is its history as well.
    assert trail_of(desk, b"app") == [(5, {}), (4, {}), (3, {b"app": b"old"}), (2, {}), (1, {})]


def test_two_that_change_names(desk: Desk):
    desk.write(b"a", LINES)
    desk.save("one")
    move(desk, b"a", b"b")
    desk.save("two")
    move(desk, b"b", b"a")
    desk.save("three")
    assert trail_of(desk, b"a") == [(3, {b"a": b"b"}), (2, {b"b": b"a"}), (1, {})]


def test_what_is_too_different_a_link_or_still_there_is_no_rename(desk: Desk):
    desk.write(b"old", LINES)
    desk.write(b"stays", LINES[::-1])
    desk.link(b"link", b"target")
    desk.save("one")
    desk.remove(b"old")
    desk.remove(b"link")
    desk.write(b"new", b"something else\n" * 30)
    desk.write(b"copy", LINES[::-1])
    desk.link(b"new link", b"target")
    desk.save("two")
    assert trail_of(desk, b"new", b"copy", b"new link") == [(2, {})]


def test_the_same_content_goes_before_the_same_name(desk: Desk):
    desk.write(b"a/app", LINES + b"edited\n")
    desk.write(b"b/x", LINES)
    desk.save("one")
    move(desk, b"b/x", b"c/app")
    desk.remove(b"a")
    desk.save("two")
    assert trail_of(desk, b"c/app") == [(2, {b"c/app": b"b/x"}), (1, {})]


def test_one_that_was_found_again_elsewhere_is_no_origin(desk: Desk):
    desk.write(b"old", LINES)
    desk.save("one")
    move(desk, b"old", b"same")
    desk.write(b"similar", LINES + b"edited\n")
    desk.save("two")
    assert trail_of(desk, b"similar") == [(2, {})]
    assert trail_of(desk, b"same") == [(2, {b"same": b"old"}), (1, {})]


def test_a_directory_is_followed_if_it_stayed_as_it_was(desk: Desk):
    desk.write(b"src/a", LINES)
    desk.mkdir(b"empty")
    desk.save("one")
    move(desk, b"src", b"lib")
    move(desk, b"empty", b"void")
    desk.save("two")
    move(desk, b"lib", b"pkg")
    desk.write(b"pkg/a", LINES + b"edited\n")
    desk.save("three")
    assert trail_of(desk, b"lib") == [(3, {}), (2, {b"lib": b"src"}), (1, {})]
    assert trail_of(desk, b"pkg") == [(3, {})]
    assert trail_of(desk, b"pkg/a") == [(3, {b"pkg/a": b"lib/a"}), (2, {b"lib/a": b"src/a"}), (1, {})]
    assert trail_of(desk, b"void") == [(2, {})]


def test_names_are_learned_from_what_is_not_listed(desk: Desk):
    desk.write(b"old", LINES)
    desk.save("one")
    move(desk, b"old", b"new")
    desk.save("two", kind="auto")
    desk.write(b"new", LINES + b"edited\n")
    desk.save("three")
    assert trail_of(desk, b"new", kind="manual") == [(3, {}), (1, {})]


def test_names_that_are_not_text(desk: Desk):
    desk.write(b"old\xff", LINES)
    desk.save("one")
    move(desk, b"old\xff", b"new\xfe")
    desk.save("two")
    assert trail_of(desk, b"new\xfe") == [(2, {b"new\xfe": b"old\xff"}), (1, {})]


def test_so_many_names_are_followed(desk: Desk, monkeypatch):
    monkeypatch.setattr(trail, "_MAX_NAMES", 2)
    desk.write(b"0", LINES)
    desk.save("0")
    for number in range(4):
        move(desk, b"%d" % number, b"%d" % (number + 1))
        desk.save(str(number))
    assert [seq for seq, _ in trail_of(desk, b"4")] == [5, 4, 3]
    assert desk.list(paths=[b"4"], follow=[]).followed == ["3", "2"]


def test_lost_content_ends_the_search_for_a_name_and_nothing_else(desk: Desk, monkeypatch):
    desk.write(b"old", LINES)
    desk.save("one")
    move(desk, b"old", b"new", LINES + b"edited\n")
    desk.save("two")
    read = desk.reader._objects.read

    def reading(oid: bytes, kind: bytes) -> bytes:
        if kind == b"blob":
            raise DomainError("object_missing", "lost for the test")
        return read(oid, kind)

    monkeypatch.setattr(desk.reader._objects, "read", reading)
    listed = desk.list(paths=[b"new"], follow=[])
    assert ([one.seq for one in listed.checkpoints], listed.damaged) == ([2], 0)


def test_what_is_equal_is_not_read(desk: Desk, monkeypatch):
    desk.write(b"far/down/in/app", LINES)
    desk.write(b"other/x", b"0")
    desk.save("one")
    for number in range(30):
        desk.write(b"other/x", b"%d" % number)
        desk.write(b"far/y", b"%d" % number)
        desk.save(str(number), rehash=True)
    trees: list[bytes] = []
    read = desk.reader._objects.read

    def reading(oid: bytes, kind: bytes) -> bytes:
        if kind == b"tree":
            trees.append(oid)
        return read(oid, kind)

    monkeypatch.setattr(desk.reader._objects, "read", reading)
    assert [one.seq for one in desk.list(paths=[b"far/down/in/app"], follow=[]).checkpoints] == [1]
    # Roots and what holds the change beside it, each once; all on the way where the path came.
    assert len(trees) == len(set(trees)) == 31 * 2 + 2


def test_a_list_goes_on_after_a_request_of_the_wire(desk: Desk):
    params = wire.ListParams(**desk.common(), paths=[to_wire(b"a")], follow=[to_wire(b"\xff")])
    assert to_the_end(desk.reader.list(params, Caller("test"))).followed == [to_wire(b"\xff")]


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.sampled_from(["edit", "rename", "both", "noise"]), min_size=2, max_size=8))
def test_it_is_what_git_follows(steps):
    for desk in desk_fixture():
        desk.settle()
        name, content, trees = b"name 0", LINES, []
        for number, step in enumerate(["edit", *steps]):
            if step in ("edit", "both"):
                content = content.replace(b"line %d\n" % number, b"edited\n")
            if step in ("rename", "both"):
                os.unlink(desk.path(name))
                name = b"name %d" % number
            desk.write(name, content)
            desk.write(b"noise %d" % number, b"%d\n" % number)
            saved = desk.save(str(number), rehash=True)
            trees.append((saved.seq, desk.tree_of(saved.id)))
        followed = git_log(desk, trees, "--follow", "--format=%s", "--", name).split()
        assert [seq for seq, _ in trail_of(desk, name)] == [int(seq) for seq in followed]
