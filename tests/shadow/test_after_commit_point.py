"""Once an operation is done, nothing that can be derived again makes its answer an error."""

import os

import pytest

from ckptd.errors import DomainError
from support.worktrees import Desk

pytestmark = pytest.mark.core


def full(*_args, **_options):
    raise DomainError("no_space", "cannot write: No space left on device")


def content(desk: Desk, name: bytes) -> bytes:
    with open(desk.path(name), "rb") as file:
        return file.read()


def test_a_save_whose_head_cannot_be_written_is_done(desk: Desk):
    desk.write(b"a", b"one")
    desk.save("first")
    desk.write(b"a", b"two")
    desk.repo.refs.write_head = full
    second = desk.save("second").id
    assert desk.status().head == second
    # Also by those who only read.
    assert desk.head() == second
    assert b"+two" in desk.diff(from_id="#1", to_id="HEAD")
    assert desk.diff(to_id="#2") == b""
    assert desk.status().changes == []
    desk.write(b"a", b"wreck")
    assert desk.reset().target == second
    assert content(desk, b"a") == b"two"
    desk.reopen()
    assert desk.head() == second


def test_a_reset_whose_end_cannot_be_recorded_tells_what_it_did(desk: Desk):
    desk.write(b"a", b"one")
    first = desk.save("first").id
    desk.write(b"a", b"two")
    desk.save("second")
    refuse_outcomes(desk)
    desk.repo.log.catch_up = lambda: None
    result = desk.reset(first)
    assert (result.written, result.head) == (["a"], first)
    assert desk.status().head == first
    # As after a crash: the operation is open, and one undo takes it back.
    desk.reopen()
    assert desk.status().interrupted == result.safety
    desk.undo()
    assert content(desk, b"a") == b"two"


def test_the_end_of_a_reset_is_recorded_once_the_disk_takes_it(desk: Desk):
    desk.write(b"a", b"one")
    first = desk.save("first").id
    desk.write(b"a", b"two")
    desk.save("second")
    refuse_outcomes(desk)
    assert desk.reset(first).head == first
    desk.reopen()
    assert (desk.status().interrupted, desk.head()) == (None, first)
    desk.undo()
    assert content(desk, b"a") == b"two"


def refuse_outcomes(desk: Desk) -> None:
    log = desk.repo.log
    write = log.write

    def only_intents(line, *, durable=True):
        if type(line).__name__ == "Outcome":
            full()
        write(line, durable=durable)

    log.write = only_intents


def test_a_store_opens_on_a_disk_that_refuses_everything(desk: Desk):
    desk.write(b"a", b"one")
    first = desk.save("first").id
    folder = desk.repo.folder
    desk.close()
    with open(os.path.join(folder, b"HEAD"), "wb") as file:
        file.write(b"nonsense\n")
    before = sorted(os.listdir(b"/proc/self/fd"))
    desk.open(create=False)
    assert desk.status().head == first
    desk.close()
    assert len(os.listdir(b"/proc/self/fd")) <= len(before)


def test_a_failed_save_takes_its_tag_back(desk: Desk):
    desk.write(b"a", b"one")
    log = desk.repo.log
    write = log.write

    def no_outcomes(line, *, durable=True):
        if type(line).__name__ == "Outcome" and line.done:
            full()
        write(line, durable=durable)

    log.write = no_outcomes
    with pytest.raises(DomainError, match="no_space"):
        desk.save("first", tag="v1")
    assert desk.repo.refs.tags() == {}
    log.write = write
    assert desk.save("again", tag="v1").created


def test_a_tag_of_nothing_is_free_again(desk: Desk):
    desk.write(b"a", b"one")
    desk.save("first")
    desk.repo.refs.write_tag("v1", b"f" * 40)
    desk.write(b"a", b"two")
    saved = desk.save("second", tag="v1")
    assert desk.reset("v1").target == saved.id


@pytest.mark.parametrize(
    "ask",
    [lambda desk: desk.reset(""), lambda desk: desk.rollback("", b"a"), lambda desk: desk.diff(from_id="")],
    ids=["reset", "rollback", "diff"],
)
def test_an_empty_id_is_not_head(desk: Desk, ask):
    desk.write(b"a", b"one")
    desk.save("first")
    desk.write(b"a", b"edited")
    with pytest.raises(DomainError, match="unknown_checkpoint"):
        ask(desk)
    assert content(desk, b"a") == b"edited"


def test_a_cut_pack_is_written_again_by_the_next_save(desk: Desk):
    desk.write(b"a", os.urandom(5000))
    desk.save("first")
    pack_dir = desk.repo.objects.pack_dir
    desk.close()
    for name in os.listdir(pack_dir):
        if name.endswith(b".pack"):
            os.chmod(os.path.join(pack_dir, name), 0o600)
            os.truncate(os.path.join(pack_dir, name), 200)
    desk.damaged = True
    saved = desk.save("second")
    assert saved.complete
    assert desk.cat(saved.id, b"a") == content(desk, b"a")


def test_the_store_of_another_worktree_is_no_content(desk: Desk):
    inner = desk.mkdir(b"stores")
    folder = desk.catalog().open(inner, desk.place(), create=True, force=True)
    folder.writer.close()
    folder.reader.close()
    store = os.path.join(b"stores", os.path.basename(folder.folder))
    desk.write(b"a", b"one")
    saved = desk.save("first")
    assert [(item.path, item.reason) for item in saved.excluded] == [(os.fsdecode(store), "store")]
    with open(os.path.join(folder.folder, b"later"), "wb") as file:
        file.write(b"written by its own daemon")
    assert desk.status().changes == []
    result = desk.reset()
    assert (result.written, result.deleted) == ([], [])
    assert os.path.exists(os.path.join(folder.folder, b"later"))


def test_a_whole_checkpoint_directory_is_left_out_by_its_lock(desk: Desk):
    inner = desk.mkdir(b"stores")
    desk.write(b"stores/.lock", b"{}")
    opened = desk.catalog().open(inner, desk.place(), create=True, force=True)
    opened.writer.close()
    opened.reader.close()
    saved = desk.save("first")
    assert [(item.path, item.reason) for item in saved.excluded] == [("stores", "store")]
    assert saved.files == 0
