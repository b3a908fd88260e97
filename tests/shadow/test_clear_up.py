"""A restore that was cut off in the middle leaves no temporaries, and nothing that only a temporary held is lost."""

import os

import pytest

from support.worktrees import in_child

pytestmark = pytest.mark.core


def die_at(desk, point, act=lambda: None, before="never"):
    """Reset in a child that dies at a named point of the writer, and acts at an earlier one."""

    def hook(name, _path):
        if name == before:
            act()
        if name == point:
            os._exit(9)

    desk.configure(hooks=hook)
    assert os.waitstatus_to_exitcode(in_child(desk.reset)) == 9
    desk.configure(hooks=lambda _name, _path: None)


def content(desk, name):
    with open(desk.path(name), "rb") as file:
        return file.read()


def temporaries(desk):
    return [name for name in os.listdir(desk.path(b"")) if name.startswith(b".ckpt-")]


@pytest.mark.parametrize("point", ["staged", "exchanged", "aside", "before-unlink"])
def test_temporaries_go_when_the_store_is_opened_again(desk, point):
    for name in (b"a", b"b"):
        desk.write(name, b"old " + name)
    desk.save("first")
    desk.write(b"a", b"new a")
    desk.write(b"extra", b"new")
    die_at(desk, point)
    desk.open(create=False)
    safety = desk.status().interrupted
    assert safety is not None
    assert temporaries(desk) == []
    desk.undo()
    assert {name: content(desk, name) for name in (b"a", b"b", b"extra")} == {
        b"a": b"new a",
        b"b": b"old b",
        b"extra": b"new",
    }
    assert desk.status().interrupted is None


def test_what_nobody_has_compared_yet_is_kept_under_a_visible_name(desk):
    desk.write(b"a", b"old")
    desk.save("first")
    desk.write(b"a", b"new")

    def somebody_else_writes():
        with open(desk.path(b"a"), "wb") as file:
            file.write(b"in the last moment")

    # Written between the plan and the exchange: after the exchange only the temporary holds it.
    die_at(desk, "exchanged", somebody_else_writes, before="before-exchange")
    desk.open(create=False)
    assert temporaries(desk) == []
    contents = {content(desk, name) for name in os.listdir(desk.path(b""))}
    assert b"in the last moment" in contents


def test_a_worktree_that_is_gone_does_not_keep_the_store_from_opening(desk):
    desk.write(b"a", b"old")
    desk.save("first")
    desk.write(b"a", b"new")
    die_at(desk, "exchanged")
    os.rename(desk.path(b""), desk.path(b"").rstrip(b"/") + b"-moved")
    desk.open(create=False)
    assert len(desk.list().checkpoints) == 2
