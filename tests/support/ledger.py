"""What a daemon has promised, kept beside it: the checkpoints it has acknowledged, and the numbers it has used."""

import hashlib
import os
from collections import Counter
from typing import Any, NamedTuple

from support.mortal import Mortal
from support.plainworld import Node, World
from support.worktrees import run_git, verify
from support.worlds import TEMPORARY, tree_id

__all__ = ["Known", "Ledger", "left_behind"]

_LEFT_OVER = (b".tmp-", b"tmp_", b".new-", b".old-")


class Known(NamedTuple):
    """An acknowledged checkpoint: its number, and the worktree as it was."""

    seq: int
    world: World


class Ledger:
    """``known`` are the acknowledged checkpoints by id; ``check()`` looks whether the store keeps the promises."""

    def __init__(self, mortal: Mortal) -> None:
        self._mortal = mortal
        self._seqs: dict[int, str] = {}
        self.known: dict[str, Known] = {}
        self.tally: Counter[str] = Counter()

    @property
    def used(self) -> int:
        """How many numbers have been used."""
        return len(self._seqs)

    def forget(self) -> None:
        """Begin anew: the stores are gone."""
        self.known.clear()
        self._seqs.clear()

    def acknowledge(self, answer: dict[str, Any], world: World) -> None:
        self.known[answer["id"]] = Known(answer["seq"], world)
        self.note_seq(answer["seq"], answer["id"])
        self.tally["acknowledged"] += 1

    def note_seq(self, seq: int, one: str) -> None:
        assert self._seqs.setdefault(seq, one) == one, f"the number {seq} was used twice"

    def check(self) -> None:
        """Everything acknowledged is in the store, which has no fault and holds nothing half-written."""
        for store in self.stores():
            verify(store)
            refs = run_git(
                b"--git-dir=" + store, "for-each-ref", "--format=%(refname) %(objectname) %(tree)", "refs/checkpoints"
            )
            found = {}
            for line in refs.decode().splitlines():
                name, one, tree = line.split(" ")
                found[one] = tree
                self.note_seq(int(name.rpartition("/")[2]), one)
            for one, known in self.known.items():
                assert found.get(one) == tree_id(known.world), f"lost: {one} ({known.seq})"
            self.tally["checks of acknowledged"] += len(self.known)
        left = [
            path
            for top in (self._mortal.ws, self._mortal.checkpoint_dir)
            for path in left_behind(bytes(top))
            if not self._is_in_the_making(path)
        ]
        assert left == [], f"left behind: {left}"

    def _is_in_the_making(self, path: bytes) -> bool:
        """A daemon that lives merges packs while others save, and removes those that were merged."""
        if not os.path.basename(path).startswith(b"tmp_ckpt_"):
            return False
        try:
            return os.lstat(path).st_ctime > self._mortal.started_s
        except FileNotFoundError:
            return True

    def stores(self) -> list[bytes]:
        top = self._mortal.checkpoint_dir
        return [bytes(path) for path in top.glob("*_*") if (path / "HEAD").exists()]

    def git(self, *words: str) -> bytes:
        return run_git(b"--git-dir=" + self.stores()[0], *words)

    def holds(self, node: Node) -> bool:
        oid = hashlib.sha1(b"blob %d\0" % len(node.data) + node.data, usedforsecurity=False).hexdigest()
        return oid in self.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").decode()


def left_behind(top: bytes) -> list[bytes]:
    """Give the paths below a directory that only something half-done has, of a worktree or of a store."""
    return [
        os.path.join(folder, name)
        for folder, folders, files in os.walk(top)
        for name in [*folders, *files]
        if name.startswith(_LEFT_OVER) or TEMPORARY.fullmatch(name)
    ]
