"""Autosave from the outside: what was on disk for a while can be had back, whichever program destroyed it."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from support.live import Place
from support.poll import until
from support.worktrees import git_tree, run_git

pytestmark = pytest.mark.e2e

QUIET_S, WAIT_S = 0.2, 1.0


@pytest.fixture
def hasty(place) -> Place:
    """A place whose autosave does not take its time."""
    place.environ["FABRICATIO_EXT__CHECKPOINT__AUTOSAVE_QUIET_S"] = str(QUIET_S)
    place.environ["FABRICATIO_EXT__CHECKPOINT__AUTOSAVE_MAX_WAIT_S"] = str(WAIT_S)
    return place


@pytest.fixture
def watched(hasty) -> Place:
    """A small worktree in such a place, saved by hand and then watched."""
    fill(hasty)
    hasty.save("by hand")
    hasty.done("watch", "on")
    until(lambda: watcher(hasty)["state"] == "active" and hasty.json("status")["state"] == "IDLE")
    return hasty


def fill(place):
    for name in ("a.txt", "src/main.py", "src/deep/b.txt", "docs/c.md"):
        path = place.ws / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name} 1\n")


def watcher(place):
    return place.json("status")["watcher"]


def autos(place):
    return place.json("ls", "--kind", "auto")["checkpoints"]


def at_rest(place):
    """Wait until all that was changed is saved; looking at it (a save would do it) is no cause."""
    until(lambda: (found := place.json("status"))["state"] == "IDLE" and not found["changes"])


def settle(place, count):
    """Make an edit of our own and wait for its autosave: whatever was to come of earlier ones has come by then."""
    before = {one["id"] for one in autos(place)}
    (place.ws / "settle").write_text(str(len(before)))
    until(lambda: len(autos(place)) > len(before))
    at_rest(place)
    assert len(autos(place)) == len(before) + count, autos(place)


DESTROYERS = {
    "sed": ["sed", "-i", "s/.*/wrecked/", "src/main.py"],
    "rm": ["rm", "-rf", "src"],
    "python": [sys.executable, "-c", "import shutil; shutil.rmtree('src')"],
    "mv": ["mv", "a.txt", "src/main.py"],
    "truncate": ["sh", "-c", ": > src/main.py"],
}


@pytest.mark.parametrize("how", sorted(DESTROYERS))
def test_what_was_on_disk_for_a_while_can_be_had_back(watched, how):
    (watched.ws / "src" / "main.py").write_text("an hour of work\n")
    (watched.ws / "src" / "new").mkdir()
    (watched.ws / "src" / "new" / "file").write_text("more of it\n")
    at_rest(watched)
    subprocess.run(DESTROYERS[how], cwd=watched.ws, check=True)
    at_rest(watched)
    newest, before = autos(watched)[:2]
    assert watched.done("cat", before["id"], "src/main.py").out == "an hour of work\n"
    watched.done("rollback", before["id"], "src")
    assert (watched.ws / "src" / "main.py").read_text() == "an hour of work\n"
    assert (watched.ws / "src" / "new" / "file").read_text() == "more of it\n"
    assert newest["kind"] == "auto"


def test_it_goes_on_after_the_daemon_was_killed_and_saves_what_was_changed_meanwhile(watched):
    watched.kill()
    (watched.ws / "a.txt").write_text("while nobody watched\n")
    # It says nothing of the worktree: the daemon knows by itself where it has to watch.
    watched.done("daemon", "start")
    until(lambda: any(store["worktree"] == str(watched.ws) for store in watched.json("daemon", "status")["stores"]))
    at_rest(watched)
    (watched.ws / "a.txt").unlink()
    at_rest(watched)
    newest, before = autos(watched)[:2]
    assert watched.done("cat", before["id"], "a.txt").out == "while nobody watched\n"
    assert watched.ckpt("cat", newest["id"], "a.txt").code != 0


def test_edits_without_an_end_are_saved_all_the_same(watched):
    stream = "i=0; while :; do i=$((i+1)); echo $i > log; sleep 0.05; done"
    child = watched.spawn(["sh", "-c", stream], watched.environ, cwd=watched.ws)
    until(lambda: len(autos(watched)) >= 3)
    child.kill()
    child.wait()
    at_rest(watched)


def test_what_changes_nothing_makes_no_checkpoint(watched):
    (watched.ws / "a.txt").touch()
    (watched.ws / "a.txt").write_text("a.txt 1\n")
    (watched.ws / "gone").write_text("for a moment")
    (watched.ws / "gone").unlink()
    os.utime(watched.ws / "src")
    settle(watched, 1)


def test_git_s_own_work_makes_no_checkpoint(watched):
    git = ["git", "-c", "user.name=t", "-c", "user.email=t", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"], ["gc", "-q"]):
        subprocess.run([*git, *words], cwd=watched.ws, env=watched.environ, check=True, capture_output=True)
    for words in (["commit", "--allow-empty", "-qm", "two"], ["rebase", "-q", "HEAD~1"], ["branch", "b"]):
        subprocess.run([*git, *words], cwd=watched.ws, env=watched.environ, check=True, capture_output=True)
    settle(watched, 1)


def test_ignored_files_make_no_checkpoint_and_ignored_trees_are_not_watched(watched):
    (watched.ws / ".gitignore").write_text("node_modules/\n*.log\n")
    at_rest(watched)
    made, directories = len(autos(watched)), watcher(watched)["directories"]
    for number in range(30):
        folder = watched.ws / "node_modules" / f"p{number}"
        folder.mkdir(parents=True)
        (folder / "index.js").write_text("1")
        (watched.ws / "src" / "x.log").write_text(str(number))
    settle(watched, 1)
    assert len(autos(watched)) == made + 1
    assert watcher(watched)["directories"] == directories


def test_own_restores_make_no_autosave(watched):
    (first,) = (one["id"] for one in watched.json("ls")["checkpoints"])
    (watched.ws / "src" / "main.py").write_text("2\n")
    (watched.ws / "src" / "added").mkdir()
    (watched.ws / "src" / "added" / "x").write_text("2\n")
    at_rest(watched)
    made = len(autos(watched))
    for words in (
        ["rollback", first, "src/main.py"],
        ["undo"],
        ["redo"],
        ["reset", first],
        ["undo"],
    ):
        watched.done(*words)
        settled_since(watched)
        assert len(autos(watched)) == made, words
    watched.kill()
    watched.done("daemon", "start")
    until(lambda: watcher(watched)["state"] == "active")
    settled_since(watched)
    assert len(autos(watched)) == made


def settled_since(place):
    """Wait until the restore that was just made has been looked at: it wakes autosave up, like any change."""
    seen = watcher(place)["seen"]

    def is_seen():
        # Once more each time: while watches are put anew nothing is told, since a scan comes after that.
        (place.ws / "a.txt").touch()
        return watcher(place)["seen"] > seen

    until(is_seen)
    until(lambda: place.json("status")["state"] == "IDLE")


def test_an_edit_beside_a_restore_is_saved(watched):
    (first,) = (one["id"] for one in watched.json("ls")["checkpoints"])
    (watched.ws / "src" / "main.py").write_text("2\n")
    at_rest(watched)
    made = len(autos(watched))
    watched.done("rollback", first, "src/main.py")
    (watched.ws / "a.txt").write_text("at the same time\n")
    until(lambda: len(autos(watched)) == made + 1)
    assert watched.done("cat", "HEAD", "a.txt").out == "at the same time\n"


def test_a_burst_is_saved_whole(watched):
    for number in range(20_000):
        if number % 100 == 0:
            folder = watched.ws / "burst" / str(number // 100)
            folder.mkdir(parents=True)
        (folder / f"f{number}").touch()
    at_rest(watched)
    assert saved_tree(watched) == git_tree(os.fsencode(watched.ws))
    (watched.ws / "burst" / "7" / "late").write_text("1")
    at_rest(watched)
    assert watched.done("cat", "HEAD", "burst/7/late").out == "1"


def test_a_watcher_that_was_stopped_during_a_burst_loses_nothing_in_the_end(watched):
    """The kernel's queue runs over meanwhile, and nobody is told: only that something has changed at all."""
    (child,) = set(watched.daemons()) - {watched.pid()}
    os.kill(child, signal.SIGSTOP)
    for number in range(12_000):
        (watched.ws / "src" / f"f{number}").write_text("1")
        if number % 3 == 0:
            (watched.ws / "src" / f"f{number}").unlink()
        if number % 1000 == 0:
            (watched.ws / "made" / str(number)).mkdir(parents=True)
            (watched.ws / "made" / str(number) / "x").touch()
    shutil.rmtree(watched.ws / "docs")
    (watched.ws / "docs").mkdir()
    (watched.ws / "src" / "last").write_text("lost in the crowd")
    os.kill(child, signal.SIGCONT)
    at_rest(watched)
    assert saved_tree(watched) == git_tree(os.fsencode(watched.ws))
    for path in ("made/3000/x", "docs/again", "src/last"):
        (watched.ws / path).write_text("2")
        at_rest(watched)
        assert watched.done("cat", "HEAD", path).out == "2"


def saved_tree(place):
    head = place.json("status")["head"]
    (store,) = place.stores()
    return run_git(f"--git-dir={store}", "rev-parse", f"{head}^{{tree}}").decode().strip()


def test_a_name_that_is_not_utf8_is_saved_and_stops_nothing(watched):
    odd = os.fsencode(watched.ws) + b"/src/\xff"
    os.mkdir(odd)
    with open(odd + b"/\xfe", "w") as file:
        file.write("odd")
    at_rest(watched)
    until(lambda: watcher(watched)["state"] == "degraded")
    assert "UTF-8" in watcher(watched)["reason"]
    with open(odd + b"/\xfe", "w") as file:
        file.write("changed where nobody can watch")
    at_rest(watched)
    # Each change there ends the native watching, which is begun again after a pause.
    assert "UTF-8" in watched.done("watch", "status").out
    shutil.rmtree(odd)
    at_rest(watched)
    until(lambda: watcher(watched)["state"] == "active", 60)


def test_a_worktree_that_is_gone_halts_and_one_that_comes_back_is_saved_again(watched):
    watched.ws.rename(watched.home / "elsewhere")
    until(lambda: watched.json("daemon", "status", cwd=watched.home)["stores"][0]["state"] == "HALTED", 60)
    (watched.home / "elsewhere").rename(watched.ws)
    assert watched.json("watch", "status")["halted"] == "worktree_missing"
    assert "worktree_missing" in watched.done("status").out
    watched.done("watch", "on")
    (watched.ws / "a.txt").write_text("back\n")
    at_rest(watched)


def test_a_worktree_that_was_moved_goes_on_at_its_new_place(watched):
    moved = watched.home / "moved"
    watched.ws.rename(moved)
    (moved / "a.txt").write_text("after the move")
    watched.done("adopt", str(watched.ws), "--yes", cwd=moved)
    # It is opened without being asked for, and its watcher begins with a look.
    until(lambda: [one["worktree"] for one in watched.json("daemon", "status", cwd=moved)["stores"]] == [str(moved)])
    until(lambda: watched.json("ls", "--kind", "auto", cwd=moved)["checkpoints"])
    assert watched.json("cat", "HEAD", "a.txt", cwd=moved)["data"] == "after the move"
    (one,) = watched.json("usage", cwd=moved)["stores"]
    assert (one["path"], one["watcher"] in ("active", "polling", "degraded")) == (str(moved), True)
    moved.rename(watched.ws)


def test_a_worktree_that_was_replaced_halts_until_somebody_saves(watched):
    watched.ws.rename(watched.home / "elsewhere")
    watched.ws.mkdir()
    fill(watched)
    until(lambda: watched.json("watch", "status")["halted"] == "worktree_replaced", 60)
    (watched.ws / "a.txt").write_text("of the other one\n")
    watched.save("it is the same project")
    assert watched.json("watch", "status")["halted"] is None
    (watched.ws / "a.txt").write_text("again\n")
    at_rest(watched)
    assert watched.done("cat", "HEAD", "a.txt").out == "again\n"


def test_a_worktree_that_is_suddenly_empty_halts(watched):
    for name in os.listdir(watched.ws):
        path = watched.ws / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    until(lambda: watched.json("watch", "status")["halted"] == "worktree_empty")
    assert autos(watched) == []
    watched.done("reset", "--yes")
    assert (watched.ws / "a.txt").read_text() == "a.txt 1\n"


def test_rules_that_drop_most_halt_until_somebody_agrees(watched):
    (watched.ws / ".gitignore").write_text("*.txt\nsrc/\n")
    until(lambda: watched.json("watch", "status")["halted"] == "rules_drop")
    assert autos(watched) == []
    watched.done("watch", "on")
    at_rest(watched)
    assert len(autos(watched)) == 1


def test_turned_off_it_stays_off(watched):
    watched.done("watch", "off")
    assert "off" in watched.done("watch", "status").out
    (watched.ws / "a.txt").write_text("not to be saved\n")
    watched.kill()
    watched.done("daemon", "start")
    assert watched.json("watch", "status")["watcher"]["state"] == "off"
    assert autos(watched) == []


def test_the_worktree_s_own_file_turns_it_on(hasty):
    fill(hasty)
    (hasty.ws / "fabricatio.toml").write_text("[ext.checkpoint]\nautosave = true\nautosave_max_wait_s = 7\n")
    hasty.save("first")
    until(lambda: watcher(hasty)["state"] == "active")
    assert watcher(hasty)["max_wait_s"] == 7
    (hasty.ws / "a.txt").write_text("2\n")
    at_rest(hasty)
    assert len(autos(hasty)) == 1
    hasty.done("watch", "off")
    hasty.kill()
    assert watcher(hasty)["state"] == "off"


def test_watch_on_makes_the_store_and_nothing_else_does(place):
    assert place.ckpt("watch", "status").code == 20
    assert place.ckpt("watch", "off").code == 20
    assert place.ckpt("watch", "sideways").code == 2
    assert place.stores() == []
    told = place.json("watch", "on")
    assert (told["state"], told["halted"], told["reboot"]["unit"]) in (
        (state, None, False) for state in ("IDLE", "DIRTY", "BUSY")
    )
    assert len(place.stores()) == 1
    said = place.done("watch", "status").out
    assert "ckpt daemon install" in said


def test_a_daemon_that_watches_does_not_end_when_idle(place):
    place.environ["FABRICATIO_EXT__CHECKPOINT__IDLE_EXIT_S"] = "0.2"
    fill(place)
    place.done("watch", "on")
    pid = place.pid()
    until(lambda: place.json("daemon", "status")["uptime_s"] > 1)
    assert place.pid() == pid
    place.done("watch", "off")
    until(lambda: not place.daemons())


def test_the_watching_process_ends_with_the_daemon_and_is_replaced_when_it_ends(watched):
    (daemon, child) = sorted(watched.daemons(), key=lambda pid: pid != watched.pid())
    os.kill(child, 9)
    (watched.ws / "a.txt").write_text("meanwhile\n")
    at_rest(watched)
    until(lambda: watcher(watched)["state"] == "active", 60)
    assert daemon in watched.daemons()
    os.kill(daemon, 9)
    until(lambda: not watched.daemons())
