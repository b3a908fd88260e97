"""What a restore that was killed leaves behind, and that clearing it up loses nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckptd.errors import DomainError
from ckptd.shadow.restore.stage import is_unfinished, temporary_name
from ckptd.shadow.restore.tidy import tidy
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import LINK
from support.restoring import Contents, file, leftovers

pytestmark = pytest.mark.core

OLD, NEW, MINE = b"old content", b"new content", b"mine, in no checkpoint"

# Each point of the restore in a child of its own, which ends there as if it had been killed.
KILLED = """
import os, sys
from ckptd.shadow.trees.step import State, Step
from support.restoring import Contents, file, restore

OLD, NEW, MINE = b"old content", b"new content", b"mine, in no checkpoint"
STEPS = [Step(b"d/f", file(OLD), file(NEW)), Step(b"d/g", file(OLD), None), Step(b"d/n", None, file(NEW)),
         Step(b"d/s", file(OLD), State(0o120000, file(NEW).oid))]

class Dying(Contents):
    def chunks(self, oid):
        for number, chunk in enumerate(super().chunks(oid)):
            yield chunk
            if dying == "half-written":
                os._exit(9)

for dying in sys.argv[1:]:
    root = os.path.join(os.getcwd(), dying)
    os.makedirs(os.path.join(root, "d"))
    for name in "fgs":
        with open(os.path.join(root, "d", name), "wb") as opened:
            opened.write(OLD)

    def at(name, path):
        place = os.path.join(root, os.fsdecode(path))
        if dying.startswith("changed ") and name in ("before-exchange", "before-aside"):
            with open(place, "wb") as opened:
                opened.write(MINE)
        if name == dying.removeprefix("changed "):
            os._exit(9)

    child = os.fork()
    if child == 0:
        restore(root, STEPS, Dying(NEW), hooks=at)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9, dying
"""

POINTS = [
    *["half-written", "staged", "before-create", "created", "before-exchange", "exchanged", "before-aside", "aside"],
    *["before-verify", "verified", "before-unlink", "unlinked", "changed exchanged", "changed aside"],
]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("killed")
    program = f"import sys; sys.path[:0] = {json.dumps(sys.path)}\n{KILLED}"
    subprocess.run([sys.executable, "-c", program, *POINTS], cwd=place, check=True)
    return place


def cleared(root: Path, contents: Contents, directories: tuple[bytes, ...] = (b"", b"d")) -> list[bytes]:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return tidy(fd, os.fstat(fd).st_dev, directories, lambda state: state.oid in contents.by_id)
    finally:
        os.close(fd)


@pytest.mark.parametrize("point", POINTS)
def test_after_a_kill(killed: Path, point: str):
    folder = killed / point / "d"
    kept = cleared(killed / point, Contents(OLD, NEW))
    assert leftovers(str(folder)) == []
    found = {
        path.name: os.readlink(path).encode() if path.is_symlink() else path.read_bytes() for path in folder.iterdir()
    }
    if point.startswith("changed"):
        # What nobody had compared yet is in no checkpoint.
        assert len(kept) == 1
        assert found[os.path.basename(os.fsdecode(kept[0]))] == MINE
    else:
        assert kept == []
        assert set(found) <= {"f", "g", "n", "s"}
    assert found["f"] in (OLD, NEW)
    assert found["s"] in (OLD, NEW)
    assert found.get("g", OLD) in ((OLD, MINE) if point.startswith("changed") else (OLD,))
    assert found.get("n", NEW) == NEW
    assert cleared(killed / point, Contents()) == []


def test_what_may_stand_under_a_temporary_name(tmp_path: Path):
    outside = tmp_path / "outside"
    root = tmp_path / "root"
    root.mkdir()
    outside.mkdir()
    (outside / "sentinel").write_bytes(MINE)
    half, done, mine, link, folder, pipe = (temporary_name(first) for first in (b"0", b"f", b"f", b"f", b"0", b"0"))
    (root / os.fsdecode(half)).write_bytes(b"ne")
    (root / os.fsdecode(done)).write_bytes(NEW)
    (root / os.fsdecode(mine)).write_bytes(MINE)
    (root / os.fsdecode(link)).symlink_to("../outside/sentinel")
    (root / os.fsdecode(folder)).mkdir()
    (root / os.fsdecode(folder) / "x").write_bytes(MINE)
    os.mkfifo(root / os.fsdecode(pipe))
    (root / ".ckpt-mine.tmp").write_bytes(MINE)
    kept = cleared(root, Contents(NEW), (b"", b"", b"absent"))
    assert sorted(os.listdir(root)) == sorted([".ckpt-mine.tmp", *map(os.fsdecode, kept)])
    assert len(kept) == 4
    assert all(name.startswith(b"ckpt-rescued-") for name in kept)
    assert (outside / "sentinel").read_bytes() == MINE


def test_links_are_not_followed(tmp_path: Path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    name = os.fsdecode(temporary_name(b"0"))
    (outside / name).write_bytes(b"not ours")
    (root / "d").symlink_to(outside)
    assert cleared(root, Contents()) == []
    assert os.listdir(outside) == [name]


def test_a_store_that_cannot_answer_keeps_everything(tmp_path: Path):
    name = os.fsdecode(temporary_name())
    (tmp_path / name).write_bytes(OLD)

    def holds(_state: State) -> bool:
        raise DomainError("store_damaged", "")

    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(DomainError):
            tidy(fd, os.fstat(fd).st_dev, [b""], holds)
    finally:
        os.close(fd)
    assert (tmp_path / name).read_bytes() == OLD


def test_names_tell_what_they_stand_for():
    assert is_unfinished(temporary_name(b"0"))
    assert not is_unfinished(temporary_name())
    assert not is_unfinished(b".ckpt-0.tmp")
    assert len({temporary_name() for _ in range(100)}) == 100
    assert file(b"x") != State(LINK, file(b"x").oid)
