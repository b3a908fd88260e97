"""What takes refs away takes no checkpoint away: a half copy, a backup over a store, a power cut, a stray hand."""

import os
import shutil
import subprocess

import pytest

from ckpt_protocol.checkpoint import DropParams
from ckpt_protocol.store import GcParams, GcResult, VerifyParams, VerifyResult
from ckpt_protocol.structs import from_wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.users import can_tell, user_of
from ckptd.shadow.record.living import known_checkpoints
from ckptd.shadow.record.oplog import Dropped, Intent, Outcome, Pass
from support.poll import until
from support.worktrees import Desk

pytestmark = pytest.mark.core


@pytest.fixture
def four(desk: Desk) -> Desk:
    """Three saves, and the safety checkpoint of a reset; the second has an info."""
    desk.settle()
    for number in (1, 2, 3):
        desk.write(b"file", b"%d\n" % number, perm=0o600 if number == 2 else 0o644)
        desk.save(f"number {number}")
    desk.write(b"file", b"edited\n")
    desk.reset("#2")
    return desk


def _verify(desk: Desk) -> VerifyResult:
    run = desk.reader.verify(VerifyParams(**desk.common()), Caller("test"))
    while (result := run.step()) is None:
        pass
    return result


def _gc(desk: Desk, **fields) -> GcResult:
    run = desk.writer.gc(GcParams(**desk.common(), token=desk.token(), **fields), Caller("test"))
    while (result := run.step()) is None:
        pass
    return result


def _contents(desk: Desk) -> dict[int, bytes]:
    return {one.seq: desk.cat(one.id, b"file") for one in desk.list().checkpoints}


WHOLE = {1: b"1\n", 2: b"2\n", 3: b"3\n", 4: b"edited\n"}


def _empty_packed(desk: Desk) -> None:
    desk.git("pack-refs", "--all")
    os.truncate(os.path.join(desk.folder, b"packed-refs"), 0)


def _no_packed(desk: Desk) -> None:
    desk.git("pack-refs", "--all")
    os.unlink(os.path.join(desk.folder, b"packed-refs"))


def _empty_newest(desk: Desk) -> None:
    os.truncate(os.path.join(desk.folder, b"refs/checkpoints/0000000004"), 0)


def _no_second(desk: Desk) -> None:
    os.unlink(os.path.join(desk.folder, b"refs/checkpoints/0000000002"))
    os.unlink(os.path.join(desk.folder, b"refs/ckpt-info/0000000002"))


def _no_refs(desk: Desk) -> None:
    shutil.rmtree(os.path.join(desk.folder, b"refs"))


def _no_refs_and_no_log(desk: Desk) -> None:
    _no_refs(desk)
    os.truncate(os.path.join(desk.folder, b"ckpt/log"), 0)
    with open(os.path.join(desk.folder, b"HEAD"), "wb") as file:
        file.write(b"ref: refs/heads/unborn\n")


def _loose(desk: Desk) -> None:
    """As ``git unpack-objects`` leaves them, and without refs."""
    folder = os.path.join(desk.folder, b"objects/pack")
    for name in [name for name in os.listdir(folder) if name.endswith(b".pack")]:
        moved = os.path.join(desk.base, name)
        os.rename(os.path.join(folder, name), moved)
        os.unlink(os.path.join(folder, name[:-5] + b".idx"))
        with open(moved, "rb") as file:
            desk.git("unpack-objects", "-q", data=file.read())
    _no_refs(desk)


HARMS = [_empty_packed, _no_packed, _empty_newest, _no_second, _no_refs, _no_refs_and_no_log, _loose]


@pytest.mark.parametrize("harm", HARMS, ids=lambda one: one.__name__.lstrip("_"))
def test_opening_brings_them_back(four: Desk, harm):
    head = four.head()
    four.close()
    harm(four)
    four.open(create=False)
    assert _contents(four) == WHOLE
    assert four.show("#2").checkpoint.complete
    if harm is not _no_refs_and_no_log:
        assert four.head() == head
    assert _verify(four).clean
    four.write(b"file", b"new\n")
    assert four.save("more").seq == 5
    _gc(four)
    assert _contents(four) == {**WHOLE, 5: b"new\n"}


@pytest.mark.parametrize("harm", [_empty_packed, _no_second, _no_refs], ids=lambda one: one.__name__.lstrip("_"))
def test_what_goes_while_the_store_is_open_is_told_and_no_waste(four: Desk, harm):
    four.open()
    harm(four)
    told = _verify(four)
    assert not told.clean
    assert b"refs/checkpoints/0000000002" in [from_wire(one.path) for one in told.files]
    dry = _gc(four, dry_run=True)
    assert dry.all_kept
    assert dry.objects_removed == 0
    result = _gc(four)
    assert not result.all_kept
    assert _contents(four) == WHOLE
    assert _verify(four).clean


def test_what_was_dropped_stays_dropped(four: Desk):
    four.writer.drop(DropParams(**four.common(), token=four.token(), ids=["#3"], force=True), Caller("test"))
    four.close()
    _no_refs(four)
    four.open(create=False)
    assert sorted(_contents(four)) == [1, 2, 4]


def test_all_dropped_stays_dropped(four: Desk):
    ids = [one.id for one in four.list().checkpoints]
    four.writer.drop(DropParams(**four.common(), token=four.token(), ids=ids, force=True), Caller("test"))
    four.reopen()
    assert four.list().checkpoints == []


@pytest.mark.skipif(not can_tell(), reason="this system does not tell what its processes do")
def test_a_lock_of_gits_is_named_while_somebody_works_there_and_goes_then(four: Desk):
    four.open()
    _no_second(four)
    lock = os.path.join(four.folder, b"packed-refs.lock")
    with open(lock, "xb"):
        pass
    with subprocess.Popen(["sleep", "600"], cwd=four.folder) as user:
        try:
            with pytest.raises(DomainError, match=r"packed-refs\.lock") as caught:
                _gc(four)
        finally:
            user.kill()
    assert "remove it" in caught.value.hint
    assert os.path.exists(lock)
    result = _gc(four)
    assert not result.all_kept
    assert not os.path.exists(lock)
    assert _contents(four) == WHOLE


@pytest.mark.skipif(not can_tell(), reason="this system does not tell what its processes do")
def test_a_git_program_is_known_by_its_words(four: Desk):
    four.open()
    assert user_of(four.folder) is None
    # It waits for its input, and has nothing of the store open.
    command = ["git", b"--git-dir=" + four.folder, "hash-object", "--stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/") as git:
        until(lambda: user_of(four.folder) == git.pid)
        git.communicate(b"")
    assert user_of(four.folder) is None


def _intent(n: int, verb, **fields) -> Intent:
    return Intent(n=n, verb=verb, time="", token="", client="", next_seq=n + 1, **fields)


def test_what_the_log_knows():
    intents = [
        _intent(1, "save", id="a", after="a"),
        _intent(2, "save", id="b", after="b"),
        _intent(3, "save", id="never", after="never"),
        _intent(4, "save", id="cut off", after="cut off"),
        _intent(5, "reset", target="a", safety="s", after="a", resumed=(Pass(safety="perhaps", paths=()),)),
        _intent(6, "reset", target="a", safety="withdrawn", after="a"),
        _intent(7, "drop", dropped=(Dropped(seq=2, id="b"),)),
    ]
    outcomes = {n: Outcome(n=n, done=n not in (3, 6)) for n in (1, 2, 3, 5, 6)}
    known = known_checkpoints(intents, outcomes)
    assert known.living == {"a", "s"}
    assert known.gone == {"b", "never", "withdrawn"}
