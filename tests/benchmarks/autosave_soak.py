"""An hour with autosave: three worktrees under random editing, kills, thinning and a size cap. Run by hand.

    python3 tests/benchmarks/autosave_soak.py [--minutes N] [--seed N] [--kill-every-s N] [--slack-s N]

The first worktree has small files (the rule thins it), the second large ones (the size cap does), the third bursts of
hundreds. Beside autosave there are saves, drops and restores by hand. Every few minutes the daemon, or its watching
process, is killed. Held against this driver's own books at the end:

- a checkpoint whose reply or event came is there, or was dropped by hand, or went by the rule of thinning as
  ``support/thinrule.py`` states it once more, or by the cap while the store was above it; nothing else is gone;
- bytes that were on disk, under a daemon that lived, for ``autosave_max_wait_s`` plus the slack (one save, on a machine
  that has other things to do) are in a checkpoint;
- git and the daemon's own verification find no fault in any store;
- memory, descriptors and threads in the last quarter are as in the second one; packs are under the cap at the end.

Prints what it has counted; exit code 1 where something of this does not hold.
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import bootstrap, isolation, leftovers
from support.thinrule import Heard, Removal, Rules, judge
from support.tracked_edits import Content, Stay, TrackedEdits

QUIET_S, WAIT_S = 1.0, 5.0
RULES = Rules(last=60, hourly=2, daily=1, weekly=1, max_bytes=8 * 1024 * 1024)
ALLOWED_BYTES = RULES.max_bytes * 17 // 16
"""A store that has grown by less than a sixteenth of its cap since it was last weighed is not weighed again."""
MOST_MANUAL = 3
SORTS = (("small", (20, 3_000), 100), ("large", (20_000, 60_000), 30), ("bursts", (200, 6_000), 100))
"""Name, bytes of a file, number of files (those of bursts not counted)."""

SAMPLE_EVERY_S = 10.0
SETTLE_S = 180.0
WATCHING = re.compile(r"ckptd\.watch")
HELPING = re.compile(r"ckptd\.(watch|workers)")
TOLERANCES = {
    "own": (0.06, 12 * 1024),
    "mapped": (0.06, 12 * 1024),
    "watcher": (0.06, 2048),
    "descriptors": (0.0, 32),
    "threads": (0.0, 3),
    "gone": (0.0, RULES.max_bytes),
}
"""As in soak.py; but a life is only minutes long here, so that the ages of the daemons that are compared differ, and
the operation logs, which are held in memory, grow until they are cut at 2,000 operations."""


class Sample(NamedTuple):
    """The daemon at one moment, and how old it was; memory in KiB: what is its own, and what it has mapped of files.

    ``gone`` are the bytes of deleted files that it holds open, ``packed`` those of each store's packs.
    """

    seconds: float
    age: float
    own: int
    mapped: int
    watcher: int
    gone: int
    descriptors: int
    threads: int
    packed: list[int]


class Tree:
    """One worktree, whoever edits, saves and restores it, and all that is known of its checkpoints."""

    def __init__(self, name: str, root: Path, store, folder: bytes, edits: TrackedEdits, chance: random.Random) -> None:
        self.name = name
        # What an undo needs stays, and would fill the store of large files on its own.
        self.restores = name != "large"
        self.root = root
        self.store = store
        self.folder = folder
        self.edits = edits
        self.chance = chance
        self.acknowledged: set[str] = set()
        self.safeties: set[str] = set()
        self.dropped: set[str] = set()
        self.known: dict[str, Heard] = {}
        self.removals: dict[int, Removal] = {}
        self.held: dict[Content, float] = {}
        self.done: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.lock = threading.Lock()

    # -- what its user does

    def act(self, bursts: bool) -> None:
        """Do one thing."""
        chance = self.chance.random()
        if chance < 0.004:
            self._ask("saved by hand", self._save)
        elif chance < 0.0055 and self.restores:
            self._ask("restored", self._restore)
        elif chance < 0.012 and bursts:
            self.edits.burst(300)
        elif chance < 0.022:
            # Long enough for a quiet period.
            time.sleep(self.chance.uniform(1.5, 5.0))
        else:
            self.edits.edit()
            time.sleep(self.chance.uniform(0.0, 0.2))

    def _ask(self, name: str, act) -> None:
        from fabricatio_checkpoint.errors import TransportError

        try:
            act()
            self.done[name] += 1
        except TransportError:
            # Whether it was done cannot be known; what was acknowledged can.
            self.done["cut off"] += 1

    def _save(self) -> None:
        saved = self.store.save_detailed(f"by hand {self.edits.count}")
        self.hear(saved.id)
        manual = [one.id for one in self.store.checkpoints() if one.kind == "manual"]
        for old in manual[MOST_MANUAL:]:
            with self.lock:
                # Whatever comes of it, from here on it may be gone.
                self.dropped.add(old)
            self.store.drop(old)
            self.done["dropped by hand"] += 1

    def _restore(self) -> None:
        from fabricatio_checkpoint.errors import InputError, StateError

        began = time.time()
        try:
            if self.store.status().interrupted:
                self._took(self.store.resume(self.chance.choice(("finish", "undo")), skip_conflicts=True))
                self.done["resumed"] += 1
                return
            chosen = self.chance.choice([one.id for one in self.store.checkpoints(limit=30)])
            if self.chance.random() < 0.5:
                self._took(self.store.reset(chosen, skip_conflicts=True))
            else:
                self._took(self.store.rollback(chosen, f"d{self.chance.randrange(12)}", delete=True))
        except (InputError, StateError) as error:
            # Thinned meanwhile, nothing there to bring back, or a directory that neither side has.
            self.done[f"refused: {error.kind}"] += 1
        finally:
            self.edits.resync(began)

    def _took(self, result) -> None:
        if result.safety is not None:
            self.hear(result.safety, safety=True)

    # -- what is known

    def hear(self, one: str, *, safety: bool = False) -> None:
        """A checkpoint is acknowledged: look what it holds, before it can go."""
        with self.lock:
            self.acknowledged.add(one)
            if safety:
                self.safeties.add(one)
            is_new = one not in self.known
        if is_new or safety:
            self._read(one)

    def _read(self, one: str) -> None:
        from support.worktrees import run_git

        where = b"--git-dir=" + self.folder
        try:
            text = run_git(where, "cat-file", "commit", one).decode()
            listing = run_git(where, "ls-tree", "-r", "-z", one)
        except AssertionError:
            # It went before anybody could look; the next poll sees whether it was allowed to.
            self.done["gone before it was read"] += 1
            return
        seen, now = heard_of(one, text), time.time()
        with self.lock:
            self.known[one] = seen
            for record in listing.split(b"\0")[:-1]:
                facts, _, path = record.partition(b"\t")
                content = Content(path, facts.split(b" ")[2].decode())
                if content in self.held:
                    continue
                self.held[content] = now
                alive = self.edits.alive.get(path)
                if alive is not None and alive[0] == content.blob and seen.kind == "auto":
                    self.latencies.append(now - alive[1])

    def poll(self) -> None:
        """Look at the refs and at the log, which says what was removed; it is cut from time to time."""
        from support.worktrees import run_git

        refs = run_git(b"--git-dir=" + self.folder, "for-each-ref", "--format=%(objectname)", "refs/checkpoints")
        with self.lock:
            unknown = [one for one in refs.decode().split() if one not in self.known]
        for one in unknown:
            self._read(one)
        with open(os.path.join(self.folder, b"ckpt", b"log"), "rb") as file:
            lines = file.read().split(b"\n")[:-1]
        for line in lines:
            removal = removal_of(line)
            if removal is not None:
                with self.lock:
                    self.removals[removal.n] = removal

    def present(self) -> set[str]:
        """The checkpoints that git sees."""
        from support.worktrees import run_git

        refs = run_git(b"--git-dir=" + self.folder, "for-each-ref", "--format=%(objectname)", "refs/checkpoints")
        return set(refs.decode().split())

    def packed_bytes(self) -> int:
        """What the packs take."""
        total = 0
        with (
            contextlib.suppress(FileNotFoundError),
            os.scandir(os.path.join(self.folder, b"objects", b"pack")) as found,
        ):
            for item in found:
                with contextlib.suppress(FileNotFoundError):
                    total += item.stat().st_size if item.name.endswith(b".pack") else 0
        return total


def heard_of(one: str, text: str) -> Heard:
    """Read a commit as git prints it."""
    committer = re.search(r"^committer .* (\d+) [+-]\d{4}$", text, re.MULTILINE)
    block = text.rpartition("\n\n")[2]
    fields = dict(line.partition(": ")[::2] for line in block.splitlines())
    return Heard(int(fields["Ckpt-Seq"]), one, int(committer[1]), fields["Ckpt-Kind"])


def removal_of(line: bytes) -> Removal | None:
    """Read one line of the operation log: what was about to be removed."""
    if b'"dropped":[{' not in line or b'"intent"' not in line:
        return None
    told = json.loads(line)
    answer = told["answer"] or {}
    total = answer.get("left_bytes", 0) + answer.get("frees_bytes", 0)
    ids = frozenset(one["id"] for one in told["dropped"])
    return Removal(told["n"], told["next_seq"], told.get("before"), ids, total, told["verb"] == "thin")


class Lives:
    """The daemon's lives: from when to when it watched all the worktrees."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []
        self.up: float | None = None

    def began(self) -> None:
        self.up = time.time()

    def ended(self) -> None:
        if self.up is not None:
            self.spans.append((self.up, time.time()))
            self.up = None

    def longest_within(self, stay: Stay) -> float:
        """For how long in one piece a content was there under one daemon."""
        spans = [*self.spans, *([(self.up, time.time())] if self.up is not None else [])]
        return max((min(end, stay.until) - max(begin, stay.since) for begin, end in spans), default=0.0)


class Soak:
    """See the module."""

    def __init__(self, place: Path, options: argparse.Namespace) -> None:
        from fabricatio_checkpoint import CheckpointService

        self.place = place
        self.options = options
        self.chance = random.Random(options.seed)
        self.service = CheckpointService(place / "stores", session="soak")
        self.lives = Lives()
        self.over = threading.Event()
        self.samples: list[Sample] = []
        self.kills: Counter[str] = Counter()
        self.failures: list[str] = []
        self.due: deque[tuple[float, Tree, Stay]] = deque()
        self.checked = 0
        self.told = 0
        self.trees = [self._tree(number) for number in range(3)]
        self.began = time.time()

    def _tree(self, number: int) -> Tree:
        name, sizes, most = SORTS[number]
        root = self.place / "w" / name
        root.mkdir(parents=True)
        edits = TrackedEdits(str(root), self.options.seed * 10 + number, sizes, most)
        store = self.service.get_store(root)
        folder = os.fsencode(store.usage().store)
        tree = Tree(name, root, store, folder, edits, random.Random(self.options.seed * 100 + number))
        tree.hear(store.save("the beginning"))
        store.watch(True)
        return tree

    # -- threads

    def run(self) -> None:
        """Do everything for as long as was asked for."""
        threads = [threading.Thread(target=self._guarded, args=(self._edit, tree)) for tree in self.trees]
        threads.append(threading.Thread(target=self._guarded, args=(self._listen,), daemon=True))
        self._wait_until_watched()
        for thread in threads:
            thread.start()
        self._look_on()
        self.over.set()
        for thread in threads[:-1]:
            thread.join()

    def _guarded(self, act, *arguments) -> None:
        try:
            act(*arguments)
        except BaseException as error:
            self.failures.append(f"the driver's own {act.__name__} ended: {error!r}")
            self.over.set()
            raise

    def _edit(self, tree: Tree) -> None:
        while not self.over.is_set():
            tree.act(bursts=tree.name == "bursts")
            ended, tree.edits.ended = tree.edits.ended, []
            self.due.extend((time.time() + 30.0, tree, stay) for stay in ended)

    def _listen(self) -> None:
        from fabricatio_checkpoint.errors import TransportError

        trees = {str(tree.root): tree for tree in self.trees}
        while True:
            try:
                with self.service.events(kinds=["checkpoint.created", "autosave.failed", "autosave.halted"]) as stream:
                    for event in stream:
                        tree = trees[event.worktree]
                        if event.kind != "checkpoint.created":
                            tree.done[f"{event.kind}: {event.data.get('reason')}"] += 1
                            continue
                        self.told += 1
                        tree.done["missed events"] += event.missed
                        tree.hear(event.data["id"], safety=bool(event.data.get("safety")))
            except TransportError:
                time.sleep(0.05)

    def _look_on(self) -> None:
        """Kill, poll and measure until the time is over."""
        end = time.time() + self.options.minutes * 60
        next_kill = time.time() + self._pause()
        born = time.time()
        names = ("minute", "age, s", "own KiB", "mapped", "watcher", "deleted and open, MB", "descriptors", "threads")
        header = "| " + " | ".join((*names, "packs, MB", "saved", "thinned", "kills")) + " |"
        print(header + "\n|" + "---:|" * 12, flush=True)
        while time.time() < end and not self.over.wait(SAMPLE_EVERY_S):
            if time.time() > next_kill:
                born = self._kill() or born
                next_kill = time.time() + self._pause()
            for tree in self.trees:
                tree.poll()
            self._judge_stays(time.time())
            self._measure(born)

    def _pause(self) -> float:
        return self.options.kill_every_s * self.chance.uniform(0.5, 1.5)

    def _kill(self) -> float | None:
        found = leftovers.daemons_of(str(self.place))
        watching = [pid for pid, command in found.items() if WATCHING.search(command)]
        if watching and self.chance.random() < 0.3:
            os.kill(watching[0], signal.SIGKILL)
            self.kills["watching process"] += 1
            return None
        self.lives.ended()
        for pid, command in found.items():
            if not HELPING.search(command):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.kills["daemon"] += 1
        self._wait_until_watched()
        return time.time()

    def _wait_until_watched(self) -> None:
        from fabricatio_checkpoint.errors import TransportError

        end = time.time() + SETTLE_S
        while time.time() < end:
            with contextlib.suppress(TransportError):
                states = [tree.store.watch_status().watcher.state for tree in self.trees]
                if "off" not in states:
                    self.lives.began()
                    return
            time.sleep(0.1)
        raise RuntimeError("the daemon does not watch")

    def _judge_stays(self, now: float) -> None:
        """What was on disk for long enough must be in a checkpoint; its event may have been on its way until now."""
        while self.due and self.due[0][0] <= now:
            _, tree, stay = self.due.popleft()
            if self.lives.longest_within(stay) < WAIT_S + self.options.slack_s:
                continue
            self.checked += 1
            if stay.content not in tree.held:
                lasted = stay.until - stay.since
                self.failures.append(
                    f"{tree.name}: {stay.content.path!r} was there for {lasted:.1f} s until {stay.until:.1f}, "
                    "and is in no checkpoint"
                )
                print(self.failures[-1], flush=True)

    def _measure(self, born: float) -> None:
        found = leftovers.daemons_of(str(self.place))
        main = [pid for pid, command in found.items() if not HELPING.search(command)]
        watching = [pid for pid, command in found.items() if WATCHING.search(command)]
        try:
            status, fds = status_of(main[0]), len(os.listdir(f"/proc/{main[0]}/fd"))
            watcher = status_of(watching[0])
        except (IndexError, OSError):
            return
        packed = [tree.packed_bytes() for tree in self.trees]
        now = time.time()
        self.samples.append(
            Sample(
                now - self.began,
                now - born,
                status["RssAnon"],
                status["RssFile"],
                watcher["RssAnon"],
                gone_but_open(main[0]),
                fds,
                status["Threads"],
                packed,
            )
        )
        if len(self.samples) % 6 == 1:
            sizes = " ".join(f"{one / 1e6:.1f}" for one in packed)
            gone = sum(len(removal.ids) for tree in self.trees for removal in tree.removals.values())
            known = sum(len(tree.known) for tree in self.trees)
            one = self.samples[-1]
            print(
                f"| {one.seconds / 60:.1f} | {one.age:.0f} | {one.own:,} | {one.mapped:,} | {one.watcher:,} "
                f"| {one.gone / 1e6:.1f} | {one.descriptors} | {one.threads} "
                f"| {sizes} | {known:,} | {gone:,} | {self.kills.total()} |",
                flush=True,
            )

    # -- the end

    def settle(self) -> None:
        """Wait until everything is saved and housekeeping has had its time, then close the books."""
        end = time.time() + SETTLE_S
        while time.time() < end:
            if all(not tree.store.status().changes for tree in self.trees):
                break
            time.sleep(0.5)
        else:
            self.failures.append("autosave has not come to rest")
        # Asking is work, after which there is no idle time: so only the disk is looked at.
        while time.time() < end and any(tree.packed_bytes() > ALLOWED_BYTES for tree in self.trees):
            time.sleep(0.5)
        time.sleep(5.0)
        for tree in self.trees:
            tree.poll()
        self._judge_stays(time.time() + 60.0)

    def check(self) -> None:
        """Hold the stores against the books."""
        from support.worktrees import verify

        for tree in self.trees:
            wrong, by_rule, by_cap = judge(
                list(tree.known.values()), list(tree.removals.values()), RULES, tree.safeties
            )
            self.failures += [f"{tree.name}: {one}" for one in wrong]
            tree.done["thinned by rule"], tree.done["thinned by the cap"] = by_rule, by_cap
            removed = {one for removal in tree.removals.values() for one in removal.ids}
            by_hand = {one for removal in tree.removals.values() if not removal.thinned for one in removal.ids}
            present = tree.present()
            lost = tree.acknowledged - present - removed - tree.dropped
            self.failures += [f"{tree.name}: {one} is gone, and nothing has removed it" for one in sorted(lost)]
            self.failures += [f"{tree.name}: {one} was dropped by nobody" for one in sorted(by_hand - tree.dropped)]
            if tree.packed_bytes() > ALLOWED_BYTES:
                self.failures.append(f"{tree.name}: {tree.packed_bytes():,} bytes of packs are above the cap")
            try:
                verify(tree.folder)
            except AssertionError as error:
                self.failures.append(f"{tree.name}: git: {error}")
            verified = tree.store.verify(read_data=True)
            if not verified.clean:
                self.failures.append(f"{tree.name}: {verified}")

    def report(self) -> int:
        """Print everything; 1 where something does not hold."""
        spent = (time.time() - self.began) / 60
        print(f"\n{spent:.0f} minutes, seed {self.options.seed}; kills: {dict(self.kills)}; {self.told:,} events")
        for tree in self.trees:
            counts = ", ".join(f"{name} {count:,}" for name, count in sorted(tree.done.items()) if count)
            print(
                f"- {tree.name}: {tree.edits.count:,} edits, {len(tree.known):,} checkpoints, of which "
                f"{len(tree.acknowledged):,} acknowledged, {len(tree.present()):,} there; {counts}"
            )
            late = sorted(tree.latencies)
            if late:
                print(
                    f"  from a file's last write to its autosave: median {statistics.median(late):.1f} s, "
                    f"99 of 100 within {late[len(late) * 99 // 100]:.1f} s, longest {late[-1]:.1f} s"
                )
        print(f"- {self.checked:,} contents that had lain there for long enough were looked for")
        worst = [max(sample.packed[number] for sample in self.samples) for number in range(len(self.trees))]
        last = [tree.packed_bytes() for tree in self.trees]
        usual = [statistics.median(sample.packed[number] for sample in self.samples) for number in range(len(last))]
        for name, sizes in (("largest", worst), ("median", usual), ("at the end", last)):
            print(f"- packs, {name}: " + ", ".join(f"{size / 1e6:.2f} MB" for size in sizes))
        print(f"  (cap {RULES.max_bytes / 1e6:.2f} MB)")
        self._report_growth()
        for failure in self.failures:
            print(f"FAILED {failure}")
        print("nothing lost but by rule" if not self.failures else f"{len(self.failures)} failures")
        return 1 if self.failures else 0

    def _report_growth(self) -> None:
        quarter = len(self.samples) // 4
        if quarter < 3:
            print("too few samples to tell growth")
            return
        print("\n| median of | second quarter | last quarter | tolerated | |\n|---|---:|---:|---:|---|")
        second, last = self.samples[quarter : 2 * quarter], self.samples[-quarter:]
        for name, (share, least) in TOLERANCES.items():
            before, after = (statistics.median(getattr(sample, name) for sample in part) for part in (second, last))
            tolerated = max(before * share, least)
            flat = after - before <= tolerated
            print(f"| {name} | {before:,.0f} | {after:,.0f} | +{tolerated:,.0f} | {'flat' if flat else '**grows**'} |")
            if not flat:
                self.failures.append(f"{name} grows")


def status_of(pid: int) -> dict[str, int]:
    """Memory in KiB, and threads, of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) for name in ("RssAnon", "RssFile", "Threads")}


def gone_but_open(pid: int) -> int:
    """The bytes of deleted files that a process holds open."""
    total = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        with contextlib.suppress(OSError):
            total += os.stat(path).st_size if os.readlink(path).endswith(" (deleted)") else 0
    return total


def main() -> int:
    """Run, print, and tell whether everything held."""
    options = parse()
    environment = bootstrap.prepare(".venv-test", dev=True, editable=True)
    if Path(sys.prefix) != environment:
        return subprocess.run([bootstrap.binary(environment, "python"), *sys.argv], check=False).returncode
    place = isolation.short_directory("cka")
    environ = isolation.private_environment(place, os.environ)
    for name, value in (
        ("AUTOSAVE_QUIET_S", QUIET_S),
        ("AUTOSAVE_MAX_WAIT_S", WAIT_S),
        ("KEEP_LAST", RULES.last),
        ("KEEP_HOURLY", RULES.hourly),
        ("KEEP_DAILY", RULES.daily),
        ("KEEP_WEEKLY", RULES.weekly),
        ("MAX_STORE_BYTES", RULES.max_bytes),
    ):
        environ[f"FABRICATIO_EXT__CHECKPOINT__{name}"] = str(value)
    os.environ.clear()
    os.environ.update(environ)
    failed = True
    try:
        soak = Soak(Path(place), options)
        soak.run()
        soak.settle()
        soak.check()
        failed = bool(soak.report())
        return int(failed)
    finally:
        leftovers.kill(leftovers.daemons_of(place))
        if failed and options.keep:
            print(f"left for a look: {place}")
        else:
            isolation.remove(place)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill-every-s", type=float, default=180.0)
    parser.add_argument("--slack-s", type=float, default=10.0)
    parser.add_argument("--keep", action="store_true", help="leave the place where something failed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
