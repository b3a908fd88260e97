"""Checkpoints are dropped whole, once, and never by accident; what cannot be undone any more says so."""

import os

import pytest

from ckpt_protocol.checkpoint import DropParams, DropResult
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.objects.refs import Refs
from support.worktrees import Desk, in_child

pytestmark = pytest.mark.core


def drop(desk: Desk, *ids: str, **fields) -> DropResult:
    params = {"token": desk.token(), **fields}
    return desk.writer.drop(DropParams(**desk.common(), ids=list(ids), **params), Caller("test"))


def refusal(desk: Desk, *ids: str, **fields) -> DomainError:
    with pytest.raises(DomainError) as caught:
        drop(desk, *ids, **fields)
    return caught.value


def seqs(desk: Desk) -> list[int]:
    return sorted(one.seq for one in desk.list().checkpoints)


@pytest.fixture
def four(desk: Desk) -> Desk:
    """Four checkpoints; each adds a file, which stays, and changes another."""
    for number in (1, 2, 3, 4):
        desk.write(b"file%d" % number, b"content %d\n" % number)
        desk.write(b"changes", b"%d\n" % number)
        desk.save(f"number {number}")
    return desk


def test_a_checkpoint_is_gone_and_the_others_keep_their_ids(four):
    ids = {one.seq: one.id for one in four.list().checkpoints}
    result = drop(four, "#2")
    assert [(one.id, one.seq, one.kind, one.tags) for one in result.dropped] == [(ids[2], 2, "manual", [])]
    assert result.head == ids[4] == four.head()
    assert {one.seq: one.id for one in four.list().checkpoints} == {seq: ids[seq] for seq in (1, 3, 4)}
    assert refusal(four, "#2").kind == "unknown_checkpoint"
    assert refusal(four, ids[2]).kind == "unknown_checkpoint"
    four.reopen()
    assert seqs(four) == [1, 3, 4]
    assert four.save().created is False


def test_head_becomes_the_newest_that_is_no_safety_checkpoint(four):
    ids = {one.seq: one.id for one in four.list().checkpoints}
    four.write(b"changes", b"edited")
    four.reset("#4")
    result = drop(four, "HEAD", "#3")
    assert [one.seq for one in result.dropped] == [3, 4]
    assert result.head == ids[2] == four.head()
    four.reopen()
    assert four.head() == ids[2]
    assert (b"changes", "modified", False) in four.changes()


def test_numbers_never_come_again(four):
    drop(four, "#3", "#4")
    four.reopen()
    four.write(b"more", b"more")
    assert four.save().seq == 5


def test_all_of_them_can_go(four):
    assert drop(four, "#1", "#2", "#3", "#4").head is None
    assert seqs(four) == []
    with pytest.raises(DomainError, match="no checkpoint"):
        four.head()
    four.reopen()
    assert four.save().seq == 5
    assert four.cat("#5", b"file1") == b"content 1\n"


def test_what_else_holds_the_content_is_exact(four):
    result = drop(four, "#2", dry_run=True)
    assert result.files == 2
    assert [(one.seq, one.files) for one in result.held] == [(3, 1), (4, 1)]
    assert result.all_searched
    assert drop(four, "#2", "#3", "#4", dry_run=True).held == []
    four.remove(b"file2")
    four.save()
    assert [(one.seq, one.files) for one in drop(four, "#2", dry_run=True).held] == [(3, 1), (4, 1)]
    assert drop(four, "#5", dry_run=True).files == 0


def test_a_dry_run_changes_nothing(four):
    before = Refs(four.folder).everything()
    log = os.path.getsize(os.path.join(four.folder, b"ckpt", b"log"))
    assert drop(four, "#2", "HEAD", dry_run=True).dry_run
    assert Refs(four.folder).everything() == before
    assert os.path.getsize(os.path.join(four.folder, b"ckpt", b"log")) == log


def test_packed_and_loose_refs_go_alike(four):
    four.close()
    four.git("pack-refs", "--all")
    four.write(b"more", b"more", perm=0o600)
    four.save()
    drop(four, "#1", "#3", "#5")
    assert set(Refs(four.folder).checkpoints()) == {2, 4}
    assert Refs(four.folder).info(5) is None
    assert four.git("for-each-ref", "--format=%(refname)", "refs/checkpoints").split() == [
        b"refs/checkpoints/0000000002",
        b"refs/checkpoints/0000000004",
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_a_tagged_one_is_refused_and_by_force_goes_with_its_tags(four, packed):
    four.write(b"more", b"more")
    four.save(tag="good/one")
    if packed:
        four.close()
        four.git("pack-refs", "--all")
    error = refusal(four, "#1", "good/one")
    assert error.kind == "checkpoint_needed"
    assert "#5 has the tag good/one" in error.message
    assert seqs(four) == [1, 2, 3, 4, 5]
    result = drop(four, "good/one", force=True)
    assert [one.tags for one in result.dropped] == [["good/one"]]
    assert Refs(four.folder).tags() == {}
    four.write(b"more", b"again")
    assert four.save(tag="good/one").created


def test_a_safety_checkpoint_of_an_undoable_reset_is_refused(four):
    four.write(b"changes", b"edited")
    safety = four.reset("#1").safety
    error = refusal(four, safety)
    assert error.kind == "checkpoint_needed"
    assert "could not be undone" in error.message
    four.undo()
    assert "could not be redone" in refusal(four, four.list().checkpoints[0].id).message
    assert four.redo().head is not None


def test_by_force_the_undo_is_gone_and_says_so(four):
    four.reset("#3")
    older = four.reset("#1")
    assert any("can no longer be undone" in note for note in drop(four, older.safety, force=True).notes)
    for reopened in (False, True):
        if reopened:
            four.reopen()
        with pytest.raises(DomainError, match="safety checkpoint #6 was dropped") as caught:
            four.undo()
        assert caught.value.kind == "nothing_to_undo"
    four.reset("#4")
    four.undo()
    assert sorted(os.listdir(four.root)) == [b"changes", b"file1"]


def test_undo_over_a_dropped_target_and_a_dropped_head(four):
    four.write(b"changes", b"edited")
    four.reset("#1")
    assert drop(four, "#1", "#4").head == four.list().checkpoints[-2].id
    result = four.undo()
    with open(os.path.join(four.root, b"changes"), "rb") as file:
        assert file.read() == b"edited"
    assert result.head in {one.id for one in four.list().checkpoints}
    four.redo()
    assert sorted(os.listdir(four.root)) == [b"changes", b"file1"]


def test_the_same_request_is_done_once(four):
    token = four.token()
    first = drop(four, "HEAD", token=token)
    assert drop(four, "HEAD", token=token) == first
    four.reopen()
    assert drop(four, "HEAD", token=token) == first
    assert seqs(four) == [1, 2, 3]
    with pytest.raises(DomainError, match="another operation"):
        four.save(token=token)


def test_a_damaged_checkpoint_can_be_dropped(four):
    four.damaged = True
    commit = four.list().checkpoints[1].id
    four.close()
    path = max(
        (os.path.join(four.folder, b"objects/pack", name) for name in os.listdir(four.folder + b"/objects/pack")),
        key=lambda one: (one.endswith(b".pack"), os.stat(one).st_mtime_ns),
    )
    index = next(one for one in four.repo.objects._indexes.values() if one.find(bytes.fromhex(commit)) is not None)
    four.close()
    os.unlink(index.pack_path)
    assert path
    result = drop(four, "#3")
    assert [(one.seq, one.kind) for one in result.dropped] == [(3, None)]
    assert 3 not in Refs(four.folder).checkpoint_names()


STEPS = ["log-written", "log-durable", "refs-packed", "ref-deleted", "head-written"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_death_at_any_step_ends_in_all_or_nothing(four, step, packed):
    four.write(b"more", b"more", perm=0o600)
    four.save(tag="five")
    if packed:
        four.close()
        four.git("pack-refs", "--all")
    four.close()
    token = four.token()

    def die() -> None:
        four.open()
        listen(lambda name, _path: os._exit(9) if name == step else None)
        drop(four, "#2", "#5", force=True, token=token)

    status = in_child(die)
    assert os.waitstatus_to_exitcode(status) in (9, 0)
    four.open(create=False)
    assert seqs(four) in ([1, 2, 3, 4, 5], [1, 3, 4])
    assert (Refs(four.folder).tags() == {}) == (seqs(four) == [1, 3, 4])
    result = drop(four, "#2", "#5", force=True, token=token)
    assert [one.seq for one in result.dropped] == [2, 5]
    assert seqs(four) == [1, 3, 4]
    assert four.head() == result.head == four.list().checkpoints[0].id
