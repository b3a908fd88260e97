"""The real version 0.3.6 on the same checkpoint directory; ``CKPT_TEST_PEER`` names a Python that has it installed.

It needs Python 3.12 or newer; what is checked without it is in test_legacy.py, with folders of our own making.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.legacy_store import shape_of
from support.live import Place

pytestmark = pytest.mark.e2e

PEER = os.environ.get("CKPT_TEST_PEER", "")

_CALL = """
import json, sys
from fabricatio_checkpoint.rust import CheckpointService
root, workspace, verb, *words = sys.argv[1:]
store = CheckpointService(root, 10).get_store(workspace)
print(json.dumps(getattr(store, verb)(*words)))
"""


class Peer:
    """Calls methods of 0.3.6's store, each in a process of its own."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._environ = {name: value for name, value in place.environ.items() if name != "PYTHONPATH"}

    def __call__(self, verb: str, *words: str, workspace: Path | None = None) -> Any:
        target = workspace or self._place.ws
        done = subprocess.run(
            [PEER, "-c", _CALL, str(self._place.checkpoint_dir), str(target), verb, *words],
            cwd=target, env=self._environ, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=90,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def peer(place: Place) -> Peer:
    """Version 0.3.6."""
    if not PEER:
        pytest.skip("CKPT_TEST_PEER names no Python with version 0.3.6")
    probe = [PEER, "-c", "from importlib.metadata import version; print(version('fabricatio-checkpoint'))"]
    told = subprocess.run(probe, capture_output=True, check=False, timeout=60, cwd="/")
    if told.stdout.strip() != b"0.3.6":
        pytest.skip(f"{PEER} has not version 0.3.6: {told.stdout!r}")
    return Peer(place)


def fill(place: Place, text: str) -> None:
    """Make the worktree hold a bit of everything, with one text in it."""
    (place.ws / "src").mkdir(exist_ok=True)
    (place.ws / "src" / "main.py").write_text(text)
    (place.ws / ".gitignore").write_text("*.log\n")
    (place.ws / "x.log").write_text("ignored\n")
    run = place.ws / "run.sh"
    run.write_text("#!/bin/sh\n")
    run.chmod(0o755)
    if not (place.ws / "link").is_symlink():
        (place.ws / "link").symlink_to("run.sh")


def old_folder(place: Place) -> Path:
    (found,) = [path for path in place.checkpoint_dir.iterdir() if path.is_dir() and not (path / "ckpt").exists()]
    return found


def test_its_checkpoints_are_listed_compared_and_restored_by_its_ids(place: Place, peer: Peer):
    fill(place, "one\n")
    first = peer("save", "first")
    fill(place, "two\n")
    (place.ws / "new.txt").write_text("new\n")
    second = peer("save", "second")
    peer("reset", first)
    fill(place, "three\n")
    third = peer("save", "third")
    folder = old_folder(place)
    shape = shape_of(os.fsencode(folder))

    assert "3 checkpoints of 0.3.6" in place.ckpt("ls").stderr
    (place.ws / "later.txt").write_text("later\n")
    ours = place.save("ours")
    rows = place.json("ls")["checkpoints"]
    told = [(one["id"], one["message"], one["legacy"]) for one in rows]
    assert told == [
        (ours, "ours", False), (third, "third", True), (second, "second", True), (first, "first", True),
    ]  # fmt: skip
    assert "+two\n" in place.done("diff", first, second).out
    assert place.done("cat", second[:10], "src/main.py").out == "two\n"
    assert "new.txt" in place.done("show", second).out

    place.done("rollback", second[:10], "new.txt")
    assert (place.ws / "new.txt").read_text() == "new\n"
    done = place.json("reset", first)
    assert sorted(done["deleted"]) == ["later.txt", "new.txt"]
    assert done["kept"] == ["x.log"]
    assert (place.ws / "src" / "main.py").read_text() == "one\n"
    assert (place.ws / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (place.ws / "link").is_symlink()
    assert place.json("status")["changes"] == []
    place.done("undo")
    assert (place.ws / "src" / "main.py").read_text() == "three\n"
    assert (place.ws / "later.txt").read_text() == "later\n"

    for words in (["ls"], ["status"], ["workspaces"], ["prune"], ["save", "again"]):
        place.done(*words)
    assert folder.name not in place.ckpt("doctor", "--fix").out
    assert shape_of(os.fsencode(folder)) == shape


def test_it_still_works_on_its_folder_and_its_new_checkpoints_are_seen(place: Place, peer: Peer):
    fill(place, "one\n")
    first = peer("save", "first")
    place.save("ours")
    place.done("reset", first)
    assert peer("head") == first
    fill(place, "two\n")
    second = peer("save", "made by the old version")
    assert [one["id"] for one in place.json("ls")["checkpoints"] if one["legacy"]] == [second, first]
    fill(place, "three\n")
    place.done("reset", second)
    assert (place.ws / "src" / "main.py").read_text() == "two\n"


def test_a_worktree_that_it_knew_by_another_name_is_recognised(place: Place, peer: Peer):
    alias = place.home / 'al"ias; # x'
    alias.symlink_to(place.ws)
    fill(place, "one\n")
    first = peer("save", "first", workspace=alias)
    fill(place, "two\n")
    second = peer("save", "second")
    place.save("ours")
    assert {one["id"] for one in place.json("ls")["checkpoints"] if one["legacy"]} == {first, second}
    place.done("reset", first)
    assert (place.ws / "src" / "main.py").read_text() == "one\n"


def test_a_worktree_that_nothing_was_saved_of_has_no_old_checkpoints(place: Place, peer: Peer):
    assert len(peer("head")) == 40
    assert "0.3.6" not in place.ckpt("ls").stderr
