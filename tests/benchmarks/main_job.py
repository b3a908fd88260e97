"""The main job, measured side by side: this project, its predecessor 0.3.6, and git. Run by hand.

    python3 tests/benchmarks/main_job.py [--files N] [--runs N]

Prints a Markdown table of medians and ratios. Each side has a worktree of its own with the same content; within a run
the sides take turns, operation by operation. Writeback is awaited (``sync``) before each operation, outside its time.
"""

import argparse
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tree

from support import bootstrap, isolation, leftovers

PEER = "fabricatio-checkpoint[cli]==0.3.6"
OURS, PEERS, GIT = "this project", "0.3.6", "git"
FIRST, SECOND, ONE, RESET = "first save", "second save, nothing changed", "save, one file changed", "reset"
EDITS_PER_RUN = 5


class Contestant:
    """This project or its predecessor, in a process that stays up, as an agent's does."""

    def __init__(self, python: str, place: Path, files: int, environ: dict[str, str]) -> None:
        self.worktree = place / "worktree"
        self.store = place / "stores"
        self.worktree.mkdir(parents=True)
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("contestant.py")), str(self.store), str(self.worktree)],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        tree.make(self.worktree, files)

    def save(self, message: str) -> tuple[float, str]:
        """Save; give seconds and id."""
        return self._ask({"do": "save", "message": message})

    def reset(self, checkpoint: str) -> float:
        """Reset to a checkpoint; give seconds."""
        return self._ask({"do": "reset", "id": checkpoint})[0]

    def ask(self, **order: object) -> tuple[float, object]:
        """Give an order of contestant.py; give seconds and answer."""
        return self._ask(order)

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, order: dict) -> tuple[float, str]:
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"a contestant ended: {self._process.args}")
        reply = json.loads(line)
        return reply["seconds"], reply["answer"]


class Git:
    """``git add -A && git commit``, and ``git reset --hard && git clean -fd``."""

    def __init__(self, place: Path, files: int, environ: dict[str, str]) -> None:
        self.worktree = place / "worktree"
        self.store = self.worktree / ".git"
        self.worktree.mkdir(parents=True)
        self._environ = environ
        self._git("init", "-q")
        for name, value in (("user.name", "b"), ("user.email", "b@example.org"), ("gc.auto", "0")):
            self._git("config", name, value)
        tree.make(self.worktree, files)

    def save(self, message: str) -> tuple[float, str]:
        """Add and commit; give seconds and id."""
        begun = time.perf_counter()
        self._git("add", "-A")
        self._git("commit", "-q", "--allow-empty", "-m", message)
        return time.perf_counter() - begun, self._git("rev-parse", "HEAD")

    def reset(self, checkpoint: str) -> float:
        """Reset and clean; give seconds."""
        begun = time.perf_counter()
        self._git("reset", "-q", "--hard", checkpoint)
        self._git("clean", "-fdq")
        return time.perf_counter() - begun

    def close(self) -> None:
        """Nothing runs on."""

    def _git(self, *arguments: str) -> str:
        command = ["git", *arguments]
        done = subprocess.run(
            command, cwd=self.worktree, env=self._environ, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout.strip()


class Measured:
    """Seconds by operation and side, in order of the runs; and bytes of the stores."""

    def __init__(self) -> None:
        self.seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.store_bytes: dict[str, int] = {}
        self.wrong: list[str] = []


def main() -> int:
    """Measure and print; 0 where it could be done."""
    options = parse()
    ours = own_python(options.python)
    if ours is None:
        return 3
    peer = options.peer or peer_python()
    temporary = Path(isolation.short_directory("ckb"))
    measured = Measured()
    try:
        for run in range(options.runs):
            one_run(temporary / f"run{run}", run, options, ours, peer, measured)
            print(f"run {run + 1} of {options.runs} done", file=sys.stderr)
    finally:
        leftovers.kill(leftovers.daemons_of(str(temporary)))
        isolation.remove(str(temporary))
    report(measured, options)
    return 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000, help="files in the worktree, at least 2,000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--python", help="a Python that has this project, instead of a virtual environment made here")
    parser.add_argument("--peer", help="a Python that has 0.3.6, instead of a virtual environment made here")
    return parser.parse_args()


def own_python(given: str | None) -> str | None:
    """A Python with this project in it; None, with a line, where there is none to be had."""
    if given is not None:
        return given
    try:
        return bootstrap.binary(bootstrap.prepare(".venv-test", dev=True, editable=True), "python")
    except bootstrap.CannotPrepareError as error:
        print(f"benchmark: {error}")
        return None


def peer_python() -> str | None:
    """Make or reuse a virtual environment with the peer; None, with a line, where it cannot be had."""
    place = bootstrap.ROOT / ".venv-peer"
    python = place / "bin" / "python"
    if (place / "installed").exists():
        return str(python)
    maker = newer_python()
    if maker is None:
        print(f"left out: {PEER} (needs Python 3.12 or newer, none was found)")
        return None
    shutil.rmtree(place, ignore_errors=True)
    pip = [str(python), "-m", "pip", "install", "-q"]
    for command in ([maker, "-m", "venv", str(place)], [*pip, "--upgrade", "pip"], [*pip, PEER]):
        if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode:
            print(f"left out: {PEER} (could not be installed)")
            return None
    (place / "installed").touch()
    return str(python)


def newer_python() -> str | None:
    """A Python of at least 3.12 that really runs."""
    named = [shutil.which(f"python3.{minor}") for minor in (13, 12, 14)]
    managed = glob.glob(os.path.expanduser("~/.pyenv/versions/3.1[2-9]*/bin/python"))
    check = "import sys, ensurepip; sys.exit(sys.version_info < (3, 12))"
    for candidate in [sys.executable, *sorted(managed, reverse=True), *filter(None, named)]:
        if subprocess.run([candidate, "-c", check], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def one_run(
    place: Path, run: int, options: argparse.Namespace, ours: str, peer: str | None, measured: Measured
) -> None:
    """All operations on fresh worktrees and stores, the sides taking turns and the first place going round."""
    base = isolation.private_environment(str(place), os.environ)
    environ = {**base, "PATH": os.pathsep.join([str(Path(ours).parent), base["PATH"]])}
    sides: dict[str, Contestant | Git] = {OURS: Contestant(ours, place / "ours", options.files, environ)}
    if peer:
        sides[PEERS] = Contestant(peer, place / "peer", options.files, base)
    sides[GIT] = Git(place / "git", options.files, base)
    names = [*sides]
    order = names[run % len(names) :] + names[: run % len(names)]
    warm_up(ours, place, environ)
    first = {name: timed_save(sides[name], FIRST, name, measured) for name in order}
    for name in order:
        measured.store_bytes[name] = size_of(sides[name].store)
    for name in order:
        timed_save(sides[name], SECOND, name, measured)
    for edit in range(EDITS_PER_RUN):
        for name in order:
            tree.edit_one(sides[name].worktree, run * EDITS_PER_RUN + edit)
            timed_save(sides[name], ONE, name, measured)
    for name in order:
        reset_and_check(sides[name], name, first[name], run, measured)
        sides[name].close()


def timed_save(side: Contestant | Git, operation: str, name: str, measured: Measured) -> str:
    """Save one side once the disk is quiet; give the checkpoint's id."""
    os.sync()
    seconds, checkpoint = side.save(operation)
    measured.seconds[operation][name].append(seconds)
    return checkpoint


def reset_and_check(side: Contestant | Git, name: str, checkpoint: str, run: int, measured: Measured) -> None:
    """Change 1,000 files, delete 500, add 500, and reset to the first save."""
    tree.change_many(side.worktree, run, 1000, 500, 500)
    os.sync()
    measured.seconds[RESET][name].append(side.reset(checkpoint))
    added = len(list(side.worktree.glob("package_*/module_*/added_*")))
    if added:
        measured.wrong.append(f"{name} left {added} of the added files behind")


def warm_up(python: str, place: Path, environ: dict[str, str]) -> None:
    """Start our daemon by a save of another worktree, so that its start is in nobody's time."""
    other = place / "warm"
    other.mkdir()
    script = str(Path(__file__).with_name("contestant.py"))
    order = json.dumps({"do": "save", "message": "warm"})
    command = [python, script, str(place / "ours" / "stores"), str(other)]
    subprocess.run(command, env=environ, input=order, text=True, check=True, stdout=subprocess.DEVNULL)


def size_of(root: Path) -> int:
    """Bytes on disk below a directory."""
    return sum(
        os.lstat(os.path.join(folder, name)).st_blocks * 512 for folder, _, names in os.walk(root) for name in names
    )


def report(measured: Measured, options: argparse.Namespace) -> None:
    """Print the table."""
    others = [name for name in (PEERS, GIT) if name in measured.store_bytes]
    heads = [OURS, *others, *(f"{name} / ours" for name in others)]
    print(f"\n{options.files:,} files, {options.runs} runs, medians in ms; Python {sys.version.split()[0]}\n")
    print("| | " + " | ".join(heads) + " |\n|---" + "|---:" * len(heads) + "|")
    for operation, by_side in measured.seconds.items():
        medians = {name: statistics.median(values) * 1000 for name, values in by_side.items()}
        cells = [f"{medians[name]:.1f}" for name in (OURS, *others)]
        print_row(f"{operation} ({len(by_side[OURS])} times)", cells, medians, others)
    cells = [f"{measured.store_bytes[name] / 1e6:.1f} MB" for name in (OURS, *others)]
    print_row("store after the first save", cells, {name: float(n) for name, n in measured.store_bytes.items()}, others)
    for line in dict.fromkeys(measured.wrong):
        print(f"\nNote: after the reset {line}.")


def print_row(head: str, cells: list[str], values: dict[str, float], others: list[str]) -> None:
    """Print one row: the values, then how many times ours the others take."""
    ratios = [f"{values[name] / values[OURS]:.1f}" for name in others]
    print(f"| {head} | " + " | ".join([*cells, *ratios]) + " |")


if __name__ == "__main__":
    sys.exit(main())
