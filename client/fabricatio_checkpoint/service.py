"""The stores of one checkpoint directory, and the one connection through which they are reached."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fabricatio_checkpoint import launch, wire
from fabricatio_checkpoint.config import checkpoint_config
from fabricatio_checkpoint.connection import Connection
from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.events import EventStream
from fabricatio_checkpoint.record import Adoption, PruneResult, Workspace
from fabricatio_checkpoint.store import AnyPath, CheckPointStore, call
from fabricatio_checkpoint.upkeep import UsageResult

__all__ = ["CheckpointService"]

# One lock for all services, held for moments only and never across a call. A fork waits for it, so that no child
# is born with it locked by a thread that the child does not have.
_LOCK = threading.RLock()
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class CheckpointService:
    """The life cycle of shadow repositories in one checkpoint directory. Safe for threads and after a fork.

    ``stores_root`` is that directory (default: the option ``checkpoint_dir``; a relative one starts at the
    process's directory), ``cache_size`` how many store objects are kept (default: the option). ``session`` tells
    apart who asks within one program; checkpoints carry it. ``socket`` is the daemon's address (default: the
    option), ``timeout_s`` the longest silence in seconds that a call bears (default: any; a daemon that works tells so
    twice a second). Raises InputError for options that are wrong; the daemon is started by the first call that needs
    it.
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
        root = checkpoint_config.checkpoint_dir if stores_root is None else os.path.expanduser(stores_root)
        self._root = wire.real_directory(root)
        self._cache_size = _positive(checkpoint_config.cache_size if cache_size is None else cache_size)
        address = launch.socket_path(checkpoint_config.socket if socket is None else socket)
        self._connection = Connection(address, client=launch.program(), session=session, timeout_s=timeout_s)
        # Least recently used first.
        self._stores: dict[bytes, CheckPointStore] = {}
        self._opened: dict[bytes, dict[str, Any]] = {}

    @property
    def stores_root(self) -> Path:
        """The checkpoint directory: its real, absolute path."""
        return Path(os.fsdecode(self._root))

    def get_store(self, worktree_dir: AnyPath, *, force: bool = False) -> CheckPointStore:
        """Give the store of a directory, and make it on first access; the same object for the same real path.

        ``force`` allows protected places such as the home directory. Raises InputError for something that is not a
        directory or is protected.
        """
        real = wire.real_directory(worktree_dir)
        seen = wire.worktree(real)
        if self._opened.get(real) != seen:
            params = {
                "checkpoint_dir": wire.directory(self._root),
                "worktree": seen,
                "token": wire.new_token(),
                "force": force,
            }
            self._connection.call("worktree.open", params)
        return self._remember(real, seen, os.path.abspath(os.fsencode(worktree_dir)))

    def find_store(self, worktree_dir: AnyPath) -> CheckPointStore:
        """Give the store of a directory that has one, also where the directory is gone; make none.

        Raises StateError ``not_tracked``.
        """
        real = wire.real_directory(worktree_dir)
        store = CheckPointStore(real, self._root, self._connection, os.path.abspath(os.fsencode(worktree_dir)))
        # The cheapest question that only a store can answer.
        store.checkpoints(limit=1)
        return store

    def workspaces(self) -> list[Path]:
        """List the worktrees that have a store, also those that are gone."""
        return [Path(workspace.path) for workspace in self.workspace_records()]

    def workspace_records(self) -> list[Workspace]:
        """List the worktrees that have a store, with their state, and the size of their history."""
        params = {"checkpoint_dir": wire.directory(self._root)}
        return call(self._connection, "worktree.list", params, _workspaces)

    def usage(self) -> UsageResult:
        """Tell what the stores of the checkpoint directory hold and take, the largest first."""
        params = {"checkpoint_dir": wire.directory(self._root)}
        return call(self._connection, "store.usage", params, UsageResult.from_wire)

    def prune_invalid(self) -> None:
        """Delete the stores of worktrees that no longer exist; one that only cannot be reached now is kept."""
        self.prune()

    def prune(self, *, dry_run: bool = False) -> PruneResult:
        """Prune as prune_invalid() does, or with ``dry_run`` tell what it would delete; say what went."""
        params = {"checkpoint_dir": wire.directory(self._root), "token": wire.new_token(), "dry_run": dry_run}
        result = call(self._connection, "store.prune", params, PruneResult.from_wire)
        with _LOCK:
            # A directory that comes back gets a new store at its next get_store().
            self._opened.clear()
        return result

    def adopt(self, worktree_dir: AnyPath, old: AnyPath, *, force: bool = False, dry_run: bool = False) -> Adoption:
        """Let a directory go on with the history of a worktree that was moved there; ids stay as they are.

        ``old`` is the path where it was, or the folder of its store; ``force`` allows protected places, ``dry_run``
        only tells what would be adopted. Raises StateError: ``not_tracked`` where ``old`` has no history,
        ``two_claimants`` where something is at the old path, or the directory has checkpoints of its own.
        """
        params = {
            "checkpoint_dir": wire.directory(self._root),
            "worktree": wire.worktree(wire.real_directory(worktree_dir)),
            "token": wire.new_token(),
            "old": wire.directory(wire.former_place(old)),
            "force": force,
            "dry_run": dry_run,
        }
        result = call(self._connection, "worktree.adopt", params, Adoption.from_wire)
        with _LOCK:
            self._opened.clear()
        return result

    def events(
        self, worktree_dir: AnyPath | None = None, *, kinds: Iterable[str] = (), start: bool = True
    ) -> EventStream:
        """Listen to what happens in this checkpoint directory, or to one worktree of it, from now on.

        ``kinds`` names the kinds of events that are of interest (default: all). The result is an iterator that waits
        for each event, and a context manager. Without ``start`` no daemon is started: TransportError ``not_running``
        where there is none.
        """
        params: dict[str, Any] = {"checkpoint_dir": wire.directory(self._root), "kinds": list(kinds)}
        if worktree_dir is not None:
            params["worktree"] = wire.worktree(wire.real_directory(worktree_dir))
        return EventStream(lambda: self._connection.listen(params, start=start))

    def close(self) -> None:
        """Close the idle connections; the service stays usable."""
        self._connection.close()

    def __repr__(self) -> str:
        return f"CheckpointService({os.fsdecode(self._root)!r})"

    def _remember(self, real: bytes, seen: dict[str, Any], given: bytes) -> CheckPointStore:
        with _LOCK:
            store = self._stores.pop(real, None) or CheckPointStore(real, self._root, self._connection)
            store.known_as(given)
            self._stores[real] = store
            self._opened[real] = seen
            while len(self._stores) > self._cache_size:
                oldest = next(iter(self._stores))
                del self._stores[oldest]
                self._opened.pop(oldest, None)
        return store


def _workspaces(result: dict[str, Any]) -> list[Workspace]:
    return [Workspace.from_wire(each) for each in result["workspaces"]]


def _positive(cache_size: int) -> int:
    if not isinstance(cache_size, int) or isinstance(cache_size, bool) or cache_size < 1:
        raise error_of("bad_option", f"cache_size: expected a whole number of at least 1, found {cache_size!r}")
    return cache_size
