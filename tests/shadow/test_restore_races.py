"""Somebody else is at work while a restore is: nothing is written through, nothing is lost, and it is said."""

import os
import shutil
import threading

import pytest

from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from support.plainworld import look
from support.restores import Copy, content, left_out, names
from support.worktrees import Desk

pytestmark = pytest.mark.core

FILES = [b"a", b"d/b", b"d/e/c"]


def once(desk, point, act, at=None):
    """Act the first time that the writer passes a point (at a path)."""
    done = []

    def hook(name, path):
        if name == point and (at is None or path == at) and not done:
            done.append(path)
            act()

    desk.configure(hooks=hook)
    return done


def old_and_mine(desk):
    for name in FILES:
        desk.write(name, b"old " + name)
    desk.write(b"gone/x", b"old")
    saved = desk.save().id
    for name in FILES:
        desk.write(name, b"mine " + name)
    desk.remove(b"gone")
    desk.write(b"new/y", b"mine")
    return saved


def leftovers(top):
    return [name for _, folders, files in os.walk(top) for name in folders + files if name.startswith(b".ckpt-")]


def everything(top):
    """Give path and content of all files below a directory, which may be a link."""
    found = {}
    for folder, _, files in os.walk(top):
        for name in files:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, top)] = file.read()
    return found


# -- the worktree's own directory


def move_away(desk):
    os.rename(desk.root, os.path.join(desk.base, b"elsewhere"))


def link_outside(desk):
    move_away(desk)
    os.symlink(b"outside", desk.root)


def replace(desk):
    move_away(desk)
    os.mkdir(desk.root)
    desk.write(b"a", b"another")


def copy(desk):
    move_away(desk)
    shutil.copytree(os.path.join(desk.base, b"elsewhere"), desk.root, ignore=_temporaries)


def _temporaries(_folder, names):
    return [name for name in names if os.fsencode(name).startswith(b".ckpt-")]


MOVES = {"away": move_away, "link": link_outside, "another": replace, "copy": copy}
POINTS = ["opened", "staged", "exchanged", "aside", "created", "before-verify", "verified", "unlinked"]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("move", MOVES)
def test_the_root_is_replaced_while_it_is_written_to(desk, move, point):
    saved = old_and_mine(desk)
    before = Copy(desk)
    outside, elsewhere = os.path.join(desk.base, b"outside"), os.path.join(desk.base, b"elsewhere")
    shutil.copytree(desk.root, outside)
    untouched = look(outside)
    there = []

    def act():
        MOVES[move](desk)
        there.append(everything(desk.root))

    done = once(desk, point, act)
    result = desk.reset(saved)
    assert done
    assert {reason for _, reason in left_out(result.conflicts)} == {"moved"}
    assert look(outside) == untouched
    assert everything(desk.root) == there[0]
    assert leftovers(elsewhere) == []
    # What was not finished by then is as it was, or as it was to be; the rest is in the safety checkpoint.
    left = everything(elsewhere)
    for name in FILES:
        assert left[name] in (b"mine " + name, b"old " + name)
        assert desk.cat(result.safety, name) == b"mine " + name
    # The batch that was under way was taken back.
    if point == "exchanged":
        assert left[done[0]] == b"mine " + done[0]
    if point in ("aside", "opened"):
        assert left[b"new/y"] == b"mine"
    if point == "created":
        assert done[0] not in left
    desk.configure(hooks=lambda _name, _path: None)
    if os.path.islink(desk.root):
        os.unlink(desk.root)
    else:
        shutil.rmtree(desk.root, ignore_errors=True)
    os.rename(elsewhere, desk.root)
    desk.reopen()
    if desk.repo.history.undoable:
        desk.undo()
    else:
        # Where all of it was taken back there is nothing to reverse.
        assert (result.written, result.deleted) == ([], [])
    assert before.differences() == []


@pytest.mark.parametrize("move", MOVES)
def test_the_root_is_replaced_while_the_restore_is_planned(desk, move):
    saved = old_and_mine(desk)
    shutil.copytree(desk.root, os.path.join(desk.base, b"outside"))
    safeties, writer = [], desk.writer
    asked = []

    def progress(phase, _done, _total, _bytes):
        asked.append(phase)
        if phase == "safety":
            MOVES[move](desk)
            safeties.append(everything(desk.root))

    caller = Caller("test", None, progress)
    from ckpt_protocol import checkpoint as wire

    params = wire.RestoreParams(**desk.common(), token=desk.token(), id=saved)
    with pytest.raises(DomainError) as caught:
        writer.restore(params, caller)
    assert (caught.value.kind, asked.count("safety")) == ("worktree_replaced", 1)
    assert everything(desk.root) == safeties[0]
    assert leftovers(desk.base) == []
    assert desk.list(kind="safety").checkpoints == []


# -- what stands at a path


SWAPS = {
    "edit": lambda desk, path: desk.write(path, b"by somebody"),
    "fifo": lambda desk, path: (desk.remove(path), os.mkfifo(desk.path(path))),
    "link": lambda desk, path: (desk.remove(path), desk.link(path, b"../outside/d/b")),
    "directory": lambda desk, path: (desk.remove(path), desk.write(path + b"/in", b"by somebody")),
    "nothing": lambda desk, path: desk.remove(path),
}


@pytest.mark.parametrize("point", ["opened", "staged", "before-exchange", "exchanged", "before-verify"])
@pytest.mark.parametrize("swap", SWAPS)
def test_a_path_becomes_something_else_meanwhile(desk, swap, point):
    saved = old_and_mine(desk)
    outside = os.path.join(desk.base, b"outside")
    shutil.copytree(desk.root, outside)
    untouched = look(outside)
    there = []

    def act():
        SWAPS[swap](desk, b"d/b")
        there.append(everything(desk.path(b"d")))

    once(desk, point, act, at=b"d" if point in ("opened", "before-verify") else b"d/b")
    result = desk.reset(saved)
    desk.configure(hooks=lambda _name, _path: None)
    assert there
    now = {path for path, _ in left_out(result.conflicts)}
    after_the_exchange = point in ("exchanged", "before-verify")
    assert now == (set() if swap == "nothing" or after_the_exchange else {b"d/b"})
    assert look(outside) == untouched
    assert leftovers(desk.root) == []
    for name in (b"a", b"d/e/c"):
        assert content(desk, name) == b"old " + name
    assert desk.cat(result.safety, b"d/b") == b"mine d/b"
    if swap == "edit":
        assert content(desk, b"d/b") == b"by somebody"
    if swap == "directory":
        assert content(desk, b"d/b/in") == b"by somebody"
    if swap == "fifo":
        os.unlink(desk.path(b"d/b"))


def test_the_outcome_tells_where_the_world_moved_and_the_rest_is_as_planned(desk):
    saved = old_and_mine(desk)
    plan = desk.reset(saved, dry_run=True)
    once(desk, "before-exchange", lambda: desk.write(b"d/b", b"by somebody"), at=b"d/b")
    result = desk.reset(saved, digest=plan.digest)
    moved = names([one.path for one in result.conflicts])
    assert moved == [b"d/b"]
    assert sorted([*names(result.written), *moved]) == names(plan.written)
    assert result.deleted == plan.deleted
    desk.undo()
    assert (content(desk, b"a"), content(desk, b"d/b")) == (b"mine a", b"by somebody")


def test_a_directory_becomes_a_link_to_outside_or_leaves_the_worktree(desk):
    saved = old_and_mine(desk)
    outside = os.path.join(desk.base, b"outside")
    shutil.copytree(desk.root, outside)
    untouched = look(outside)

    def act():
        os.rename(desk.path(b"d"), os.path.join(desk.base, b"moved"))
        desk.link(b"d", b"../outside/d")

    once(desk, "staged", act, at=b"d/b")
    result = desk.reset(saved)
    assert {reason for _, reason in left_out(result.conflicts)} == {"moved", "beyond_symlink"}
    assert look(outside) == untouched
    assert everything(os.path.join(desk.base, b"moved")) == {b"b": b"mine d/b", b"e/c": b"mine d/e/c"}
    assert content(desk, b"a") == b"old a"


# -- somebody who keeps writing


def test_who_keeps_writing_loses_nothing_and_is_told_of(desk):
    """Each of many files is rewritten, in place or by rename, until the restore has ended."""
    count = 60
    for number in range(count):
        desk.write(b"f%d" % number, b"old")
    saved = desk.save().id
    for number in range(count):
        desk.write(b"f%d" % number, b"mine %d" % number)
    stop, wrote = threading.Event(), {}

    def work():
        step = 0
        while not stop.is_set():
            step += 1
            number = step % count
            path, text = desk.path(b"f%d" % number), b"written %d" % step
            if step % 2:
                with open(path, "wb") as file:
                    file.write(text)
            else:
                with open(path + b".editor", "wb") as file:
                    file.write(text)
                os.rename(path + b".editor", path)
            wrote[number] = text

    writer = threading.Thread(target=work)
    # It begins when the plan and the safety checkpoint are made.
    once(desk, "opened", writer.start)
    result = desk.reset(saved)
    stop.set()
    writer.join()
    desk.configure(hooks=lambda _name, _path: None)
    conflicts = dict(left_out(result.conflicts))
    assert set(conflicts.values()) <= {"changed"}
    held = {number: desk.cat(result.safety, b"f%d" % number) for number in range(count)}
    for number in range(count):
        assert held[number] == b"mine %d" % number
        assert content(desk, b"f%d" % number) in (b"old", wrote.get(number), held[number])
    assert leftovers(desk.root) == []
    assert [name for name in os.listdir(desk.root) if b"rescued" in name and not everything(desk.root)[name]] == []


# -- others who save and restore


def test_the_save_of_a_worktree_that_contains_this_one_sees_no_temporary(desk):
    saved = old_and_mine(desk)
    os.mkdir(os.path.join(desk.base, b"second"))
    other = Desk(os.path.join(os.fsdecode(desk.base), "second"))
    other.root = desk.base
    other.settings = other.settings._replace(exclude=(b"/cd", b"/second", b"/copy"), home=b"/nowhere")
    seen = []

    def hook(name, _path):
        if name in ("staged", "exchanged", "before-verify"):
            seen.append(other.paths_of(other.save(force=True).id))

    other.open(force=True)
    desk.configure(hooks=hook)
    desk.reset(saved)
    try:
        assert len(seen) > 3
        for paths in seen:
            assert not [path for path in paths if b".ckpt-" in path]
            assert {b"ws/a", b"ws/d/b", b"ws/d/e/c"} <= paths.keys()
    finally:
        other.close()
    assert content(desk, b"a") == b"old a"


def test_a_second_restore_finds_what_the_first_one_left(desk):
    """They come one after the other: the second plans on what the first has made, and each can be undone."""
    saved = old_and_mine(desk)
    before = Copy(desk)
    desk.save()
    first, second = desk.reset(saved), desk.reset("HEAD~0")
    assert (second.written, second.deleted, second.safety) == ([], [], None)
    desk.write(b"a", b"third")
    desk.rollback(first.safety, b"a", b"d")
    desk.undo()
    desk.undo()
    assert sorted(before.differences()) == []
