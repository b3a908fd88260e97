"""Let other processes edit a watched worktree by the ten thousand, and hold each save against the disk. Run by hand.

    python3 tests/exact/drive.py [--edits N] [--seed N] [--seeds N] [--minutes N] [--full]

Each seed is a daemon and a worktree of its own; the scenarios come in turns: edits of every kind, edits while saves
run, with the daemon stopped or starved meanwhile, while directories change their places, bursts of 60,000, and, with
every third seed, writes through second names outside (a file that gets or loses one means that all is looked at, so
that the other seeds have more saves by the watcher's word). With --full each save looks at everything. Prints the
counts, and why saves looked at everything although somebody watched; ends at the first difference, with exit code 1.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import bootstrap, isolation, leftovers

BURST = 60_000
WEIGHTS = {
    "plain": 30,
    "during saves": 10,
    "stopped": 10,
    "starved": 2,
    "moves": 14,
    "links": 30,
    "burst": 1,
    "burst while stopped": 1,
}
COUNTS = {"stopped": (20, 400), "starved": (400, 400), "burst": (BURST, BURST), "burst while stopped": (BURST, BURST)}
USUAL = (1, 90)


def main() -> int:
    """Run, print, and tell whether every tree was right."""
    options = parse()
    environment = bootstrap.prepare(".venv-test", dev=True, editable=True)
    if Path(sys.prefix) != environment:
        return subprocess.run([bootstrap.binary(environment, "python"), *sys.argv], check=False).returncode
    begun = time.monotonic()
    tally: Counter[str] = Counter()
    fall_backs: Counter[str] = Counter()
    usual = dict(os.environ)
    try:
        for seed in range(options.seed, options.seed + options.seeds):
            if time.monotonic() - begun > options.minutes * 60:
                break
            place = isolation.short_directory("ckx")
            os.environ.clear()
            os.environ.update(isolation.private_environment(place, usual))
            os.environ["FABRICATIO_EXT__CHECKPOINT__SCAN_BUDGET_MS"] = "0"
            try:
                drive(Path(place), seed, options, begun, tally, fall_backs)
            finally:
                leftovers.kill(leftovers.daemons_of(place))
                isolation.remove(place)
    finally:
        print(f"\n{time.monotonic() - begun:.0f} s")
        for name, count in sorted(tally.items()):
            print(f"{name}: {count:,}")
        print(f"differences: {tally['differences']}")
        for reason, count in fall_backs.most_common():
            print(f"looked at everything, {count} times: {reason}")
    return 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=10_000, help="of each seed, those of bursts not counted")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop earlier than all of them")
    parser.add_argument("--full", action="store_true", help="save by full scans")
    return parser.parse_args()


def drive(
    place: Path,
    seed: int,
    options: argparse.Namespace,
    begun: float,
    tally: Counter[str],
    fall_backs: Counter[str],
) -> None:
    """Do the rounds of one seed; add what was counted to both counters."""
    from support.equality import Equality

    chance = random.Random(seed)
    weights = {name: weight for name, weight in WEIGHTS.items() if name != "links" or seed % 3 == 0}
    equality = Equality(place, seed, full=options.full)
    in_bursts = 0
    try:
        while equality.tally["edits"] - in_bursts < options.edits:
            if time.monotonic() - begun > options.minutes * 60:
                return
            (scenario,) = chance.choices(list(weights), list(weights.values()))
            before = equality.tally["edits"]
            equality.round(scenario, chance.randint(*COUNTS.get(scenario, USUAL)))
            if "burst" in scenario:
                in_bursts += equality.tally["edits"] - before
    finally:
        equality.close()
        equality.tally["edits in bursts"] += in_bursts
        tally += equality.tally
        fall_backs += equality.fall_backs()
        print(f"seed {seed}: {dict(sorted(equality.tally.items()))}, {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
