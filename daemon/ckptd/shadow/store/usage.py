"""What stores hold and take on the disk; only looked at, beside whoever has them open."""

from collections import Counter
from typing import Literal

from ckpt_protocol.store import StoreUsage
from ckpt_protocol.structs import to_wire
from ckptd.errors import DomainError
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import rfc3339
from ckptd.shadow.record.lookup import Lookup
from ckptd.shadow.store.layout import folder_bytes
from ckptd.shadow.store.metadata import Metadata

__all__ = ["usage_of"]


def usage_of(folder: bytes, metadata: Metadata, state: Literal["ok", "missing", "unreachable"]) -> StoreUsage:
    """Tell of one store; a checkpoint that cannot be read is counted as that. Raises DomainError."""
    objects, refs = ObjectStore(folder), Refs(folder)
    try:
        lookup = Lookup(objects, refs)
        kinds: Counter[str] = Counter()
        newest: int | None = None
        for one in lookup.by_seq().values():
            try:
                checkpoint = lookup.load(one)
            except DomainError as error:
                if error.kind == "too_many_files":
                    raise
                kinds["unreadable"] += 1
                continue
            kinds[checkpoint.facts.kind] += 1
            # In the order of their numbers, so the last one is the newest, whatever the clock said.
            newest = checkpoint.time_s
        unreadable = kinds["unreadable"] + len(refs.checkpoint_names()) - len(lookup.by_seq())
        return StoreUsage(
            path=metadata.worktree,
            store=to_wire(folder),
            state=state,
            bytes=folder_bytes(folder),
            manual=kinds["manual"],
            auto=kinds["auto"],
            safety=kinds["safety"],
            unreadable=unreadable,
            tags=len(refs.tags()),
            newest=None if newest is None else rfc3339(newest),
        )
    finally:
        objects.close()
