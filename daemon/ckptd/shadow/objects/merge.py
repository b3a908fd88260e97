"""Making few packs of many, in pieces: whoever stores something in between finds all that was there.

A save leaves a pack of its own; looking an object up costs the number of packs. Entries are copied as they are; nothing
is inflated or compressed again. ``around`` is what surrounds each moment in which packs come or go.
"""

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from ckptd.errors import from_os_error
from ckptd.shadow.objects.deltas import Candidates, DeltaRun, Plain, delta_candidates
from ckptd.shadow.objects.pieces import Pieces, beside
from ckptd.shadow.objects.rewrite import Rewrite, hide_indexes_over_packs, hide_packs, remove_hidden
from ckptd.shadow.objects.store import ObjectStore

__all__ = ["Around", "free_bytes", "making_deltas", "merging", "replacing"]

Around = Callable[[], AbstractContextManager[None]]

_HIDDEN_AT_ONCE: Final = 16


def merging(objects: ObjectStore, stems: Collection[bytes], around: Around) -> Pieces[list[bytes]]:
    """Make one pack of several, given by their paths without an end; give those that have to be left as they are.

    The new pack is durable and visible before any other goes. Raises DomainError where the disk refuses; nothing is
    lost by that, nor by giving it up.
    """
    rewrite = Rewrite(objects, stems, lambda _oid: True)
    try:
        yield from rewrite.run()
        yield from rewrite.settling(around)
        rewrite.finish()
        yield from replacing(objects, rewrite.replaced, around)
        yield from rewrite.emptying()
        return list(rewrite.left)
    finally:
        rewrite.close()


def replacing(objects: ObjectStore, stems: Sequence[bytes], around: Around, *, at_once: bool = False) -> Pieces[None]:
    """Remove packs whose objects are all elsewhere, durably.

    ``at_once``: or nobody needs them, so nobody comes in between before all of these packs are out of sight. Raises
    DomainError where the disk refuses.
    """
    hidden: list[bytes] = []
    step = max(len(stems), 1) if at_once else _HIDDEN_AT_ONCE
    try:
        for at in range(0, len(stems), step):
            if at:
                yield False
            with around():
                hide_indexes_over_packs(objects.git_dir)
                hidden += hide_packs(stems[at : at + step])
        if hidden:
            yield from beside(partial(remove_hidden, objects.pack_dir, hidden))
    except OSError as error:
        raise from_os_error(error, "remove packs from", objects.pack_dir) from error


def making_deltas(
    objects: ObjectStore,
    known: dict[bytes, Plain],
    around: Around,
    most_bytes: int,
    is_pressed: Callable[[], bool] = lambda: False,
) -> Pieces[str | None]:
    """Let processes make deltas of what there is, as far as that is worth it; give why it has come to nothing.

    One after the other, each of up to ``most_bytes``; no further once something else ``is_pressed``. ``known`` is what
    has been found out of packs before. Raises DomainError where the disk refuses.
    """
    made: set[bytes] = set()
    while not is_pressed():
        chosen = yield from delta_candidates(objects.pack_dir, free_bytes(objects), known, most_bytes, made)
        if chosen is None:
            break
        runs: list[DeltaRun] = []
        try:
            # To write down a hundred thousand ids, and to start a process, takes a moment.
            yield from beside(partial(_begin, runs, objects.git_dir, chosen))
            (run,) = runs
            while not run.is_done():
                yield True
                if is_pressed():
                    return None
            stem = yield from run.taking(objects.pack_dir, around)
            if stem is None:
                return f"no deltas were made: {run.failure}"
            made.add(stem)
            yield from replacing(objects, [one for one in chosen.stems if one != stem], around)
        finally:
            for run in runs:
                run.close()
    return None


def _begin(runs: list[DeltaRun], git_dir: bytes, chosen: Candidates) -> None:
    runs.append(DeltaRun(git_dir, chosen))


def free_bytes(objects: ObjectStore) -> int:
    """Give what is free on the disk of the store; raises DomainError."""
    try:
        found = os.statvfs(objects.git_dir)
    except OSError as error:
        raise from_os_error(error, "look at the disk of", objects.git_dir) from error
    return found.f_bavail * found.f_frsize
