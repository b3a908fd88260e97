"""Damage is found, told with what it affects, hurts nothing else, and is healed by the next save."""

import contextlib
import os
import shutil
import zlib

import pytest

from ckpt_protocol.checkpoint import DropParams
from ckpt_protocol.store import VerifyParams, VerifyResult
from ckpt_protocol.structs import from_wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.links import Reach
from ckptd.shadow.objects.refs import Refs, seq_name
from support.worktrees import Desk, run_git

pytestmark = pytest.mark.core


def verify(desk: Desk, caller: Caller | None = None, **fields) -> VerifyResult:
    run = desk.reader.verify(VerifyParams(**desk.common(), **fields), caller or Caller("test"))
    while (result := run.step()) is None:
        pass
    return result


def below(desk: Desk, *parts: bytes) -> bytes:
    return os.path.join(desk.folder, *parts)


def packs(desk: Desk) -> list[bytes]:
    folder = below(desk, b"objects", b"pack")
    found = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(b".pack")]
    return sorted(found, key=lambda path: os.stat(path).st_mtime_ns)


def pack_of(desk: Desk, oid: str) -> bytes:
    raw = bytes.fromhex(oid)
    return next(one.pack_path for one in desk.repo.objects._indexes.values() if one.find(raw) is not None)


def overwrite(path: bytes, at: int, data: bytes) -> None:
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        file.write(data)


def flip(path: bytes, at: int) -> None:
    with open(path, "rb") as file:
        file.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        byte = file.read(1)
    overwrite(path, at, bytes([byte[0] ^ 0x10]))


def cut(path: bytes, size: int = 0) -> None:
    os.chmod(path, 0o600)
    os.truncate(path, size)


@pytest.fixture
def three(desk: Desk) -> Desk:
    """Three checkpoints: one file stays, one changes in a folder, and each checkpoint has one of its own."""
    desk.settle()
    for number in (1, 2, 3):
        desk.write(b"stays", b"the same\n" * 200, perm=0o600)
        desk.write(b"dir/changes", b"%d\n" % number * 300)
        desk.write(b"dir/deep/own%d" % number, b"only %d\n" % number * 300)
        desk.save(f"number {number}")
    return desk


def blob(desk: Desk, seq: int, path: bytes) -> str:
    return desk.paths_of(desk.list().checkpoints[-seq].id)[path][1].decode()


def affected(result: VerifyResult) -> dict[int, bool]:
    return {one.seq: one.readable for one in result.affected}


@pytest.mark.parametrize("read_data", [False, True])
def test_a_sound_store_is_clean_as_git_says(three, read_data):
    result = verify(three, read_data=read_data)
    assert result.clean
    assert (result.affected, result.damaged, result.files, result.notes) == ([], [], [], [])
    assert result.checkpoints == 3
    counted = run_git(b"--git-dir=" + three.folder, "rev-list", "--objects", "--all", "--glob=refs/*").splitlines()
    assert result.objects == len({line.split()[0] for line in counted})
    assert (result.bytes > 0) == read_data
    run_git(b"--git-dir=" + three.folder, "fsck", "--strict", "--full")


def test_an_empty_store_is_clean(desk):
    desk.open()
    assert verify(desk, read_data=True).clean


def test_nothing_of_the_store_changes(three):
    def look() -> dict[bytes, tuple[int, int, int]]:
        return {
            os.path.join(path, name): (found.st_mtime_ns, found.st_size, found.st_ino)
            for path, _, names in os.walk(three.folder)
            for name in names
            if (found := os.lstat(os.path.join(path, name)))
        }

    flip(pack_of(three, blob(three, 2, b"dir/changes")), 40)
    before = look()
    verify(three, read_data=True)
    assert look() == before
    three.damaged = True


def test_a_flipped_bit_of_a_file_is_found_by_reading_only(three):
    three.damaged = True
    oid = blob(three, 2, b"dir/changes")
    path = pack_of(three, oid)
    index = next(one for one in three.repo.objects._indexes.values() if one.pack_path == path)
    flip(path, index.find(bytes.fromhex(oid)) + 8)
    assert verify(three).clean
    result = verify(three, read_data=True)
    assert affected(result) == {2: True}
    (lost,) = result.damaged
    assert (lost.id, lost.kind, lost.missing, lost.seqs) == (oid, "blob", False, [2])
    assert [from_wire(one) for one in lost.paths] == [b"dir/changes"]
    assert [os.path.basename(path)] == [os.path.basename(from_wire(one.path)) for one in result.files]
    assert three.cat("#1", b"dir/changes") == b"1\n" * 300
    assert three.cat("#2", b"stays") == b"the same\n" * 200
    with pytest.raises(DomainError):
        three.cat("#2", b"dir/changes")


def test_every_checkpoint_that_shares_a_lost_file_is_named(three):
    three.damaged = True
    oid = blob(three, 1, b"stays")
    flip(pack_of(three, oid), 30)
    result = verify(three, read_data=True)
    lost = {one.id: one for one in result.damaged}
    if oid in lost:
        assert lost[oid].seqs == [1, 2, 3]
    assert 1 in affected(result)


DAMAGES = {
    "the pack is empty": lambda path: cut(path),
    "the pack is cut": lambda path: cut(path, os.path.getsize(path) - 30),
    "the pack is gone": os.unlink,
    "the pack is zeros": lambda path: overwrite(path, 0, bytes(os.path.getsize(path))),
    "the index is empty": lambda path: cut(path[:-5] + b".idx"),
    "the index is cut": lambda path: cut(path[:-5] + b".idx", 500),
    "the index is gone": lambda path: os.unlink(path[:-5] + b".idx"),
    "the index has a wrong id": lambda path: flip(path[:-5] + b".idx", 8 + 1024 + 3),
    "the index has no fanout": lambda path: overwrite(path[:-5] + b".idx", 8, b"\xff" * 64),
    "the pack is another's": lambda path: overwrite(path, -20, bytes(20)),
}


@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("reopened", [False, True])
def test_a_damaged_pack_hurts_what_needs_it_and_the_next_save_heals_it(three, what, reopened):
    """The newest pack holds only what the third checkpoint alone has, and all of that is still on disk."""
    if reopened:
        three.close()
    DAMAGES[what](packs(three)[-1])
    three.damaged = True
    result = verify(three, read_data=True)
    assert not result.clean
    assert set(affected(result)) == {3}
    assert result.damaged
    assert three.cat("#1", b"dir/changes") == b"1\n" * 300
    assert three.cat("#2", b"dir/deep/own2") == b"only 2\n" * 300
    saved = three.save("again")
    # A checkpoint whose commit is lost is none to give back as the one that already was.
    assert saved.created or affected(result)[3]
    assert three.cat(saved.id, b"dir/changes") == b"3\n" * 300
    assert three.cat(saved.id, b"dir/deep/own3") == b"only 3\n" * 300
    healed = verify(three, read_data=True)
    assert saved.seq not in affected(healed)
    assert {one.kind for one in healed.damaged} <= {"commit"}


def test_a_lost_tree_is_told_as_the_folder_that_it_was(three):
    three.damaged = True
    three.close()
    tree = three.git("rev-parse", three.list().checkpoints[-2].id + ":dir").decode().strip()
    three.open()
    path = pack_of(three, tree)
    index = next(one for one in three.repo.objects._indexes.values() if one.pack_path == path)
    flip(path, index.find(bytes.fromhex(tree)) + 5)
    result = verify(three)
    (lost,) = [one for one in result.damaged if one.id == tree]
    assert (lost.kind, lost.seqs, [from_wire(one) for one in lost.paths]) == ("tree", [2], [b"dir"])
    assert affected(result) == {2: True}


def test_a_lost_commit_is_all_of_a_checkpoint(three):
    three.damaged = True
    commit = three.list().checkpoints[0].id
    three.close()
    path = pack_of(three, commit)
    index = next(one for one in three.repo.objects._indexes.values() if one.pack_path == path)
    flip(path, index.find(bytes.fromhex(commit)) + 6)
    result = verify(three)
    assert affected(result) == {3: False}
    assert commit in {one.id for one in result.damaged}


def test_a_crafted_tree_is_no_clean_one(three):
    three.damaged = True
    blob_id = three.git("hash-object", "-w", "--stdin", data=b"x").strip()
    entry = b"100644 ..\0" + bytes.fromhex(blob_id.decode())
    tree = three.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", data=entry).strip()
    message = three.git("cat-file", "commit", three.list().checkpoints[0].id).partition(b"\n\n")[2]
    commit = three.git("commit-tree", tree, data=message.replace(b"Ckpt-Seq: 3", b"Ckpt-Seq: 9")).strip()
    Refs(three.folder).write_checkpoint(9, commit, None)
    result = verify(three)
    assert 9 in affected(result)
    assert tree.decode() in {one.id for one in result.damaged}


REFS = {
    "empty": b"",
    "cut": b"0123456789",
    "junk": b"\xff" * 41,
    "of nothing": b"1" * 40 + b"\n",
}


@pytest.mark.parametrize("what", REFS)
def test_a_damaged_ref_hurts_its_own_checkpoint_until_it_is_made_anew(three, what):
    name = b"refs/checkpoints/" + seq_name(2)
    overwrite(below(three, name), 0, REFS[what].ljust(41)[: len(REFS[what])])
    cut(below(three, name), len(REFS[what]))
    result = verify(three)
    assert affected(result) == {2: False}
    if what != "of nothing":
        assert [from_wire(one.path) for one in result.files] == [name]
    three.write(b"more", b"more")
    assert three.save().seq == 4
    assert three.cat("#3", b"dir/changes") == b"3\n" * 300
    three.reopen()
    assert verify(three).clean
    assert three.cat("#2", b"dir/changes") == b"2\n" * 300


def test_a_damaged_line_of_packed_refs_hurts_its_own_checkpoint_until_it_is_made_anew(three):
    three.git("pack-refs", "--all")
    with open(below(three, b"packed-refs"), "rb") as file:
        data = file.read()
    overwrite(below(three, b"packed-refs"), data.index(b"refs/checkpoints/" + seq_name(2)) - 41, b"?" * 40)
    result = verify(three)
    assert b"packed-refs" in [from_wire(one.path) for one in result.files]
    assert sorted(one.seq for one in three.list().checkpoints) == [1, 3]
    assert three.cat("#3", b"stays") == b"the same\n" * 200
    three.reopen()
    assert verify(three).clean
    assert sorted(one.seq for one in three.list().checkpoints) == [1, 2, 3]


def test_a_damaged_log_is_told_and_stops_nothing(three):
    three.close()
    overwrite(below(three, b"ckpt", b"log"), 5, b"\0\0\0")
    result = verify(three)
    assert [from_wire(one.path) for one in result.files] == [b"ckpt/log"]
    assert (result.affected, result.damaged) == ([], [])
    three.write(b"more", b"more")
    assert three.save().seq == 4


@pytest.mark.parametrize("name", [b"ckpt/model", b"HEAD"])
def test_what_can_be_derived_is_a_note_and_made_again(three, name):
    three.close()
    head = three.head()
    three.close()
    overwrite(below(three, name), 0, b"\0" * 30)
    three.damaged = name == b"HEAD"
    run = desk_reader_only(three)
    assert run.clean
    assert any(note.startswith(name.decode()) for note in run.notes)
    three.damaged = False
    assert three.head() == head
    three.write(b"more", b"more")
    three.save()
    assert verify(three).notes == []


def desk_reader_only(desk: Desk) -> VerifyResult:
    """Look at a store as it lies on disk: opening it would put right what can be derived."""
    from ckptd.shadow.store.reader import StoreReader

    reader = StoreReader(desk.folder)
    run = reader.verify(VerifyParams(**desk.common()), Caller("test"))
    while (result := run.step()) is None:
        pass
    reader.close()
    return result


def test_a_ref_is_asked_once_what_it_points_to(three, monkeypatch):
    """Each checkpoint is listed twice: as one, and among all refs."""
    asked: list[bytes] = []
    root = Reach.root

    def counting(self, oid):
        asked.append(oid)
        return root(self, oid)

    monkeypatch.setattr(Reach, "root", counting)
    assert verify(three).clean
    assert len(asked) == len(set(asked)) >= 3


def test_loose_objects_are_looked_at_too(three):
    three.damaged = True
    three.close()
    run_git(b"--git-dir=" + three.folder, "repack", "-adq")
    oid = three.git("hash-object", "-w", "--stdin", data=b"loose\n" * 100).decode().strip()
    path = below(three, b"objects", oid[:2].encode(), oid[2:].encode())
    assert verify(three, read_data=True).clean
    overwrite(path, 0, zlib.compress(b"blob 3\0abc"))
    cut(path, len(zlib.compress(b"blob 3\0abc")))
    result = verify(three, read_data=True)
    assert [from_wire(one.path) for one in result.files] == [os.path.relpath(path, three.folder)]
    assert result.affected == []


def test_a_store_that_git_repacked_with_deltas_is_clean_and_its_damage_is_found(three):
    three.close()
    run_git(b"--git-dir=" + three.folder, "repack", "-adq", "--depth=50")
    assert verify(three, read_data=True).clean
    three.close()
    three.damaged = True
    path = packs(three)[0]
    for at in range(12, os.path.getsize(path) - 20, 40):
        flip(path, at)
    assert set(affected(verify(three, read_data=True))) == {1, 2, 3}


@pytest.mark.parametrize("name", [b"tmp_ckpt_01.pack", b"pack-0.idx", b"pack-0.pack"])
def test_left_over_files_are_notes(three, name):
    with open(below(three, b"objects", b"pack", name), "wb") as file:
        file.write(b"left over")
    # It may be in the making.
    assert not [note for note in verify(three).notes if name.decode() in note]
    os.utime(below(three, b"objects", b"pack", name), (1, 1))
    result = verify(three)
    assert result.clean
    assert any(name.decode() in note for note in result.notes)
    os.unlink(below(three, b"objects", b"pack", name))


def test_it_can_be_called_off_and_tells_how_far_it_is(three):
    told = []
    caller = Caller("test", progress=lambda *words: told.append(words))
    assert verify(three, caller, read_data=True).clean
    assert {words[0] for words in told} == {"packs", "history"}
    for phase in ("packs", "history"):
        counts = [(done, total) for name, done, total, _ in told if name == phase]
        assert counts[0][0] == 0
        # Each object is one of them; what lies loose, and each pack as a whole, is counted on top.
        assert 0 < counts[-1][1] <= counts[-1][0] + 10
    caller.cancelled.set()
    with pytest.raises(DomainError, match="called off"):
        verify(three, caller)


def test_what_goes_meanwhile_is_no_damage(three):
    run = three.reader.verify(VerifyParams(**three.common(), read_data=True), Caller("test"))
    params = DropParams(**three.common(), token=three.token(), ids=["#2"], force=True)
    three.writer.drop(params, Caller("test"))
    shutil.rmtree(below(three, b"ckpt", b"nothing"), ignore_errors=True)
    result = None
    with contextlib.suppress(StopIteration):
        while result is None:
            result = run.step()
    assert result.clean
