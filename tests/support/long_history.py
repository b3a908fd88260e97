"""A long history, put into a store at once: as many saves by a daemon would take minutes.

``add_checkpoints(folder, first, count)`` adds so many, with numbers from ``first`` on, while no daemon has the store
open. Each has a file of its own and a tree of its own; a hundred share a pack. Every third is automatic, the others are
manual. The older refs are packed, the last 600 are loose.
"""

import os
import random

from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import format_checkpoint
from ckptd.shadow.record.message import Facts

__all__ = ["add_checkpoints"]

_IN_A_PACK = 100
_LOOSE_REFS = 600
_BEGUN_S = 1_700_000_000
_EVERY_S = 600


def add_checkpoints(folder: bytes, first: int, count: int) -> None:
    """See the module."""
    chance = random.Random(first)
    refs: dict[int, str] = {}
    for begin in range(first, first + count, _IN_A_PACK):
        writer = ObjectStore(folder).writer()
        for seq in range(begin, min(begin + _IN_A_PACK, first + count)):
            text = b"number %d\n" % seq + chance.randbytes(400)
            blob = writer.add(b"blob", text)
            tree = writer.add(b"tree", b"100644 f\0" + blob)
            kind = "auto" if seq % 3 == 0 else "manual"
            commit = format_checkpoint(tree, _BEGUN_S + seq * _EVERY_S, f"number {seq}", Facts(seq=seq, kind=kind))
            refs[seq] = writer.add(b"commit", commit).hex()
        writer.finish()
    _write_refs(folder, refs)


def _write_refs(folder: bytes, refs: dict[int, str]) -> None:
    loose = sorted(refs)[-_LOOSE_REFS:]
    packed = [f"{one} refs/checkpoints/{seq:010}\n" for seq, one in sorted(refs.items()) if seq < loose[0]]
    with open(os.path.join(folder, b"packed-refs"), "x") as file:
        file.writelines(["# pack-refs with: peeled fully-peeled sorted \n", *packed])
    for seq in loose:
        with open(os.path.join(folder, b"refs", b"checkpoints", b"%010d" % seq), "x") as file:
            file.write(refs[seq] + "\n")
