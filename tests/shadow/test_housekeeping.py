"""What is done by itself, and when; and that it costs no more than it has to."""

import os
import time

import pytest

from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import format_checkpoint
from ckptd.shadow.record.message import Facts
from ckptd.shadow.store.housekeeping import Situation, is_due
from support.worktrees import Desk, opened_files, verify

pytestmark = pytest.mark.core

MANY = 10_000


@pytest.mark.parametrize(
    ("situation", "due"),
    [
        (Situation(loose_refs=0, packs=0), False),
        (Situation(loose_refs=1_000, packs=24), False),
        (Situation(loose_refs=1_001, packs=1), True),
        (Situation(loose_refs=0, packs=25), True),
        (Situation(loose_refs=0, packs=30, done_packs=10), False),
        (Situation(loose_refs=0, packs=40, done_packs=10), True),
        (Situation(loose_refs=0, packs=1, loose_object_folders=17), True),
    ],
)
def test_when_there_is_something_to_do(situation, due):
    assert is_due(situation) == due


def tend(desk: Desk) -> int:
    times = 1
    while desk.writer.tend():
        times += 1
        time.sleep(0.005)
    return times


def test_few_packs_are_left_alone(desk):
    for number in range(5):
        desk.write(b"f", b"%d" % number)
        desk.save()
    assert tend(desk) == 1
    assert desk.repo.objects.pack_count == 5


def test_many_packs_become_one_without_losing_what_nothing_needs(desk):
    for number in range(30):
        desk.write(b"f", b"%d" % number)
        desk.save()
    writer = desk.repo.objects.writer()
    orphan = writer.add(b"blob", b"hashed by a save that was called off")
    writer.finish()
    model = desk.repo.model
    tend(desk)
    assert desk.repo.objects.pack_count == 1
    assert orphan in desk.repo.objects
    assert [desk.cat(f"#{number + 1}", b"f") for number in range(30)] == [b"%d" % number for number in range(30)]
    assert desk.repo.model.tree == model.tree
    verify(desk.folder)
    assert tend(desk) == 1
    assert not desk.repo.collecting


def test_what_cannot_be_merged_is_not_tried_again_and_again(desk):
    for number in range(30):
        desk.write(b"f", b"%d" % number)
        desk.save()
    folder = desk.folder + b"/objects/pack/"
    for name in os.listdir(folder):
        if name.endswith(b".pack"):
            open(folder + name[:-5] + b".keep", "w").close()
    tend(desk)
    assert desk.repo.objects.pack_count == 30
    assert tend(desk) == 1


def test_a_store_that_is_closed_meanwhile_is_whole(desk):
    for number in range(30):
        desk.write(b"f", b"%d" % number)
        desk.save()
    assert desk.writer.tend() in (True, False)
    desk.reopen()
    assert len(desk.list(limit=100).checkpoints) == 30
    assert not [name for name in os.listdir(desk.folder + b"/objects/pack") if name.startswith(b"tmp_")]


def make(desk: Desk, number: int) -> dict[int, str]:
    """Make as many checkpoints with one tree, in one pack, and give their ids; nothing refers to them yet."""
    desk.write(b"f", b"1")
    tree = desk.tree_of(desk.save().id)
    writer = ObjectStore(desk.folder).writer()
    ids = {}
    for seq in range(2, number + 1):
        text = format_checkpoint(bytes.fromhex(tree), seq, f"number {seq}", Facts(seq=seq, kind="manual"))
        ids[seq] = writer.add(b"commit", text).hex()
    writer.finish()
    desk.close()
    return ids


def test_many_loose_refs_go_into_one_file(desk):
    for seq, one in make(desk, 1_100).items():
        with open(os.path.join(desk.folder, b"refs/checkpoints", b"%010d" % seq), "w") as file:
            file.write(one + "\n")
    before = Refs(desk.folder).checkpoints()
    tend(desk)
    assert os.listdir(os.path.join(desk.folder, b"refs/checkpoints")) == []
    assert Refs(desk.folder).checkpoints() == before
    assert len(before) == 1_100
    assert desk.git("for-each-ref", "--format=x", "refs/checkpoints").count(b"x") == 1_100
    assert desk.list(limit=1).checkpoints[0].seq == 1_100


def test_ten_thousand_checkpoints_are_nothing(desk):
    large = desk
    lines = [f"{one} refs/checkpoints/{seq:010}\n" for seq, one in make(desk, MANY).items()]
    with open(os.path.join(desk.folder, b"packed-refs"), "w") as file:
        file.writelines(["# pack-refs with: peeled fully-peeled sorted \n", *lines])
    with opened_files() as opened:
        large.open(create=False)
        page = large.list(limit=50)
    inside = [path for path in opened if path.startswith(large.folder)]
    assert len(inside) < 40, inside
    assert [one.seq for one in page.checkpoints] == list(range(MANY, MANY - 50, -1))
    assert page.more
    loaded = large.reader._lookup._cache
    assert len(loaded) == 50
    older = large.list(limit=50, before_seq=page.checkpoints[-1].seq)
    assert older.checkpoints[0].seq == MANY - 50
    assert len(loaded) == 100
    last = large.list(limit=50, before_seq=51)
    assert (len(last.checkpoints), last.more) == (50, False)
    large.write(b"f", b"2")
    with opened_files() as opened:
        assert large.save().seq == MANY + 1
    assert len([path for path in opened if path.startswith(large.folder)]) < 40
    assert large.git("for-each-ref", "--format=x", "refs/checkpoints").count(b"x") == MANY + 1
