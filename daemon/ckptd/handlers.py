"""One small function a method: it knows what a request needs of the manager, and nothing else."""

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import anyio
import anyio.to_thread

from ckpt_protocol import checkpoint, daemon, discover, events, openrpc, store, worktree
from ckpt_protocol.events import PROGRESS_CAPABILITY
from ckpt_protocol.structs import Result, WirePath, Worktree, from_wire, to_wire
from ckpt_protocol.version import BUILD, PROTOCOL_VERSION
from ckptd.asked import Asked
from ckptd.core.bus import Bus
from ckptd.core.caller import Caller, unless_called_off
from ckptd.core.subscription import Wanted
from ckptd.errors import DomainError

if TYPE_CHECKING:
    from ckptd.core.manager import Manager
    from ckptd.core.ports import Reader, Run, Writer

__all__ = ["HANDLERS", "Daemon", "Handler"]

R = TypeVar("R")

_LOOK_AGAIN_S: Final = 0.05
_LEAST_PAUSE_S: Final = 0.001


@dataclass(frozen=True, kw_only=True, slots=True)
class Daemon:
    """What the methods can reach. ``stop`` asks the daemon to end and returns at once.

    ``may_be_replaced`` tells whether nothing but the request that asks is under way, and whether an end would bring
    anything: a start by the service manager may give the same build again.
    """

    manager: "Manager"
    socket: bytes
    connections: Callable[[], int]
    stop: Callable[[], None]
    may_be_replaced: Callable[[], bool]
    started: float
    """On the clock of time.monotonic(), in seconds."""
    bus: Bus = field(default_factory=Bus)
    remember: Callable[[bytes], None] = lambda _checkpoint_dir: None
    """Have the next daemon know that autosave is on in a checkpoint directory."""
    reboot: Callable[[], worktree.WatchReboot] = lambda: worktree.WatchReboot(unit=False, enabled=False, linger=False)
    """Tell whether autosave goes on after a reboot."""


_WANTED: Final = {"on": True, "off": False, "status": None}


_LONGEST_NAME: Final = 200
"""Characters that are kept of what a client calls itself."""


class _InDirectory(Protocol):
    @property
    def checkpoint_dir(self) -> WirePath: ...


class _OfWorktree(_InDirectory, Protocol):
    @property
    def worktree(self) -> Worktree: ...


def _directory(params: _InDirectory) -> bytes:
    """Give the directory as the client names it: which it is, a thread has to find out."""
    return from_wire(params.checkpoint_dir)


# Params are a Struct of the method's own: the table below is where each meets its function.
Handler = Callable[[Daemon, Asked, Any], Awaitable[Result]]


async def hello(_daemon: Daemon, asked: Asked, params: daemon.HelloParams) -> daemon.HelloResult:
    """Get to know the peer; raises DomainError ``protocol_mismatch``."""
    if params.protocol != PROTOCOL_VERSION:
        asked.peer.refused = DomainError(
            "protocol_mismatch",
            f"the client speaks protocol {params.protocol}, the daemon (build {BUILD}) protocol {PROTOCOL_VERSION}",
            hint="update the older one; daemon.status and daemon.stop work across versions",
        )
        raise asked.peer.refused
    peer = asked.peer
    peer.refused = None
    if params.session is not None and len(params.session) > _LONGEST_NAME:
        # Not cut: two sessions that become one would undo each other's work.
        raise DomainError("bad_option", f"a session's name has at most {_LONGEST_NAME} characters")
    # Both are written down with every operation.
    peer.client, peer.session = params.client[:_LONGEST_NAME], params.session
    peer.wants_progress = PROGRESS_CAPABILITY in (params.capabilities or ())
    return daemon.HelloResult(protocol=PROTOCOL_VERSION, build=BUILD, pid=os.getpid(), capabilities=sorted(HANDLERS))


async def daemon_status(daemon_: Daemon, _asked: Asked, _params: daemon.StatusParams) -> daemon.StatusResult:
    """Tell how the daemon is."""
    return daemon.StatusResult(
        pid=os.getpid(),
        version=BUILD,
        protocol=PROTOCOL_VERSION,
        socket=to_wire(daemon_.socket),
        uptime_s=round(time.monotonic() - daemon_.started, 3),
        connections=daemon_.connections(),
        stores=daemon_.manager.stores(),
    )


async def stop(daemon_: Daemon, _asked: Asked, params: daemon.StopParams) -> daemon.StopResult:
    """Ask the daemon to end; what is running, this answer included, is finished first."""
    stopping = not params.if_idle or daemon_.may_be_replaced()
    if stopping:
        daemon_.stop()
    return daemon.StopResult(pid=os.getpid(), stopping=stopping)


async def describe(_daemon: Daemon, _asked: Asked, _params: discover.DiscoverParams) -> discover.DiscoverResult:
    """Describe the wire."""
    return openrpc.document()


async def open_worktree(daemon_: Daemon, asked: Asked, params: worktree.OpenParams) -> worktree.OpenResult:
    """Make the store of a worktree if there is none."""
    return await daemon_.manager.open(_directory(params), params.worktree, asked.caller, force=params.force)


async def list_worktrees(daemon_: Daemon, asked: Asked, params: worktree.ListParams) -> worktree.ListResult:
    """List the tracked worktrees of a checkpoint directory."""
    return await daemon_.manager.list(_directory(params), asked.caller)


async def status(daemon_: Daemon, asked: Asked, params: worktree.StatusParams) -> worktree.StatusResult:
    """Compare a worktree with head, and add the state of its actor."""
    return await daemon_.manager.status(params, asked.caller)


async def watch(daemon_: Daemon, asked: Asked, params: worktree.WatchParams) -> worktree.WatchResult:
    """Turn autosave on or off, or tell how it is."""
    on = _WANTED[params.action]
    directory, watcher, state, halted, scans = await daemon_.manager.watch(
        _directory(params), params.worktree, asked.caller, on, force=params.force
    )

    def aside() -> worktree.WatchReboot:
        if on:
            daemon_.remember(directory)
        return daemon_.reboot()

    # Both look into the home directory, which may lie on a mount that does not answer.
    reboot = await unless_called_off(asked.caller, anyio.to_thread.run_sync(aside, abandon_on_cancel=True))
    return worktree.WatchResult(watcher=watcher, state=state, halted=halted, reboot=reboot, scans=scans)


async def forget(daemon_: Daemon, asked: Asked, params: worktree.ForgetParams) -> worktree.ForgetResult:
    """Delete the store of a worktree."""
    return await daemon_.manager.forget(_directory(params), params.worktree, asked.caller)


async def adopt(daemon_: Daemon, asked: Asked, params: worktree.AdoptParams) -> worktree.AdoptResult:
    """Go on with the history of a worktree that was moved."""
    old = from_wire(params.old)
    return await daemon_.manager.adopt(
        _directory(params), params.worktree, old, asked.caller, force=params.force, dry_run=params.dry_run
    )


async def save(daemon_: Daemon, asked: Asked, params: checkpoint.SaveParams) -> checkpoint.SaveResult:
    """Make a checkpoint, and the store for it if there is none."""
    caller, directory = asked.caller, _directory(params)
    return await daemon_.manager.write(
        directory,
        params.worktree,
        lambda writer: writer.save(params, caller),
        caller,
        create=True,
        force=params.force,
    )


async def head(daemon_: Daemon, asked: Asked, params: checkpoint.HeadParams) -> checkpoint.HeadResult:
    """Give the base of comparison."""
    return await daemon_.manager.read(
        _directory(params), params.worktree, lambda reader: reader.head(params), asked.caller
    )


async def list_checkpoints(daemon_: Daemon, asked: Asked, params: checkpoint.ListParams) -> checkpoint.ListResult:
    """List checkpoints."""
    return await _in_steps(daemon_, asked, params, lambda reader: reader.list(params, asked.caller))


async def show(daemon_: Daemon, asked: Asked, params: checkpoint.ShowParams) -> checkpoint.ShowResult:
    """Give a checkpoint and what it changed."""
    return await _in_steps(daemon_, asked, params, lambda reader: reader.show(params, asked.caller))


async def cat(daemon_: Daemon, asked: Asked, params: checkpoint.CatParams) -> checkpoint.CatResult:
    """Give a piece of a file of a checkpoint."""
    return await daemon_.manager.read(
        _directory(params), params.worktree, lambda reader: reader.cat(params), asked.caller
    )


async def diff(daemon_: Daemon, asked: Asked, params: checkpoint.DiffParams) -> checkpoint.DiffResult:
    """Give a piece of a patch. Of all that, only the look at the worktree takes its turn among saves."""
    if params.cursor is not None or params.to_id != checkpoint.WORKTREE:
        return await _in_steps(daemon_, asked, params, lambda reader: reader.diff(params, asked.caller))
    try:
        return await _diff_with_worktree(daemon_, asked, params)
    except DomainError as error:
        if error.kind != "object_missing":
            raise
    # What is in no checkpoint may have been collected meanwhile. The next look reads it anew.
    return await _diff_with_worktree(daemon_, asked, params)


async def _diff_with_worktree(daemon_: Daemon, asked: Asked, params: checkpoint.DiffParams) -> checkpoint.DiffResult:
    caller, directory, manager = asked.caller, _directory(params), daemon_.manager
    while True:
        snapshot = await manager.write(
            directory, params.worktree, lambda writer: writer.snapshot(params, caller), caller
        )
        if snapshot is not None:
            break
        await unless_called_off(caller, anyio.sleep(_LOOK_AGAIN_S))
    try:
        return await _in_steps(daemon_, asked, params, lambda reader: reader.diff(params, caller, snapshot))
    finally:
        # Also where the caller has gone before it was of use; by the reader's thread, for a large file goes slowly.
        closing = manager.read(directory, params.worktree, lambda _reader: snapshot.close(), Caller("ckptd"))
        await manager.clear_up(closing)


async def restore(daemon_: Daemon, asked: Asked, params: checkpoint.RestoreParams) -> checkpoint.RestoreResult:
    """Bring back a checkpoint, or some paths of it."""
    caller, directory = asked.caller, _directory(params)
    return await daemon_.manager.write(
        directory, params.worktree, lambda writer: writer.restore(params, caller), caller, exclusive=not params.dry_run
    )


async def undo(daemon_: Daemon, asked: Asked, params: checkpoint.StepParams) -> checkpoint.RestoreResult:
    """Reverse the newest restore."""
    caller, directory = asked.caller, _directory(params)
    return await daemon_.manager.write(
        directory, params.worktree, lambda writer: writer.undo(params, caller), caller, exclusive=not params.dry_run
    )


async def redo(daemon_: Daemon, asked: Asked, params: checkpoint.StepParams) -> checkpoint.RestoreResult:
    """Reverse the newest undo."""
    caller, directory = asked.caller, _directory(params)
    return await daemon_.manager.write(
        directory, params.worktree, lambda writer: writer.redo(params, caller), caller, exclusive=not params.dry_run
    )


async def resume(daemon_: Daemon, asked: Asked, params: worktree.ResumeParams) -> checkpoint.RestoreResult:
    """End a restore that was cut off."""
    caller, directory = asked.caller, _directory(params)
    return await daemon_.manager.write(
        directory, params.worktree, lambda writer: writer.resume(params, caller), caller, exclusive=not params.dry_run
    )


async def tag(daemon_: Daemon, asked: Asked, params: checkpoint.TagParams) -> checkpoint.TagResult:
    """Name a checkpoint."""
    caller, directory = asked.caller, _directory(params)
    return await daemon_.manager.write(directory, params.worktree, lambda writer: writer.tag(params, caller), caller)


async def untag(daemon_: Daemon, asked: Asked, params: checkpoint.UntagParams) -> checkpoint.TagResult:
    """Remove a name."""
    caller, directory = asked.caller, _directory(params)
    return await daemon_.manager.write(directory, params.worktree, lambda writer: writer.untag(params, caller), caller)


async def drop(daemon_: Daemon, asked: Asked, params: checkpoint.DropParams) -> checkpoint.DropResult:
    """Remove checkpoints by hand."""
    caller, directory = asked.caller, _directory(params)
    return await daemon_.manager.write(directory, params.worktree, lambda writer: writer.drop(params, caller), caller)


async def prune(daemon_: Daemon, asked: Asked, params: store.PruneParams) -> store.PruneResult:
    """Delete the stores of worktrees that are gone."""
    return await daemon_.manager.prune(_directory(params), asked.caller, dry_run=params.dry_run)


async def usage(daemon_: Daemon, asked: Asked, params: store.UsageParams) -> store.UsageResult:
    """Tell what stores hold."""
    path = None if params.worktree is None else from_wire(params.worktree.path)
    return await daemon_.manager.usage(_directory(params), path, asked.caller)


async def thin(daemon_: Daemon, asked: Asked, params: store.ThinParams) -> store.ThinResult:
    """Remove the checkpoints that go by rule."""
    return await _between_operations(daemon_, asked, params, lambda writer: writer.thin(params, asked.caller))


async def gc(daemon_: Daemon, asked: Asked, params: store.GcParams) -> store.GcResult:
    """Collect."""
    return await _between_operations(daemon_, asked, params, lambda writer: writer.gc(params, asked.caller))


async def _between_operations(
    daemon_: Daemon, asked: Asked, params: _OfWorktree, begin: Callable[["Writer"], "Run[R]"]
) -> R:
    """Do what takes long on the writer a moment at a time: other operations of the worktree come in between."""
    caller, directory, manager = asked.caller, _directory(params), daemon_.manager
    run, same = await manager.write(directory, params.worktree, lambda writer: (begin(writer), _Same(writer)), caller)
    try:
        while True:
            result = await manager.write(directory, params.worktree, lambda writer: same(writer, run).step(), caller)
            if result is not None:
                return result
            if run.is_waiting:
                await anyio.sleep(_LOOK_AGAIN_S)
    finally:
        # Whoever asked may be gone; what was begun is cleared away all the same, by the thread that it belongs to.
        await manager.clear_up(manager.write(directory, params.worktree, lambda _writer: run.close(), Caller("ckptd")))


class _Same:
    """Knows the side of a store with which something was begun: its objects are of no use to the thread of another.

    A store may be closed and opened again between two steps, and a checkpoint directory become another one.
    """

    def __init__(self, side: object) -> None:
        self._side = side

    def __call__(self, side: object, run: R) -> R:
        if side is not self._side:
            raise DomainError("stopping", "the store was closed meanwhile", hint="try again")
        return run


async def _in_steps(daemon_: Daemon, asked: Asked, params: _OfWorktree, begin: Callable[["Reader"], "Run[R]"]) -> R:
    """Do a long read a moment at a time: other reads of the store come in between. What is short is one read."""
    caller, directory, manager = asked.caller, _directory(params), daemon_.manager
    begun: list[tuple[Run[R], _Same]] = []

    def step(reader: "Reader") -> R | None:
        if not begun:
            begun.append((begin(reader), _Same(reader)))
        run, same = begun[0]
        result = same(reader, run).step()
        if result is None and caller.cancelled.is_set():
            # Nobody may know any more that it has begun.
            run.close()
        return result

    def close(_reader: "Reader") -> None:
        for run, _ in begun:
            run.close()

    try:
        pause_s = _LEAST_PAUSE_S
        while (result := await manager.read(directory, params.worktree, step, caller)) is None:
            if not begun[0][0].is_waiting:
                pause_s = _LEAST_PAUSE_S
                continue
            await unless_called_off(caller, anyio.sleep(pause_s))
            pause_s = min(2 * pause_s, _LOOK_AGAIN_S)
    except BaseException:
        caller.call_off()
        # As for a collection; whoever called it off was answered while a step may still have been under way.
        if begun:
            await manager.clear_up(manager.read(directory, params.worktree, close))
        raise
    return result


async def verify(daemon_: Daemon, asked: Asked, params: store.VerifyParams) -> store.VerifyResult:
    """Look for damage."""
    return await _in_steps(daemon_, asked, params, lambda reader: reader.verify(params, asked.caller))


async def export(daemon_: Daemon, asked: Asked, params: checkpoint.ExportParams) -> checkpoint.ExportResult:
    """Write a checkpoint elsewhere."""
    return await _in_steps(daemon_, asked, params, lambda reader: reader.export(params, asked.caller))


async def search(daemon_: Daemon, asked: Asked, params: checkpoint.SearchParams) -> checkpoint.SearchResult:
    """Look for a text in what checkpoints changed."""
    return await _in_steps(daemon_, asked, params, lambda reader: reader.search(params, asked.caller))


async def subscribe(daemon_: Daemon, asked: Asked, params: events.SubscribeParams) -> events.SubscribeResult:
    """Send events on this connection from now on."""
    named = params.checkpoint_dir
    wanted = Wanted(
        None if named is None else await daemon_.manager.real_path(from_wire(named), asked.caller),
        None if params.worktree is None else from_wire(params.worktree.path),
        frozenset(params.kinds),
    )
    seq = daemon_.bus.seq
    return events.SubscribeResult(subscription=asked.peer.subscribe(daemon_.bus, wanted, params.limit), seq=seq)


async def unsubscribe(_daemon: Daemon, asked: Asked, params: events.UnsubscribeParams) -> events.UnsubscribeResult:
    """Send no more of them."""
    return events.UnsubscribeResult(known=asked.peer.unsubscribe(params.subscription))


HANDLERS: Final[dict[str, Handler]] = {
    "daemon.hello": hello,
    "daemon.status": daemon_status,
    "daemon.stop": stop,
    "rpc.discover": describe,
    "worktree.open": open_worktree,
    "worktree.list": list_worktrees,
    "worktree.status": status,
    "worktree.forget": forget,
    "worktree.adopt": adopt,
    "worktree.watch": watch,
    "worktree.resume": resume,
    "checkpoint.save": save,
    "checkpoint.head": head,
    "checkpoint.list": list_checkpoints,
    "checkpoint.search": search,
    "checkpoint.show": show,
    "checkpoint.cat": cat,
    "checkpoint.diff": diff,
    "checkpoint.restore": restore,
    "checkpoint.undo": undo,
    "checkpoint.redo": redo,
    "checkpoint.tag": tag,
    "checkpoint.untag": untag,
    "checkpoint.drop": drop,
    "events.subscribe": subscribe,
    "events.unsubscribe": unsubscribe,
    "store.prune": prune,
    "store.usage": usage,
    "store.thin": thin,
    "store.gc": gc,
    "store.verify": verify,
    "checkpoint.export": export,
}
