"""Checkpoints that are there and that no ref names, though nobody has dropped them.

A copy of a store that was cut off, a backup brought back over it or a disk after a power cut takes refs away; the
commits are in packs all the same. Without their refs they would be of no use, and a collection would take them for
waste.
"""

import logging
from collections.abc import Iterator

from ckptd.errors import DomainError
from ckptd.shadow.objects.packcheck import loose_objects
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import Checkpoint, load_checkpoint
from ckptd.shadow.record.living import Known, known_checkpoints
from ckptd.shadow.record.oplog import OperationLog

__all__ = ["bring_back", "is_any_lost"]

_logger = logging.getLogger(__name__)


def is_any_lost(log: OperationLog, refs: Refs, objects: ObjectStore) -> bool:
    """Tell whether the log, or HEAD, knows a checkpoint that is in the store and has no ref.

    Where both know nothing, a store with packs and not a single checkpoint is looked into, too.
    """
    known = known_checkpoints(log.intents.values(), log.outcomes)
    ids = set(refs.checkpoints().values())
    head = refs.head()
    wanted = {one.encode("ascii") for one in known.living} | ({head} if head is not None else set())
    if any(bytes.fromhex(one.decode("ascii")) in objects for one in wanted - ids - _encoded(known.gone)):
        return True
    return not ids and not known.living and not known.gone and objects.pack_count > 0


def bring_back(folder: bytes, log: OperationLog, refs: Refs, objects: ObjectStore) -> int:
    """Give all checkpoints that lack one their refs again; give how many. Raises DomainError where the disk refuses."""
    known = known_checkpoints(log.intents.values(), log.outcomes)
    named = refs.checkpoints()
    found: dict[int, tuple[bytes, bytes | None]] = {}
    for one in _unnamed(folder, refs, objects, known):
        there = named.get(one.facts.seq)
        if there is None or bytes.fromhex(there.decode("ascii")) not in objects:
            info = one.facts.info
            found[one.facts.seq] = one.id.encode("ascii"), info.encode("ascii") if info is not None else None
    if found:
        _logger.warning("the refs of %d checkpoints were gone; they are made anew", len(found))
        refs.bring_back(found)
    return len(found)


def _unnamed(folder: bytes, refs: Refs, objects: ObjectStore, known: Known) -> Iterator[Checkpoint]:
    ids = set(refs.checkpoints().values()) | _encoded(known.gone)
    for oid in objects.commits(oid for oid, _ in loose_objects(folder)):
        if oid.hex().encode("ascii") in ids:
            continue
        try:
            yield load_checkpoint(objects, oid)
        except DomainError:
            # An info, or a commit of somebody else.
            continue


def _encoded(ids: frozenset[str]) -> set[bytes]:
    return {one.encode("ascii") for one in ids}
