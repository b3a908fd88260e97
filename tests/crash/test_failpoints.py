"""The table of named steps is whole: each is somewhere in the source, each is reached, and no other way leads to it."""

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

import ckptd
from ckptd.shadow.objects import failpoint
from ckptd.shadow.objects.failpoint import FAILPOINTS, listen, reach_in_worktree
from ckptd.shadow.objects.pieces import drained
from ckptd.shadow.record.logtrim import Bounds
from ckptd.shadow.restore.exchange import Renamer
from ckptd.shadow.trees.step import Step
from support.killplan import DUE_STEPS, OPEN_STEPS, PLAN
from support.merged import merge_packs
from support.restoring import Contents, file, restore
from support.worktrees import Desk

pytestmark = pytest.mark.core

SOURCES = list(Path(ckptd.__file__).parent.rglob("*.py"))

BY_OTHERS = {"store-aside", "worktree-before-rename", "worktree-before-undo"}
"""Steps that are not in the plan of the kills: of a prune, of file systems without exchange, of directories that go."""


def in_source() -> list[str]:
    text = "".join(path.read_text() for path in SOURCES if path.name != "failpoint.py")
    return re.findall(r'\breach\("([a-z-]+)"', text) + [
        f"worktree-{one}" for one in re.findall(r'_hook\("(.*?)"', text)
    ]


def no_flags(_dir_fd: int, _source: bytes, _target: bytes, _flag: int) -> None:
    raise OSError(38, "Function not implemented")


def everything(desk: Desk) -> None:
    """Do whatever reaches all steps."""
    for name in (b"d/changed", b"d/deleted", b"d/bits", b"gone/f"):
        desk.write(name, b"one", 0o600)
    first = desk.save("first", tag="t").id
    desk.write(b"d/changed", b"two")
    desk.write(b"d/new", b"two")
    desk.write(b"d/bits", b"one", 0o640)
    desk.write(b"folder/f")
    shutil.rmtree(desk.path(b"gone"))
    desk.remove(b"d/deleted")
    desk.save("second")
    desk.reset(first)
    desk.configure(log_bounds=Bounds(1, 1, 1, 1))
    desk.save("third")
    merge_packs(desk.repo.objects.pack_dir)
    assert drained(desk.repo.refs.pack(1))
    desk.reopen()
    moved(desk, first)
    desk.close()
    desk.catalog().delete(desk.checkpoint_dir, desk.folder)


def moved(desk: Desk, first: str) -> None:
    """Restore into a directory that moves away before the changes in it are final."""
    desk.write(b"d/changed", b"three")

    def move(name: str, _path: bytes) -> None:
        if name == "worktree-before-verify":
            os.rename(desk.path(b"d"), desk.path(b"elsewhere"))

    end = listen(move)
    desk.reset(first)
    end()


def without_exchange(desk: Desk) -> None:
    """Restore on a file system that can't exchange."""
    top = os.path.join(desk.base, b"plain")
    os.mkdir(top)
    with open(os.path.join(top, b"f"), "wb") as out:
        out.write(b"old")
    steps = [Step(b"f", file(b"old"), file(b"new"))]
    outcome = restore(
        os.fsdecode(top), steps, Contents(b"old", b"new"), hooks=reach_in_worktree, renamer=Renamer(no_flags)
    )
    assert outcome.weak


def test_the_table_is_what_the_source_has():
    assert Counter(set(in_source())) == Counter(FAILPOINTS.keys())


def test_every_step_is_reached(desk: Desk):
    reached: Counter[str] = Counter()
    end = listen(lambda name, _path: reached.update([name]))
    try:
        everything(desk)
        without_exchange(desk)
    finally:
        end()
    assert FAILPOINTS.keys() - reached.keys() == set()
    assert reached.keys() - FAILPOINTS.keys() == set()


def test_the_kills_cover_every_step():
    killed_at = {step for _, step, _ in PLAN} | set(OPEN_STEPS) | set(DUE_STEPS) | BY_OTHERS
    assert killed_at == FAILPOINTS.keys()


def test_nobody_in_the_product_listens():
    assert failpoint._listeners == []
    users = [path.name for path in SOURCES if re.search(r"failpoint import .*\blisten\b", path.read_text())]
    assert users == []
