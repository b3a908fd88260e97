"""The goals of speed, each measured beside the predecessor 0.3.6 and git in the same run. Run by hand.

    python3 tests/benchmarks/goals.py [--files 1000,10000,100000] [--edits N] [--checkpoints N] [--only G4,G5]
                                      [--idle-s SECONDS]

Prints one Markdown table: medians and p99 of this project, medians of the others, ratios, and the goal beside each.
Within a run the sides take turns, operation by operation; writeback is awaited (``sync``) before each, outside its
time.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tree
from main_job import GIT, OURS, PEERS, Contestant, Git, own_python, peer_python, size_of

from support import isolation, leftovers

GOALS = ("G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10")
SETTLED_S = 2.5
OURS_A_TURN = 10
"""Saves of ours for each one of the others, where ours are a hundred times quicker: a p99 needs many."""
WATCHED_S = 120.0
BASE_BYTES = 60_000_000
WATCHED = "watched save of one file"


class Row(NamedTuple):
    """One line of the table; seconds by side, and whether the goal is met (None: there is none, or nothing to say)."""

    goal: str
    what: str
    files: int
    seconds: dict[str, list[float]]
    wanted: str
    met: bool | None
    shown: str = ""


class Run:
    """The sides on one size of tree, and what was measured there."""

    def __init__(self, place: Path, files: int, options: argparse.Namespace, ours: str, peer: str | None) -> None:
        self.files = files
        self.options = options
        self.place = place
        self.base = base = private(place)
        self.environ = with_ours(base, ours, options)
        self.python, self.peer = ours, peer
        self.ours = Contestant(ours, place / "ours", files, self.environ)
        self.sides: dict[str, Contestant | Git] = {OURS: self.ours}
        if peer:
            self.sides[PEERS] = Contestant(peer, place / "peer", files, base)
        self.sides[GIT] = Git(place / "git", files, base)
        self.rows: list[Row] = []
        self.first: dict[str, str] = {}

    def add(self, goal: str, what: str, seconds: dict[str, list[float]], wanted: str, met: bool | None) -> None:
        """Note a row."""
        self.rows.append(Row(goal, what, self.files, seconds, wanted, met))

    def close(self) -> None:
        """End the sides."""
        for side in self.sides.values():
            side.close()


def private(place: Path) -> dict[str, str]:
    """Give an environment of which nothing is anybody else's."""
    base = isolation.private_environment(str(place), os.environ)
    # Installed packages are compiled when they are installed; sources of an editable one would be compiled anew in
    # each process.
    base.pop("PYTHONDONTWRITEBYTECODE", None)
    return base


def with_ours(base: dict[str, str], ours: str, options: argparse.Namespace) -> dict[str, str]:
    """Give an environment in which this project is found."""
    path = os.pathsep.join([str(Path(ours).parent), base["PATH"]])
    own = {"PYTHONPATH": os.environ["PYTHONPATH"]} if options.python and "PYTHONPATH" in os.environ else {}
    return {**base, "PATH": path, **own}


def main() -> int:
    """Measure and print; 0 where it could be done."""
    options = parse()
    ours = own_python(options.python)
    if ours is None:
        return 3
    peer = options.peer or peer_python()
    temporary = Path(isolation.short_directory("ckg"))
    rows: list[Row] = []
    try:
        # First, while nothing else has run.
        if "G9" in options.only:
            rows.append(idle(temporary / "idle", max(options.files), options, ours))
        for files in options.files:
            rows += measure(temporary / str(files), files, options, ours, peer)
            print(f"{files:,} files done", file=sys.stderr)
        if "G8" in options.only:
            rows += history(temporary / "history", options, ours)
        if "G3" in options.only:
            rows += growth(rows)
    finally:
        leftovers.kill(leftovers.daemons_of(str(temporary)))
        isolation.remove(str(temporary))
    report(rows, options)
    return 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = "1000,10000,100000"
    parser.add_argument("--files", type=lambda text: [int(one) for one in text.split(",")], default=sizes)
    parser.add_argument("--edits", type=int, default=20, help="saves of one edited file on each side")
    parser.add_argument("--checkpoints", type=int, default=10_000, help="length of the history of G8")
    parser.add_argument("--idle-s", type=float, default=60.0, help="for how long the idle daemon of G9 is looked at")
    parser.add_argument("--only", type=lambda text: text.split(","), default=",".join(GOALS))
    parser.add_argument("--python", help="a Python that has this project, instead of a virtual environment made here")
    parser.add_argument("--peer", help="a Python that has 0.3.6, instead of a virtual environment made here")
    options = parser.parse_args()
    unknown = set(options.only) - set(GOALS)
    if unknown:
        parser.error(f"no such goal: {', '.join(sorted(unknown))}")
    return options


def measure(place: Path, files: int, options: argparse.Namespace, ours: str, peer: str | None) -> list[Row]:
    """All goals that depend on the size of the tree."""
    run = Run(place, files, options, ours, peer)
    try:
        warm_up(run)
        first_saves(run)
        time.sleep(SETTLED_S)
        steps = {"G7": asked_meanwhile, "G10": restarted, "G2": full_scans, "G5": resets, "G6": processes}
        for goal, step in steps.items():
            if goal in options.only:
                step(run)
        if {"G1", "G3"} & set(options.only):
            watched_saves(run)
    finally:
        run.close()
        leftovers.kill(leftovers.daemons_of(str(place)))
    return run.rows


def warm_up(run: Run) -> None:
    """Start our daemon by a save of another worktree, so that its start is in nobody's time."""
    other = run.place / "warm"
    other.mkdir()
    script = str(Path(__file__).with_name("contestant.py"))
    order = json.dumps({"do": "save", "message": "warm"})
    command = [run.python, script, str(run.place / "ours" / "stores"), str(other)]
    subprocess.run(command, env=run.environ, input=order, text=True, check=True, stdout=subprocess.DEVNULL)


def first_saves(run: Run) -> None:
    """G4: the first save."""
    seconds: dict[str, list[float]] = {}
    for name, side in run.sides.items():
        os.sync()
        took, run.first[name] = side.save("first")
        seconds[name] = [took]
    disk = {name: size_of(side.store) for name, side in run.sides.items()}
    others = [name for name in run.sides if name != OURS]
    if "G4" in run.options.only:
        enough = all(seconds[name][0] >= 5 * seconds[OURS][0] for name in others)
        run.add("G4", "first save", seconds, "5 times faster than either", enough if run.files >= 100_000 else None)
        times = {name: disk[name] / disk[OURS] for name in others}
        shown = ", ".join(f"{name} {ratio:.1f} times ours" for name, ratio in times.items())
        shown = f"{disk[OURS] / 1e6:.1f} MB; {shown}"
        less = all(ratio >= 8 for ratio in times.values()) if run.files >= 100_000 else None
        run.rows.append(Row("G4", "store after it", run.files, {}, "8 times less than either", less, shown))


def asked_meanwhile(run: Run) -> None:
    """G7: the first save once more, into a store and by a daemon of its own, with somebody who asks that daemon."""
    place = run.place / "asked"
    place.mkdir()
    environ = with_ours(private(place), run.python, run.options)
    subprocess.run([*ckpt(run.python), "daemon", "start"], env=environ, check=True, capture_output=True)
    status = [*ckpt(run.python), "--json", "daemon", "status"]
    found = subprocess.run(status, env=environ, check=True, capture_output=True, text=True)
    command = [run.python, str(Path(__file__).with_name("pinger.py")), json.loads(found.stdout)["socket"]]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        child.stdout.readline()
        save = [*ckpt(run.python), "save", "first"]
        subprocess.run(save, env=environ, cwd=run.ours.worktree, check=True, capture_output=True)
        child.stdin.close()
        ping = json.loads(child.stdout.read())
    subprocess.run([*ckpt(run.python), "daemon", "stop"], env=environ, check=True, capture_output=True)
    met = quantile(ping, 0.99) < 0.05
    run.add("G7", f"daemon.status during another ({len(ping)} times)", {OURS: ping}, "p99 under 50 ms", met)


def restarted(run: Run) -> None:
    """G10: a save after a restart of the daemon, with nothing changed."""
    run.ours.ask(do="status")
    subprocess.run([*ckpt(run.python), "daemon", "stop"], env=run.environ, check=True, capture_output=True)
    took, stats = run.ours.ask(do="count", message="second")
    opened = stats["files_opened"]
    wanted, shown = "opens no file", f"{opened} files opened"
    run.rows.append(Row("G10", "second save, daemon restarted", run.files, {OURS: [took]}, wanted, not opened, shown))


def full_scans(run: Run) -> None:
    """G2: one file edited, everything looked at."""
    seconds: dict[str, list[float]] = {name: [] for name in run.sides}
    for edit in range(run.options.edits):
        for name, side in run.sides.items():
            tree.edit_one(side.worktree, edit)
            os.sync()
            took = run.ours.ask(do="full", message="edit")[0] if name == OURS else side.save("edit")[0]
            seconds[name].append(took)
    faster = ratio(seconds, PEERS)
    met = faster >= 1.5 if faster is not None and run.files >= 10_000 else None
    run.add("G2", "save of one file, full scan", seconds, "1.5 times faster than 0.3.6", met)


def watched_saves(run: Run) -> None:
    """G1: one file edited, by the exact watcher's word at every size; for G3 that is what has to be compared."""
    subprocess.run([*ckpt(run.python), "daemon", "stop"], env=run.environ, check=True, capture_output=True)
    environ = {**run.environ, "FABRICATIO_EXT__CHECKPOINT__SCAN_BUDGET_MS": "0"}
    subprocess.run([*ckpt(run.python), "daemon", "start"], env=environ, check=True, capture_output=True)
    edits = {name: edited(side.worktree) for name, side in run.sides.items()}
    end = time.monotonic() + WATCHED_S
    while save_edited(run, edits[OURS])[1] != "watched":
        if time.monotonic() > end:
            sys.exit("no save has gone by the watcher's word")
        time.sleep(0.2)
    seconds: dict[str, list[float]] = {name: [] for name in run.sides}
    full = 0
    for _ in range(run.options.edits):
        for name, side in run.sides.items():
            os.sync()
            for _ in range(OURS_A_TURN if name == OURS else 1):
                if name == OURS:
                    took, scan = save_edited(run, edits[OURS])
                    full += scan != "watched"
                else:
                    next(edits[name])
                    took = side.save("edit")[0]
                seconds[name].append(took)
    tail = quantile(seconds[OURS], 0.99) / statistics.median(seconds[OURS])
    times = {name: ratio(seconds, name) for name in (PEERS, GIT)}
    met = None
    if run.files >= 100_000 and times[PEERS] is not None:
        met = times[PEERS] >= 100 and times[GIT] >= 50 and tail <= 4
    shown = f"p99 {tail:.1f} times p50" + (f"; {full} by full scan" if full else "")
    wanted = "100 times faster than 0.3.6, 50 than git; p99 within 4 times p50"
    run.rows.append(Row("G1", WATCHED, run.files, seconds, wanted, met, shown))


def edited(worktree: Path) -> Iterator[None]:
    """Edit one file after the other, spread over the tree, each time one is asked for."""
    files = tree.sample(worktree)
    for number in range(1_000_000):
        with open(files[(number * 7919) % len(files)], "a") as file:
            file.write(f"# edit {number}\n")
        yield


def save_edited(run: Run, edits: Iterator[None]) -> tuple[float, str]:
    """Save one edit with ours; give seconds, and how the worktree was looked at."""
    next(edits)
    took, _ = run.ours.save("edit")
    return took, run.ours.ask(do="scan")[1]


def growth(rows: list[Row]) -> list[Row]:
    """G3: the same at the largest size and at the smallest."""
    found = sorted((row for row in rows if row.what == WATCHED), key=lambda row: row.files)
    if len(found) < 2:
        return []
    least, most = found[0], found[-1]
    times = statistics.median(most.seconds[OURS]) / statistics.median(least.seconds[OURS])
    met = times <= 1.5 if (least.files, most.files) == (1_000, 100_000) else None
    shown = f"{times:.2f} times as long as with {least.files:,}"
    return [Row("G3", "growth of it", most.files, {}, "1.5 times, from 1,000 to 100,000", met, shown)]


def idle(place: Path, files: int, options: argparse.Namespace, ours: str) -> Row:
    """G9: three worktrees with autosave, and nothing to do."""
    run = Run(place, 0, options, ours, None)
    watched = [place / f"tree{number}" for number in range(3)]
    try:
        for worktree in watched:
            worktree.mkdir()
            tree.make(worktree, files // 3)
            for words in (["save", "first"], ["watch", "on"]):
                subprocess.run([*ckpt(ours), *words], env=run.environ, cwd=worktree, check=True, capture_output=True)
        at_rest(run, watched)
        pids = leftovers.daemons_of(str(place))
        before = {pid: cpu_seconds(pid) for pid in pids}
        time.sleep(options.idle_s)
        spent = sum(cpu_seconds(pid) - before[pid] for pid in pids)
        memory = {pid: resident_bytes(pid) for pid in pids}
    finally:
        run.close()
        leftovers.kill(leftovers.daemons_of(str(place)))
    (daemon,) = [
        pid for pid, command in pids.items() if "ckptd.watch" not in command and "ckptd.workers" not in command
    ]
    share, each = spent / options.idle_s, (memory[daemon] - BASE_BYTES) / (files // 3 * 3)
    others = sum(memory.values()) - memory[daemon]
    shown = (
        f"{share:.2%} of a core; {memory[daemon] / 1e6:.0f} MB, {each:.0f} bytes a file; helpers {others / 1e6:.0f} MB"
    )
    met = share < 0.005 and each <= 300 if files >= 100_000 else None
    wanted = "under 0.5 % of a core, 300 bytes a file above 60 MB"
    return Row("G9", f"idle daemon, {options.idle_s:.0f} s, three worktrees", files, {}, wanted, met, shown)


def at_rest(run: Run, worktrees: list[Path]) -> None:
    """Wait until all are watched and saved, and until idle work is done: no time is used any more."""
    end = time.monotonic() + WATCHED_S
    spent, quiet = -1.0, 0
    while quiet < 5 and time.monotonic() < end:
        for worktree in worktrees if quiet == 0 else ():
            # Opens its store, if it is not.
            command = [*ckpt(run.python), "watch", "status"]
            subprocess.run(command, env=run.environ, cwd=worktree, check=True, capture_output=True)
        time.sleep(2.0)
        now = sum(cpu_seconds(pid) for pid in leftovers.daemons_of(str(run.place)))
        quiet = quiet + 1 if now - spent < 0.02 else 1
        spent = now


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, in user and in system time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def resets(run: Run) -> None:
    """G5: 1,000 changed, 500 deleted, 500 added (fewer in a small tree)."""
    share = min(1000, run.files // 4)
    seconds: dict[str, list[float]] = {}
    for name, side in run.sides.items():
        tree.change_many(side.worktree, 1, share, share // 2, share // 2)
        os.sync()
        seconds[name] = [side.reset(run.first[name])]
    met = ratio(seconds, GIT) >= 1 if share == 1000 else None
    run.add("G5", f"reset of {share * 2:,} paths", seconds, "no slower than git", met)


def processes(run: Run) -> None:
    """G6: the command line, on a tiny tree."""
    if run.files != min(run.options.files):
        return
    commands: dict[str, Callable[[], list[str]]] = {OURS: lambda: [*ckpt(run.python), "save", "m"]}
    places = {OURS: run.environ, "pass": run.environ}
    commands["pass"] = lambda: [run.python, "-c", "pass"]
    if run.peer and (Path(run.peer).parent / "ckpt").exists():
        commands[PEERS] = lambda: [str(Path(run.peer).parent / "ckpt"), "save", "m"]
        places[PEERS] = run.base
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    broken: set[str] = set()
    for number in range(run.options.edits + 1):
        for name, command in ((name, one) for name, one in commands.items() if name not in broken):
            folder = run.place / "tiny" / ("peer" if name == PEERS else "ours")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "file").write_text(f"{number}\n")
            begun = time.perf_counter()
            done = subprocess.run(command(), env=places[name], cwd=folder, capture_output=True, text=True, check=False)
            # The first one makes the store.
            if number:
                seconds[name].append(time.perf_counter() - begun)
            if done.returncode and name == OURS:
                sys.exit(f"ckpt failed: {done.stderr}")
            if done.returncode:
                print(f"left out: {name}, whose ckpt fails: {done.stderr.strip()}", file=sys.stderr)
                broken.add(name)
    for name in broken:
        del seconds[name]
    bare = statistics.median(seconds.pop("pass"))
    times = statistics.median(seconds[OURS]) / bare
    eighth = ratio(seconds, PEERS)
    met = times <= 3 and (eighth is None or eighth >= 8)
    wanted = "an eighth of 0.3.6, 3 times `python -c pass`"
    run.rows.append(
        Row("G6", "`ckpt save` as a process", 1, seconds, wanted, met, f"{times:.1f} times `python -c pass`")
    )


def history(place: Path, options: argparse.Namespace, ours: str) -> list[Row]:
    """G8: a long history of a small tree."""
    run = Run(place, 1000, options, ours, None)
    count = options.checkpoints
    try:
        warm_up(run)
        run.ours.save("first")
        edited = str(tree.sample(run.ours.worktree)[0])
        took, _ = run.ours.ask(do="many", first=1, last=count, file=edited)
        pages = [run.ours.ask(do="page")[0] for _ in range(20)]
        packed = size_of(next(run.ours.store.glob("worktree_*")) / "objects")
        # In its idle time it would merge the packs that are about to be read.
        subprocess.run([*ckpt(run.python), "daemon", "stop"], env=run.environ, check=True, capture_output=True)
        loose = size_unpacked(run)
    finally:
        run.close()
    what = f"{count:,} checkpoints"
    shown = f"{packed / 1e6:.1f} MB; loose {loose / packed:.1f} times as much; {took / count * 1000:.1f} ms a save"
    return [
        Row("G8", f"first page of {what}", 1000, {OURS: pages}, "20 ms", statistics.median(pages) <= 0.02),
        Row("G8", f"store of {what}", 1000, {}, "a fifth of loose objects", loose >= 5 * packed, shown),
    ]


def size_unpacked(run: Run) -> int:
    """The size of the same objects as git writes them one by one."""
    scratch = run.place / "loose"
    subprocess.run(["git", "init", "-q", "--bare", str(scratch)], env=run.base, check=True)
    store = next(run.ours.store.glob("worktree_*"))
    for pack in sorted((store / "objects" / "pack").glob("*.pack")):
        with open(pack, "rb") as file:
            command = ["git", f"--git-dir={scratch}", "unpack-objects", "-q"]
            subprocess.run(command, env=run.base, stdin=file, check=True)
    return size_of(scratch / "objects")


def ckpt(python: str) -> list[str]:
    """Our command line, as it is installed beside a Python; else started by it."""
    program = Path(python).parent / "ckpt"
    if program.exists():
        return [str(program)]
    return [python, "-c", "import sys; from fabricatio_checkpoint.cli.__main__ import main; sys.exit(main())"]


def ratio(seconds: dict[str, list[float]], other: str) -> float | None:
    """How many times ours the other takes; None without it."""
    if other not in seconds:
        return None
    return statistics.median(seconds[other]) / statistics.median(seconds[OURS])


def quantile(values: list[float], part: float) -> float:
    """The smallest value that so large a part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def report(rows: list[Row], options: argparse.Namespace) -> None:
    """Print the table."""
    print(f"\nmedians in ms; {options.edits} edits; Python {sys.version.split()[0]}, {os.cpu_count()} cores\n")
    print("| | | files | ours | p99 | 0.3.6 | git | 0.3.6 / ours | git / ours | goal | met |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|")
    for row in rows:
        met = "-" if row.met is None else "yes" if row.met else "no"
        cells = [row.goal, row.what, f"{row.files:,}", *numbers(row), row.wanted, met]
        print("| " + " | ".join(cells) + " |")


def numbers(row: Row) -> list[str]:
    """The middle of a line: ours, p99, the others, the ratios; what is no time stands where ours stands."""
    found = row.seconds
    ms = {name: f"{statistics.median(values) * 1000:.1f}" for name, values in found.items()}
    last = f"{quantile(found[OURS], 0.99) * 1000:.1f}" if len(found.get(OURS, [])) > 1 else ""
    ours = "; ".join(filter(None, (ms.get(OURS), row.shown)))
    ratios = [f"{times:.1f}" if (times := ratio(found, name)) is not None else "" for name in (PEERS, GIT)]
    return [ours, last, ms.get(PEERS, ""), ms.get(GIT, ""), *ratios]


if __name__ == "__main__":
    sys.exit(main())
