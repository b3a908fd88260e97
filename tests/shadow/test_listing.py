"""A list goes on in steps: it reads no more than it needs, gives way, tells how far it is, and can be called off."""

import gc
import os

import pytest

from ckpt_protocol import checkpoint as wire
from ckpt_protocol.store import GcParams
from ckpt_protocol.structs import to_wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.record.checkpoint import Checkpoint
from ckptd.shadow.record.message import Facts
from ckptd.shadow.store import listing, stepping
from ckptd.shadow.store.reader import StoreReader
from ckptd.shadow.trees import way
from support.worktrees import Desk, opened_files, to_the_end

pytestmark = pytest.mark.core


class Reads:
    """What the reader has read, by kind."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self._read = desk.reader._objects.read
        self.oids: dict[bytes, list[bytes]] = {}
        monkeypatch.setattr(desk.reader._objects, "read", self.reading)

    def reading(self, oid: bytes, kind: bytes) -> bytes:
        self.oids.setdefault(kind, []).append(oid)
        return self._read(oid, kind)

    def count(self, kind: bytes) -> int:
        return len(self.oids.get(kind, []))


@pytest.fixture
def long(desk: Desk) -> Desk:
    """Thirty checkpoints: ``deep/down/app`` is one of two in turn, ``other/x`` is new each time."""
    for number in range(30):
        desk.write(b"deep/down/app", b"%d" % (number // 5 % 2))
        desk.write(b"other/x", b"%d" % number)
        desk.save(str(number), rehash=True)
    # What the writer has read need not be read again.
    desk.reopen()
    return desk


def begin(desk: Desk, caller: Caller | None = None, **fields: object) -> listing.Listing:
    paths = [to_wire(path) for path in fields.pop("paths", [])]
    return desk.reader.list(wire.ListParams(**desk.common(), paths=paths, **fields), caller or Caller("test"))


def seqs(result: wire.ListResult) -> list[int]:
    return [one.seq for one in result.checkpoints]


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step looks at one checkpoint."""
    monkeypatch.setattr(stepping, "_STEP_S", -1.0)


def test_no_tree_is_read_twice_although_it_comes_again_and_again(long: Desk, monkeypatch):
    monkeypatch.setattr(way, "_MOST_OPEN", 1)
    reads = Reads(long, monkeypatch)
    assert seqs(long.list(paths=[b"deep/down/app"])) == [26, 21, 16, 11, 6, 1]
    # The roots, and two of each directory on the way.
    assert reads.count(b"tree") == 30 + 2 + 2
    assert reads.count(b"blob") == 0


def test_of_several_paths_a_tree_is_read_for_all(long: Desk, monkeypatch):
    reads = Reads(long, monkeypatch)
    assert seqs(long.list(paths=[b"deep/down/app", b"other/x", b"deep/down/none", b"none"])) == list(range(30, 0, -1))
    assert reads.count(b"tree") == 30 + 30 + 2 + 2


def test_a_full_page_looks_no_further(long: Desk, monkeypatch):
    reads = Reads(long, monkeypatch)
    page = long.list(paths=[b"deep/down/app"], limit=1)
    assert (seqs(page), page.more) == ([26], True)
    # Down to the one that it was compared with.
    assert (reads.count(b"commit"), reads.count(b"tree")) == (6, 6 + 2 + 2)
    page = long.list(paths=[b"deep/down/app"], limit=5, before_seq=26)
    assert (seqs(page), page.more) == ([21, 16, 11, 6, 1], False)
    page = long.list(kind="manual", limit=30)
    assert (len(page.checkpoints), page.more) == (30, False)


def test_infos_that_are_the_same_are_read_once(desk: Desk, monkeypatch):
    desk.write(b"secret/key", b"1", perm=0o600)
    for number in range(10):
        desk.write(b"x", b"%d" % number)
        desk.save(str(number), rehash=True)
    os.chmod(desk.path(b"secret/key"), 0o640)
    desk.save("last", rehash=True)
    reads = Reads(desk, monkeypatch)
    assert seqs(desk.list(paths=[b"secret/key"])) == [11, 1]
    infos = {desk.git("rev-parse", f"refs/ckpt-info/{seq:010d}^{{tree}}").strip() for seq in range(1, 12)}
    assert len(infos) == 2
    assert len([oid for oid in reads.oids[b"tree"] if oid.hex().encode() in infos]) == 2
    # What was left out and by which rules is of no interest here.
    assert reads.count(b"blob") == 2


def test_it_gives_way_after_a_moment_and_tells_how_far_it_is(long: Desk, short_steps):
    told = []
    run = begin(long, Caller("test", progress=lambda *how_far: told.append(how_far)), paths=[b"deep/down/app"])
    steps = 1
    while (result := run.step()) is None:
        steps += 1
        # Another read of the same store, by the same thread.
        assert long.head() == long.list(limit=1).checkpoints[0].id
    assert seqs(result) == [26, 21, 16, 11, 6, 1]
    assert steps == 31
    assert [one for one in told if one[0] == "list"] == [("list", number, 30, 0) for number in range(30)]


def test_called_off_in_the_middle_it_ends_at_once(long: Desk, short_steps, monkeypatch):
    caller, reads = Caller("test"), Reads(long, monkeypatch)
    run = begin(long, caller, paths=[b"deep/down/app"])
    for _ in range(4):
        assert run.step() is None
    read = reads.count(b"tree")
    assert 0 < read < 10
    caller.call_off()
    with pytest.raises(DomainError, match="called off"):
        run.step()
    run.close()
    run.close()
    assert reads.count(b"tree") <= read + 2


def test_what_is_dropped_meanwhile_is_no_damage(long: Desk, short_steps):
    run = begin(long, paths=[b"other/x"])
    assert run.step() is None
    ids = [one.id for one in long.list().checkpoints]
    common = {**long.common(), "token": "0" * 32}
    long.writer.drop(wire.DropParams(**common, ids=ids[5:10]), Caller("test"))
    to_the_end(long.writer.gc(GcParams(**common), Caller("test")))
    # As if they had not been read before.
    long.reader.let_go()
    long.reader._lookup._cache.clear()
    result = to_the_end(run)
    assert (seqs(result), result.damaged) == ([*range(30, 25, -1), *range(20, 0, -1)], 0)


def test_a_checkpoint_that_is_made_meanwhile_does_not_disturb(long: Desk, short_steps):
    run = begin(long, paths=[b"other/x"])
    assert run.step() is None
    long.write(b"other/x", b"new")
    made = long.save("made", rehash=True)
    result = to_the_end(run)
    assert seqs(result) == list(range(30, 0, -1))
    assert result.head == made.id


def test_damage_is_counted_on_the_page_where_it_is(long: Desk):
    long.close()
    long.damaged = True
    for seq in (28, 14):
        with open(os.path.join(long.folder, b"refs", b"checkpoints", b"%010d" % seq), "wb") as file:
            file.write(b"1" * 40 + b"\n")
    # The owner of the store would find them again.
    reader = StoreReader(long.folder)
    found = []
    for fields in ({"limit": 2}, {"before_seq": 21}):
        params = wire.ListParams(**long.common(), paths=["deep/down/app"], **fields)
        found.append(to_the_end(reader.list(params, Caller("test"))))
    reader.close()
    assert [(seqs(page), page.damaged) for page in found] == [([26, 21], 1), ([16, 11, 6, 1], 1)]


def test_what_was_read_of_a_long_history_is_kept_once_and_no_garbage_is_looked_for_in_it(long: Desk):
    listed = long.list(limit=1000).checkpoints
    # The writer needs them, too.
    with opened_files() as opened:
        records = [long.repo.lookup.load(one.id) for one in listed]
    assert [one.facts.seq for one in records] == [one.seq for one in listed]
    assert opened == []
    assert not any(isinstance(one, (Checkpoint, Facts)) for one in gc.get_objects())
