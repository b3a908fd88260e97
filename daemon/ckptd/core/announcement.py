"""What the result of an operation means to whoever listens to events."""

from collections.abc import Iterator

from ckpt_protocol.checkpoint import RestoreResult, SaveResult
from ckpt_protocol.events import Detail, EventKind

__all__ = ["Announcement", "announcements"]

Announcement = tuple[EventKind, dict[str, Detail]]


def announcements(result: object, *, automatic: bool = False) -> Iterator[Announcement]:
    """Give the events of an operation that has ended well; ``automatic`` where nobody asked for it."""
    if isinstance(result, SaveResult) and result.created:
        data: dict[str, Detail] = {"id": result.id, "seq": result.seq, "complete": result.complete}
        yield "checkpoint.created", {**data, "automatic": automatic}
    elif isinstance(result, RestoreResult) and not result.dry_run:
        if result.safety is not None:
            yield "checkpoint.created", {"id": result.safety, "safety": True}
        counts: dict[str, Detail] = {"written": len(result.written), "deleted": len(result.deleted)}
        counts |= {"kept": len(result.kept), "conflicts": len(result.conflicts)}
        yield "worktree.changed", {"target": result.target, "head": result.head, "safety": result.safety, **counts}
