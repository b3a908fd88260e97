"""A long life in short: very many requests over more worktrees than stay open. Run by hand.

    python3 tests/benchmarks/soak.py [--requests N] [--minutes N] [--worktrees N] [--cache N] [--clients N] [--seed N]

Looks at the daemon's memory, descriptors and threads every 2,000 requests, while nothing runs, and prints a Markdown
table of them. Exit code 1 where one of them grows: where its median in the last quarter of the run is above that in
the second one by more than the tolerance. The daemon, its home and its runtime directories are the run's own.
"""

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import bootstrap, isolation, leftovers

SAMPLE_EVERY = 2000
FILES = 20
LONGEST_HISTORY = 40
VICTIMS = 2
STATES = ("nothing_to_undo", "nothing_to_redo", "no_checkpoint", "not_tracked")
"""Answers of the kind "there is nothing to do", which a random order of requests meets."""

WEIGHTS = {
    "status": 30,
    "save": 14,
    "history": 12,
    "head": 14,
    "show": 10,
    "cat": 10,
    "diff": 4,
    "rollback": 2,
    "undo": 1,
    "open": 2,
    "listing": 0.1,
    "reconnect": 1,
}
TOLERANCES = {"rss": (0.04, 1024), "descriptors": (0.0, 16), "threads": (0.0, 2)}
"""By which share, and by how much at least, the later median may be higher. Open stores keep the packs open that they
have read lately: so the number of descriptors goes up and down by dozens from one sample to the next."""

VICTIM = """
import itertools, os, sys
from fabricatio_checkpoint import CheckpointService
for number in itertools.count():
    store = CheckpointService(sys.argv[1]).get_store(sys.argv[2])
    with open(os.path.join(sys.argv[2], "file"), "w") as file:
        file.write(f"{number}\\n" * 2000)
    store.save("of a victim")
    store.diff(store.commits()[0])
    print("ready", flush=True)
"""


class Sample(NamedTuple):
    """The daemon at one moment; ``rss`` in KiB."""

    requests: int
    seconds: float
    rss: int
    descriptors: int
    threads: int


class Client:
    """One program with a service and worktrees of its own, which it asks about in a random order."""

    def __init__(self, stores: Path, worktrees: Sequence[Path], seed: int) -> None:
        from fabricatio_checkpoint import CheckpointService

        self._stores = stores
        self._worktrees = worktrees
        self._random = random.Random(seed)
        self._known: dict[Path, list[str]] = {path: [] for path in worktrees}
        # How long a history becomes before it is forgotten: from the start they are of all ages.
        self._limits = {path: self._random.randint(2, LONGEST_HISTORY) for path in worktrees}
        self.done: Counter[str] = Counter()
        self.service = CheckpointService(stores)

    def work(self, requests: int) -> None:
        """Do so many; an error that is no answer of the expected kind ends the run."""
        from fabricatio_checkpoint.errors import StateError

        for name in self._random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=requests):
            path = self._random.choice(self._worktrees)
            try:
                getattr(self, f"_{name}")(path)
            except StateError as error:
                if error.kind not in STATES:
                    raise
            self.done[name] += 1

    def _store(self, path: Path):
        return self.service.get_store(path)

    def _some_id(self, path: Path) -> str:
        known = self._known[path]
        return self._random.choice(known) if known else "HEAD"

    def _file(self) -> str:
        return f"d{self._random.randrange(4)}/f{self._random.randrange(FILES // 4)}"

    def _status(self, path: Path) -> None:
        self._store(path).status()

    def _save(self, path: Path) -> None:
        if len(self._known[path]) >= self._limits[path]:
            self._forget(path)
        (path / self._file()).write_text(f"{self._random.random()}\n" * self._random.randrange(1, 60))
        saved = self._store(path).save(f"number {len(self._known[path])}")
        if saved not in self._known[path]:
            self._known[path].append(saved)

    def _forget(self, path: Path) -> None:
        forget(self.service, self._stores, path)
        self._known[path].clear()
        self._limits[path] = LONGEST_HISTORY
        self._renew()
        self.done["forget"] += 1

    def _history(self, path: Path) -> None:
        self._store(path).checkpoints(limit=10)

    def _head(self, path: Path) -> None:
        self._store(path).head()

    def _show(self, path: Path) -> None:
        self._store(path).show(self._some_id(path))

    def _cat(self, path: Path) -> None:
        self._store(path).cat(self._some_id(path), "always")

    def _diff(self, path: Path) -> None:
        self._store(path).diff(self._some_id(path))

    def _rollback(self, path: Path) -> None:
        self._store(path).rollback(self._some_id(path), self._random.choice(["d0", "d1", "always"]))

    def _undo(self, path: Path) -> None:
        self._store(path).undo()

    def _open(self, path: Path) -> None:
        self._renew()
        self._store(path)

    def _listing(self, _path: Path) -> None:
        self.service.workspaces()

    def _reconnect(self, path: Path) -> None:
        self.service.close()
        self._store(path).head()

    def _renew(self) -> None:
        from fabricatio_checkpoint import CheckpointService

        self.service.close()
        self.service = CheckpointService(self._stores)


class Victims:
    """Programs that are killed in the middle of a request."""

    def __init__(self, stores: Path, worktree: Path, seed: int) -> None:
        from fabricatio_checkpoint import CheckpointService

        self._stores = stores
        self._worktree = worktree
        self._random = random.Random(seed)
        self._service = CheckpointService(stores)
        self.killed = 0

    def live_and_die(self) -> None:
        """Let some run for a moment, and forget what they have saved."""
        command = [sys.executable, "-c", VICTIM, str(self._stores), str(self._worktree)]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(VICTIMS)]
        try:
            for process in running:
                if not process.stdout.readline():
                    raise RuntimeError(f"a victim ended by itself: {process.wait()}")
            time.sleep(self._random.random() * 0.3)
        finally:
            for process in running:
                process.kill()
                process.wait()
                process.stdout.close()
                self.killed += 1
        forget(self._service, self._stores, self._worktree)


def forget(service, stores: Path, worktree: Path) -> None:
    """Delete the store of a worktree."""
    from fabricatio_checkpoint import wire

    params = {
        "checkpoint_dir": wire.directory(os.fsencode(stores)),
        "worktree": wire.worktree(os.fsencode(worktree)),
        "token": wire.new_token(),
    }
    service._connection.call("worktree.forget", params)


def main() -> int:
    """Run, print, and tell whether the daemon stayed as it was."""
    options = parse()
    environment = bootstrap.prepare(".venv-test", dev=True, editable=True)
    if Path(sys.prefix) != environment:
        return subprocess.run([bootstrap.binary(environment, "python"), *sys.argv], check=False).returncode
    place = isolation.short_directory("cks")
    environ = isolation.private_environment(place, os.environ)
    os.environ.clear()
    os.environ.update(environ, FABRICATIO_EXT__CHECKPOINT__CACHE_SIZE=str(options.cache))
    try:
        return report(*run(Path(place), options), options)
    finally:
        leftovers.kill(leftovers.daemons_of(place))
        isolation.remove(place)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop earlier than all of them")
    parser.add_argument("--worktrees", type=int, default=50)
    parser.add_argument("--cache", type=int, default=10, help="how many unused stores the daemon keeps open")
    parser.add_argument("--clients", type=int, default=2, help="how many ask at once")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


HELPERS = re.compile(r"ckptd\.(watch|workers)")


def run(place: Path, options: argparse.Namespace) -> tuple[list[Sample], Counter[str]]:
    """Ask for everything; give the samples, and how often each thing was done."""
    stores = place / "stores"
    worktrees = [make_worktree(place / "w" / f"tree{number}") for number in range(options.worktrees)]
    victims = Victims(stores, make_worktree(place / "w" / "victim"), options.seed)
    clients = [
        Client(stores, worktrees[number :: options.clients], options.seed + number) for number in range(options.clients)
    ]
    clients[0].service.workspaces()
    # Its helpers come and go.
    (pid,) = [pid for pid, command in leftovers.daemons_of(str(place)).items() if not HELPERS.search(command)]
    samples: list[Sample] = []
    begun = time.monotonic()
    print("| requests | seconds | RSS, KiB | descriptors | threads |\n|---:|---:|---:|---:|---:|", flush=True)
    with ThreadPoolExecutor(options.clients + 1) as pool:
        while len(samples) * SAMPLE_EVERY < options.requests and time.monotonic() - begun < options.minutes * 60:
            try:
                work(pool, clients, victims)
            except KeyboardInterrupt:
                # What was measured until then is worth a verdict all the same.
                print("interrupted")
                break
            samples.append(look(pid, (len(samples) + 1) * SAMPLE_EVERY, begun))
            print("| {:,} | {:.0f} | {:,} | {} | {} |".format(*samples[-1]), flush=True)
    done = sum((client.done for client in clients), Counter({"killed client": victims.killed}))
    return samples, done


def work(pool: ThreadPoolExecutor, clients: list[Client], victims: Victims) -> None:
    """Do the requests between two samples; raises what went wrong."""
    share = SAMPLE_EVERY // len(clients)
    running = [pool.submit(victims.live_and_die), *(pool.submit(client.work, share) for client in clients)]
    for each in running:
        each.result()


def make_worktree(path: Path) -> Path:
    """A small worktree."""
    for number in range(4):
        (path / f"d{number}").mkdir(parents=True)
    (path / "always").write_text("always\n" * 100)
    for number in range(FILES):
        (path / f"d{number % 4}" / f"f{number // 4}").write_text(f"{number}\n" * 20)
    return path


def look(pid: int, requests: int, begun: float) -> Sample:
    """Measure the daemon; it has a moment to see that clients have gone."""
    time.sleep(0.3)
    text = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in text.splitlines())
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    rss, threads = int(fields["VmRSS"].split()[0]), int(fields["Threads"])
    return Sample(requests, time.monotonic() - begun, rss, descriptors, threads)


def report(samples: list[Sample], done: Counter[str], options: argparse.Namespace) -> int:
    """Print the verdict; 1 where something grows."""
    print(
        f"\n{options.worktrees} worktrees, cache_size {options.cache}, {options.clients} clients, seed {options.seed}"
    )
    print("done: " + ", ".join(f"{name} {number:,}" for name, number in done.most_common()) + "\n")
    if len(samples) < 8:
        print("too few samples for a verdict")
        return 2
    quarter = len(samples) // 4
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    print("| median of | second quarter | last quarter | tolerated | |\n|---|---:|---:|---:|---|")
    grown = [name for name in TOLERANCES if not flat(name, second, last)]
    return 1 if grown else 0


def flat(name: str, second: list[Sample], last: list[Sample]) -> bool:
    """Compare one quantity and print its row."""
    before, after = (statistics.median(getattr(sample, name) for sample in part) for part in (second, last))
    share, least = TOLERANCES[name]
    tolerated = max(before * share, least)
    is_flat = after - before <= tolerated
    verdict = "flat" if is_flat else "**grows**"
    print(f"| {name} | {before:,.0f} | {after:,.0f} | +{tolerated:,.0f} | {verdict} |")
    return is_flat


if __name__ == "__main__":
    sys.exit(main())
