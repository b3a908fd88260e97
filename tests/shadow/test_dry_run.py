"""A dry run of every verb that writes: exactly what is then done, and not a byte of it anywhere before."""

import os

import pytest

from support.restores import untouched
from support.worktrees import in_child

pytestmark = pytest.mark.core

FILES = [b"a", b"d/b", b"d/e/c"]


def everywhere(desk, text):
    for name in FILES:
        desk.write(name, text)


def prepare(desk):
    """Two checkpoints, and things that no checkpoint holds; give the first."""
    desk.write(b".gitignore", b"*.log\n")
    desk.write(b"was/there", b"old")
    everywhere(desk, b"old")
    first = desk.save().id
    everywhere(desk, b"mine")
    desk.remove(b"was")
    desk.write(b"was", b"a file now")
    desk.write(b"d/x.log", b"ignored")
    desk.write(b"new/y", b"new")
    desk.link(b"l", b"a")
    return first


def cut_off(desk):
    first = prepare(desk)
    passed = []

    def hook(name, _path):
        passed.append(name)
        if passed.count("unlinked") == 3:
            os._exit(9)

    desk.configure(hooks=hook)
    assert os.waitstatus_to_exitcode(in_child(lambda: desk.reset(first))) == 9
    desk.configure(hooks=lambda _name, _path: None)
    desk.open(create=False)


def after(*steps):
    """Give what is asked for after some steps of undo and redo."""

    def ask(desk):
        desk.reset(prepare(desk))
        desk.write(b"a", b"edited since")
        for step in steps[:-1]:
            getattr(desk, step)()
        return getattr(desk, steps[-1])

    return ask


def reset(desk):
    first = prepare(desk)
    return lambda **fields: desk.reset(first, **fields)


def rollback(desk):
    first = prepare(desk)
    return lambda **fields: desk.rollback(first, b"d", b"l", b"was", delete=True, **fields)


def resume(action):
    def ask(desk):
        cut_off(desk)
        desk.write(b"d/b", b"edited since")
        return lambda **fields: desk.resume(action, **fields)

    return ask


VERBS = {
    "reset": reset,
    "rollback": rollback,
    "undo": after("undo"),
    "redo": after("undo", "redo"),
    "undo of a redo": after("undo", "redo", "undo"),
    "finish": resume("finish"),
    "undo of what was cut off": resume("undo"),
}


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_the_plan_is_what_is_done_and_writes_nothing_anywhere(desk, verb, settled):
    ask = VERBS[verb](desk)
    if settled:
        desk.settle()
    with untouched(desk):
        plan = ask(dry_run=True)
        assert ask(dry_run=True) == plan
    assert (plan.dry_run, plan.safety) == (True, None)
    done = ask(digest=plan.digest)
    told = [(one.kept, one.conflicts, one.edited, one.head, one.digest) for one in (plan, done)]
    assert told[0] == told[1]
    # What was cut off is told of as a whole once it is finished.
    assert {*map(str, plan.written)} <= {*map(str, done.written)}
    assert {*map(str, plan.deleted)} <= {*map(str, done.deleted)}
    if verb != "finish":
        assert (plan.written, plan.deleted) == (done.written, done.deleted)
    assert plan.written
