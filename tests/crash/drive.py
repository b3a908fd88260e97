"""Kill a daemon very often, and tell what came of it. Run by hand.

    python3 tests/crash/drive.py [--rounds N] [--seed N]

A round kills it once at each step of each verb, and a third as often at random times while three clients save. Prints
the kills by step; ends at the first thing that is lost, with exit code 1.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import bootstrap, isolation, leftovers


def main() -> int:
    """Run, print, and tell whether nothing was lost."""
    options = parse()
    environment = bootstrap.prepare(".venv-test", dev=True, editable=True)
    if Path(sys.prefix) != environment:
        return subprocess.run([bootstrap.binary(environment, "python"), *sys.argv], check=False).returncode
    place = isolation.short_directory("cko")
    begun = time.monotonic()
    try:
        return drive(place, options, begun)
    finally:
        leftovers.kill(leftovers.daemons_of(place))
        isolation.remove(place)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop earlier than all of them")
    return parser.parse_args()


def drive(place: str, options: argparse.Namespace, begun: float) -> int:
    """Do the rounds, each with a store of its own; print the counts."""
    from support.killing import Driver
    from support.killplan import Totals, one_round
    from support.mortal import Mortal

    totals = Totals()

    def is_over() -> bool:
        return time.monotonic() - begun > options.minutes * 60

    for number in range(options.rounds):
        if is_over():
            break
        base = os.path.join(place, str(number))
        os.mkdir(base)
        driver = Driver(Mortal(base), options.seed + number)
        try:
            one_round(driver, random.Random(options.seed + number), is_over)
        except AssertionError as error:
            print(f"round {number}, seed {options.seed + number}: {driver.stage}: {error}")
            totals.add(driver)
            totals.show(lost=1)
            raise
        finally:
            driver.end()
        totals.add(driver)
        print(f"round {number}: {sum(driver.kills.values())} kills, {time.monotonic() - begun:.0f} s", flush=True)
    totals.show(lost=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
