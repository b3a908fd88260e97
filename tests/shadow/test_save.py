"""What a save answers, and what it leaves in the store."""

import json
import os
import stat

import pytest

from ckpt_protocol.structs import LeftOut
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.record.checkpoint import load_info
from ckptd.shadow.trees.modes import parse_exceptions
from support.worktrees import Desk, git_tree, opened_files

pytestmark = pytest.mark.core


def _fails(kind: str):
    return pytest.raises(DomainError, match=f"^{kind}: ")


def _info(desk: Desk, id: str):
    checkpoint = desk.repo.lookup.load(id)
    return load_info(desk.repo.objects, checkpoint)


def _modes(desk: Desk, id: str) -> dict[bytes, int]:
    """The recorded permission bits by path, read from the store by git alone."""
    info = desk.repo.lookup.load(id).facts.info
    found: dict[bytes, int] = {}
    if info is None:
        return found
    for record in desk.git("ls-tree", "-r", "-z", info, "modes/").split(b"\0")[:-1]:
        facts, _, path = record.partition(b"\t")
        parts = path.split(b"/")[1:]
        assert parts[-1] == b"="
        folder = b"".join(part[1:] + b"/" for part in parts[:-1])
        blob = desk.git("cat-file", "blob", facts.split(b" ")[2])
        found.update({folder + name: perm for name, perm in parse_exceptions(blob).items()})
    return found


def test_first_and_second(desk: Desk):
    desk.write(b"a/b", b"1")
    first = desk.save("one")
    assert (first.created, first.complete, first.files, first.seq) == (True, True, 1, 1)
    desk.write(b"c", b"2")
    second = desk.save()
    assert (second.created, second.files, second.seq) == (True, 2, 2)
    assert desk.head() == second.id
    records = desk.list().checkpoints
    assert [one.id for one in records] == [second.id, first.id]
    assert [one.message for one in records] == [None, "one"]
    assert records[0].base == first.id
    assert records[1].base is None
    assert {one.kind for one in records} == {"manual"}
    assert records[0].client == "test"


def test_commits_are_git_s_own(desk: Desk):
    desk.write(b"a", b"1")
    saved = desk.save("subject\n\nbody")
    text = desk.git("cat-file", "commit", saved.id).decode()
    assert "parent" not in text
    block = "Ckpt-Seq: 1\nCkpt-Kind: manual\nCkpt-Scan: full\nCkpt-Complete: true\nCkpt-Client: test\n"
    assert text.endswith("\n\nsubject\n\nbody\n\n" + block)
    refs = desk.git("for-each-ref", "--format=%(objecttype) %(refname)").decode().split("\n")[:-1]
    assert refs == ["commit refs/checkpoints/0000000001"]
    assert desk.git("rev-parse", "HEAD").decode().strip() == saved.id
    assert desk.git("log", "--format=%s", "--glob=refs/checkpoints").decode() == "subject\n"


def test_nothing_changed(desk: Desk):
    desk.write(b"a", b"1")
    first = desk.save("one")
    packs = os.listdir(desk.folder + b"/objects/pack")
    again = desk.save()
    assert (again.id, again.created, again.seq, again.notes) == (first.id, False, 1, [])
    assert os.listdir(desk.folder + b"/objects/pack") == packs
    assert desk.save("one").notes == []
    [note] = desk.save("two").notes
    assert "message was not used" in note
    assert len(desk.list().checkpoints) == 1


def test_nothing_changed_on_an_automatic_head(desk: Desk):
    desk.write(b"a", b"1")
    auto = desk.save(kind="auto")
    assert desk.save(kind="auto").id == auto.id
    manual = desk.save()
    assert manual.created
    assert desk.tree_of(manual.id) == desk.tree_of(auto.id)
    assert not desk.save().created
    assert desk.save(kind="auto").id == manual.id


def test_metadata_that_the_last_checkpoint_has_makes_none(desk: Desk):
    desk.write(b"a", b"1")
    first = desk.save(meta={"session": "s"})
    assert desk.save(meta={"session": "s"}).id == first.id
    assert desk.save().id == first.id
    assert desk.save(meta={"session": "t"}).created
    assert desk.save(meta={"session": "s"}).created


def test_metadata_makes_a_checkpoint(desk: Desk):
    desk.write(b"a", b"1")
    first = desk.save()
    second = desk.save(meta={"run": "ä\n2", "": "\x7f"})
    assert second.created
    assert second.id != first.id
    assert desk.list().checkpoints[0].meta == {"run": "ä\n2", "": "\x7f"}
    assert desk.list(meta={"run": "ä\n2"}).checkpoints[0].id == second.id
    [line] = [x for x in desk.git("cat-file", "commit", second.id).decode("ascii").split("\n") if "Meta" in x]
    assert json.loads(line.removeprefix("Ckpt-Meta: "))["run"] == "ä\n2"
    with _fails("bad_option"):
        desk.save(meta={"a": "\ud800"})
    with _fails("bad_option"):
        desk.save(meta={"a": "x" * 70_000})


def test_tags(desk: Desk):
    desk.write(b"a", b"1")
    first = desk.save(tag="one")
    assert desk.save(tag="v/1").id == first.id
    assert desk.list().checkpoints[0].tags == ["one", "v/1"]
    assert desk.show("v/1").checkpoint.id == first.id
    desk.write(b"a", b"2")
    for name in ("one", "one/two", "v"):
        with _fails("tag_exists"):
            desk.save(tag=name)
    for name in ("HEAD", "abcd", "a..b", "@x", "a b", "x.lock", "-x", "a/.b", "\ud800", "a\0b", ""):
        with _fails("bad_tag"):
            desk.save(tag=name)
    assert len(desk.list().checkpoints) == 1
    assert desk.save(tag="two").created
    assert desk.git("rev-parse", "refs/tags/two").strip().decode() == desk.head()


def test_a_tag_that_is_taken_stays_where_it_is_when_something_changed(desk: Desk):
    desk.write(b"a", b"1")
    first = desk.save(tag="one")
    # head has it: nothing to do, and nothing to refuse
    assert desk.save(tag="one").id == first.id
    desk.write(b"a", b"2")
    with _fails("tag_exists"):
        desk.save(tag="one")
    assert desk.head() == first.id


def test_a_retried_request_gets_the_recorded_answer(desk: Desk):
    desk.write(b"a", b"1")
    token = desk.token()
    first = desk.save("one", tag="t", token=token)
    desk.write(b"a", b"2")
    assert desk.save("one", tag="t", token=token) == first
    desk.reopen()
    assert desk.save("one", tag="t", token=token) == first
    assert len(desk.list().checkpoints) == 1


def test_a_token_of_another_operation_is_refused(desk: Desk):
    desk.write(b"a", b"1")
    first = desk.save()
    desk.write(b"a", b"2")
    token = desk.token()
    desk.reset(first.id, token=token)
    with _fails("bad_option"):
        desk.save(token=token)


@pytest.mark.parametrize("message", ["a\0b", "\ud800"])
def test_messages_that_no_commit_holds(desk: Desk, message: str):
    desk.write(b"a", b"1")
    with _fails("bad_message"):
        desk.save(message)
    assert desk.list().checkpoints == []


def test_sequence_numbers_are_never_used_again(desk: Desk):
    for number in range(3):
        desk.write(b"a", b"%d" % number)
        desk.save()
    desk.git("update-ref", "-d", "refs/checkpoints/0000000003")
    desk.write(b"a", b"3")
    assert desk.save().seq == 4
    desk.reopen()
    assert [one.seq for one in desk.list().checkpoints] == [4, 3, 2, 1]
    desk.git("update-ref", "-d", "refs/checkpoints/0000000004")
    desk.write(b"a", b"x")
    assert desk.save().seq == 5


def test_suddenly_empty(desk: Desk):
    desk.write(b"a/b", b"1")
    desk.write(b".git/config", b"[core]")
    first = desk.save()
    desk.remove(b"a")
    with _fails("worktree_empty"):
        desk.save()
    assert desk.head() == first.id
    forced = desk.save(force=True)
    assert forced.created
    assert forced.files == 0
    assert not desk.save().created


def test_a_worktree_that_is_gone_or_no_directory(desk: Desk):
    desk.write(b"a", b"1")
    first = desk.save()
    writer = desk.writer
    os.rename(desk.root, desk.root + b"-away")
    with _fails("worktree_missing"):
        desk.save()
    with open(desk.root, "xb"):
        pass
    with _fails("not_a_directory"):
        desk.save()
    os.unlink(desk.root)
    os.symlink(desk.root + b"-away", desk.root)
    with _fails("not_a_directory"):
        desk.save()
    assert writer is desk.writer
    assert desk.head() == first.id


def test_a_cancelled_save_leaves_nothing(desk: Desk):
    desk.write(b"a", b"1")
    caller = Caller("test")
    caller.cancelled.set()
    with _fails("cancelled"):
        desk.save(caller=caller)
    assert desk.list().checkpoints == []
    assert os.listdir(desk.folder + b"/objects/pack") == []
    assert desk.save().created


class After:
    """Somebody who calls a save off when it has asked ``count`` times whether they do."""

    def __init__(self, count: int) -> None:
        self.left = count

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def call_off(desk: Desk, count: int, **fields) -> list[bytes]:
    """Call a save off; give the files that it had opened by then."""
    caller = Caller("test")
    caller.cancelled = After(count)
    with opened_files() as opened, _fails("cancelled"):
        desk.save(caller=caller, **fields)
    return content_of(opened)


def content_of(opened: list[bytes]) -> list[bytes]:
    return [path for path in opened if os.path.basename(path).startswith(b"f")]


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5, 20, 40, 50])
def test_a_save_that_was_called_off_is_gone_on_with(desk: Desk, count, reopened):
    names = [b"%d/%d/f%d" % (number % 3, number % 7, number) for number in range(30)]
    for name in names:
        desk.write(name, name)
    desk.write(b".gitignore", b"*.o\n")
    desk.write(b"0/x.o", b"ignored")
    desk.settle()
    first = call_off(desk, count)
    assert desk.list().checkpoints == []
    if reopened:
        desk.reopen()
    with opened_files() as opened:
        saved = desk.save()
    second = content_of(opened)
    assert sorted(first + second) == sorted(os.path.basename(name) for name in names)
    assert saved.files == 31
    assert desk.tree_of(saved.id) == git_tree(desk.root, lambda path: path.endswith(b".o"))


def test_a_later_save_that_was_called_off_forgets_nothing_and_believes_nothing(desk: Desk):
    names = [b"%d/f%d" % (number % 5, number) for number in range(20)]
    for name in names:
        desk.write(name, name)
    desk.write(b"4/gone", b"")
    desk.settle()
    desk.save()
    for name in names[:10]:
        desk.write(name, b"changed " + name)
    desk.write(b".gitignore", b"f19\n")
    desk.remove(b"4/gone")
    desk.settle()
    # Each of six directories is held against the model before anything is read.
    first = call_off(desk, 6 + 7)
    assert 0 < len(first) < 10
    with opened_files() as opened:
        saved = desk.save()
    assert sorted(first + content_of(opened)) == sorted(os.path.basename(name) for name in names[:10])
    assert desk.tree_of(saved.id) == git_tree(desk.root, lambda path: path == b"4/f19")


def test_permission_bits_are_recorded_where_they_are_unusual(desk: Desk):
    usual = {b"f": 0o644, b"x": 0o755, b"d/f": 0o644}
    unusual = {b"private": 0o600, b"read": 0o444, b"setuid": 0o4755, b"d/group": 0o664, b"none": 0o000}
    for name, perm in (usual | unusual).items():
        desk.write(name, b"", perm)
    desk.mkdir(b"d", 0o755)
    desk.mkdir(b"secret", 0o700)
    desk.mkdir(b"deep/a/b", 0o1777)
    os.chmod(desk.path(b"deep/a"), 0o755)
    os.chmod(desk.path(b"deep"), 0o755)
    saved = desk.save()
    assert _modes(desk, saved.id) == {**unusual, b"secret": 0o700, b"deep/a/b": 0o1777}
    assert desk.paths_of(saved.id)[b"setuid"][0] == b"100755"
    assert desk.changes() == []


def test_a_change_of_permission_bits_alone_is_a_change(desk: Desk):
    desk.write(b"f", b"", 0o644)
    first = desk.save()
    os.chmod(desk.path(b"f"), 0o600)
    assert desk.changes() == [(b"f", "mode", False)]
    second = desk.save()
    assert second.created
    assert desk.tree_of(first.id) == desk.tree_of(second.id)
    assert _modes(desk, second.id) == {b"f": 0o600}
    os.chmod(desk.path(b"f"), 0o644)
    third = desk.save()
    assert third.created
    assert _modes(desk, third.id) == {}


def test_a_tree_under_another_umask_shares_its_record(desk: Desk):
    for folder in range(20):
        for number in range(5):
            desk.write(b"%d/%d" % (folder, number), b"", 0o664)
        desk.mkdir(b"%d" % folder, 0o775)
    saved = desk.save()
    assert len(_modes(desk, saved.id)) == 120
    desk.write(b"0/0", b"changed", 0o664)
    before = int(desk.git("count-objects", "-v").split(b"in-pack: ")[1].split()[0])
    desk.save()
    after = int(desk.git("count-objects", "-v").split(b"in-pack: ")[1].split()[0])
    # a blob, two trees, two commits; the tree of the info commit and the record of permissions are the same
    assert after - before <= 5


def test_info_is_there_before_the_checkpoint(desk: Desk):
    os.mkfifo(desk.path(b"pipe"))
    saved = desk.save()
    assert saved.excluded == [LeftOut(path="pipe", reason="special")]
    assert saved.complete
    info = desk.git("rev-parse", "refs/ckpt-info/0000000001").decode().strip()
    assert desk.repo.lookup.load(saved.id).facts.info == info
    assert desk.show(saved.id).excluded == saved.excluded


def test_no_info_where_nothing_has_to_be_told(desk: Desk):
    desk.write(b"f", b"", 0o644)
    saved = desk.save()
    assert desk.repo.lookup.load(saved.id).facts.info is None
    assert b"ckpt-info" not in desk.git("for-each-ref")


def test_a_growing_file_that_is_left_out_is_no_change(desk: Desk):
    desk.configure(max_file_bytes=10)
    desk.write(b"log", b"x" * 11)
    first = desk.save()
    desk.write(b"log", b"x" * 12)
    again = desk.save()
    assert (again.id, again.created) == (first.id, False)
    assert again.excluded == [LeftOut(path="log", reason="large", detail="12 bytes")]
    desk.write(b"log2", b"x" * 12)
    assert desk.save().created


def test_link_permissions_are_no_exception(desk: Desk):
    desk.link(b"l", b"t")
    assert stat.S_IMODE(os.lstat(desk.path(b"l")).st_mode) == 0o777
    assert _modes(desk, desk.save().id) == {}


def test_files_below_an_odd_umask_are_what_git_says(desk: Desk):
    desk.write(b"g", b"", 0o654)
    desk.write(b"u", b"", 0o100)
    saved = desk.save()
    assert desk.tree_of(saved.id) == git_tree(desk.root)
    assert desk.paths_of(saved.id)[b"g"][0] == b"100644"
    assert desk.paths_of(saved.id)[b"u"][0] == b"100755"
    assert _info(desk, saved.id).skipped == []
