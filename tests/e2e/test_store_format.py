"""A store of format 1 opens for ever; one of a format that is not known is refused, and not touched."""

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest

from support.live import Place, snapshot

pytestmark = pytest.mark.e2e

ARCHIVE = Path(__file__).parent / "data" / "store-v1.tar.gz"


@pytest.fixture
def old(place: Place) -> Path:
    """The checked-in store and its worktree, in the home of this test; gives the store's folder."""
    place.ws.rmdir()
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(place.home, filter="tar")
    (store,) = place.stores()
    # As it would be where it was made: a moved worktree is another matter.
    _say(store, worktree=str(place.ws), ino=str(place.ws.stat().st_ino), parent_dev=str(place.home.stat().st_dev))
    _say(store, parent_fsid=str(os.statvfs(place.home).f_fsid))
    return store


def _say(store: Path, **changes: object) -> None:
    path = store / "ckpt" / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes) + "\n")


def test_a_store_of_the_first_format_can_be_read(place: Place, old: Path):
    (entry,) = place.json("workspaces")["workspaces"]
    assert (entry["path"], entry["store"], entry["checkpoints"]) == (str(place.ws), str(old), 3)
    records = place.json("ls")["checkpoints"]
    assert [(record["seq"], record["kind"]) for record in records] == [(3, "safety"), (2, "manual"), (1, "manual")]
    assert [record["message"] for record in records[1:]] == ["two\n\nwith a body", "one"]
    assert (records[2]["tags"], records[2]["meta"], records[2]["complete"]) == (["start"], {"who": "test"}, True)
    shown = place.json("show", "#2")
    assert [(change["path"], change["change"]) for change in shown["changes"]] == [
        ("new", "added"),
        ("text", "modified"),
    ]
    assert place.done("cat", "start", "text").out == "one\n"
    assert place.done("cat", "start", "link").out == "text"
    patch = place.done("diff", "start", "#2", "--", "text").out
    assert "-one\n+two\n" in patch
    changes = place.json("status")["changes"]
    assert [(change["path"], change["change"]) for change in changes] == [("text", "modified")]
    place.verify()


def test_a_worktree_can_be_brought_back_from_a_store_of_the_first_format(place: Place, old: Path):
    odd = os.fsencode(place.ws) + b"/odd \xff"
    os.unlink(odd)
    (place.ws / "private").chmod(0o644)
    (place.ws / "dir" / "empty").rmdir()
    place.done("reset", "start")
    assert (place.ws / "text").read_text() == "one\n"
    assert not (place.ws / "new").exists()
    assert Path(os.fsdecode(odd)).read_bytes() == b"\0\xff"
    assert (place.ws / "private").stat().st_mode & 0o777 == 0o600
    assert (place.ws / "dir" / "tool").stat().st_mode & 0o777 == 0o755
    assert (place.ws / "dir" / "empty").is_dir()
    assert os.readlink(place.ws / "link") == "text"
    assert (place.ws / "x.log").read_text() == "ignored\n"
    place.done("undo")
    assert (place.ws / "text").read_text() == "three\n"
    # The undo of the restore that the old version made.
    place.done("undo")
    assert not (place.ws / "text").exists()
    assert place.json("save", "three")["seq"] > 3
    place.verify()


def test_a_format_that_is_not_known_is_refused_and_left_untouched(place: Place, old: Path):
    # Under its usual name: a store of a worktree that was never moved.
    old = old.rename(old.with_name(f"ws_{hashlib.sha256(os.fsencode(place.ws)).hexdigest()[:16]}"))
    _say(old, format=2, of_the_future=["x"])
    before = snapshot(old)
    for words in (("save",), ("ls",), ("status",), ("show", "#1"), ("reset",), ("undo",), ("forget", "--yes")):
        told = place.ckpt(*words)
        assert (told.code, told.stderr.count("\n")) == (50, 1), words
        assert "has format 2; this version knows format 1" in told.stderr
        assert place.json(*words, code=50)["error"]["kind"] == "store_format"
    assert place.json("workspaces")["damaged"] == [str(old)]
    assert place.json("prune")["pruned"] == []
    told = place.ckpt("doctor", "--fix")
    assert told.code == 3
    assert "has format 2" in told.out
    assert snapshot(old) == before
    # A second store beside it would hide the first.
    assert place.stores() == [old]
    _say(old, format=1)
    assert len(place.json("ls")["checkpoints"]) == 3
