"""``ckpt doctor``: finds what is wrong, puts it right where nobody alive owns it, and starts nobody."""

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ckpt_protocol.version import BUILD
from support import lock_holder
from support.live import Place, snapshot
from support.other_build import copy_of, python_path
from support.poll import until

pytestmark = pytest.mark.e2e

HEX = "0123456789abcdef"


@pytest.fixture
def store(place: Place) -> Path:
    """A place with one saved worktree, and no daemon; gives the store's folder."""
    (place.ws / "f").write_text("one\n")
    place.save("one")
    place.kill(signal.SIGTERM)
    return place.stores()[0]


def findings(place: Place, *words: str, code: int = 3) -> list[dict[str, Any]]:
    return place.json("doctor", *words, code=code)["findings"]


def checks(place: Place, *words: str, code: int = 3) -> list[tuple[str, str]]:
    return [(one["check"], one["state"]) for one in findings(place, *words, code=code)]


def test_all_is_well_before_anything_was_done(place: Place):
    told = place.ckpt("doctor", "--fix")
    assert (told.code, told.stderr) == (0, "")
    assert told.out == "the daemon does not run (nothing is wrong with that)\nall is well\n"
    assert place.daemons() == []
    assert not place.checkpoint_dir.exists()
    assert not (place.home / ".local" / "state" / "fabricatio-checkpoint").exists()


def test_all_is_well_beside_a_daemon(place: Place, store: Path):
    place.done("ls")
    pid = place.pid()
    before = snapshot(place.checkpoint_dir)
    assert place.done("doctor", "--fix").out == f"the daemon runs, pid {pid}, build {BUILD}\nall is well\n"
    told = place.json("doctor")
    assert (told["ok"], told["findings"], told["build"], told["socket"]) == (True, [], BUILD, place.socket)
    assert (told["daemon"]["pid"], told["checkpoint_dir"]) == (pid, str(place.checkpoint_dir))
    assert (place.daemons(), snapshot(place.checkpoint_dir)) == ([pid], before)


def test_what_a_killed_daemon_left(place: Place, store: Path):
    place.done("ls")
    place.kill(signal.SIGKILL)
    (place.checkpoint_dir / f".new-{HEX}" / "ckpt").mkdir(parents=True)
    (place.checkpoint_dir / f".old-{HEX}-ws" / "objects").mkdir(parents=True)
    left = ["objects/pack/.tmp-" + HEX + ".pack", "ckpt/.tmp-" + HEX, "packed-refs.lock", "gc.pid"]
    left += ["refs/checkpoints/0000000001.lock", "objects/pack/tmp_pack_x1"]
    for name in left:
        (store / name).write_bytes(b"")
    found = findings(place)
    assert [one["check"] for one in found] == ["socket"] + ["leftover"] * (len(left) + 2)
    assert {one["state"] for one in found} == {"found"}
    assert {one["path"] for one in found[1:]} == {
        *(str(store / name) for name in left),
        *(str(path) for path in place.checkpoint_dir.glob(".[no]*")),
    }
    lines = place.ckpt("doctor").out.splitlines()
    assert len(lines) == len(found) + 1
    assert all("would be done with --fix" in line for line in lines[1:])
    assert os.path.lexists(place.socket)
    fixed = place.ckpt("doctor", "--fix")
    assert fixed.code == 0
    assert fixed.out.count("; done: ") == len(found)
    assert checks(place, code=0) == []
    assert not os.path.lexists(place.socket)
    assert place.daemons() == []
    assert not [name for name in left if (store / name).exists()]
    assert place.json("ls")["checkpoints"][0]["message"] == "one"


def test_what_a_living_daemon_works_on_is_no_leftover(place: Place, store: Path):
    place.done("ls")
    busy = [place.checkpoint_dir / f".new-{HEX}", store / "objects" / "pack" / f".tmp-{HEX}.pack"]
    busy[0].mkdir()
    busy[1].write_bytes(b"")
    assert checks(place, "--fix", code=0) == []
    assert all(path.exists() for path in busy)


def test_what_another_program_has_open_is_left_alone(place: Place, store: Path):
    lock = store / "packed-refs.lock"
    lock.write_bytes(b"")
    with subprocess.Popen(["sleep", "60"], cwd=store) as user:
        try:
            (one,) = findings(place, "--fix")
        finally:
            user.kill()
    assert one["state"] == "remains"
    assert f"process {user.pid}" in one["why"]
    assert lock.exists()
    assert checks(place, "--fix", code=0) == [("leftover", "fixed")]


def test_directories_that_others_can_enter(place: Place, store: Path):
    state = place.home / ".local" / "state" / "fabricatio-checkpoint"
    for path in (state, place.checkpoint_dir):
        path.chmod(0o755)
    assert checks(place) == [("permissions", "found")] * 2
    assert checks(place, "--fix", code=0) == [("permissions", "fixed")] * 2
    assert [stat.S_IMODE(path.stat().st_mode) for path in (state, place.checkpoint_dir)] == [0o700, 0o700]
    assert place.json("ls")["checkpoints"] != []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
def test_a_directory_of_another_user_is_told_and_left(place: Place, store: Path):
    os.chown(place.checkpoint_dir, 65534, 65534)
    found = findings(place, "--fix")
    assert [(one["check"], one["state"]) for one in found] == [("permissions", "remains")]
    assert "belongs to user 65534" in found[0]["problem"]
    assert os.stat(place.checkpoint_dir).st_uid == 65534
    os.chown(place.checkpoint_dir, 0, 0)


def test_stores_that_cannot_be_read(place: Place, store: Path):
    metadata = store / "ckpt" / "metadata.json"
    good = metadata.read_text()
    for bad in ("", "{", '{"format": 99}'):
        metadata.write_text(bad)
        before = snapshot(store)
        (one,) = findings(place, "--fix")
        assert (one["check"], one["state"], one["path"]) == ("store", "remains", str(store))
        assert snapshot(store) == before
    metadata.write_text(good)
    (store / "ckpt").rename(store.parent / "ckpt.gone")
    (one,) = findings(place)
    assert "no metadata" in one["problem"]
    (store.parent / "ckpt.gone").rename(store / "ckpt")
    (store / "HEAD").rename(store / "HEAD.gone")
    (one,) = findings(place)
    assert "has no HEAD" in one["problem"]
    (store / "HEAD.gone").rename(store / "HEAD")


def test_something_that_listens_and_says_nothing(place: Place, store: Path):
    Path(place.socket).parent.mkdir(mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place.socket)
        listener.listen()
        found = findings(place, "--fix")
        assert [(one["check"], one["state"]) for one in found] == [("socket", "remains")]
        assert f"pid {os.getpid()}" in found[0]["action"]
        assert os.path.exists(place.socket)


def test_something_else_in_the_place_of_the_socket_is_never_removed(place: Place, store: Path):
    Path(place.socket).write_text("precious")
    found = findings(place, "--fix")
    assert [(one["check"], one["state"]) for one in found] == [("socket", "remains")]
    assert Path(place.socket).read_text() == "precious"


@contextlib.contextmanager
def owner_out_of_reach(place: Place) -> Iterator[int]:
    """A process that owns the checkpoint directory and whose address leads nowhere."""
    command = [sys.executable, lock_holder.__file__, str(place.base / "gone.sock"), str(place.checkpoint_dir)]
    with subprocess.Popen(
        [*command, str(os.getuid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=place.environ
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def test_an_owner_that_cannot_be_asked(place: Place, store: Path):
    leftover = place.checkpoint_dir / f".new-{HEX}"
    leftover.mkdir()
    with owner_out_of_reach(place) as pid:
        (one,) = findings(place, "--fix")
        assert (one["check"], one["state"]) == ("lock", "remains")
        assert f"pid {pid}" in one["problem"]
        assert leftover.exists()
    assert checks(place, "--fix", code=0) == [("leftover", "fixed")]


def test_what_a_dead_owner_says_in_its_lock_means_nothing(place: Place, store: Path):
    """Its number may be another process by now: the one that runs this test, for example."""
    said = {"pid": os.getpid(), "boot_id": "x", "host": "h", "address": place.socket, "build": "0"}
    (place.checkpoint_dir / ".lock").write_text(json.dumps(said))
    assert checks(place, code=0) == []
    place.done("ls")


def test_a_daemon_of_another_build(place: Place, store: Path):
    tree = copy_of(place.base / "old", "0.9.0")
    place.done("daemon", "start", PYTHONPATH=python_path(tree))
    (old,) = place.daemons()
    (one,) = findings(place)
    assert (one["check"], one["state"]) == ("version", "found")
    assert "0.9.0" in one["problem"]
    assert place.pid() == old
    assert checks(place, "--fix", code=0) == [("version", "fixed")]
    place.done("ls")
    assert place.json("daemon", "status")["version"] == BUILD


def test_few_descriptors(place: Place):
    place.prefix = ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh"]
    (one,) = findings(place)
    assert (one["check"], one["state"]) == ("limits", "found")
    assert "256" in one["problem"]


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("options", ["size=8m", "size=200m,ro"])
def test_a_small_or_read_only_disk(place: Place, options: str):
    place.checkpoint_dir.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs", str(place.checkpoint_dir)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small disk")
    try:
        found = findings(place, "--fix")
    finally:
        subprocess.run(["umount", "-l", str(place.checkpoint_dir)], check=True)
    assert [(one["check"], one["state"]) for one in found] == [("disk", "remains")]


def test_a_name_that_is_not_utf8(place: Place, store: Path):
    odd = os.fsencode(place.checkpoint_dir) + b"/.old-" + HEX.encode() + b"-\xff\x1b[31m"
    os.mkdir(odd)
    told = place.ckpt("doctor")
    assert told.code == 3
    assert "\x1b" not in told.out
    (one,) = findings(place)
    assert "b64" in one["path"]
    assert checks(place, "--fix", code=0) == [("leftover", "fixed")]
    assert not os.path.lexists(odd)


def test_it_can_be_run_as_the_daemons_own_chore(place: Place, store: Path):
    shutil.rmtree(store / "refs")
    words = [sys.executable, "-P", "-m", "ckptd", "doctor", "--json"]
    done = subprocess.run(words, env=place.environ, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 3
    assert [one["check"] for one in json.loads(done.stdout)["findings"]] == ["store"]
    assert done.stderr == b""
    place.damaged = True


def test_a_watcher_that_is_not_told_of_changes_and_a_halt_are_found(place: Place):
    os.mkdir(os.fsencode(place.ws) + b"/\xff")
    (place.ws / "f").write_text("1")
    place.done("watch", "on")
    until(lambda: place.json("status")["watcher"]["state"] == "degraded")
    (found,) = findings(place)
    assert (found["check"], found["state"]) == ("watcher", "found")
    assert (found["path"], found["action"]) == (str(place.ws), "give those files names in UTF-8")
    os.rmdir(os.fsencode(place.ws) + b"/\xff")
    (place.ws / ".gitignore").write_text("f\n")
    until(lambda: place.json("watch", "status")["halted"] == "rules_drop")
    (found,) = findings(place)
    assert (found["check"], "rules_drop" in found["problem"]) == ("autosave", True)
    place.done("watch", "off")
    until(lambda: place.ckpt("doctor").code == 0)
