"""A daemon that is killed at any moment, files that lose their end, and git programs run on a store by hand."""

import contextlib
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import pytest

from ckptd.errors import DomainError
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.objects.refs import Refs, StagedCheckpoint
from ckptd.shadow.record.oplog import OperationLog, Outcome
from support.worktrees import Desk, git_tree, in_child, verify

pytestmark = pytest.mark.core

_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree")


def _killed_at(desk: Desk, number: int, work) -> bool:
    """Do some work in a process that is killed just before its n-th change in the checkpoint directory."""

    def doomed() -> None:
        left = number

        def audit(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if event not in _EVENTS or not arguments or not isinstance(arguments[0], str | bytes):
                return
            if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY):
                return
            if os.fsencode(arguments[0]).startswith(desk.checkpoint_dir):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(audit)
        work()

    status = in_child(doomed)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert status == 0
    return False


def _leftovers(desk: Desk) -> list[str]:
    return [
        os.path.join(os.fsdecode(folder), os.fsdecode(name))
        for folder, folders, files in os.walk(desk.checkpoint_dir)
        for name in folders + files
        if name.startswith((b".tmp-", b"tmp_", b".new-", b".old-")) or name.endswith(b".lock")
    ]


def test_the_info_of_a_save_that_was_given_up_goes_with_it(desk: Desk):
    """Its ref may be on disk before what it names is; a checkpoint that is there keeps its own."""
    desk.write(b"private", b"1", 0o600)
    kept = desk.save("kept")
    desk.write(b"private", b"2")
    path = os.path.join(desk.folder, b"refs", b"ckpt-info", b"%010d")

    def cut_off() -> None:
        def stop(name: str, _path: bytes) -> None:
            if name == "info-durable":
                os._exit(9)

        listen(stop)
        desk.open()
        desk.save("cut off")

    desk.close()
    assert in_child(cut_off) != 0
    with open(path % (kept.seq + 1), "wb") as file:
        file.write(b"%040d\n" % 7)
    desk.open(create=False)
    assert not os.path.exists(path % (kept.seq + 1))
    assert os.path.exists(path % kept.seq)
    assert desk.list().damaged == 0
    assert [one.id for one in desk.list().checkpoints] == [kept.id]
    assert desk.save("again").seq > kept.seq + 1


@pytest.mark.parametrize("tag", [None, "t"])
def test_a_save_killed_at_any_step(desk: Desk, tag: str | None):
    desk.write(b"a", b"0")
    first = desk.save("first")
    desk.close()
    done = False
    number = 0
    seen = {first.id}
    while not done:
        desk.write(b"a", b"%d" % (number + 1))
        token = desk.token()
        name = f"{tag}{number}" if tag else None
        os.mkfifo(desk.path(b"pipe%d" % number))

        def save(token=token, name=name) -> None:
            desk.open(create=False)
            desk.save("second", token=token, tag=name)
            desk.close()

        done = not _killed_at(desk, number, save)
        desk.open(create=False)
        assert _leftovers(desk) == []
        verify(desk.folder)
        records = desk.list().checkpoints
        assert desk.list().damaged == 0
        assert desk.head() == records[0].id
        assert seen <= {one.id for one in records}
        came = records[0].id not in seen
        if came:
            assert desk.tree_of(records[0].id) == git_tree(desk.root)
            assert records[0].tags == ([name] if name else [])
            assert desk.show(records[0].id).excluded
            # the caller, who never heard of it, asks again
            again = desk.save("second", token=token, tag=name)
            assert (again.id, again.created, again.files, again.seq) == (records[0].id, True, 1, records[0].seq)
            assert len(again.excluded) == number + 1
        else:
            again = desk.save("second", token=token, tag=name)
            assert again.created
            assert again.seq > records[0].seq
        seen.add(again.id)
        assert came or not done
        desk.close()
        number += 1
    assert number > 12


def test_the_making_of_a_store_killed_at_any_step(desk: Desk):
    desk.write(b"a", b"0")
    number = 0
    while _killed_at(desk, number, desk.save):
        desk.open()
        assert _leftovers(desk) == []
        verify(desk.folder)
        assert desk.save("again").files == 1
        desk.close()
        assert len(list(desk.stores())) == 1
        shutil.rmtree(desk.folder)
        number += 1
    assert number > 20


def test_the_end_of_a_store_killed_at_any_step(desk: Desk):
    desk.write(b"a", b"0")
    desk.save()
    desk.close()
    number = 0
    while _killed_at(desk, number, lambda: desk.catalog().delete(desk.checkpoint_dir, desk.folder)):
        stores = list(desk.stores())
        if stores:
            desk.open(create=False)
            assert desk.list().checkpoints
            desk.close()
        else:
            desk.save()
            desk.close()
        assert _leftovers(desk) == []
        number += 1
    assert number >= 3


class _DeadRefs(Refs):
    """Refs of a process that dies at a named point."""

    point = ""

    def _die_at(self, point: str) -> None:
        if self.point == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def name_info(self, staged: StagedCheckpoint) -> list[bytes]:
        self._die_at("ckpt-info")
        return super().name_info(staged)

    def name_checkpoint(self, staged: StagedCheckpoint) -> None:
        self._die_at("checkpoints")
        super().name_checkpoint(staged)

    def write_tag(self, name: str, commit: bytes) -> None:
        self._die_at("tags")
        super().write_tag(name, commit)

    def write_head(self, commit: bytes | None) -> None:
        self._die_at("HEAD")
        super().write_head(commit)


@pytest.mark.parametrize(
    ("point", "came"), [("ckpt-info", False), ("checkpoints", False), ("tags", True), ("HEAD", True)]
)
def test_a_save_killed_at_named_points(desk: Desk, point: str, came: bool):
    desk.write(b"a", b"1")
    first = desk.save()
    os.mkfifo(desk.path(b"pipe"))
    token = desk.token()

    def save() -> None:
        refs = _DeadRefs(desk.folder)
        refs.point = point
        object.__setattr__(desk.repo, "refs", refs)
        desk.save("second", tag="t", token=token)

    assert os.WTERMSIG(in_child(save)) == signal.SIGKILL
    desk.reopen()
    records = desk.list().checkpoints
    assert (len(records) == 2) is came
    assert desk.head() == records[0].id
    assert (desk.head() != first.id) is came
    assert desk.save("second", tag="t", token=token).seq == (2 if came else 3)
    assert desk.list().checkpoints[0].tags == ["t"]


def test_an_outcome_that_was_lost_is_found_out_again(desk: Desk):
    desk.write(b"a", b"1")
    token = desk.token()
    saved = desk.save("one", token=token)
    desk.close()
    with open(desk.folder + b"/ckpt/log", "r+b") as file:
        lines = file.read().splitlines(keepends=True)
        assert b"outcome" in lines[-1]
        # a half line, as a power cut leaves it
        file.truncate(sum(map(len, lines)) - 5)
    desk.write(b"a", b"2")
    again = desk.save("one", token=token)
    assert (again.id, again.files, again.created) == (saved.id, 1, True)
    assert "stopped before it could answer" in again.notes[-1]


@pytest.mark.parametrize("line", range(6))
def test_a_damaged_line_of_the_log(desk: Desk, line: int):
    """Whichever it is: nothing is lost, head is right, numbers are not used again."""
    tokens = []
    for number in range(3):
        desk.write(b"a", b"%d" % number)
        tokens.append(desk.token())
        newest = desk.save(token=tokens[-1])
    desk.close()
    path = desk.folder + b"/ckpt/log"
    with open(path, "rb") as file:
        lines = file.read().splitlines(keepends=True)
    assert len(lines) == 6
    lines[line] = b"\0" * (len(lines[line]) - 1) + b"\n"
    with open(path, "wb") as file:
        file.write(b"".join(lines))
    desk.open(create=False)
    assert desk.repo.log.damaged_lines == 1
    assert desk.head() == newest.id
    assert not desk.save().created
    desk.write(b"a", b"new")
    token = desk.token()
    saved = desk.save(token=token)
    assert saved.seq == 4
    assert desk.save(token=token) == saved
    desk.reopen()
    assert desk.head() == saved.id
    assert desk.save(token=token) == saved


@pytest.mark.parametrize("harm", ["deleted", "empty", "garbage", "zeros"])
def test_a_log_that_is_lost(desk: Desk, harm: str):
    desk.write(b"a", b"1")
    desk.save()
    desk.write(b"a", b"2")
    second = desk.save()
    desk.close()
    path = desk.folder + b"/ckpt/log"
    os.unlink(path)
    if harm != "deleted":
        with open(path, "wb") as file:
            file.write({"empty": b"", "garbage": b"\xff\xfe\n{}\n[]\n", "zeros": bytes(4096)}[harm])
    assert desk.changes() == []
    assert desk.head() == second.id
    desk.write(b"a", b"3")
    assert desk.save().seq == 3
    desk.reopen()
    assert len(desk.list().checkpoints) == 3


def test_a_lost_head_is_set_again(desk: Desk):
    desk.write(b"a", b"1")
    first = desk.save()
    desk.write(b"a", b"2")
    second = desk.save()
    for text in (b"", b"ref: refs/heads/unborn\n", first.id.encode() + b"\n", b"f" * 40 + b"\n", None):
        desk.close()
        os.unlink(desk.folder + b"/HEAD")
        if text is not None:
            with open(desk.folder + b"/HEAD", "wb") as file:
                file.write(text)
        assert desk.open(create=False)
        assert desk.head() == second.id


@pytest.mark.parametrize(
    ("name", "harm"),
    # What is derived and cannot even be replaced is done without; HEAD is asked for by readers.
    [(b"HEAD", harm) for harm in ("deleted", "empty", "loop")]
    + [(b"ckpt/model", harm) for harm in ("deleted", "empty", "loop", "folder")]
    + [(b"ckpt/settled", harm) for harm in ("deleted", "empty", "loop", "folder")],
)
def test_what_can_be_made_again_keeps_no_store_shut(desk: Desk, name: bytes, harm: str):
    desk.write(b"a", b"1")
    first = desk.save()
    desk.write(b"a", b"2")
    desk.reset()
    desk.close()
    path = os.path.join(desk.folder, name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    if harm == "empty":
        open(path, "wb").close()
    elif harm == "folder":
        os.mkdir(path)
    elif harm == "loop":
        os.symlink(os.path.basename(path), path)
    assert desk.head() == first.id
    assert desk.changes() == []
    desk.write(b"a", b"3")
    second = desk.save()
    assert desk.cat(second.id, b"a") == b"3"
    desk.reopen()
    assert desk.head() == second.id


def test_a_copy_without_packs_is_told_and_takes_new_saves(desk: Desk):
    desk.write(b"a", b"1")
    first = desk.save()
    desk.close()
    desk.damaged = True
    shutil.rmtree(os.path.join(desk.folder, b"objects"))
    with pytest.raises(DomainError, match="object_missing"):
        desk.reset(first.id)
    desk.write(b"a", b"2")
    second = desk.save()
    assert second.seq == 2
    desk.write(b"a", b"3")
    assert desk.reset(second.id).written == ["a"]


def test_leftovers_are_swept(desk: Desk):
    desk.write(b"a", b"1")
    saved = desk.save(tag="t")
    desk.close()
    places = (
        "objects/pack/tmp_ckpt_0123.pack",
        "objects/pack/tmp_ckpt_0123.index",
        "refs/checkpoints/0000000001.lock",
        "refs/tags/t.lock",
        "refs/checkpoints/.tmp-00",
        "ckpt/.tmp-00",
        ".tmp-00",
        "HEAD.lock",
        "packed-refs.lock",
    )
    for place in places:
        with open(os.path.join(desk.folder, place.encode()), "xb") as file:
            file.write(b"junk")
    desk.open(create=False)
    assert _leftovers(desk) == []
    assert desk.head() == saved.id
    assert desk.list().checkpoints[0].tags == ["t"]


@pytest.mark.parametrize(
    "words",
    [
        ("gc", "--quiet", "--prune=now"),
        ("repack", "-adfq"),
        ("repack", "-adq", "--write-midx"),
        ("pack-refs", "--all", "--prune"),
        ("prune-packed",),
        ("commit-graph", "write", "--reachable"),
        ("unpack-objects", "-q"),
    ],
    ids=" ".join,
)
def test_a_git_program_run_by_hand(desk: Desk, words: tuple[str, ...]):
    """Non-UTF-8 names on the way, for libgit2 has to find what git has packed."""
    desk.close()
    os.rename(desk.root, desk.root + b"\xff")
    desk.root += b"\xff"
    for number in range(30):
        desk.write(b"d/%d" % number, b"common text\n" * 200 + b"%d" % number, 0o640)
    first = desk.save("first", tag="t")
    desk.write(b"d/5", b"common text\n" * 200 + b"changed")
    second = desk.save("second")
    if words[0] == "unpack-objects":
        [*packs] = [name for name in os.listdir(desk.folder + b"/objects/pack") if name.endswith(b".pack")]
        for name in packs:
            path = os.path.join(desk.folder, b"objects/pack", name)
            aside = os.path.join(desk.base, name)
            os.rename(path, aside)
            os.unlink(path[:-5] + b".idx")
            with open(aside, "rb") as file:
                desk.git(*words, data=file.read())
    else:
        desk.git(*words)
    for _ in range(2):
        assert [one.id for one in desk.list().checkpoints] == [second.id, first.id]
        assert desk.list().checkpoints[1].tags == ["t"]
        assert desk.head() == second.id
        assert [change.path for change in desk.show(second.id).changes] == ["d/5"]
        assert desk.cat(first.id, b"d/5") == b"common text\n" * 200 + b"5"
        assert desk.diff(from_id=first.id, to_id=second.id).count(b"\n+") == 2
        assert desk.changes() == []
        assert not desk.save().created
        desk.reopen()
    desk.write(b"d/6", b"6")
    third = desk.save("third", tag="t3")
    assert third.seq == 3
    assert desk.tree_of(third.id) == git_tree(desk.root)
    desk.reset(first.id)
    assert desk.tree_of(first.id) == git_tree(desk.root)


def _newest_pack(desk: Desk) -> bytes:
    place = desk.folder + b"/objects/pack"
    names = [os.path.join(place, name) for name in os.listdir(place) if name.endswith(b".pack")]
    return max(names, key=lambda name: os.stat(name).st_mtime_ns)


def _flip(path: bytes, at: int) -> None:
    os.chmod(path, 0o644)
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0xFF]))


@pytest.mark.parametrize(
    ("harm", "reopened"),
    [
        ("pack and index", False),
        ("pack and index", True),
        ("pack alone", False),
        ("pack alone", True),
        # one that is open has been read
        ("index alone", True),
        ("index cut", True),
        ("index empty", True),
    ],
)
def test_a_lost_pack_is_an_error_with_a_name_and_is_healed(desk: Desk, harm: str, reopened: bool):
    desk.write(b"old", b"1")
    first = desk.save()
    desk.write(b"d/new", b"2" * 1000)
    desk.settle()
    second = desk.save()
    pack = _newest_pack(desk)
    index = pack[:-5] + b".idx"
    if reopened:
        desk.close()
    if harm in ("pack and index", "pack alone"):
        os.unlink(pack)
    if harm in ("pack and index", "index alone"):
        os.unlink(index)
    if harm in ("index cut", "index empty"):
        os.chmod(index, 0o644)
        os.truncate(index, os.path.getsize(index) - 30 if harm == "index cut" else 0)
    for ask in (lambda: desk.cat(second.id, b"d/new"), lambda: desk.show(second.id), desk.status):
        with pytest.raises(DomainError) as caught:
            ask()
        assert caught.value.kind == "object_missing"
        assert second.id in caught.value.message
    listed = desk.list()
    assert [one.id for one in listed.checkpoints] == [first.id]
    assert listed.damaged == 1
    assert desk.cat(first.id, b"old") == b"1"
    healed = desk.save("healed")
    assert healed.created
    assert healed.complete
    assert desk.cat(healed.id, b"d/new") == b"2" * 1000
    assert desk.tree_of(healed.id) == git_tree(desk.root)
    assert desk.changes() == []
    # git itself misses the checkpoint that could not be healed
    desk.git("update-ref", "-d", "refs/checkpoints/0000000002")
    for name in (pack, index):
        if os.path.exists(name) and harm != "index alone":
            os.unlink(name)
    verify(desk.folder)


@pytest.mark.parametrize("reopened", [False, True])
def test_a_damaged_blob_is_found_when_it_is_read_and_healed_by_the_next_save(desk: Desk, reopened: bool):
    data = os.urandom(100_000)
    desk.write(b"f", data)
    desk.write(b"g", b"1")
    desk.settle()
    first = desk.save()
    pack = _newest_pack(desk)
    _flip(pack, 50_000)
    if reopened:
        desk.reopen()
    with pytest.raises(DomainError) as caught:
        desk.cat(first.id, b"f")
    assert caught.value.kind == "store_damaged"
    assert desk.repo.model.entries[b"f"][:20].hex() in caught.value.message
    assert desk.cat(first.id, b"g") == b"1"
    # the reader found it, the writer writes it again, although no file has changed
    again = desk.save()
    assert again.id == first.id
    assert desk.cat(first.id, b"f") == data
    desk.reopen()
    assert desk.cat(first.id, b"f") == data
    assert not desk.save().created
    os.unlink(pack)
    os.unlink(pack[:-5] + b".idx")
    desk.damaged = True


def test_every_byte_of_a_small_pack_may_be_wrong(desk: Desk):
    """What is read is right, or it is an error."""
    desk.write(b"f", b"content")
    first = desk.save()
    pack = _newest_pack(desk)
    for at in range(12, os.path.getsize(pack) - 20):
        _flip(pack, at)
        desk.close()
        with contextlib.suppress(DomainError):
            assert desk.cat(first.id, b"f") == b"content"
        _flip(pack, at)
    desk.reopen()
    assert desk.cat(first.id, b"f") == b"content"


def test_a_full_disk_leaves_nothing_behind(desk: Desk):
    desk.write(b"a", b"1")
    first = desk.save()
    desk.write(b"big", os.urandom(2 << 20))
    for number in range(400):
        desk.write(b"d/%d" % number, b"%d" % number)
    desk.settle()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = sorted(os.listdir(desk.folder + b"/objects/pack"))
    for limit in (0, 10_000, 1 << 20, (2 << 20) + 10_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(DomainError) as caught:
                desk.save()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert caught.value.kind == "no_space"
        assert sorted(os.listdir(desk.folder + b"/objects/pack")) == before
        assert desk.head() == first.id
    saved = desk.save()
    assert saved.created
    assert desk.tree_of(saved.id) == git_tree(desk.root)


def test_a_disk_that_is_full_when_the_index_of_a_pack_is_written(desk: Desk):
    """The index of a small pack is larger than the pack."""
    desk.write(b"a", b"1")
    desk.save()
    before = sorted(os.listdir(desk.folder + b"/objects/pack"))
    desk.write(b"a", b"2")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (800, hard))
    try:
        with pytest.raises(DomainError, match=r"^no_space: .*pack"):
            desk.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(os.listdir(desk.folder + b"/objects/pack")) == before
    assert desk.save().created


class _FailingRefs(Refs):
    failing = ""

    def _fail_at(self, point: str) -> None:
        if self.failing == point:
            raise DomainError("no_space", "no space")

    def stage_checkpoint(self, seq: int, commit: bytes, info: bytes | None) -> StagedCheckpoint:
        self._fail_at("content")
        return super().stage_checkpoint(seq, commit, info)

    def name_info(self, staged: StagedCheckpoint) -> list[bytes]:
        self._fail_at("ckpt-info")
        return super().name_info(staged)

    def name_checkpoint(self, staged: StagedCheckpoint) -> None:
        self._fail_at("checkpoints")
        super().name_checkpoint(staged)

    def write_tag(self, name: str, commit: bytes) -> None:
        self._fail_at("tags")
        super().write_tag(name, commit)


@pytest.mark.parametrize(("failing", "seq"), [("content", 2), ("ckpt-info", 3), ("checkpoints", 3), ("tags", 3)])
def test_a_disk_that_is_full_when_the_refs_are_written(desk: Desk, failing: str, seq: int):
    desk.write(b"a", b"1")
    first = desk.save()
    os.mkfifo(desk.path(b"pipe"))
    kept = desk.repo.refs
    refs = _FailingRefs(desk.folder)
    refs.failing = failing
    object.__setattr__(desk.repo, "refs", refs)
    token = desk.token()
    with pytest.raises(DomainError, match=r"^no_space: "):
        desk.save(tag="t", token=token)
    object.__setattr__(desk.repo, "refs", kept)
    assert desk.git("for-each-ref").count(b"\n") == 1
    assert desk.head() == first.id
    assert desk.repo.history.head == first.id
    saved = desk.save(tag="t", token=token)
    assert saved.seq == seq
    desk.reopen()
    assert desk.head() == saved.id


def test_a_log_that_cannot_be_written_keeps_its_lines_whole(short_dir: Path):
    log = OperationLog(os.fsencode(short_dir / "log"))
    log.write(Outcome(n=1))
    size = os.path.getsize(short_dir / "log")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
    try:
        with pytest.raises(DomainError, match=r"^no_space: "):
            log.write(Outcome(n=2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.write(Outcome(n=3))
    log.close()
    again = OperationLog(os.fsencode(short_dir / "log"))
    assert (sorted(again.outcomes), again.damaged_lines) == ([1, 3], 0)
    again.close()
