"""The daemon's life as users meet it: killed, stopped, started from anywhere, and in odd surroundings."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt_protocol.address import socket_path
from support.live import Place, snapshot
from support.poll import until
from support.same import differences
from support.worktrees import run_git

pytestmark = pytest.mark.e2e


@pytest.fixture
def saved(place: Place) -> str:
    """The id of a checkpoint of one file ``f``."""
    (place.ws / "f").write_text("one\n")
    return place.save("one")


def messages(place: Place) -> list[str]:
    return [record["message"] for record in place.json("ls")["checkpoints"]]


# ending


def test_a_killed_daemon_is_replaced_and_nothing_is_lost(place: Place, saved: str):
    old = place.pid()
    place.kill(signal.SIGKILL)
    assert os.path.exists(place.socket)
    assert messages(place) == ["one"]
    assert place.pid() != old
    (place.ws / "f").write_text("two\n")
    assert place.json("status")["changes"] == [{"path": "f", "change": "modified", "dir": False}]
    place.save("two")
    place.kill(signal.SIGKILL)
    place.done("reset", saved)
    assert (place.ws / "f").read_text() == "one\n"
    place.kill(signal.SIGKILL)
    place.done("undo")
    assert (place.ws / "f").read_text() == "two\n"
    assert [message for message in messages(place) if not message.startswith("before ")] == ["two", "one"]


def test_a_service_outlives_its_daemon(place: Place, saved: str):
    store = place.service().get_store(place.ws)
    assert store.commits() == [saved]
    place.kill(signal.SIGKILL)
    assert store.commits() == [saved]
    place.kill(signal.SIGTERM)
    (place.ws / "f").write_text("two\n")
    assert store.save() != saved


def test_a_daemon_killed_in_the_middle_of_a_save(place: Place, saved: str):
    """The request has a token, so its client may repeat it; and does."""
    place.heavy(40)
    child = place.start("save", "twice begun")
    until(place.is_busy)
    place.kill(signal.SIGKILL)
    out, err = child.communicate(timeout=90)
    assert (child.returncode, len(out)) == (0, 41), err
    assert messages(place) == ["twice begun", "one"]
    assert place.json("status")["changes"] == []


def test_everything_killed_in_the_middle_of_a_save(place: Place, saved: str):
    place.heavy(40)
    files = len(list(place.stores()[0].rglob("*")))
    child = place.start("save", "never done")
    until(lambda: len(list(place.stores()[0].rglob("*"))) > files)
    child.kill()
    place.kill(signal.SIGKILL)
    assert messages(place) in (["one"], ["never done", "one"])
    (place.ws / "f").write_text("two\n")
    last = place.json("save", "after all")
    assert (last["complete"], last["files"]) == (True, 41)
    assert place.json("cat", last["id"], "f")["data"] == "two\n"
    assert place.json("cat", saved, "f")["data"] == "one\n"
    # No piece of what was cut off stays behind.
    assert not [path for path in place.stores()[0].rglob("*") if "tmp" in path.name]


def test_a_signal_drains(place: Place, saved: str):
    place.heavy(48)
    child = place.start("save", "drained")
    (pid,) = place.daemons()
    until(place.is_busy)
    os.kill(pid, signal.SIGTERM)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, len(out)) == (0, 41), err
    until(lambda: pid not in place.daemons())
    assert not os.path.exists(place.socket)
    assert messages(place) == ["drained", "one"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_an_idle_daemon(place: Place, number: int):
    place.done("daemon", "start")
    place.kill(number)
    assert not os.path.exists(place.socket)
    assert place.log.endswith("drained\n")


def test_status_and_stop_start_nobody(place: Place):
    for _ in range(2):
        told = place.ckpt("daemon", "status")
        assert (told.code, told.out, told.stderr) == (20, "the daemon does not run\n", "")
        assert place.done("daemon", "stop").out == "the daemon does not run\n"
    assert place.ckpt("daemon", "logs").code == 60
    assert place.ckpt("--help").code == place.ckpt("daemon", "status", "--help").code == 0
    assert place.daemons() == []
    assert not place.checkpoint_dir.exists()


def test_start_stop_and_logs(place: Place):
    started = place.done("daemon", "start").out
    pid = place.pid()
    assert started == f"the daemon has started, pid {pid}\n"
    assert place.done("daemon", "start").out == f"the daemon runs already, pid {pid}\n"
    assert place.done("daemon", "status").out.startswith(f"the daemon runs, pid {pid}, version ")
    assert place.done("daemon", "stop").out == f"the daemon has ended, pid {pid}\n"
    assert place.daemons() == []
    assert not os.path.exists(place.socket)
    logs = place.done("daemon", "logs", "-n", "2").out
    assert logs.count("\n") == 2
    assert logs.endswith("drained\n")
    assert str(place.ws) not in place.done("daemon", "logs").out.replace(str(place.socket), "")


def test_run_is_the_daemon_itself_whatever_lies_around(place: Place):
    # A worktree may have modules of the same names as the daemon's.
    for name in ("contextlib.py", "anyio.py", "ckptd.py"):
        (place.ws / name).write_text("raise SystemExit('a file of the worktree was run')\n")
    child = place.start("daemon", "run")
    until(lambda: os.path.exists(place.socket) or child.poll() is not None)
    assert place.pid() == child.pid
    place.save()
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (0, b"")


def test_a_second_daemon_for_the_same_socket_says_so(place: Place):
    place.done("daemon", "start")
    told = place.ckpt("daemon", "run")
    assert told.code == 60
    assert told.stderr.count("\n") == 1
    assert place.socket in told.stderr
    assert len(place.daemons()) == 1


def test_the_daemon_outlives_who_started_it(place: Place):
    """Its group may be killed, and whoever captures its output is not kept waiting."""
    script = 'out=$("$@"); code=$?; echo "$out"; exit $code'
    line = ["sh", "-c", script, "sh", sys.executable, "-P", "-m", "fabricatio_checkpoint.cli", "save"]
    child = subprocess.Popen(
        line, cwd=place.ws, env=place.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    out, err = child.communicate(timeout=60)
    assert (child.returncode, len(out)) == (0, 41), err
    pid = place.pid()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    assert place.pid() == pid
    with open(f"/proc/{pid}/stat") as file:
        _, group, session, terminal = file.read().rpartition(")")[2].split()[1:5]
    assert int(group) == int(session) == pid
    assert terminal == "0"
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    open_files = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in ("0", "1", "2")}
    assert not {name for name in open_files if name.startswith(("pipe:", "/dev/pts"))}


def test_a_daemon_ends_when_it_is_idle(place: Place):
    place.done("save", "--force", FABRICATIO_EXT__CHECKPOINT__IDLE_EXIT_S="0.2")
    until(lambda: not place.daemons())
    assert not os.path.exists(place.socket)
    assert messages(place) == [None]


def test_a_socket_whose_daemon_is_gone(place: Place):
    path = Path(place.socket)
    path.parent.mkdir(mode=0o700)
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    assert place.ckpt("daemon", "status").code == 20
    assert path.exists()
    (place.ws / "f").write_text("one\n")
    place.save()
    assert place.pid() == place.daemons()[0]


def test_stale_locks_are_no_locks(place: Place, saved: str):
    place.kill(signal.SIGKILL)
    name = f"start-{hashlib.sha256(os.fsencode(place.socket)).hexdigest()[:16]}.lock"
    state = Path(place.environ["XDG_STATE_HOME"]) / "fabricatio-checkpoint"
    assert (state / name).exists()
    (state / name).write_text("1")
    (place.checkpoint_dir / ".lock").write_text('{"pid": 1, "garbage": ')
    assert messages(place) == ["one"]
    with open(place.checkpoint_dir / ".lock") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


# one checkpoint directory


def test_two_runtime_directories_share_one_owner(place: Place, saved: str):
    """As over ssh, from cron or in a container: the second client is led to the first one's daemon."""
    owner = place.pid()
    other = place.base / "r2"
    other.mkdir(mode=0o700)
    (place.ws / "f").write_text("two\n")
    second = place.done("save", "two", XDG_RUNTIME_DIR=str(other)).out.strip()
    assert messages(place) == ["two", "one"]
    assert place.json("cat", second, "f")["data"] == "two\n"
    owned = place.ckpt("--json", "workspaces", XDG_RUNTIME_DIR=str(other)).document
    assert owned["workspaces"][0]["checkpoints"] == 2
    told = place.ckpt("status", XDG_RUNTIME_DIR=str(other))
    assert (told.code, told.stderr) == (0, "")
    assert place.pid() == owner
    # When the owner has ended, the other one takes the directory over.
    os.kill(owner, signal.SIGKILL)
    until(lambda: owner not in place.daemons())
    assert place.done("ls", XDG_RUNTIME_DIR=str(other)).out.count("\n") == 2
    assert socket_path({**place.environ, "XDG_RUNTIME_DIR": str(other)}) != place.socket
    assert messages(place) == ["two", "one"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
def test_a_checkpoint_directory_of_somebody_else_is_refused(place: Place, saved: str):
    place.done("daemon", "stop")
    os.chown(place.checkpoint_dir, 65534, 65534)
    before = snapshot(place.checkpoint_dir)
    told = place.ckpt("save")
    assert told.code == 50
    assert "belongs to user 65534, this is user 0" in told.stderr
    assert place.json("ls", code=50)["error"]["kind"] == "foreign_owner"
    assert snapshot(place.checkpoint_dir) == before
    os.chown(place.checkpoint_dir, 0, 0)
    assert messages(place) == ["one"]


def test_a_read_only_checkpoint_directory(place: Place, saved: str):
    place.done("daemon", "stop")
    place.obey_permissions()
    folders = [path for path in [place.checkpoint_dir, *place.checkpoint_dir.rglob("*")] if path.is_dir()]
    for path in folders:
        path.chmod(0o500)
    (place.ws / "f").write_text("two\n")
    told = place.ckpt("save")
    assert told.code == 50, told
    assert str(place.checkpoint_dir) in told.stderr
    assert told.stderr.count("\n") == 1
    assert place.json("save", code=50)["error"]["kind"] in ("permission_denied", "read_only")
    for path in folders:
        path.chmod(0o700)
    place.save("two")
    assert messages(place) == ["two", "one"]


def test_a_checkpoint_directory_that_cannot_be_made(place: Place):
    (place.home / "file").write_text("in the way\n")
    for where in (place.home / "file", place.home / "file" / "below"):
        told = place.ckpt("save", FABRICATIO_EXT__CHECKPOINT__CHECKPOINT_DIR=str(where))
        assert told.code in (10, 50), told
        assert "not a directory" in told.stderr.lower()
    assert (place.home / "file").read_text() == "in the way\n"


@contextlib.contextmanager
def small_disk(where: Path, size: str) -> Iterator[None]:
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    where.mkdir(mode=0o700)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", where], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot mount a small disk: {done.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", where], check=True)


def test_a_full_disk_loses_nothing(place: Place):
    with small_disk(place.checkpoint_dir, "6m"):
        (place.ws / "f").write_text("one\n")
        first = place.save("one")
        (place.checkpoint_dir / "ballast").write_bytes(bytes(5 << 20))
        (place.ws / "big").write_bytes(os.urandom(2 << 20))
        told = place.ckpt("save", "too much")
        assert told.code == 50, told
        assert told.stderr.count("\n") == 1
        assert place.json("save", code=50)["error"]["kind"] == "no_space"
        # No restore begins whose safety checkpoint does not fit.
        assert place.json("reset", code=50)["error"]["kind"] == "no_space"
        assert (place.ws / "big").stat().st_size == 2 << 20
        assert messages(place) == ["one"]
        assert place.json("cat", first, "f")["data"] == "one\n"
        place.verify()
        (place.checkpoint_dir / "ballast").unlink()
        place.save("fits")
        assert messages(place) == ["fits", "one"]
        place.verify()
        place.kill(signal.SIGTERM)


def test_a_full_disk_below_the_worktree(place: Place):
    root = place.home / "small"
    with small_disk(root, "3m"):
        (root / "f").write_bytes(os.urandom(2 << 20))
        content = (root / "f").read_bytes()
        place.save("-w", str(root))
        (root / "f").write_bytes(b"wreck")
        (root / "ballast").write_bytes(bytes(2 << 20))
        place.save("-w", str(root))
        (root / "g").write_bytes(b"g")
        told = place.ckpt("-w", str(root), "rollback", "HEAD~1", "f")
        # Refused, or left out and named: the old file is whole in any case, and no piece of the new one stays.
        assert told.code in (3, 50), told
        said = told.out + told.stderr
        assert "No space left" in said or "more than there are free" in said
        assert (root / "f").read_bytes() == b"wreck"
        assert sorted(path.name for path in root.iterdir()) == ["ballast", "f", "g"]
        place.done("-w", str(root), "reset", "HEAD~1")
        assert (root / "f").read_bytes() == content
        place.kill(signal.SIGTERM)


# worktrees that go


def test_a_worktree_that_is_deleted(place: Place, saved: str):
    keeper = place.home / "keeper"
    keeper.mkdir()
    (keeper / "k").write_text("k\n")
    place.save("-w", str(keeper))
    shutil.rmtree(place.ws)
    told = place.ckpt("-w", str(place.ws), "status", cwd=place.home)
    assert told.code == 20
    assert f"{place.ws} does not exist" in told.stderr
    error = place.json("-w", str(place.ws), "status", cwd=place.home, code=20)["error"]
    assert error["kind"] == "worktree_missing"
    states = {each["path"]: each["state"] for each in place.json("workspaces", cwd=place.home)["workspaces"]}
    assert states == {str(place.ws): "missing", str(keeper): "ok"}
    # The past can still be read, and brought back.
    assert place.json("-w", str(place.ws), "cat", saved, "f", cwd=place.home)["data"] == "one\n"
    place.done("-w", str(place.ws), "reset", "--recreate", cwd=place.home)
    assert (place.ws / "f").read_text() == "one\n"
    shutil.rmtree(place.ws)
    planned = place.json("prune", "--dry-run", cwd=place.home)
    assert len(place.stores()) == 2
    pruned = place.json("prune", cwd=place.home)
    assert planned["pruned"] == pruned["pruned"]
    assert [each["path"] for each in pruned["pruned"]] == [str(place.ws)]
    assert [store.name for store in place.stores()] == [Path(place.stores()[0]).name]
    assert place.json("-w", str(keeper), "ls", cwd=place.home)["checkpoints"] != []
    assert place.json("prune", cwd=place.home)["pruned"] == []


def test_a_worktree_that_is_renamed(place: Place, saved: str):
    moved = place.home / "moved"
    place.ws.rename(moved)
    (state,) = place.json("workspaces", cwd=place.home)["workspaces"]
    assert (state["path"], state["state"], state["checkpoints"]) == (str(place.ws), "missing", 1)
    if not _has_births(moved):
        pytest.skip("this file system keeps no birth times: nothing is adopted without a question")
    # Any command takes it along, from below, too.
    (moved / "below").mkdir()
    assert place.json("status", cwd=moved / "below")["head"] == saved
    assert [each["id"] for each in place.json("ls", cwd=moved)["checkpoints"]] == [saved]
    (state,) = place.json("workspaces", cwd=place.home)["workspaces"]
    assert (state["path"], state["state"], state["checkpoints"]) == (str(moved), "ok", 1)
    (moved / "f").write_text("wreck\n")
    place.done("reset", cwd=moved)
    assert (moved / "f").read_text() == "one\n"
    assert place.ckpt("-w", str(place.ws), "status", cwd=place.home).code == 20
    moved.rename(place.ws)
    assert place.json("status")["head"] is not None
    assert len(place.stores()) == 1


def _has_births(path: Path) -> bool:
    told = subprocess.run(["stat", "-c", "%W", str(path)], capture_output=True, text=True, check=False).stdout.strip()
    return told.isdigit() and int(told) > 0


def test_a_worktree_that_was_copied_is_adopted_by_hand(place: Place, saved: str):
    copy = place.home / "copy"
    shutil.copytree(place.ws, copy)
    refused = place.json("-w", str(copy), "adopt", str(place.ws), "--yes", cwd=place.home, code=20)["error"]
    assert (refused["kind"], str(place.ws) in refused["message"], str(copy) in refused["message"]) == (
        "two_claimants",
        True,
        True,
    )
    shutil.rmtree(place.ws)
    assert place.ckpt("adopt", str(place.ws), cwd=copy).code == 2
    planned = place.json("adopt", str(place.ws), "--dry-run", cwd=copy)
    assert (planned["checkpoints"], planned["sure"]) == (1, False)
    place.done("adopt", str(place.ws), "--yes", cwd=copy)
    assert place.json("status", cwd=copy)["head"] == saved
    assert place.json("prune", cwd=place.home)["pruned"] == []


def test_another_directory_of_the_same_name(place: Place, saved: str):
    place.ws.rename(place.home / "away")
    place.ws.mkdir()
    (place.ws / "precious").write_text("never saved\n")
    before = snapshot(place.ws)
    for words in (("reset",), ("rollback", saved, "f")):
        told = place.ckpt(*words)
        if told.code == 0:
            # Where it is taken for the same worktree, nothing is lost.
            place.done("undo")
            assert (place.ws / "precious").read_text() == "never saved\n"
        else:
            assert told.code == 20
            assert snapshot(place.ws) == before


# surroundings


def _hostile_home(place: Place, marker: Path) -> None:
    """A git configuration that runs programs, signs, converts, and then is not even well-formed."""
    hooks = place.home / "hooks"
    hooks.mkdir()
    for name in ("pre-commit", "post-commit", "post-checkout", "reference-transaction", "fsmonitor", "clean", "editor"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch '{marker}'\nexit 1\n")
        (hooks / name).chmod(0o755)
    (place.home / ".gitconfig").write_text(
        f"[core]\nhooksPath = {hooks}\nfsmonitor = {hooks}/fsmonitor\nautocrlf = true\nsymlinks = false\n"
        f"editor = {hooks}/editor\n[commit]\ngpgsign = true\n[user]\nsigningkey = none\nuseConfigOnly = true\n"
        f'[gpg]\nprogram = {hooks}/clean\n[filter "lfs"]\nclean = {hooks}/clean\nsmudge = {hooks}/clean\n'
        "required = true\n[safe]\nbareRepository = explicit\n[broken\n"
    )


def _all_verbs(place: Place) -> None:
    first = place.save("one", "--tag", "start")
    for words in (("status",), ("diff",), ("ls",), ("show", first), ("cat", first, "f"), ("workspaces",)):
        place.done(*words)
    pristine = place.base / "pristine"
    shutil.copytree(place.ws, pristine, symlinks=True)
    (place.ws / "f").write_bytes(b"wreck\n")
    (place.ws / "crlf.txt").unlink()
    place.done("rollback", "start", "f")
    place.done("reset")
    assert list(differences(str(place.ws), str(pristine))) == []
    place.done("undo")
    place.done("redo")
    assert list(differences(str(place.ws), str(pristine))) == []
    place.done("prune")


def test_the_users_git_is_neither_used_nor_touched(place: Place):
    marker = place.base / "was run"
    run_git("init", "-q", "-b", "main", str(place.ws))
    (place.ws / "f").write_bytes(b"one\n")
    (place.ws / "crlf.txt").write_bytes(b"a\r\nb\n")
    (place.ws / ".gitattributes").write_text("* text=auto eol=crlf ident filter=lfs\n")
    run_git("-c", "core.autocrlf=false", "add", "f", cwd=str(place.ws))
    run_git("commit", "-q", "-m", "theirs", cwd=str(place.ws))
    git = place.ws / ".git"
    (git / "hooks").mkdir(exist_ok=True)
    (git / "hooks" / "post-checkout").write_text(f"#!/bin/sh\ntouch '{marker}'\n")
    (git / "hooks" / "post-checkout").chmod(0o755)
    _hostile_home(place, marker)
    theirs = place.base / "theirs"
    run_git("init", "-q", "--bare", str(theirs))
    place.environ |= {
        "GIT_DIR": str(theirs), "GIT_WORK_TREE": str(theirs), "GIT_INDEX_FILE": str(theirs / "index"),
        "GIT_OBJECT_DIRECTORY": str(theirs / "objects"), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "nonsense", "GIT_CONFIG_GLOBAL": str(place.home / ".gitconfig"),
        "GIT_TEMPLATE_DIR": str(place.home / "hooks"), "GIT_CEILING_DIRECTORIES": "/", "GIT_NAMESPACE": "x",
    }  # fmt: skip
    before = snapshot(git), snapshot(theirs)
    _all_verbs(place)
    assert (snapshot(git), snapshot(theirs)) == before
    assert not marker.exists()
    assert run_git("status", "--porcelain", "f", cwd=str(place.ws)) == b""


def test_no_git_on_the_path_and_next_to_no_environment(place: Place):
    empty = place.base / "no programs"
    empty.mkdir()
    kept = ("HOME", "PYTHONPATH")
    place.environ = {name: place.environ[name] for name in kept} | {"PATH": str(empty)}
    (place.ws / "f").write_text("one\n")
    (place.ws / "crlf.txt").write_bytes(b"a\r\n")
    _all_verbs(place)
    assert place.done("daemon", "stop").out.startswith("the daemon has ended")


def test_warnings_that_a_user_wants_as_errors_end_no_daemon(place: Place):
    wishes = {"PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1"}
    (place.ws / "f").write_text("one\n")
    place.done("save", "one", **wishes)
    place.done("doctor", PYTHONWARNINGS="error")
    place.done("daemon", "stop")


def test_an_unreadable_git_configuration(place: Place):
    place.obey_permissions()
    (place.home / ".gitconfig").write_text("[user]\nname = x\n")
    (place.home / ".gitconfig").chmod(0)
    (place.ws / "f").write_text("one\n")
    (place.ws / "crlf.txt").write_bytes(b"a\r\n")
    _all_verbs(place)


def test_odd_places(place: Place):
    home = place.base / "a home, 'quoted' \"twice\""
    home.mkdir()
    root = home / "-rf"
    root.mkdir()
    (root / "f").write_text("one\n")
    changes = {"HOME": str(home), "XDG_STATE_HOME": str(home / "-s t"), "XDG_CONFIG_HOME": str(home / "c")}
    assert place.ckpt("-w", "-rf", "save", "one", cwd=home, **changes).code == 2
    place.done("--workspace=-rf", "save", "one", cwd=home, **changes)
    (root / "f").write_text("two\n")
    place.done("reset", cwd=root, **changes)
    assert (root / "f").read_text() == "one\n"
    assert str(root).replace('"', '\\"') in place.done("workspaces", cwd=home, **changes).out
    assert len(place.stores(home / ".fabricatio-checkpoint")) == 1


def test_a_worktree_reached_by_a_link_is_the_same_worktree(place: Place, saved: str):
    (place.home / "link").symlink_to("ws")
    assert place.json("-w", str(place.home / "link"), "save")["created"] is False
    assert len(place.json("workspaces")["workspaces"]) == 1


# what is removed by hand


def test_a_store_that_is_removed_by_hand_is_gone_and_no_more(place: Place, saved: str):
    for remove in (place.stores()[0], place.checkpoint_dir):
        shutil.rmtree(remove)
        for words in (("status",), ("ls",), ("reset",), ("undo",)):
            assert place.json(*words, code=20)["error"]["kind"] == "not_tracked", words
        again = place.json("save", "again")
        assert (again["created"], again["seq"], again["files"]) == (True, 1, 1)
        assert messages(place) == ["again"]
    assert (place.ws / "f").read_text() == "one\n"


def test_a_checkpoint_directory_that_is_moved_away_and_back(place: Place, saved: str):
    pid = place.pid()
    away = place.home / "away"
    place.checkpoint_dir.rename(away)
    assert place.json("status", code=20)["error"]["kind"] == "not_tracked"
    shutil.rmtree(place.checkpoint_dir, ignore_errors=True)
    away.rename(place.checkpoint_dir)
    assert messages(place) == ["one"]
    (place.ws / "f").write_text("two\n")
    place.save("two")
    assert messages(place) == ["two", "one"]
    assert place.pid() == pid


@pytest.mark.parametrize("what", ["socket", "directory"])
def test_a_daemon_without_its_socket_is_replaced(place: Place, saved: str, what: str):
    """As when a session ends and its runtime directory is cleared."""
    place.pid()
    if what == "socket":
        os.unlink(place.socket)
    else:
        shutil.rmtree(Path(place.socket).parent)
    assert messages(place) == ["one"]
    until(lambda: len(place.daemons()) == 1)


def test_a_misspelt_worktree_is_no_invitation(place: Place, saved: str):
    for words in (("status",), ("save",), ("ls",), ("reset",)):
        told = place.ckpt("-w", "no such", *words)
        assert (told.code, told.stdout) == (20, b"")
        assert f"{place.ws}/no such does not exist; check its name" in told.stderr
    assert not (place.ws / "no such").exists()
    assert len(place.stores()) == 1
