"""The main job: save, see what an agent did, bring one file or everything back, and take that back."""

import json
import os
import random
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from ckpt_protocol.wirepath import decode
from support.live import Place, snapshot
from support.same import differences
from support.worktrees import GIT_ENVIRON, run_git

pytestmark = pytest.mark.e2e

_FILES = 400
_LEFT_OUT = ("__pycache__", "site-packages", "dist-packages", "test")


def fill(ws: Path) -> None:
    """Some hundred files of the standard library, and things that people forget."""
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    sources = [path for path in sorted(stdlib.rglob("*.py")) if not set(_LEFT_OUT) & set(path.parts)]
    for source in sources[:_FILES]:
        target = ws / source.relative_to(stdlib)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    odd = ws / "odd names"
    odd.mkdir()
    (odd / "script.sh").write_text("#!/bin/sh\n")
    (odd / "script.sh").chmod(0o755)
    (odd / "private").write_bytes(b"secret")
    (odd / "private").chmod(0o600)
    (odd / "link").symlink_to("../ast.py")
    (odd / "dangling").symlink_to("no where")
    (odd / "empty").mkdir()
    (odd / "binary").write_bytes(bytes(range(256)) * 40)
    (odd / "crlf").write_bytes(b"one\r\ntwo\r\nthree")
    for name in (b"caf\xe9", b"tab\there", b'quo"te', "ünï ☃".encode(), b"new\nline", b"-rf", b" blank "):
        with open(os.path.join(os.fsencode(odd), name), "wb") as file:
            file.write(name + b"\nline\n")


def regular(ws: Path) -> list[Path]:
    found = (Path(folder, name) for folder, _, names in os.walk(ws) for name in names)
    return sorted(path for path in found if not path.is_symlink())


def wreck(ws: Path, outside: Path) -> tuple[dict[bytes, str], Path]:
    """Do what a program gone wild might do; give the change of each path, and one that was edited."""
    swapped, linked, grown = ws / "ast.py", ws / "asyncio", ws / "odd names" / "empty"
    fixed = {swapped, ws / "odd names" / "script.sh", ws / "odd names" / "private"}
    free = [path for path in regular(ws) if path not in fixed and linked not in path.parents]
    random.Random(7).shuffle(free)
    third = len(free) // 3
    changes = {os.fsencode(path.relative_to(ws)): "deleted" for path in free[:third]}
    for path in free[:third]:
        path.unlink()
    for index, path in enumerate(free[third : 2 * third]):
        content = path.read_bytes()
        # Never an ending without a newline in place of the same text: git apply has to see each change.
        path.write_bytes([content + b"more\n", b"\0" + content, b"", content[::-1] + b"x"][index % 4])
        changes[os.fsencode(path.relative_to(ws))] = "modified"
    for index in range(30):
        added = ws / f"made up {index % 3}" / f"file {index}"
        added.parent.mkdir(exist_ok=True)
        added.write_text(f"{index}\n" * 9)
        changes[os.fsencode(added.relative_to(ws))] = "added"
    swapped.unlink()
    swapped.mkdir()
    (swapped / "inside").write_text("in the way\n")
    changes |= {b"ast.py": "type", b"ast.py/inside": "added"}
    changes |= {os.fsencode(path.relative_to(ws)): "deleted" for path in regular(linked)}
    shutil.rmtree(linked)
    linked.symlink_to(outside)
    changes[b"asyncio"] = "type"
    (ws / "odd names" / "script.sh").chmod(0o644)
    changes[b"odd names/script.sh"] = "mode"
    (grown / "no more").write_text("full\n")
    changes |= {b"odd names/empty/no more": "added"}
    return changes, free[third]


def name_of(path: object) -> bytes:
    return decode(path)


@pytest.fixture
def outside(place: Place) -> Path:
    """A directory that is none of our business, with a file in it."""
    made = place.home / "outside"
    made.mkdir()
    (made / "precious").write_text("not yours\n")
    return made


def same(one: Path, other: Path) -> list[str]:
    return list(differences(str(one), str(other)))


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True)
    return target


def test_the_whole_story(place: Place, outside: Path):
    fill(place.ws)
    pristine = copied(place.ws, place.base / "pristine")
    saved = place.json("save", "before the agent")
    assert (saved["created"], saved["complete"], saved["skipped"], saved["excluded"]) == (True, True, [], [])
    links = sum(path.is_symlink() for path in place.ws.rglob("*"))
    assert saved["files"] == len(regular(place.ws)) + links
    assert place.json("reset", "--dry-run")["written"] == []

    expected, edited = wreck(place.ws, outside)
    ruin = copied(place.ws, place.base / "ruin")
    before = snapshot(place.ws)

    # What differs, to the path.
    changes = place.json("status")["changes"]
    told = {name_of(change["path"]): change["change"] for change in changes if not change.get("dir")}
    assert told == expected
    assert [name_of(change["path"]) for change in changes] == sorted(name_of(change["path"]) for change in changes)
    text = place.done("status").out
    assert f"#1 {'before the agent'}" in text

    # The patch makes the wreck of a copy.
    patch = place.done("diff").stdout
    applied = copied(pristine, place.base / "applied")
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"], input=patch, cwd=applied, env=dict(GIT_ENVIRON), check=True
    )
    assert [line for line in same(applied, ruin) if "odd names/empty" not in line] == []

    # Looking changes nothing; one file comes back and nothing else is touched.
    assert snapshot(place.ws) == before
    relative = str(edited.relative_to(place.ws))
    rolled = place.json("rollback", saved["id"], relative)
    assert (rolled["written"], rolled["deleted"], rolled["head"]) == ([relative], [], saved["id"])
    after = snapshot(place.ws)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == {
        os.fsencode(relative)
    }
    assert edited.read_bytes() == (pristine / relative).read_bytes()
    assert same(place.ws, ruin) == [f"{relative}: other bytes"]

    # Everything comes back, and goes again.
    place.done("undo")
    assert same(place.ws, ruin) == []
    done = place.json("reset")
    assert (done["conflicts"], done["kept"], done["head"]) == ([], [], saved["id"])
    assert same(place.ws, pristine) == []
    assert place.json("status")["changes"] == []
    place.done("undo")
    assert same(place.ws, ruin) == []
    place.done("redo")
    assert same(place.ws, pristine) == []
    assert place.json("save")["created"] is False
    assert [path.name for path in outside.iterdir()] == ["precious"]
    assert not (place.ws / ".git").exists()


def test_a_reset_touches_only_what_differs(place: Place):
    fill(place.ws)
    place.save()
    before = snapshot(place.ws)
    (place.ws / "odd names" / "crlf").write_bytes(b"other")
    (place.ws / "new").write_bytes(b"")
    place.done("reset")
    after = snapshot(place.ws)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == {b"odd names/crlf"}
    again = place.json("reset")
    assert (again["written"], again["deleted"], again["safety"]) == ([], [], None)
    assert snapshot(place.ws) == after


# the shapes of --json, as the design has them


CHANGES = {"added", "modified", "deleted", "type", "mode"}
RESTORE = {"written", "deleted", "kept", "conflicts", "safety", "head", "digest"}
RECORD = {"id", "seq", "time", "kind", "message", "tags", "meta", "complete"}


def test_the_documents_have_the_shapes_that_are_promised(place: Place):
    (place.ws / "a").write_text("one\n")
    (place.ws / "gone").write_text("one\n")
    saved = place.json("save", "one", "--meta", "who=me", "--tag", "start")
    assert {"id", "created", "complete", "skipped", "excluded", "files"} <= set(saved)
    assert (saved["files"], saved["created"], len(saved["id"])) == (2, True, 40)
    listed = place.json("ls")["checkpoints"]
    assert [RECORD - set(record) for record in listed] == [set()]
    assert listed[0] | {"time": ""} == listed[0] | {
        "time": "", "seq": 1, "kind": "manual", "message": "one", "tags": ["start"], "meta": {"who": "me"},
    }  # fmt: skip
    assert listed[0]["time"].endswith("Z")

    (place.ws / "a").write_text("two\n")
    (place.ws / "gone").unlink()
    (place.ws / "empty").mkdir()
    status = place.json("status")
    assert status["head"] == saved["id"]
    assert status["changes"] == [
        {"path": "a", "change": "modified", "dir": False},
        {"path": "empty", "change": "added", "dir": True},
        {"path": "gone", "change": "deleted", "dir": False},
    ]
    assert {change["change"] for change in status["changes"]} <= CHANGES
    for words in (("rollback", "start", "a"), ("undo",), ("redo",), ("reset", "start")):
        planned = place.json(*words, "--dry-run")
        result = place.json(*words)
        for document in (planned, result):
            assert RESTORE - set(document) == set(), words
        assert planned["digest"] == result["digest"]
        assert (planned["safety"], planned["dry_run"], result["dry_run"]) == (None, True, False)
        assert len(result["safety"]) == 40
    assert place.json("show", "start")["checkpoint"]["id"] == saved["id"]
    assert place.json("cat", "start", "a")["data"] == "one\n"
    # The store is an ordinary repository to anybody's git.
    history = run_git(f"--git-dir={place.stores()[0]}", "log", "--glob=refs/checkpoints", "--format=%s")
    assert b"one\n" in history
    assert place.json("diff")["data"] == ""

    spaces = place.json("workspaces")["workspaces"]
    assert [{"path", "store", "state", "checkpoints", "bytes"} - set(each) for each in spaces] == [set()]
    assert (spaces[0]["path"], spaces[0]["state"], spaces[0]["store"]) == (
        str(place.ws), "ok", str(place.stores()[0]),
    )  # fmt: skip
    assert spaces[0]["checkpoints"] == len(place.json("ls")["checkpoints"])
    assert place.json("prune", "--dry-run") == {"pruned": [], "unreachable": [], "dry_run": True}
    running = place.json("daemon", "status")
    assert {"running", "pid", "version", "protocol", "socket", "uptime_s", "stores"} <= set(running)
    assert (running["running"], running["pid"], running["socket"]) == (True, place.daemons()[0], place.socket)
    assert place.json("daemon", "start")["pid"] == running["pid"]
    assert place.json("daemon", "stop") == {"stopped": True, "pid": running["pid"]}
    absent = place.json("daemon", "status", code=20)
    assert (absent["running"], absent["pid"], absent["socket"]) == (False, None, place.socket)
    forgotten = place.json("forget", "--yes")
    assert (forgotten["checkpoints"], place.stores()) == (spaces[0]["checkpoints"], [])
    assert (place.ws / "a").read_text() == "one\n"
    assert "usage" in place.json("help", "save")["help"]
    assert place.json("--version")["protocol"] == running["protocol"]


# exit codes


def test_usage_is_2(place: Place):
    for words in ((), ("sav",), ("save", "--nope"), ("cat", "HEAD"), ("forget",), ("ls", "--kind", "x")):
        told = place.ckpt(*words)
        assert (told.code, told.stdout) == (2, b""), words
        assert told.stderr.startswith("ckpt: ")
        assert told.stderr.count("\n") == 1
        assert place.json(*words, code=2)["error"]["kind"] == "usage"
    assert place.daemons() == []


def test_wrong_input_is_10(place: Place):
    (place.ws / "a").write_text("one\n")
    (place.ws / "d").mkdir()
    place.save()
    kinds = {
        ("show", "beef0"): "unknown_checkpoint",
        ("reset", "nope"): "unknown_checkpoint",
        ("cat", "HEAD", "b"): "path_not_in_checkpoint",
        ("cat", "HEAD", "d"): "not_a_file",
        ("rollback", "HEAD", "a", "b"): "path_not_in_checkpoint",
        ("rollback", "HEAD", "../ws2/a"): "outside_worktree",
        ("rollback", "HEAD", "/etc/passwd"): "outside_worktree",
        ("save", "m", "--tag", "HEAD"): "bad_tag",
        ("-w", "a", "save"): "not_a_directory",
        ("-w", "/", "save"): "protected_place",
        ("-w", str(place.home), "save"): "protected_place",
    }
    for words, kind in kinds.items():
        error = place.json(*words, code=10)["error"]
        assert set(error) == {"kind", "message", "hint", "paths"}
        assert error["kind"] == kind, words
        assert error["message"]
    assert "prefix not found" in place.ckpt("rollback", "HEAD", "/etc/passwd").stderr
    assert len(place.stores()) == 1
    assert len(place.json("ls")["checkpoints"]) == 1


def test_state_is_20(place: Place):
    assert place.json("status", code=20)["error"]["kind"] == "not_tracked"
    (place.ws / "a").write_text("one\n")
    place.save()
    assert place.json("undo", code=20)["error"]["kind"] == "nothing_to_undo"
    assert place.json("redo", code=20)["error"]["kind"] == "nothing_to_redo"
    (place.ws / "a").unlink()
    assert place.json("save", code=20)["error"]["kind"] == "worktree_empty"
    assert place.done("reset").code == 0
    assert (place.ws / "a").read_text() == "one\n"
    (place.ws / "a").unlink()
    os.mkfifo(place.ws / "a")
    conflict = place.json("reset", code=20)["error"]
    assert (conflict["kind"], conflict["paths"]) == ("conflicts", ["a"])


def test_left_out_is_3(place: Place):
    (place.ws / "a").write_text("one\n")
    (place.ws / "b").write_text("one\n")
    place.save()
    (place.ws / "a").unlink()
    os.mkfifo(place.ws / "a")
    (place.ws / "b").write_text("two\n")
    told = place.ckpt("reset", "--skip-conflicts")
    assert told.code == 3
    assert "1 path in conflict left alone" in told.stderr
    assert (place.ws / "b").read_text() == "one\n"
    assert (place.ws / "a").is_fifo()


def test_an_unreadable_file_is_named_and_3(place: Place):
    place.obey_permissions()
    (place.ws / "a").write_text("one\n")
    (place.ws / "locked").write_text("secret\n")
    (place.ws / "locked").chmod(0)
    told = place.ckpt("save")
    assert (told.code, len(told.stdout)) == (3, 41), told
    assert "skipped: locked (" in told.stderr
    assert "incomplete" in told.stderr
    document = place.json("save", code=3)
    assert (document["complete"], document["created"]) == (False, False)
    assert [entry["path"] for entry in document["skipped"]] == ["locked"]
    (place.ws / "a").write_text("two\n")
    before = (place.ws / "locked").stat()
    place.done("reset")
    assert (place.ws / "a").read_text() == "one\n"
    assert (place.ws / "locked").stat() == before


def test_a_daemon_that_cannot_start_is_60_and_its_words_are_shown(place: Place):
    (place.base / "broken" / "ckptd").mkdir(parents=True)
    (place.base / "broken" / "ckptd" / "__init__.py").write_text("")
    (place.base / "broken" / "ckptd" / "__main__.py").write_text("raise SystemExit('no disk today')\n")
    path = f"{place.base / 'broken'}{os.pathsep}{place.environ['PYTHONPATH']}"
    told = place.ckpt("status", PYTHONPATH=path)
    assert told.code == 60
    assert "no disk today" in told.stderr
    assert "Traceback" not in told.stderr
    told = place.ckpt("--json", "status", PYTHONPATH=path)
    assert (told.code, told.document["error"]["kind"]) == (60, "start_failed")


# which worktree is meant


def test_from_outside_with_w(place: Place):
    (place.ws / "a").write_text("one\n")
    elsewhere = place.base / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a").write_text("not this\n")
    wanted = place.done("-w", str(place.ws), "save", "from afar", cwd=elsewhere)
    assert "tracked" not in wanted.stderr
    (place.ws / "a").write_text("two\n")
    assert place.json("-w", "../h/ws", "status", cwd=elsewhere)["changes"][0]["path"] == "a"
    place.done("--workspace", str(place.ws), "rollback", "HEAD", "a", cwd=elsewhere)
    assert (place.ws / "a").read_text() == "one\n"
    assert (elsewhere / "a").read_text() == "not this\n"
    assert place.done("ls", "-w", str(place.ws), cwd=elsewhere).out.count("\n") == 2


def test_from_below_it_is_the_innermost_tracked_directory(place: Place):
    deep = place.ws / "inner" / "deep"
    deep.mkdir(parents=True)
    (place.ws / "a").write_text("one\n")
    (deep / "b").write_text("one\n")
    place.save()
    told = place.done("status", cwd=deep)
    assert told.stderr == f"ckpt: in the tracked worktree {place.ws}\n"
    # A save from below is a save of everything; sibling directories stay as they are by a rollback.
    (place.ws / "a").write_text("two\n")
    (deep / "b").write_text("two\n")
    place.done("rollback", "HEAD", "inner/deep/b", cwd=deep)
    assert ((place.ws / "a").read_text(), (deep / "b").read_text()) == ("two\n", "one\n")
    assert [change["path"] for change in place.json("status", cwd=deep)["changes"]] == ["a"]
    place.done("-w", str(place.ws / "inner"), "save")
    assert place.done("status", cwd=deep).stderr == f"ckpt: in the tracked worktree {place.ws / 'inner'}\n"
    assert place.done("status", cwd=place.ws / "inner").stderr == ""
    assert len(place.json("workspaces")["workspaces"]) == 2


def test_an_untracked_directory_says_how_to_begin_and_makes_nothing(place: Place):
    (place.ws / "a").write_text("one\n")
    before = snapshot(place.ws)
    for words in (("status",), ("ls",), ("diff",), ("reset",), ("undo",), ("show", "HEAD"), ("forget", "--yes")):
        told = place.ckpt(*words)
        assert (told.code, told.stdout) == (20, b""), words
        assert told.stderr == f"ckpt: {place.ws} is not tracked; begin with: ckpt save\n"
    assert not place.checkpoint_dir.exists()
    assert snapshot(place.ws) == before
    assert place.json("workspaces") == {"workspaces": [], "damaged": []}


def test_a_name_may_look_like_an_option(place: Place):
    (place.ws / "-rf").write_text("one\n")
    place.save("--", "-m")
    assert place.json("ls")["checkpoints"][0]["message"] == "-m"
    (place.ws / "-rf").write_text("two\n")
    place.done("rollback", "HEAD", "--", "-rf")
    assert (place.ws / "-rf").read_text() == "one\n"
    assert json.loads(place.done("--json", "cat", "--", "HEAD", "-rf").out)["data"] == "one\n"
