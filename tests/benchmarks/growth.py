"""How the cost of an operation grows with the tree and with the history. Run by hand.

    python3 tests/benchmarks/growth.py [--files 1000,10000,100000] [--checkpoints 10,100,1000,10000]

Prints two Markdown tables of medians in ms. What does not grow has the same number in each line.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import goals
import tree
from main_job import own_python

from support import isolation, leftovers

EDITS = 20
HISTORY_FILES = 1000


def main() -> int:
    """Measure and print; 0 where it could be done."""
    options = parse()
    ours = own_python(options.python)
    if ours is None:
        return 3
    temporary = Path(isolation.short_directory("ckw"))
    try:
        print_table("files", [with_tree(temporary / str(files), files, options, ours) for files in options.files])
        print_table("checkpoints", with_history(temporary / "history", options, ours))
    finally:
        leftovers.kill(leftovers.daemons_of(str(temporary)))
        isolation.remove(str(temporary))
    return 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def counts(text: str) -> list[int]:
        return [int(one) for one in text.split(",")]

    parser.add_argument("--files", type=counts, default="1000,10000,100000")
    parser.add_argument("--checkpoints", type=counts, default="10,100,1000,10000")
    parser.add_argument("--python", help="a Python that has this project, instead of a virtual environment made here")
    return parser.parse_args()


def with_tree(place: Path, files: int, options: argparse.Namespace, ours: str) -> dict[str, float]:
    """One line: operations on a tree of so many files."""
    run = goals.Run(place, files, options, ours, None)
    try:
        goals.warm_up(run)
        line = {"files": float(files), "first save": run.ours.save("first")[0]}
        line |= operations(run)
    finally:
        run.close()
        leftovers.kill(leftovers.daemons_of(str(place)))
    return line


def with_history(place: Path, options: argparse.Namespace, ours: str) -> list[dict[str, float]]:
    """Lines: operations after so many checkpoints of one small tree."""
    run = goals.Run(place, HISTORY_FILES, options, ours, None)
    lines = []
    try:
        goals.warm_up(run)
        run.ours.save("first")
        done = 1
        edited = str(tree.sample(run.ours.worktree)[1])
        for count in sorted(options.checkpoints):
            run.ours.ask(do="many", first=done, last=max(done, count - EDITS), file=edited)
            done = max(done, count - EDITS)
            lines.append({"checkpoints": float(count), **operations(run), **reopened(run)})
            done += EDITS
    finally:
        run.close()
    return lines


def operations(run: goals.Run) -> dict[str, float]:
    """Seconds of what is done all day."""
    found: dict[str, list[float]] = {"save, watched or not": [], "save, full scan": [], "status": [], "ls": []}
    for edit in range(EDITS // 2):
        for what, order in (("save, watched or not", "save"), ("save, full scan", "full")):
            tree.edit_one(run.ours.worktree, edit)
            os.sync()
            found[what].append(run.ours.ask(do=order, message="edit")[0])
        found["status"].append(run.ours.ask(do="status")[0])
        found["ls"].append(run.ours.ask(do="page")[0])
    return {what: statistics.median(seconds) for what, seconds in found.items()}


def reopened(run: goals.Run) -> dict[str, float]:
    """Seconds of the first answer of a daemon that has just been started, its start included."""
    subprocess.run([*goals.ckpt(run.python), "daemon", "stop"], env=run.environ, check=True, capture_output=True)
    return {"first status of a new daemon": run.ours.ask(do="status")[0]}


def print_table(first: str, lines: list[dict[str, float]]) -> None:
    """Print lines that have the same columns."""
    heads = [*lines[0]]
    print("\n| " + " | ".join(heads) + " |\n" + "|---:" * len(heads) + "|")
    for line in lines:
        print("| " + " | ".join(f"{int(line[h]):,}" if h == first else f"{line[h] * 1000:.1f}" for h in heads) + " |")


if __name__ == "__main__":
    sys.exit(main())
