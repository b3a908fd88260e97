"""What stores hold and take on the disk; only looked at, beside whoever has them open."""

import os
from collections import Counter
from typing import Literal

import msgspec

from ckpt_protocol.store import StoreUsage
from ckpt_protocol.structs import to_wire
from ckptd.errors import DomainError
from ckptd.shadow.objects.durable import read_derived
from ckptd.shadow.objects.pieces import Pieces
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import Checkpoint, rfc3339
from ckptd.shadow.record.lookup import CheckpointIds, Lookup
from ckptd.shadow.record.oplog import Intent
from ckptd.shadow.record.thinning import Keep
from ckptd.shadow.store.layout import folder_bytes
from ckptd.shadow.store.metadata import Metadata
from ckptd.shadow.store.sparing import spared_bytes

__all__ = ["usage_of"]


def usage_of(
    folder: bytes, metadata: Metadata, state: Literal["ok", "missing", "unreachable"], keep: Keep, now_s: float
) -> Pieces[StoreUsage | None]:
    """Tell of one store, in pieces; a checkpoint that cannot be read is counted as that. None: it has been deleted.

    Raises DomainError.
    """
    objects, refs = ObjectStore(folder), Refs(folder)
    try:
        lookup = Lookup(objects, CheckpointIds(refs))
        kinds: Counter[str] = Counter()
        known: list[Checkpoint] = []
        for one in lookup.by_seq().values():
            yield False
            try:
                checkpoint = lookup.load(one)
            except DomainError as error:
                if error.kind == "too_many_files":
                    raise
                kinds["unreadable"] += 1
                continue
            kinds[checkpoint.facts.kind] += 1
            known.append(checkpoint)
        unreadable = kinds["unreadable"] + len(refs.checkpoint_names()) - len(lookup.by_seq())
        # In the order of their numbers, so the last one is the newest, whatever the clock said.
        newest = known[-1] if known else None
        fixed = {lookup.head(), *lookup.tags_by_id(), newest and newest.id}
        frees = yield from spared_bytes(objects, known, {one for one in fixed if one}, keep, now_s)
        found = StoreUsage(
            path=metadata.worktree,
            store=to_wire(folder),
            state=state,
            bytes=folder_bytes(folder),
            manual=kinds["manual"],
            auto=kinds["auto"],
            safety=kinds["safety"],
            unreadable=unreadable,
            tags=len(refs.tags()),
            newest=None if newest is None else rfc3339(newest.time_s),
            files=_files_of_last_save(folder),
            thinning_frees=frees,
        )
        # Deleted between two pieces it would look damaged.
        return found if os.path.lexists(os.path.join(folder, b"ckpt")) else None
    finally:
        objects.close()


def _files_of_last_save(folder: bytes) -> int | None:
    """Read it in the operation log, which its owner may be writing to."""
    log = read_derived(os.path.join(folder, b"ckpt", b"log")) or b""
    # From the end: to cut megabytes into lines would hold everybody up.
    end = len(log)
    while (at := log.rfind(b'"verb":"save"', 0, end)) >= 0:
        end, after = log.rfind(b"\n", 0, at) + 1, log.find(b"\n", at)
        try:
            return msgspec.json.decode(log[end:after] if after >= 0 else log[end:], type=Intent).files
        except msgspec.MsgspecError:
            continue
    return None
