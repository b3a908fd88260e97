"""``ckpt verify`` and its kin, against a daemon that answers what it is told."""

import os

import pytest

from ckpt_protocol.address import socket_path
from support.cli_answers import B64, ID, head
from support.cli_daemon import CardboardDaemon
from support.cli_run import in_process


@pytest.fixture
def daemon(short_dir, monkeypatch):
    """Answers at the usual socket of a private runtime directory; the current directory is tracked."""
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        (short_dir / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(short_dir / name))
    (short_dir / "tree").mkdir()
    monkeypatch.chdir(short_dir / "tree")
    with CardboardDaemon(socket_path(os.environ), {"checkpoint.head": head()}) as cardboard:
        yield cardboard


@pytest.fixture
def ckpt(daemon, capsysbinary):
    return lambda *argv: in_process(capsysbinary, *argv)


CLEAN = {
    "clean": True,
    "read_data": False,
    "checkpoints": 3,
    "objects": 12,
    "packs": 1,
    "bytes": 0,
    "affected": [],
    "damaged": [],
    "damaged_count": 0,
    "listed_most": 20,
    "files": [],
    "notes": ["ckpt/model: damaged"],
}
LOST = {
    **CLEAN,
    "clean": False,
    "read_data": True,
    "bytes": 2048,
    "affected": [
        {"id": ID, "seq": 3, "readable": True, "paths": 1},
        {"id": None, "seq": 2, "readable": False, "paths": 0},
    ],
    "damaged": [
        {"id": "ab" * 20, "kind": "blob", "missing": True, "seqs": [3], "seq_count": 1, "paths": [B64], "path_count": 1}
    ],
    "damaged_count": 1,
    "files": [{"path": "objects/pack/pack-1.pack", "problem": "it is cut"}],
}


def test_a_clean_store(daemon, ckpt):
    daemon.answers["store.verify"] = CLEAN
    done = ckpt("verify")
    assert (done.code, done.out) == (0, "clean: 3 checkpoints, 12 objects\n")
    assert done.stderr == "ckpt: ckpt/model: damaged\n"
    assert daemon.calls("store.verify")[0]["read_data"] is False


@pytest.mark.parametrize("json", [False, True])
def test_a_damaged_store(daemon, ckpt, json):
    daemon.answers["store.verify"] = LOST
    done = ckpt("verify", "--read-data", *(["--json"] if json else []))
    assert done.code == 50
    assert daemon.calls("store.verify")[0]["read_data"] is True
    if json:
        assert done.document == LOST
        return
    lines = done.out.splitlines()
    assert lines[0] == "damaged: 3 checkpoints, 12 objects, 2.0 KiB read"
    assert "  objects/pack/pack-1.pack: it is cut" in lines
    assert "  checkpoint #3 1a2b3c4d5e: 1 path lost" in lines
    assert "  checkpoint #2: cannot be read at all" in lines
    assert "  blob ababababab is missing, needed by #3" in lines
    assert '    "caf\\351"' in lines


DROPPED = {
    "dropped": [{"id": ID, "seq": 7, "kind": "manual", "tags": ["good"]}],
    "head": None,
    "files": 2,
    "held": [{"id": "ab" * 20, "seq": 8, "files": 1}],
    "all_searched": True,
    "dry_run": False,
    "notes": ["gc frees it"],
}


def test_drop(daemon, ckpt):
    daemon.answers["checkpoint.drop"] = lambda params: {**DROPPED, "dry_run": params["dry_run"]}
    done = ckpt("drop", "#7", "good", "--force")
    assert done.code == 0
    assert done.out.splitlines() == [
        "dropped #7 1a2b3c4d5e (manual) [good]",
        "head is nothing",
        "2 file contents came with it; also in: #8 (1)",
    ]
    assert done.stderr == "ckpt: gc frees it\n"
    assert ckpt("drop", "#7", "--dry-run").out.startswith("would drop #7")
    assert ckpt("drop", "#7", "--json").document == DROPPED
    asked = daemon.calls("checkpoint.drop")
    assert [(one["ids"], one["force"], one["dry_run"]) for one in asked] == [
        (["#7", "good"], True, False),
        (["#7"], False, True),
        (["#7"], False, False),
    ]
    assert ckpt("drop").code == 2


COLLECTED = {
    "bytes_before": 4096,
    "bytes_after": 2048,
    "packs_before": 3,
    "packs_after": 1,
    "objects_removed": 5,
    "removed_bytes": 1024,
    "refs_packed": 4,
    "all_kept": False,
    "dry_run": False,
    "notes": ["pack-0 is left as it is"],
}


def test_gc(daemon, ckpt):
    daemon.answers["store.gc"] = lambda params: {**COLLECTED, "dry_run": params["dry_run"]}
    done = ckpt("gc")
    assert done.code == 0
    assert done.out == "5 objects removed; 4.0 KiB in 3 packs before, 2.0 KiB in 1 pack now\n"
    assert done.stderr == "ckpt: pack-0 is left as it is\n"
    assert ckpt("gc", "--dry-run").out == "would remove 5 objects of 1.0 KiB\n"
    assert ckpt("gc", "--json").document == COLLECTED
    daemon.answers["store.gc"] = {**COLLECTED, "all_kept": True}
    assert ckpt("gc").code == 3


def test_tag_and_untag(daemon, ckpt):
    other = "ab" * 20
    daemon.answers["checkpoint.tag"] = {"name": "good", "id": ID, "before": other}
    daemon.answers["checkpoint.untag"] = {"name": "good", "id": None, "before": ID}
    assert ckpt("tag", "HEAD", "good", "--move").out == "good is 1a2b3c4d5e, was ababababab\n"
    assert ckpt("untag", "good").out == "good was 1a2b3c4d5e\n"
    assert ckpt("untag", "good", "--json").document["before"] == ID
    (asked,) = daemon.calls("checkpoint.tag")
    assert (asked["id"], asked["name"], asked["move"]) == ("HEAD", "good", True)


def test_thin(daemon, ckpt):
    answer = {
        "dropped": [{"id": ID, "seq": 7, "kind": "auto", "tags": []}],
        "frees_bytes": 2048,
        "left_bytes": 4096,
        "over_cap": False,
        "dry_run": False,
        "notes": ["a note"],
    }
    daemon.answers["store.thin"] = answer
    done = ckpt("thin", "--dry-run")
    assert done.out.splitlines() == ["would drop #7 1a2b3c4d5e (auto)", "1 checkpoint; that would free 2.0 KiB"]
    assert done.stderr == "ckpt: a note\n"
    assert ckpt("thin").out.startswith("dropped #7 1a2b3c4d5e (auto)\n")
    assert ckpt("thin", "--json").document == answer
    assert [one["dry_run"] for one in daemon.calls("store.thin")] == [True, False, False]


def test_usage(daemon, ckpt):
    one = {
        "path": B64,
        "store": "/s/w",
        "state": "missing",
        "bytes": 4096,
        "manual": 1,
        "auto": 2,
        "safety": 3,
        "unreadable": 0,
        "tags": 0,
        "newest": None,
        "watcher": "degraded",
    }
    answer = {"stores": [one], "bytes": 4096, "max_store_bytes": 1024, "damaged": ["/s/bad"]}
    daemon.answers["store.usage"] = answer
    done = ckpt("usage")
    row = ["4.0", "KiB", "-", "1", "2", "3", "-", '"caf\\351"', "(missing)", "(watched:", "degraded)"]
    assert done.out.split() == row
    assert "4.0 KiB in all" in done.stderr
    assert "takes more than max_store_bytes" in done.stderr
    assert "cannot read the store /s/bad" in done.stderr
    assert ckpt("usage", "--json").document == answer
    one.update(files=17, thinning_frees=2048)
    assert ckpt("usage").out.split() == [*row[:2], "17", *row[3:], "(thinning", "frees", "about", "2.0", "KiB)"]
