"""What the refs cost when thinning takes 5,000 of 10,000 checkpoints. Run by hand.

    python3 tests/benchmarks/thin_refs.py [--checkpoints N] [--runs N]

Prints the median of our own way (one new ``packed-refs``, durably) beside git's (``update-ref --stdin``, one
transaction), for histories that are packed and for such whose newest tenth is loose.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from main_job import own_python

from support import isolation

OURS = """
import os, sys, time
from ckptd.shadow.objects.refs import Refs
refs = Refs(os.fsencode(sys.argv[1]))
count = len(refs.checkpoints())
gone = range(1, count, 2)
begun = time.perf_counter()
refs.delete(gone)
print(time.perf_counter() - begun)
"""


def main() -> int:
    """Measure and print; 0 where it could be done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--python", help="a Python that has this project, instead of a virtual environment made here")
    options = parser.parse_args()
    python = own_python(options.python)
    if python is None:
        return 3
    print(f"ms, medians of {options.runs}; half of {options.checkpoints:,} checkpoints go\n")
    print("| | ours | git update-ref | git / ours |\n|---|---:|---:|---:|")
    for name, loose in (("all packed", 0), ("a tenth loose", options.checkpoints // 10)):
        ours, gits = [], []
        for _ in range(options.runs):
            place = Path(isolation.short_directory("ckr"))
            try:
                ours.append(own(python, made(place / "ours", options.checkpoints, loose)))
                gits.append(by_git(made(place / "git", options.checkpoints, loose), options.checkpoints))
            finally:
                isolation.remove(str(place))
        mine, other = statistics.median(ours) * 1000, statistics.median(gits) * 1000
        print(f"| {name} | {mine:.0f} | {other:.0f} | {other / mine:.1f} |")
    return 0


def made(folder: Path, count: int, loose: int) -> Path:
    """A repository with so many checkpoints, the newest ones as loose refs, each with an info."""
    subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)
    tree = subprocess.run(
        ["git", "hash-object", "-w", "-t", "tree", "/dev/null"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()
    command = ["git", "-c", "user.name=b", "-c", "user.email=b@example.org", "commit-tree", "-m", "c", tree]
    commit = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
    names = [f"refs/{kind}/{seq:010}" for kind in ("checkpoints", "ckpt-info") for seq in range(1, count + 1)]
    first_loose = f"{count - loose + 1:010}"
    packed = [f"{commit} {name}\n" for name in names if name[-10:] < first_loose]
    (folder / "packed-refs").write_text("# pack-refs with: peeled fully-peeled sorted \n" + "".join(packed))
    for name in (name for name in names if name[-10:] >= first_loose):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(commit + "\n")
    os.sync()
    return folder


def own(python: str, folder: Path) -> float:
    """Seconds of ours."""
    command = [python, "-c", OURS, str(folder)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def by_git(folder: Path, count: int) -> float:
    """Seconds of git's; its start is in it, some milliseconds."""
    lines = [f"delete refs/{kind}/{seq:010}\n" for kind in ("checkpoints", "ckpt-info") for seq in range(1, count, 2)]
    begun = time.perf_counter()
    subprocess.run(["git", "update-ref", "--stdin"], cwd=folder, input="".join(lines), text=True, check=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
