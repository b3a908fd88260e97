"""Saves held against what is on disk: whole scenarios, with a real daemon.

``Equality(base, seed)`` has a worktree and a daemon that watches it whatever a scan takes; with ``full`` each save
looks at everything instead, by what the last scan knew. ``round(scenario, count)`` lets other processes make so many
edits, saves as soon as they have ended, and compares the checkpoint's tree with one that is made of the disk without
the engine (``worlds.tree_id``, now and then git itself), and now and then with a save that reads every file. ``tally``
counts; a difference is an AssertionError that names the paths.
"""

import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support import leftovers, wild_edits
from support.plainworld import World, look
from support.poll import until
from support.worktrees import git_tree, run_git
from support.worlds import tree_id

__all__ = ["SCENARIOS", "Equality"]

SCENARIOS = ("plain", "during saves", "stopped", "starved", "moves", "burst", "burst while stopped", "links")

_HELPING = re.compile(r"ckptd\.(watch|workers)|deltachild")
_READ_ALL_EVERY = 8
_SPIN = "while True: pass"


class Equality:
    """See the module. ``environ`` is that of the daemon and of the editing processes."""

    def __init__(self, base: Path, seed: int, *, full: bool = False) -> None:
        from fabricatio_checkpoint import CheckpointService

        self.root = base / "tree"
        self.outside = base / "outside"
        self.outside.mkdir()
        self._place = str(base)
        self._chance = random.Random(seed)
        self._serial = seed * 1_000_000
        self._full = full
        self.tally: Counter[str] = Counter()
        for number in range(300):
            path = self.root / f"n{number % 3}" / f"d{number % 25}" / f"n{number % 6}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(number))
        self._service = CheckpointService(base / "stores", session="equality")
        self._store = self._service.get_store(self.root)
        self._folder = os.fsencode(self._store.usage().store)
        if not full:
            self._settle()

    def close(self) -> None:
        """Let go of the daemon."""
        self._service.close()

    def fall_backs(self) -> Counter[str]:
        """Why saves looked at everything although somebody watched."""
        scans = self._store.watch_status().scans
        assert scans is not None
        return Counter({one.kind: one.count for one in scans.fall_backs})

    def round(self, scenario: str, count: int) -> None:
        """Do one; see the module."""
        self.tally[f"rounds: {scenario}"] += 1
        outside = set(os.listdir(self.outside))
        _ROUNDS[scenario](self, count)
        self._compare(scenario)
        if set(os.listdir(self.outside)) - outside:
            self._know_second_names()

    # -- the scenarios

    def _plain(self, count: int) -> None:
        self._edit([("all", count)])

    def _during_saves(self, count: int) -> None:
        editors = self._begin([("all", count), ("moves", count)])
        while any(editor.poll() is None for editor in editors):
            # What it holds of a file that is being written is anybody's guess; the one after the last edit is not.
            self._store.save("in between", full=self._full)
            self.tally["saves in between"] += 1
        self._end(editors)

    def _stopped(self, count: int) -> None:
        with self._signalled(signal.SIGSTOP, signal.SIGCONT):
            self._edit([("all", count), ("moves", count // 4)])

    def _starved(self, count: int) -> None:
        """Three processes that never rest and two that write; what is left is the daemon's, until it has saved."""
        spinning = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(3)]
        try:
            with self._idle_only():
                self._edit([("all", count), ("burst", count)])
                self._compare("starved")
        finally:
            for process in spinning:
                process.kill()
                process.wait()

    def _moves(self, count: int) -> None:
        self._edit([("moves", count), ("all", count // 4), ("moves", count // 2)])

    def _burst(self, count: int) -> None:
        self._edit([("burst", count)])

    def _burst_while_stopped(self, count: int) -> None:
        # In a directory that is new nobody would be told of anything.
        self._edit([("burst", 5)])
        self._compare("burst while stopped")
        with self._signalled(signal.SIGSTOP, signal.SIGCONT):
            self._edit([("burst", count)])

    def _links(self, count: int) -> None:
        self._edit([("links", count)])

    # -- the processes

    def _edit(self, work: list[tuple[str, int]]) -> None:
        self._end(self._begin(work))

    def _begin(self, work: list[tuple[str, int]]) -> list["subprocess.Popen[str]"]:
        editors = []
        for kind, count in work:
            self._serial += 1
            words = [str(self.root), str(self.outside), str(self._serial), str(max(1, count)), kind]
            command = [sys.executable, wild_edits.__file__, *words]
            editors.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return editors

    def _end(self, editors: list["subprocess.Popen[str]"]) -> None:
        for editor in editors:
            told, _ = editor.communicate()
            assert editor.returncode == 0, f"an editor has failed: {told}"
            self.tally["edits"] += int(told)

    def _daemon(self) -> int:
        pids: list[int] = []

        def is_alone() -> bool:
            # One that is being started has for a moment the daemon's own words.
            pids[:] = [pid for pid, words in leftovers.daemons_of(self._place).items() if not _HELPING.search(words)]
            return len(pids) == 1

        until(is_alone, 60)
        return pids[0]

    @contextmanager
    def _signalled(self, before: signal.Signals, after: signal.Signals) -> Iterator[None]:
        pid = self._daemon()
        os.kill(pid, before)
        try:
            yield
        finally:
            os.kill(pid, after)

    @contextmanager
    def _idle_only(self) -> Iterator[None]:
        """Let the daemon run only when nobody else wants to; where that cannot be taken back, with the lowest rank."""
        pid = self._daemon()
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        try:
            for thread in threads:
                os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
            yield
        finally:
            for thread in [int(name) for name in os.listdir(f"/proc/{pid}/task")]:
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))

    # -- the comparison

    def _compare(self, scenario: str) -> None:
        self._serial += 1
        folders = sorted(path for path, node in look(bytes(self.root)).items() if node.kind == "d")
        folder = self._chance.choice(folders or [b""])
        with open(os.path.join(bytes(self.root), folder, b"mark"), "w") as file:
            file.write(str(self._serial))
        saved = self._store.save_detailed(f"{scenario} {self._serial}", full=self._full)
        assert saved.created, "a save of an edit made nothing"
        self.tally["saves"] += 1
        self.tally[f"saves: {self._store.show(saved.id).checkpoint.scan}"] += 1
        world = look(bytes(self.root))
        tree = run_git(b"--git-dir=" + self._folder, "rev-parse", f"{saved.id}^{{tree}}").decode().strip()
        if tree != tree_id(world):
            self.tally["differences"] += 1
            raise AssertionError(f"{scenario}: {saved.id} is not what is on disk: {self._differing(saved.id, world)}")
        if self.tally["saves"] % _READ_ALL_EVERY == 0:
            assert git_tree(bytes(self.root)) == tree, "git makes another tree of the disk"
            again = self._store.save_detailed("everything read", rehash=True)
            assert not again.created, f"a save that reads everything has found more: {again.id} after {saved.id}"
            self.tally["saves that read everything"] += 1

    def _know_second_names(self) -> None:
        """Look at everything: nobody is told when a file gets a name outside, so what is written through it later."""
        self._store.save("second names", full=True)
        self.tally["saves that learn of names outside"] += 1

    def _differing(self, one: str, world: World) -> list[str]:
        listing = run_git(b"--git-dir=" + self._folder, "ls-tree", "-r", "-t", "-z", one).split(b"\0")[:-1]
        saved = {record.partition(b"\t")[2]: record.split(b" ")[2][:40].decode() for record in listing}
        there = {path for path in {*saved, *world} if (path in saved) != (path in world)}
        for path, node in world.items():
            if node.kind != "d" and path in saved:
                data = node.data
                found = run_git("hash-object", "--stdin", data=data).decode().strip()
                there |= {path} if found != saved[path] else set()
        return sorted(map(os.fsdecode, there))[:10]

    def _settle(self) -> None:
        """Save until a save goes by the watcher's word."""

        def is_watched() -> bool:
            self._serial += 1
            (self.root / "mark").write_text(str(self._serial))
            return self._store.show(self._store.save("settling")).checkpoint.scan == "watched"

        until(is_watched, 60)


_ROUNDS: dict[str, Callable[[Equality, int], None]] = {
    "plain": Equality._plain,
    "during saves": Equality._during_saves,
    "stopped": Equality._stopped,
    "starved": Equality._starved,
    "moves": Equality._moves,
    "burst": Equality._burst,
    "burst while stopped": Equality._burst_while_stopped,
    "links": Equality._links,
}
