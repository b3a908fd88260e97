"""Refs as we read and write them, with the git program at the same repository."""

import os
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ckptd.errors import DomainError
from ckptd.shadow.objects import packedrefs
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.objects.pieces import drained
from ckptd.shadow.objects.refs import CHECKPOINTS, INFOS, TAGS, Refs, seq_name
from support.bare import Bare
from support.tiny_disk import fill, tiny_disk
from support.worktrees import in_child, somebody

pytestmark = pytest.mark.core

OLD_NS = 1_000_000_000


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(os.fsencode(tmp_path))


@pytest.fixture
def ids(bare: Bare) -> list[bytes]:
    return [bare.commit(number) for number in range(1, 6)]


def ref(seq: int, prefix: bytes = CHECKPOINTS) -> bytes:
    return prefix + seq_name(seq)


def folder_of(bare: Bare) -> bytes:
    return os.path.join(bare.folder, CHECKPOINTS)


_removers: list[list[object]] = []


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event == "os.remove" and _removers:
        _removers[-1].append(arguments[0])


@contextmanager
def removed_files(found: list[object]) -> Iterator[None]:
    """List every path that this process tries to unlink."""
    if not _removers:
        # A hook cannot be taken away again; it idles afterwards.
        sys.addaudithook(_audit)
    _removers.append(found)
    try:
        yield
    finally:
        _removers.remove(found)


def written(bare: Bare, ids: list[bytes]) -> Refs:
    refs = Refs(bare.folder)
    for seq, oid in enumerate(ids, 1):
        refs.write_checkpoint(seq, oid, None)
    return refs


def test_git_reads_what_we_write(bare: Bare, ids: list[bytes]):
    refs = Refs(bare.folder)
    refs.write_checkpoint(1, ids[0], None)
    refs.write_checkpoint(2, ids[1], ids[2])
    refs.write_tag("release/1.0", ids[0])
    refs.write_head(ids[1])
    listed = bare.git("for-each-ref", "--format=%(objectname) %(refname)").split(b"\n")[:-1]
    assert set(listed) == {
        ids[0] + b" refs/checkpoints/0000000001",
        ids[1] + b" refs/checkpoints/0000000002",
        ids[2] + b" refs/ckpt-info/0000000002",
        ids[0] + b" refs/tags/release/1.0",
    }
    assert bare.git("rev-parse", "HEAD").strip() == ids[1]
    bare.verify()


def test_we_read_what_git_writes(bare: Bare, ids: list[bytes]):
    for seq, oid in enumerate(ids, 1):
        bare.git("update-ref", ref(seq), oid)
    bare.git("update-ref", ref(2, INFOS), ids[4])
    bare.git("tag", "v1", ids[0])
    refs = Refs(bare.folder)
    assert refs.checkpoints() == dict(enumerate(ids, 1))
    assert list(refs.checkpoints()) == [1, 2, 3, 4, 5]
    assert refs.info(2) == ids[4]
    assert refs.info(1) is None
    assert refs.tags() == {"v1": ids[0]}


def test_git_packs_the_refs_under_open_ones(bare: Bare, ids: list[bytes]):
    refs = written(bare, ids[:3])
    refs.write_checkpoint(4, ids[3], ids[4])
    refs.write_tag("a/b/c", ids[0])
    for _ in range(2):
        bare.git("pack-refs", "--all")
        assert not os.path.exists(os.path.join(bare.folder, ref(1)))
        for one in (refs, Refs(bare.folder)):
            assert one.checkpoints() == dict(enumerate(ids[:4], 1))
            assert one.checkpoint_names() == {1, 2, 3, 4}
            assert one.info(4) == ids[4]
            assert one.tags() == {"a/b/c": ids[0]}
    # Git removes folders that it has emptied; the next ref needs them again.
    refs.write_checkpoint(5, ids[4], None)
    refs.write_tag("a/b/d", ids[1])
    for one in (refs, Refs(bare.folder)):
        assert one.checkpoints() == dict(enumerate(ids, 1))
        assert one.tags() == {"a/b/c": ids[0], "a/b/d": ids[1]}
    bare.verify()


def test_a_loose_ref_is_newer_than_a_packed_one(bare: Bare, ids: list[bytes]):
    refs = written(bare, ids[:1])
    refs.write_tag("t", ids[0])
    refs.write_checkpoint(1, ids[0], ids[1])
    bare.git("pack-refs", "--all")
    refs.write_tag("t", ids[2])
    refs.write_checkpoint(1, ids[0], ids[3])
    assert refs.tags() == {"t": ids[2]}
    assert refs.info(1) == ids[3]
    assert bare.git("rev-parse", "refs/tags/t").strip() == ids[2]


def test_nothing_is_read_again_while_nothing_changes(bare: Bare, ids: list[bytes]):
    refs = written(bare, ids)
    assert refs.checkpoints() is refs.checkpoints()
    fresh = Refs(bare.folder)
    os.utime(folder_of(bare), ns=(OLD_NS, OLD_NS))
    assert fresh.checkpoints() is fresh.checkpoints()
    # What has just changed can change again within the same tick.
    os.utime(folder_of(bare))
    assert fresh.checkpoints() is not fresh.checkpoints()


CHANGES: dict[str, Callable[[Bare, list[bytes]], object]] = {
    "another writes": lambda bare, ids: Refs(bare.folder).write_checkpoint(4, ids[3], None),
    "another withdraws": lambda bare, ids: Refs(bare.folder).withdraw_checkpoint(3),
    "git writes": lambda bare, ids: bare.git("update-ref", ref(4), ids[3]),
    "git deletes": lambda bare, ids: bare.git("update-ref", "-d", ref(3)),
    "git packs": lambda bare, ids: bare.git("pack-refs", "--all"),
}


# Only what was just written is withdrawn: never a packed one.
@pytest.mark.parametrize(
    ("age", "what"),
    [(age, what) for age in ("own write", "listed", "listed long ago") for what in CHANGES]
    + [("packed", what) for what in CHANGES if what != "another withdraws"],
)
def test_a_change_is_seen_at_once(bare: Bare, ids: list[bytes], what: str, age: str):
    refs = written(bare, ids[:3])
    if age == "packed":
        bare.git("pack-refs", "--all")
    if age != "own write":
        refs = Refs(bare.folder)
    if age == "listed long ago":
        os.utime(folder_of(bare), ns=(OLD_NS, OLD_NS))
    assert list(refs.checkpoints()) == [1, 2, 3]
    CHANGES[what](bare, ids)
    expected = {"writes": [1, 2, 3, 4], "packs": [1, 2, 3]}.get(what.split()[1], [1, 2])
    assert list(refs.checkpoints()) == expected
    assert refs.checkpoint_names() == set(expected)


def test_a_withdrawn_checkpoint_is_gone_within_one_tick_of_the_clock(bare: Bare, ids: list[bytes]):
    refs = written(bare, ids[:2])
    refs.write_checkpoint(3, ids[2], ids[3])
    now_ns = os.stat(folder_of(bare)).st_mtime_ns
    refs.withdraw_checkpoint(3)
    os.utime(folder_of(bare), ns=(now_ns, now_ns))
    assert list(refs.checkpoints()) == [1, 2]
    assert refs.info(3) is None
    refs.withdraw_checkpoint(3)
    assert list(Refs(bare.folder).checkpoints()) == [1, 2]


def test_no_tick_of_the_clock_has_the_time_of_our_own_change(bare: Bare, ids: list[bytes]):
    """On a file system with a coarse clock, the next change may get the time that ours got."""
    refs = Refs(bare.folder)
    refs.write_checkpoint(1, ids[0], None)
    ours = os.stat(folder_of(bare)).st_mtime_ns
    # The kernel stamped the making of the ref's file, and the folder's change of times, by its own clock.
    kernels = {os.stat(os.path.join(bare.folder, ref(1))).st_ctime_ns, os.stat(folder_of(bare)).st_ctime_ns}
    assert ours not in kernels
    assert list(refs.checkpoints()) == [1]


def test_names_outlive_their_content(bare: Bare, ids: list[bytes]):
    written(bare, ids)
    for seq, junk in ((2, b""), (3, b"junk\n"), (4, b"ref: refs/checkpoints/0000000001\n"), (5, ids[4][:39])):
        with open(os.path.join(bare.folder, ref(seq)), "wb") as file:
            file.write(junk)
    refs = Refs(bare.folder)
    assert refs.checkpoints() == {1: ids[0]}
    assert refs.checkpoint_names() == {1, 2, 3, 4, 5}


def test_what_is_no_ref_of_ours_is_passed_over(bare: Bare, ids: list[bytes]):
    refs = written(bare, ids[:2])
    here = folder_of(bare)
    for name in (b"0000000003.lock", b".tmp-0123", b"name", b"-1"):
        with open(os.path.join(here, name), "wb") as file:
            file.write(ids[0] + b"\n")
    os.mkdir(os.path.join(here, b"0000000007"))
    with open(os.path.join(here, b"0000000007", b"0000000008"), "wb") as file:
        file.write(ids[0] + b"\n")
    os.utime(here, ns=(OLD_NS, OLD_NS))
    for one in (refs, Refs(bare.folder)):
        assert one.checkpoints() == {1: ids[0], 2: ids[1]}
        assert one.checkpoint_names() == {1, 2}


def test_damaged_packed_refs(bare: Bare, ids: list[bytes]):
    written(bare, ids[:3])
    bare.git("pack-refs", "--all")
    path = os.path.join(bare.folder, b"packed-refs")
    with open(path, "rb") as file:
        lines = file.read().splitlines()
    at = next(number for number, line in enumerate(lines) if line.endswith(ref(2)))
    lines[at] = b"zz" + lines[at][2:]
    with open(path, "wb") as file:
        file.write(b"\n".join([*lines, b"\xff\xff", b"", b"^" + ids[0], ids[0], ids[4] + b" refs/checkpoints/x"]))
    assert Refs(bare.folder).checkpoints() == {1: ids[0], 3: ids[2]}
    with open(path, "wb") as file:
        file.write(os.urandom(5000))
    assert Refs(bare.folder).checkpoints() == {}


def test_tags_with_odd_names(bare: Bare, ids: list[bytes]):
    refs = Refs(bare.folder)
    names = ["a", "b/c", "b/d/e", "é", "#12", "x" * 200, "-"[:0] + "a-b_c.d"]
    for name in names:
        refs.write_tag(name, ids[0])
    assert refs.tags() == dict.fromkeys(names, ids[0])
    listed = bare.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/tags").decode().split("\n")[:-1]
    assert sorted(listed) == sorted(names)
    with open(os.path.join(bare.folder, TAGS, b"\xff"), "wb") as file:
        file.write(ids[1] + b"\n")
    assert refs.tags()["\udcff"] == ids[1]


def test_a_tag_where_a_folder_of_tags_is(bare: Bare, ids: list[bytes]):
    refs = Refs(bare.folder)
    refs.write_tag("a/b", ids[0])
    with pytest.raises(DomainError, match="io_error"):
        refs.write_tag("a", ids[1])
    refs.write_tag("c", ids[0])
    with pytest.raises(DomainError, match="io_error"):
        refs.write_tag("c/d", ids[1])
    assert refs.tags() == {"a/b": ids[0], "c": ids[0]}
    assert not [name for name in os.listdir(os.path.join(bare.folder, TAGS)) if name.startswith(b".tmp")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"ref: refs/heads/unborn\n", None),
        (b"ref: refs/checkpoints/0000000001\n", None),
        (b"%s\n", "id"),
        (b"%s", "id"),
        (b"%s\nmore", None),
        (b"", None),
        (b"\0" * 41, None),
        (b"ABCDEF" + b"0" * 34, None),
        (None, None),
    ],
)
def test_forms_of_head(bare: Bare, ids: list[bytes], content: bytes | None, expected: str | None):
    path = os.path.join(bare.folder, b"HEAD")
    os.unlink(path)
    if content is not None:
        with open(path, "wb") as file:
            file.write(content % ids[0] if b"%s" in content else content)
    refs = Refs(bare.folder)
    assert refs.head() == (ids[0] if expected else None)
    refs.write_head(ids[1])
    assert refs.head() == ids[1]
    refs.write_head(None)
    assert refs.head() is None
    assert bare.git("symbolic-ref", "HEAD") == b"refs/heads/unborn\n"


def test_no_refs_at_all(bare: Bare, ids: list[bytes]):
    for name in (CHECKPOINTS, INFOS, TAGS):
        os.rmdir(os.path.join(bare.folder, name))
    refs = Refs(bare.folder)
    assert (refs.checkpoints(), refs.checkpoint_names(), refs.tags(), refs.info(1)) == ({}, frozenset(), {}, None)
    refs.write_checkpoint(1, ids[0], ids[1])
    refs.write_tag("t", ids[0])
    assert (refs.checkpoints(), refs.tags(), refs.info(1)) == ({1: ids[0]}, {"t": ids[0]}, ids[1])


def test_sequence_numbers_in_any_order(bare: Bare, ids: list[bytes]):
    refs = Refs(bare.folder)
    for seq in (30, 7, 10_000_000_000, 200):
        refs.write_checkpoint(seq, ids[0], None)
    assert list(refs.checkpoints()) == list(Refs(bare.folder).checkpoints()) == [7, 30, 200, 10_000_000_000]


def test_one_ref_that_may_not_be_read_is_left_out(short_dir: Path):
    os.chmod(short_dir, 0o777)
    with somebody():
        bare = Bare(os.fsencode(short_dir))
        oid = b"1" * 40
        written(bare, [oid, oid])
        os.chmod(os.path.join(bare.folder, ref(1)), 0)
        refs = Refs(bare.folder)
        assert refs.checkpoints() == {2: oid}
        assert refs.checkpoint_names() == {1, 2}
        os.chmod(folder_of(bare), 0)
        # A folder that cannot be listed is not an empty one.
        with pytest.raises(DomainError, match="permission_denied"):
            Refs(bare.folder).checkpoints()
        os.chmod(folder_of(bare), 0o700)


def test_a_process_without_descriptors_has_not_lost_its_checkpoints(bare: Bare, ids: list[bytes]):
    written(bare, ids)

    def work() -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        refs = Refs(bare.folder)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit))
        for read in (refs.checkpoints, refs.checkpoint_names, refs.tags):
            with pytest.raises(DomainError, match="too_many_files"):
                read()
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        assert len(refs.checkpoints()) == 5

    os.utime(folder_of(bare), ns=(OLD_NS, OLD_NS))
    assert in_child(work) == 0


def test_a_full_disk_leaves_no_half_ref(tmp_path: Path):
    with tiny_disk(os.fsencode(tmp_path)) as place:
        bare = Bare(place)
        refs = written(bare, [b"1" * 40])
        fill(place)
        with pytest.raises(DomainError, match="no_space"):
            refs.write_checkpoint(2, b"2" * 40, b"3" * 40)
        assert refs.checkpoints() == Refs(bare.folder).checkpoints() == {1: b"1" * 40}
        assert Refs(bare.folder).checkpoint_names() == {1}
        assert [name for _, _, names in os.walk(bare.folder) for name in names if b"tmp" in name] == []
        with pytest.raises(DomainError, match="no_space"):
            refs.write_head(b"2" * 40)
        assert refs.head() is None
        refs.withdraw_checkpoint(1)
        assert refs.checkpoints() == {}


def test_what_was_added_is_told_only_of_the_list_that_it_was_added_to(bare: Bare):
    refs = Refs(bare.folder)
    first, second, third = (bare.commit(seq) for seq in (1, 2, 3))
    refs.write_checkpoint(1, first, None)
    before = refs.checkpoints()
    assert refs.added_to(before, before) is None
    assert refs.added_to(None, before) is None
    refs.write_checkpoint(3, third, None)
    assert refs.added_to(before, refs.checkpoints()) == (3, third)
    assert refs.added_to(before, before) is None
    assert refs.added_to(refs.checkpoints(), refs.checkpoints()) is None
    assert refs.added_to({1: first}, refs.checkpoints()) is None
    # One that is not the newest changes the order: all of it is to be looked at.
    last = refs.checkpoints()
    refs.write_checkpoint(2, second, None)
    assert refs.added_to(last, refs.checkpoints()) is None
    assert list(refs.checkpoints()) == [1, 2, 3]


def test_thousands_go_by_one_new_file_and_without_a_look_at_each(bare: Bare, ids: list[bytes]):
    """The work, not the time: the packed file is written once, and only what has a file of its own is unlinked."""
    lines = [b"%s %s\n" % (ids[0], ref(seq, prefix)) for prefix in (CHECKPOINTS, INFOS) for seq in range(1, 10_001)]
    with open(os.path.join(bare.folder, b"packed-refs"), "wb") as file:
        file.write(b"# pack-refs with: peeled fully-peeled sorted \n" + b"".join(lines))
    refs = Refs(bare.folder)
    for seq in (2, 10_002):
        refs.write_checkpoint(seq, ids[1], None)
    steps: Counter[str] = Counter()
    unlinked: list[object] = []
    ended = listen(lambda name, _path: steps.update([name]))
    with removed_files(unlinked):
        refs.delete(range(2, 10_003, 2))
    ended()
    assert (steps["refs-packed"], steps["ref-deleted"], len(unlinked)) == (1, 2, 2)
    assert set(Refs(bare.folder).checkpoints()) == set(range(1, 10_001, 2))
    assert bare.git("for-each-ref", "--format=x", "refs/checkpoints", "refs/ckpt-info").count(b"x") == 10_000


def loose(bare: Bare, seqs: Iterable[int], oid: bytes) -> None:
    for seq in seqs:
        with open(os.path.join(bare.folder, ref(seq)), "wb") as file:
            file.write(oid + b"\n")


def test_what_is_dropped_while_refs_are_packed_stays_away(bare: Bare, ids: list[bytes]):
    refs = Refs(bare.folder)
    loose(bare, range(1, 251), ids[0])
    packing = refs.pack(1)
    # They are read a hundred at a time, and others come in between.
    assert [next(packing), next(packing)] == [False, False]
    refs.delete([7, 250])
    loose(bare, [251], ids[1])
    assert drained(packing) == 248
    assert sorted(Refs(bare.folder).checkpoints()) == [*range(1, 7), *range(8, 250), 251]
    assert os.listdir(folder_of(bare)) == [seq_name(251)]
    bare.verify()


def test_what_is_dropped_after_a_packing_that_was_left_does_not_come_back_with_the_power(
    bare: Bare, ids: list[bytes], monkeypatch: pytest.MonkeyPatch
):
    refs = Refs(bare.folder)
    loose(bare, range(1, 121), ids[0])
    packing = refs.pack(1)
    while len(os.listdir(folder_of(bare))) > 60:
        next(packing)
    packing.close()
    synced: list[bytes] = []
    monkeypatch.setattr("ckptd.shadow.objects.refs.sync_folders", synced.extend)
    refs.delete([1])
    assert [os.path.realpath(one) for one in synced] == [os.path.realpath(folder_of(bare))]
    synced.clear()
    refs.delete([2])
    assert synced == []
    # One that is dropped in the middle of a packing is not the last that goes.
    loose(bare, range(201, 321), ids[0])
    packing = refs.pack(1)
    while len(os.listdir(folder_of(bare))) > 100:
        next(packing)
    refs.delete([201])
    while len(os.listdir(folder_of(bare))) > 40:
        next(packing)
    packing.close()
    synced.clear()
    refs.delete([202])
    assert synced != []


def pieces_of_a_packing(bare: Bare, oid: bytes) -> int:
    loose(bare, range(1, 121), oid)
    return sum(1 for waits in Refs(bare.folder).pack(1) if not waits)


@pytest.mark.parametrize("by", ["us", "git", "a save", "nobody"])
def test_whoever_comes_in_between_any_two_pieces_of_a_packing_is_heeded(bare: Bare, ids: list[bytes], by: str):
    number = pieces_of_a_packing(bare, ids[0])
    # All of those that read and write; the others each unlink a file.
    for at in sorted({*range(8), *range(8, number, 9), *range(number - 3, number)}):
        refs = Refs(bare.folder)
        refs.delete(range(1, 1000))
        loose(bare, range(1, 121), ids[0])
        packing = refs.pack(1)
        done = 0
        while done < at and (waits := next(packing, None)) is not None:
            done += not waits
        wanted = set(range(1, 121))
        if by == "us":
            refs.delete([5])
            wanted -= {5}
        elif by == "git":
            bare.git("update-ref", "-d", ref(6).decode())
            wanted -= {6}
        elif by == "a save":
            refs.write_checkpoint(500, ids[1], None)
            wanted |= {500}
        elif at % 2:
            # Left where it is.
            packing.close()
        drained(packing)
        assert set(Refs(bare.folder).checkpoints()) == set(refs.checkpoints()) == wanted, at
        assert [name for name in os.listdir(bare.folder) if name.startswith(b".tmp") or name.endswith(b".lock")] == []
    bare.verify()


def test_a_long_history_is_packed_in_pieces_and_the_disk_is_waited_for_beside(bare: Bare, ids: list[bytes]):
    lines = [b"%s %s\n" % (ids[0], ref(seq, prefix)) for prefix in (CHECKPOINTS, INFOS) for seq in range(1, 10_001)]
    with open(os.path.join(bare.folder, b"packed-refs"), "wb") as file:
        file.write(b"# pack-refs with: peeled fully-peeled sorted \n" + b"".join(lines))
    loose(bare, range(10_001, 10_051), ids[1])
    before, syncing = os.stat(os.path.join(bare.folder, b"packed-refs")).st_ino, []
    ended = listen(lambda name, _path: syncing.append(name) if name == "file-named" else None)
    read = written = 0
    for waits in Refs(bare.folder).pack(1):
        now = os.stat(os.path.join(bare.folder, b"packed-refs")).st_ino
        read, written = read + (now == before and not waits), written + (now != before and not waits)
    ended()
    # Twenty thousand lines, a thousand at a time, read and written; then each file that goes.
    assert read >= 40
    assert written == 50
    assert syncing == ["file-named"]
    assert len(Refs(bare.folder).checkpoints()) == 10_050
    bare.verify()


def test_packing_says_what_is_in_its_way(bare: Bare, ids: list[bytes], monkeypatch: pytest.MonkeyPatch):
    loose(bare, range(1, 4), ids[0])
    lock = os.path.join(bare.folder, b"packed-refs.lock")
    monkeypatch.setattr(packedrefs, "can_tell", lambda: False)
    with open(lock, "wb"), pytest.raises(DomainError, match="is in the way"):
        drained(Refs(bare.folder).pack(1))
    assert sorted(os.listdir(folder_of(bare))) == [seq_name(seq) for seq in (1, 2, 3)]
    assert not os.path.exists(os.path.join(bare.folder, b"packed-refs"))
    os.unlink(lock)
    assert drained(Refs(bare.folder).pack(1)) == 3
    bare.verify()
