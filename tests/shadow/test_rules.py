"""Ignore rules in saves: which files have a say, what is recorded of them, and what is said when they change."""

import os

import pytest

from ckptd.shadow.record.checkpoint import load_info
from ckptd.shadow.record.info import OutsideRules
from support.worktrees import Desk, run_git, somebody

pytestmark = pytest.mark.core


def _rules(desk: Desk, id: str) -> OutsideRules:
    info = load_info(desk.repo.objects, desk.repo.lookup.load(id))
    assert info is not None
    return info.rules


def _names(desk: Desk, id: str) -> set[bytes]:
    return {path for path, (mode, _) in desk.paths_of(id).items() if mode != b"040000"}


def test_every_source_of_rules(desk: Desk):
    excludes = os.path.join(desk.home, b"excludes")
    with open(excludes, "wb") as file:
        file.write(b"*.global\n")
    desk.configure(git_excludes_path=excludes, exclude=(b"*.option",))
    run_git("init", "-q", ".", cwd=desk.root)
    desk.write(b".git/info/exclude", b"*.info\n")
    desk.write(b".gitignore", b"*.git\n")
    desk.write(b".ckptignore", b"*.ckpt\n!back.git\n")
    desk.write(b"d/.gitignore", b"*.sub\n!x.git\n")
    for name in ("global", "option", "info", "git", "ckpt", "sub", "ok"):
        desk.write(b"d/a." + name.encode(), b"1")
    desk.write(b"d/x.git", b"1")
    desk.write(b"back.git", b"1")
    desk.write(b"a.sub", b"1")
    saved = desk.save()
    kept = {b"d/a.ok", b"d/x.git", b"back.git", b"a.sub"}
    assert _names(desk, saved.id) == {b".gitignore", b".ckptignore", b"d/.gitignore", *kept}
    rules = _rules(desk, saved.id)
    assert rules == OutsideRules(
        options=[b"*.option"], global_excludes=b"*.global\n", git_excludes=[(b"", b"*.info\n")]
    )


def test_an_ignore_file_that_ignores_itself_is_recorded(desk: Desk):
    desk.write(b"venv/.gitignore", b"*\n")
    desk.write(b"venv/lib/x", b"1")
    desk.write(b"other/.ckptignore", b"*\n")
    desk.write(b"other/x", b"1")
    desk.write(b"f", b"1")
    saved = desk.save()
    assert _names(desk, saved.id) == {b"f"}
    rules = _rules(desk, saved.id)
    assert rules.gitignores == [(b"venv", b"*\n")]
    assert rules.ckptignores == [(b"other", b"*\n")]
    assert not desk.save().created
    desk.reopen()
    assert not desk.save().created
    # another rule of that kind is another checkpoint, though the tree is the same
    desk.write(b"venv/.gitignore", b"*\n#\n")
    second = desk.save()
    assert second.created
    assert desk.tree_of(second.id) == desk.tree_of(saved.id)


def test_what_a_new_rule_drops_stays_on_disk(desk: Desk):
    for name in (b"a", b"b", b"c"):
        desk.write(name, b"1")
    desk.save()
    desk.write(b".gitignore", b"a\n")
    saved = desk.save()
    assert saved.notes == []
    assert _names(desk, saved.id) == {b".gitignore", b"b", b"c"}
    assert os.path.exists(desk.path(b"a"))
    os.unlink(desk.path(b".gitignore"))
    assert _names(desk, desk.save().id) == {b"a", b"b", b"c"}


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("others", [0, 50])
def test_rules_that_drop_most_of_it_are_spoken_of(desk: Desk, reopened: bool, others: int):
    """However many new files there are beside."""
    for number in range(8):
        desk.write(b"src/%d" % number, b"1")
    desk.write(b"a", b"1")
    desk.settle()
    desk.save()
    if reopened:
        desk.reopen()
    desk.write(b".gitignore", b"src/\n")
    for number in range(others):
        desk.write(b"new/%d" % number, b"1")
    [note] = desk.save().notes
    assert "8 of 9 files" in note
    assert "src/" in note
    assert os.path.exists(desk.path(b"src/0"))


def test_rules_that_drop_everything_are_spoken_of_and_not_taken_for_a_wreck(desk: Desk):
    desk.write(b"a", b"1")
    desk.save()
    desk.write(b".gitignore", b"*\n")
    saved = desk.save()
    assert saved.files == 0
    assert "1 of 1 files" in saved.notes[0]


def test_deleted_files_are_not_dropped_by_rules(desk: Desk):
    for number in range(8):
        desk.write(b"src/%d" % number, b"1")
    desk.write(b".gitignore", b"*.x\n")
    desk.save()
    desk.remove(b"src")
    assert desk.save().notes == []


def test_the_global_excludes_are_read_again(desk: Desk):
    excludes = os.path.join(desk.home, b"excludes")
    desk.configure(git_excludes_path=excludes)
    desk.write(b"a.x", b"1")
    desk.write(b"b", b"1")
    assert _names(desk, desk.save().id) == {b"a.x", b"b"}
    with open(excludes, "wb") as file:
        file.write(b"*.x\n")
    assert _names(desk, desk.save().id) == {b"b"}
    os.unlink(excludes)
    assert _names(desk, desk.save().id) == {b"a.x", b"b"}


@pytest.mark.timeout(20)
def test_global_excludes_that_are_no_file_hold_up_nobody(desk: Desk):
    fifo = os.path.join(desk.home, b"fifo")
    os.mkfifo(fifo)
    desk.write(b"a", b"1")
    for path in (fifo, desk.home, b"/dev/zero", os.path.join(desk.home, b"none")):
        desk.configure(git_excludes_path=path)
        assert _names(desk, desk.save().id) == {b"a"}


def test_rules_that_cannot_be_read_are_reported(desk: Desk):
    run_git("init", "-q", ".", cwd=desk.root)
    desk.write(b".gitignore", b"*.x\n", 0o000)
    desk.write(b"d/.ckptignore", b"*.x\n", 0o000)
    desk.write(b".git/info/exclude", b"*.x\n", 0o000)
    desk.write(b"d/a.x", b"1")
    with somebody():
        saved = desk.save()
        assert not saved.complete
        assert [item.path for item in saved.skipped] == [".gitignore", "d/.ckptignore"]
        assert any("info/exclude" in note for note in saved.notes)
        assert _names(desk, saved.id) == {b"d/a.x"}
        desk.close()
    for name in (b".gitignore", b"d/.ckptignore", b".git/info/exclude"):
        os.chmod(desk.path(name), 0o644)
    with somebody():
        saved = desk.save(force=True)
        assert saved.complete
        assert _names(desk, saved.id) == {b".gitignore", b"d/.ckptignore"}


def test_a_rule_change_in_the_same_instant_is_seen(desk: Desk):
    """Ignore files are subject to the same doubt about their stat data as any other file."""
    desk.write(b"a", b"1")
    desk.write(b"b", b"1")
    for number in range(20):
        desk.write(b".gitignore", b"ab"[number % 2 : number % 2 + 1] + b"\n")
        kept = _names(desk, desk.save().id)
        assert kept == {b".gitignore", b"ba"[number % 2 : number % 2 + 1]}


def test_links_hold_no_rules(desk: Desk):
    desk.write(b"rules", b"a\n")
    desk.link(b".gitignore", b"rules")
    desk.link(b"d/.ckptignore", b"../rules")
    desk.write(b"a", b"1")
    desk.write(b"d/a", b"1")
    assert _names(desk, desk.save().id) == {b"rules", b".gitignore", b"a", b"d/.ckptignore", b"d/a"}
