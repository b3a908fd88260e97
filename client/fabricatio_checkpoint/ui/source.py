"""What the timeline asks the daemon, awaited: each question in a thread, so that the event loop never waits."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

from fabricatio_checkpoint.aio import AsyncCheckpointService, AsyncCheckPointStore, in_thread
from fabricatio_checkpoint.events import Event, EventStream
from fabricatio_checkpoint.progress import ProgressCallback
from fabricatio_checkpoint.record import Change, CheckpointRecord, RestoreResult, SaveResult, StatusResult
from fabricatio_checkpoint.ui import comparison, patch
from fabricatio_checkpoint.ui.comparison import Comparison, Mode, Size
from fabricatio_checkpoint.ui.preview import Verb, Wish
from fabricatio_checkpoint.ui.span import Line, Span

__all__ = ["Source"]


class Source:
    """One worktree's checkpoints. Every method raises CheckpointError."""

    def __init__(self, service: AsyncCheckpointService, store: AsyncCheckPointStore) -> None:
        self._service = service
        self._store = store

    @property
    def worktree(self) -> str:
        """The worktree's real path, as ``os.fsdecode`` gives it."""
        return os.fspath(self._store.workspace)

    async def page(self, size: int, before: int | None = None) -> tuple[Sequence[CheckpointRecord], bool]:
        """Give the newest checkpoints, or those before a sequence number; and whether there are more."""
        found = await self._store.checkpoints(limit=size + 1, before=before)
        return found[:size], len(found) > size

    async def look(self) -> StatusResult:
        """Compare the worktree with head."""
        return await self._store.status()

    async def size(self, record: CheckpointRecord) -> Size:
        """Count what a checkpoint changed."""
        return comparison.size_of((await self._store.show(record.id)).changes)

    async def compare(self, record: CheckpointRecord, mode: Mode) -> Comparison:
        """List what a checkpoint changed, or what has changed since it was made."""
        if mode is Mode.SINCE:
            return comparison.of_plan(record, await self._store.plan_reset(record.id, skip_conflicts=True))
        return comparison.of_show(await self._store.show(record.id))

    async def patch(self, compared: Comparison, change: Change) -> tuple[Line, ...]:
        """Show how one path differs."""
        path = change.path
        if compared.from_id is None and compared.to_id is not None:
            if change.dir:
                return ((Span("new, empty directory", "note"),),)
            data = await self._store.cat(compared.to_id, path, max_bytes=patch.MAX_BYTES + 1)
            whole = len(data) <= patch.MAX_BYTES
            return await in_thread(lambda: patch.of_file(data[: patch.MAX_BYTES], whole=whole))
        found = await self._store.diff_detailed(compared.from_id, compared.to_id, [path], max_bytes=patch.MAX_BYTES)
        return await in_thread(lambda: patch.of_patch(found))

    async def plan(self, wish: Wish, *, skip_conflicts: bool) -> RestoreResult:
        """Say what would be done."""
        match wish.verb:
            case Verb.RESET:
                return await self._store.plan_reset(wish.id, skip_conflicts=skip_conflicts, recreate=wish.recreate)
            case Verb.ROLLBACK:
                return await self._store.plan_rollback(wish.id, wish.paths, delete=True, skip_conflicts=skip_conflicts)
            case Verb.UNDO:
                return await self._store.undo(dry_run=True, skip_conflicts=skip_conflicts)
            case Verb.REDO:
                return await self._store.redo(dry_run=True, skip_conflicts=skip_conflicts)

    async def carry_out(
        self, wish: Wish, digest: str, *, skip_conflicts: bool, progress: ProgressCallback | None = None
    ) -> RestoreResult:
        """Do exactly what a plan said; StateError ``plan_changed`` where it would be something else by now."""
        match wish.verb:
            case Verb.RESET:
                return await self._store.reset(
                    wish.id,
                    digest=digest,
                    skip_conflicts=skip_conflicts,
                    recreate=wish.recreate,
                    progress=progress,
                )
            case Verb.ROLLBACK:
                return await self._store.rollback(
                    wish.id, wish.paths, delete=True, digest=digest, skip_conflicts=skip_conflicts, progress=progress
                )
            case Verb.UNDO:
                return await self._store.undo(digest=digest, skip_conflicts=skip_conflicts, progress=progress)
            case Verb.REDO:
                return await self._store.redo(digest=digest, skip_conflicts=skip_conflicts, progress=progress)

    async def save(self, message: str | None, progress: ProgressCallback) -> SaveResult:
        """Make a checkpoint."""
        return await self._store.save_detailed(message, progress=progress)

    async def tag(self, commit_id: str, name: str) -> str:
        """Name a checkpoint."""
        return await self._store.tag(commit_id, name)

    async def listen(self, *, start: bool) -> EventStream:
        """Subscribe to what happens to this worktree; with ``start``, start a daemon where none runs."""
        call = functools.partial(self._service.blocking.events, self.worktree, start=start)
        return await in_thread(call)

    @staticmethod
    async def next_event(stream: EventStream) -> Event | None:
        """Wait for what happens next; None once the stream was closed."""
        return await in_thread(stream.wait)

    def close(self) -> None:
        """Close the idle connections."""
        self._service.close()
