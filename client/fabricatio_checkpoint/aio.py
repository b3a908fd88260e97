"""The service and the store for event loops: the same methods, awaited. They import no event loop before a call.

There is one implementation, the blocking one: each call runs in a worker thread, so that a loop never waits.
"""

import functools
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from fabricatio_checkpoint.events import Event
from fabricatio_checkpoint.hooks import Guard
from fabricatio_checkpoint.progress import ProgressCallback
from fabricatio_checkpoint.search import SearchHit
from fabricatio_checkpoint.service import CheckpointService
from fabricatio_checkpoint.store import AnyPath, CheckPointStore

__all__ = ["AsyncCheckPointStore", "AsyncCheckpointService", "in_thread", "twin_of"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Self = TypeVar("_Self")
_Blocking = TypeVar("_Blocking")


class _Wraps(Protocol):
    @property
    def blocking(self) -> object: ...


_Wrapper = TypeVar("_Wrapper", bound=_Wraps)


async def in_thread(function: Callable[[], _T]) -> _T:
    """Run a blocking call in a worker thread; see ``workerthread.run`` for what cancelling does."""
    from fabricatio_checkpoint import workerthread

    return await workerthread.run(function)


def twin_of(
    method: Callable[Concatenate[_Self, _P], _T],
) -> Callable[[Callable[[_Self], None]], Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]]]:
    """Decorate the awaitable twin of a blocking method of the same class; a subclass's override of that counts.

    The decorated function gives the name alone: what is called, with which arguments, is ``method``.
    """

    def decorate(named: Callable[[_Self], None]) -> Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]]:
        @functools.wraps(method)
        async def twin(self: _Self, /, *args: _P.args, **values: _P.kwargs) -> _T:
            return await in_thread(functools.partial(getattr(self, method.__name__), *args, **values))

        return _named(twin, named)

    return decorate


def _of_blocking(
    method: Callable[Concatenate[_Blocking, _P], _T],
) -> Callable[[Callable[[_Wrapper], None]], Callable[Concatenate[_Wrapper, _P], Coroutine[Any, Any, _T]]]:
    """Decorate the awaitable twin of a method of ``self.blocking``; see twin_of()."""

    def decorate(named: Callable[[_Wrapper], None]) -> Callable[Concatenate[_Wrapper, _P], Coroutine[Any, Any, _T]]:
        @functools.wraps(method)
        async def twin(self: _Wrapper, /, *args: _P.args, **values: _P.kwargs) -> _T:
            call = functools.partial(getattr(self.blocking, method.__name__), *args, **values)
            return await in_thread(_told_in_loop(call))

        return _named(twin, named)

    return decorate


def _told_in_loop(call: functools.partial[_T]) -> functools.partial[_T]:
    """Have progress told where the call was made from: in the thread of the event loop."""
    callback = call.keywords.get("progress")
    if callback is None:
        return call
    from anyio import from_thread

    return functools.partial(call, progress=functools.partial(from_thread.run_sync, callback))


def _named(twin: _T, named: Callable[[Any], None]) -> _T:
    for name in ("__module__", "__name__", "__qualname__"):
        setattr(twin, name, getattr(named, name))
    return twin


class AsyncCheckPointStore:
    """The shadow repository of one worktree: the methods of CheckPointStore, awaited. Usable in any event loop.

    ``progress`` is called in the event loop's thread. A cancelled call leaves this usable: the daemon is asked to
    give the request up, and a save that was given up has left nothing.
    """

    def __init__(self, store: CheckPointStore) -> None:
        self._blocking = store

    @property
    def blocking(self) -> CheckPointStore:
        """The store that does the work, for code that may wait."""
        return self._blocking

    @property
    def workspace(self) -> Path:
        """The worktree: its real, absolute path."""
        return self.blocking.workspace

    def guard(self, msg: str | None = None, *, restore: bool = False, kind: str = "auto") -> Guard:
        """Checkpoint before a block; see CheckPointStore.guard. For ``async with`` and coroutine functions."""
        return self.blocking.guard(msg, restore=restore, kind=kind)

    @_of_blocking(CheckPointStore.save)
    def save(self) -> None:
        """Checkpoint the worktree; return the id."""

    @_of_blocking(CheckPointStore.save_detailed)
    def save_detailed(self) -> None:
        """Checkpoint the worktree; return everything that is known about it."""

    @_of_blocking(CheckPointStore.head)
    def head(self) -> None:
        """Give the id of the checkpoint that status and diff compare with."""

    @_of_blocking(CheckPointStore.commits)
    def commits(self) -> None:
        """Give the ids of all checkpoints, oldest first."""

    @_of_blocking(CheckPointStore.checkpoints)
    def checkpoints(self) -> None:
        """Give the checkpoints, newest first."""

    async def search(
        self,
        text: str | bytes,
        *,
        ignore_case: bool = False,
        paths: Iterable[AnyPath] = (),
        kind: str | None = None,
        meta: Mapping[str, str] | None = None,
        limit: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> AsyncGenerator[SearchHit, None]:
        """Give the checkpoints that add or remove a text, newest first, as they are found."""
        call = functools.partial(
            self.blocking.search,
            text,
            ignore_case=ignore_case,
            paths=paths,
            kind=kind,
            meta=meta,
            limit=limit,
            progress=progress,
        )
        hits = _told_in_loop(call)()
        while (hit := await in_thread(functools.partial(next, hits, None))) is not None:
            yield hit

    @_of_blocking(CheckPointStore.show)
    def show(self) -> None:
        """Give one checkpoint and what it changed."""

    @_of_blocking(CheckPointStore.status)
    def status(self) -> None:
        """Compare the worktree with head."""

    @_of_blocking(CheckPointStore.get_status)
    def get_status(self) -> None:
        """Give the paths that differ from head, sorted."""

    @_of_blocking(CheckPointStore.diff)
    def diff(self) -> None:
        """Give the patch from one checkpoint to another, or to the worktree."""

    @_of_blocking(CheckPointStore.diff_bytes)
    def diff_bytes(self) -> None:
        """Give the patch of diff() as bytes."""

    @_of_blocking(CheckPointStore.diff_detailed)
    def diff_detailed(self) -> None:
        """Give the patch of diff() with what it has no words for."""

    @_of_blocking(CheckPointStore.get_file_diff)
    def get_file_diff(self) -> None:
        """Give the patch of one file from a checkpoint to its current state."""

    @_of_blocking(CheckPointStore.cat)
    def cat(self) -> None:
        """Give the content of one file of a checkpoint."""

    @_of_blocking(CheckPointStore.reset)
    def reset(self) -> None:
        """Restore the entire worktree to a checkpoint."""

    @_of_blocking(CheckPointStore.plan_reset)
    def plan_reset(self) -> None:
        """Tell what reset() would do, and change nothing."""

    @_of_blocking(CheckPointStore.rollback)
    def rollback(self) -> None:
        """Restore files or directories from a checkpoint."""

    @_of_blocking(CheckPointStore.plan_rollback)
    def plan_rollback(self) -> None:
        """Tell what rollback() would do, and change nothing."""

    @_of_blocking(CheckPointStore.undo)
    def undo(self) -> None:
        """Take back the newest reset or rollback."""

    @_of_blocking(CheckPointStore.undo_session)
    def undo_session(self) -> None:
        """Take back all that a session changed."""

    @_of_blocking(CheckPointStore.redo)
    def redo(self) -> None:
        """Do again what the last undo took back."""

    @_of_blocking(CheckPointStore.resume)
    def resume(self) -> None:
        """Finish or undo the restore that was cut off."""

    @_of_blocking(CheckPointStore.tag)
    def tag(self) -> None:
        """Name a checkpoint."""

    @_of_blocking(CheckPointStore.untag)
    def untag(self) -> None:
        """Remove a tag."""

    @_of_blocking(CheckPointStore.watch)
    def watch(self) -> None:
        """Turn autosave on or off."""

    @_of_blocking(CheckPointStore.watch_status)
    def watch_status(self) -> None:
        """Tell how autosave is."""

    @_of_blocking(CheckPointStore.drop)
    def drop(self) -> None:
        """Remove checkpoints for good."""

    @_of_blocking(CheckPointStore.usage)
    def usage(self) -> None:
        """Tell what the store holds and takes on the disk."""

    @_of_blocking(CheckPointStore.thin)
    def thin(self) -> None:
        """Remove the checkpoints that go by rule."""

    @_of_blocking(CheckPointStore.gc)
    def gc(self) -> None:
        """Remove from the store what no checkpoint needs."""

    @_of_blocking(CheckPointStore.export)
    def export(self) -> None:
        """Write a checkpoint elsewhere."""

    @_of_blocking(CheckPointStore.verify)
    def verify(self) -> None:
        """Look for damage in the store."""

    def __repr__(self) -> str:
        return f"AsyncCheckPointStore({os.fspath(self.workspace)!r})"


class AsyncCheckpointService:
    """The life cycle of shadow repositories: the methods of CheckpointService, awaited.

    The arguments are those of CheckpointService; of() wraps one that is there. ``async with`` closes it at the end.
    """

    def __init__(
        self,
        stores_root: str | os.PathLike[str] | None = None,
        cache_size: int | None = None,
        *,
        session: str | None = None,
        socket: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self._blocking = CheckpointService(stores_root, cache_size, session=session, socket=socket, timeout_s=timeout_s)

    @classmethod
    def of(cls, service: CheckpointService) -> Self:
        """Wrap a service that is there, such as that of get_checkpoint_service()."""
        made = cls.__new__(cls)
        made._blocking = service
        return made

    @property
    def blocking(self) -> CheckpointService:
        """The service that does the work, for code that may wait."""
        return self._blocking

    @property
    def stores_root(self) -> Path:
        """The checkpoint directory: its real, absolute path."""
        return self.blocking.stores_root

    async def get_store(self, worktree_dir: AnyPath, *, force: bool = False) -> AsyncCheckPointStore:
        """Give the store of a directory, and make it on first access; see CheckpointService.get_store."""
        call = functools.partial(self.blocking.get_store, worktree_dir, force=force)
        return AsyncCheckPointStore(await in_thread(call))

    async def find_store(self, worktree_dir: AnyPath) -> AsyncCheckPointStore:
        """Give the store of a directory that has one; see CheckpointService.find_store."""
        return AsyncCheckPointStore(await in_thread(functools.partial(self.blocking.find_store, worktree_dir)))

    @_of_blocking(CheckpointService.workspaces)
    def workspaces(self) -> None:
        """List the worktrees that have a store."""

    @_of_blocking(CheckpointService.workspace_records)
    def workspace_records(self) -> None:
        """List the worktrees that have a store, with their state."""

    @_of_blocking(CheckpointService.usage)
    def usage(self) -> None:
        """Tell what the stores hold and take on the disk."""

    @_of_blocking(CheckpointService.prune_invalid)
    def prune_invalid(self) -> None:
        """Delete the stores of worktrees that no longer exist."""

    @_of_blocking(CheckpointService.prune)
    def prune(self) -> None:
        """Prune as prune_invalid() does, and say what went."""

    @_of_blocking(CheckpointService.adopt)
    def adopt(self) -> None:
        """Let a directory go on with the history of a worktree that was moved there."""

    async def events(
        self, worktree_dir: AnyPath | None = None, *, kinds: Iterable[str] = (), start: bool = True
    ) -> AsyncGenerator[Event, None]:
        """Give what happens from the first step on; see CheckpointService.events.

        Close it (``contextlib.aclosing``) where it is left before its end.
        """
        stream = await in_thread(functools.partial(self.blocking.events, worktree_dir, kinds=kinds, start=start))
        try:
            while (event := await in_thread(stream.wait)) is not None:
                yield event
        finally:
            stream.close()

    def close(self) -> None:
        """Close the idle connections; the service stays usable. Waits for nothing."""
        self.blocking.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"AsyncCheckpointService({os.fspath(self.stores_root)!r})"
