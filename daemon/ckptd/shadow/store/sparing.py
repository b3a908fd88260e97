"""What thinning would free, as an estimate that costs little: beside whoever has the store open, and with no lock.

What a checkpoint that goes by rule holds alone is what neither the one before it nor the next one that stays has at the
same path. Where many go, some of them stand for all.
"""

from collections.abc import Collection, Sequence
from typing import Final

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.objects.pieces import Pieces
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.objects.weights import Weights
from ckptd.shadow.record.checkpoint import Checkpoint
from ckptd.shadow.record.thinning import Item, Keep, thinned
from ckptd.shadow.trees.tree import DIRECTORY, TreeEntry, parse_tree

__all__ = ["spared_bytes"]

_LOOKED_AT: Final = 100


def spared_bytes(
    objects: ObjectStore, known: Sequence[Checkpoint], fixed: Collection[str], keep: Keep, now_s: float
) -> Pieces[int | None]:
    """Estimate the packed bytes that go with what goes by rule alone, in pieces; None where one cannot be read.

    ``known`` are the checkpoints in order, ``fixed`` the ids of those that stay in any case. Safety checkpoints are
    taken to stay: which of them an undo needs, their store's owner knows.
    """
    items = [
        Item(one.facts.seq, one.time_s, one.facts.kind, one.facts.kind == "safety" or one.id in fixed) for one in known
    ]
    gone = set(thinned(items, keep, now_s))
    if not gone:
        return 0
    places = [at for at, one in enumerate(known) if one.facts.seq in gone]
    stride = max(1, len(places) // _LOOKED_AT)
    chosen = places[::stride]
    weights, total = Weights(objects), 0
    try:
        objects.refresh()
        yield from weights.learning()
        for at in chosen:
            after = next((one for one in known[at + 1 :] if one.facts.seq not in gone), None)
            others = [one.tree for one in (*known[max(0, at - 1) : at], after) if one is not None]
            total += weights.sizes.get(bytes.fromhex(known[at].id), 0)
            total += yield from _alone(objects, weights.sizes, known[at].tree, others)
    except DomainError as error:
        if error.kind == "too_many_files":
            raise
        return None
    return total * len(places) // len(chosen)


def _alone(objects: ObjectStore, sizes: dict[bytes, int], top: bytes, others: Sequence[bytes]) -> Pieces[int]:
    """Add up what is below a tree and not at the same path of the others."""
    total = 0
    stack = [(top, list(others))]
    while stack:
        tree, beside = stack.pop()
        if tree in beside or tree == EMPTY_TREE:
            continue
        total += sizes.get(tree, 0)
        listings = [_entries(objects, one) for one in beside]
        for name, entry in _entries(objects, tree).items():
            same = [found for found in (listing.get(name) for listing in listings) if found is not None]
            if entry.mode == DIRECTORY:
                stack.append((entry.oid, [found.oid for found in same if found.mode == DIRECTORY]))
            elif all(found.oid != entry.oid for found in same):
                total += sizes.get(entry.oid, 0)
        yield False
    return total


def _entries(objects: ObjectStore, tree: bytes) -> dict[bytes, TreeEntry]:
    return {} if tree == EMPTY_TREE else parse_tree(objects.read_own(tree, b"tree"))
