"""A collection of thousands of checkpoints, killed ten times in a row, each time elsewhere; then one that may end."""

import os
import random
import threading
import time
from collections.abc import Iterator

import pytest

from support import effort, isolation, leftovers, poll
from support.ledger import left_behind
from support.long_history import add_checkpoints
from support.mortal import Died, Mortal, token
from support.plainworld import look
from support.worktrees import run_git, verify
from support.worlds import plain

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

CHECKPOINTS = 3_000
PATIENCE_S = 60.0

STEPS = [
    *("refs-packed 1", "ref-deleted 300", "file-written 1", "pack-written 1", "pack-synced 1", "index-synced 1"),
    *("pack-named 1", "index-named 1", "pack-durable 1", "merged 1", "pack-hidden 1", "pack-hidden 2", "packs-gone 1"),
]
DELTAS = "deltas"
"""The moment at which the process that makes deltas is at work."""
RANDOM = "random"

IN_EVERY_RUN = [
    *("refs-packed 1", "ref-deleted 300", "pack-written 1", "pack-named 1", "merged 1", "pack-hidden 1"),
    *("pack-hidden 2", "packs-gone 1", DELTAS, RANDOM),
]


class Collected:
    """A store with a long history under a daemon that dies; ``kept`` are the refs that must stay."""

    def __init__(self, mortal: Mortal, chance: random.Random) -> None:
        self.mortal = mortal
        self._chance = chance
        self._edits = 0
        mortal.start()
        (mortal.ws / "private").write_text("private\n")
        (mortal.ws / "private").chmod(0o600)
        self._begin()
        self.kept = self.refs()

    def _begin(self) -> None:
        """Have a tag, a safety checkpoint that an undo needs, thousands of others, and many of them to go."""
        mortal = self.mortal
        first = self._save(tag="start")
        self._edit()
        self.edited = plain(look(bytes(mortal.ws)))
        mortal.call("checkpoint.restore", token=token(), id=first)
        mortal.end()
        (self.store,) = (bytes(path) for path in mortal.checkpoint_dir.glob("*_*") if (path / "HEAD").exists())
        add_checkpoints(self.store, 3, CHECKPOINTS)
        mortal.start()
        thinned = len(mortal.call("store.thin", token=token())["dropped"])
        assert thinned > CHECKPOINTS // 4

    def refs(self) -> dict[str, str]:
        """Every ref, as git reads them."""
        lines = self.git("for-each-ref", "--format=%(refname) %(objectname)").decode().splitlines()
        return dict(line.split(" ") for line in lines)

    def git(self, *words: str) -> bytes:
        return run_git(b"--git-dir=" + self.store, *words)

    def make_work(self) -> None:
        """Drop what nothing needs any more, and save what is new: so that each collection has something to do."""
        manual = sorted(name for name in self.kept if name.startswith("refs/checkpoints/") and int(name[-10:]) % 3)
        seqs = [int(name[-10:]) for name in manual if 3 <= int(name[-10:]) < 3 + CHECKPOINTS]
        self.mortal.call("checkpoint.drop", token=token(), ids=[f"#{seq}" for seq in self._chance.sample(seqs, 40)])
        for _ in range(2):
            self._edit()
            self._save()
        self.kept = self.refs()

    def _edit(self) -> None:
        self._edits += 1
        (self.mortal.ws / "file").write_bytes(b"edit %d\n" % self._edits + self._chance.randbytes(500))

    def _save(self, **fields: str) -> str:
        return str(self.mortal.call("checkpoint.save", token=token(), **fields)["id"])

    def kill(self, moment: str) -> bool:
        """Let a collection begin and be killed; tell whether it came to that."""
        if moment not in (DELTAS, RANDOM):
            step, nth = moment.split(" ")
            self.mortal.arm(step, int(nth))
        answers: list[dict] = []
        asking = threading.Thread(target=self._collect, args=(answers,))
        asking.start()
        if moment == DELTAS:
            poll.until(lambda: answers or os.path.isdir(self.store + b"/ckpt/deltas/pack"), PATIENCE_S)
        elif moment == RANDOM:
            time.sleep(self._chance.uniform(0.0, 0.5))
        else:
            asking.join()
        self.mortal.kill()
        asking.join()
        self.mortal.disarm()
        return not answers

    def _collect(self, answers: list[dict]) -> None:
        try:
            answers.append(self.mortal.call("store.gc", token=token()))
        except Died:
            return

    def check_kept(self) -> None:
        """Everything that must stay is there and whole, by git's own reading."""
        assert self.refs() == self.kept
        verify(self.store)

    def check_clean(self) -> None:
        """What is needed is all that is there, in few packs, and nothing is left of those that were killed."""
        poll.until(lambda: len(leftovers.daemons_of(str(self.mortal.base))) == 1, PATIENCE_S)
        there = set(self.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split())
        needed = {line.split()[0] for line in self.git("rev-list", "--objects", "--all").splitlines()}
        assert there == needed
        assert left_behind(self.store) == []
        assert not os.path.exists(self.store + b"/ckpt/deltas")
        ends = sorted(name.rpartition(b".")[2] for name in os.listdir(self.store + b"/objects/pack"))
        assert ends == [b"idx", b"pack"]
        assert [name for name in os.listdir(self.store + b"/objects") if len(name) == 2] == []
        found = self.mortal.call("store.verify", read_data=True)
        assert (found["clean"], found["checkpoints"]) == (True, sum("refs/checkpoints/" in name for name in self.kept))

    def disk_bytes(self) -> int:
        """What the store takes on the disk."""
        blocks = 0
        for folder, folders, names in os.walk(self.store):
            blocks += sum(os.lstat(os.path.join(folder, name)).st_blocks for name in [*folders, *names])
        return blocks * 512


@pytest.fixture
def mortal() -> Iterator[Mortal]:
    base = isolation.short_directory("ckc")
    made = Mortal(base)
    yield made
    made.kill()
    leftovers.kill(leftovers.daemons_of(base))
    isolation.remove(base)


@pytest.mark.parametrize("number", range(effort.examples(1, 10)))
def test_killed_ten_times_in_a_row_and_then_cleaned_up(mortal: Mortal, number: int):
    chance = random.Random(number)
    moments = IN_EVERY_RUN if not number else chance.sample([*STEPS, DELTAS, RANDOM, RANDOM, RANDOM], 10)
    collected = Collected(mortal, chance)
    before = collected.disk_bytes()
    killed = []
    for moment in moments:
        collected.make_work()
        if collected.kill(moment):
            killed.append(moment)
        collected.check_kept()
        mortal.start()
    assert {*moments} - {*killed} <= {DELTAS, RANDOM, "file-written 1", "ref-deleted 300"}, "it ended too early"
    result = mortal.call("store.gc", token=token())
    assert (result["all_kept"], result["notes"]) == (False, [])
    collected.check_kept()
    collected.check_clean()
    assert collected.disk_bytes() < before
    mortal.call("checkpoint.undo", token=token())
    assert plain(look(bytes(mortal.ws))) == collected.edited
