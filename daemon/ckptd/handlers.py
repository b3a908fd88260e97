"""One small function a method: it knows what a request needs of the manager, and nothing else."""

import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
import msgspec

from ckpt_protocol import checkpoint, daemon, discover, openrpc, store, worktree
from ckpt_protocol.structs import Result, WirePath, from_wire, to_wire
from ckpt_protocol.version import BUILD, PROTOCOL_VERSION
from ckptd.core.ports import Caller
from ckptd.errors import DomainError

if TYPE_CHECKING:
    from ckptd.core.manager import Manager

__all__ = ["HANDLERS", "Daemon", "Handler", "Peer"]

_LOOK_AGAIN_S: Final = 0.05


class Peer:
    """Who is at the other end of a connection, as its hello said; a connection without one is unknown.

    ``refused`` is why its hello was refused: then it gets nothing but the methods about the daemon itself.
    """

    __slots__ = ("client", "refused", "session")

    def __init__(self, client: str = "unknown", session: str | None = None) -> None:
        self.client = client
        self.session = session
        self.refused: DomainError | None = None

    def caller(self) -> Caller:
        """Make the record of one request of this peer."""
        return Caller(self.client, self.session)


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


class _InDirectory(Protocol):
    @property
    def checkpoint_dir(self) -> WirePath: ...


def _directory(params: _InDirectory) -> bytes:
    # Two spellings of one directory must not become two owners of the same stores.
    return os.path.realpath(from_wire(params.checkpoint_dir))


# Params are a Struct of the method's own: the table below is where each meets its function.
Handler = Callable[[Daemon, Peer, Any], Awaitable[Result]]


async def hello(_daemon: Daemon, peer: Peer, params: daemon.HelloParams) -> daemon.HelloResult:
    """Get to know the peer; raises DomainError ``protocol_mismatch``."""
    if params.protocol != PROTOCOL_VERSION:
        peer.refused = DomainError(
            "protocol_mismatch",
            f"the client speaks protocol {params.protocol}, the daemon (build {BUILD}) protocol {PROTOCOL_VERSION}",
            hint="update the older one; daemon.status and daemon.stop work across versions",
        )
        raise peer.refused
    peer.refused = None
    peer.client, peer.session = params.client, params.session
    return daemon.HelloResult(protocol=PROTOCOL_VERSION, build=BUILD, pid=os.getpid(), capabilities=sorted(HANDLERS))


async def daemon_status(daemon_: Daemon, _peer: Peer, _params: daemon.StatusParams) -> daemon.StatusResult:
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


async def stop(daemon_: Daemon, _peer: Peer, params: daemon.StopParams) -> daemon.StopResult:
    """Ask the daemon to end; what is running, this answer included, is finished first."""
    stopping = not params.if_idle or daemon_.may_be_replaced()
    if stopping:
        daemon_.stop()
    return daemon.StopResult(pid=os.getpid(), stopping=stopping)


async def describe(_daemon: Daemon, _peer: Peer, _params: discover.DiscoverParams) -> discover.DiscoverResult:
    """Describe the wire."""
    return openrpc.document()


async def open_worktree(daemon_: Daemon, _peer: Peer, params: worktree.OpenParams) -> worktree.OpenResult:
    """Make the store of a worktree if there is none."""
    return await daemon_.manager.open(_directory(params), params.worktree, force=params.force)


async def list_worktrees(daemon_: Daemon, _peer: Peer, params: worktree.ListParams) -> worktree.ListResult:
    """List the tracked worktrees of a checkpoint directory."""
    return await daemon_.manager.list(_directory(params))


async def status(daemon_: Daemon, peer: Peer, params: worktree.StatusParams) -> worktree.StatusResult:
    """Compare a worktree with head, and add the state of its actor."""
    caller = peer.caller()
    directory, place, manager = _directory(params), params.worktree, daemon_.manager
    result = await manager.write(directory, place, lambda writer: writer.status(params, caller), caller)
    state, halted = manager.state_of(directory, place)
    return msgspec.structs.replace(result, state=state, halted=halted)


async def forget(daemon_: Daemon, _peer: Peer, params: worktree.ForgetParams) -> worktree.ForgetResult:
    """Delete the store of a worktree."""
    return await daemon_.manager.forget(_directory(params), params.worktree)


async def save(daemon_: Daemon, peer: Peer, params: checkpoint.SaveParams) -> checkpoint.SaveResult:
    """Make a checkpoint, and the store for it if there is none."""
    caller, directory = peer.caller(), _directory(params)
    return await daemon_.manager.write(
        directory,
        params.worktree,
        lambda writer: writer.save(params, caller),
        caller,
        create=True,
        force=params.force,
    )


async def head(daemon_: Daemon, _peer: Peer, params: checkpoint.HeadParams) -> checkpoint.HeadResult:
    """Give the base of comparison."""
    return await daemon_.manager.read(_directory(params), params.worktree, lambda reader: reader.head(params))


async def list_checkpoints(daemon_: Daemon, _peer: Peer, params: checkpoint.ListParams) -> checkpoint.ListResult:
    """List checkpoints."""
    return await daemon_.manager.read(_directory(params), params.worktree, lambda reader: reader.list(params))


async def show(daemon_: Daemon, _peer: Peer, params: checkpoint.ShowParams) -> checkpoint.ShowResult:
    """Give a checkpoint and what it changed."""
    return await daemon_.manager.read(_directory(params), params.worktree, lambda reader: reader.show(params))


async def cat(daemon_: Daemon, _peer: Peer, params: checkpoint.CatParams) -> checkpoint.CatResult:
    """Give a piece of a file of a checkpoint."""
    return await daemon_.manager.read(_directory(params), params.worktree, lambda reader: reader.cat(params))


async def diff(daemon_: Daemon, peer: Peer, params: checkpoint.DiffParams) -> checkpoint.DiffResult:
    """Give a piece of a patch."""
    caller, directory = peer.caller(), _directory(params)
    return await daemon_.manager.write(directory, params.worktree, lambda writer: writer.diff(params, caller), caller)


async def restore(daemon_: Daemon, peer: Peer, params: checkpoint.RestoreParams) -> checkpoint.RestoreResult:
    """Bring back a checkpoint, or some paths of it."""
    caller, directory = peer.caller(), _directory(params)
    return await daemon_.manager.write(
        directory, params.worktree, lambda writer: writer.restore(params, caller), caller, exclusive=not params.dry_run
    )


async def undo(daemon_: Daemon, peer: Peer, params: checkpoint.StepParams) -> checkpoint.RestoreResult:
    """Reverse the newest restore."""
    caller, directory = peer.caller(), _directory(params)
    return await daemon_.manager.write(
        directory, params.worktree, lambda writer: writer.undo(params, caller), caller, exclusive=not params.dry_run
    )


async def redo(daemon_: Daemon, peer: Peer, params: checkpoint.StepParams) -> checkpoint.RestoreResult:
    """Reverse the newest undo."""
    caller, directory = peer.caller(), _directory(params)
    return await daemon_.manager.write(
        directory, params.worktree, lambda writer: writer.redo(params, caller), caller, exclusive=not params.dry_run
    )


async def resume(daemon_: Daemon, peer: Peer, params: worktree.ResumeParams) -> checkpoint.RestoreResult:
    """End a restore that was cut off."""
    caller, directory = peer.caller(), _directory(params)
    return await daemon_.manager.write(
        directory, params.worktree, lambda writer: writer.resume(params, caller), caller, exclusive=not params.dry_run
    )


async def drop(daemon_: Daemon, peer: Peer, params: checkpoint.DropParams) -> checkpoint.DropResult:
    """Remove checkpoints by hand."""
    caller, directory = peer.caller(), _directory(params)
    return await daemon_.manager.write(directory, params.worktree, lambda writer: writer.drop(params, caller), caller)


async def prune(daemon_: Daemon, _peer: Peer, params: store.PruneParams) -> store.PruneResult:
    """Delete the stores of worktrees that are gone."""
    return await daemon_.manager.prune(_directory(params), dry_run=params.dry_run)


async def gc(daemon_: Daemon, peer: Peer, params: store.GcParams) -> store.GcResult:
    """Collect, a moment at a time: other operations of the worktree come in between."""
    caller, directory, manager = peer.caller(), _directory(params), daemon_.manager
    run = await manager.write(directory, params.worktree, lambda writer: writer.gc(params, caller), caller)
    try:
        while True:
            result = await manager.write(directory, params.worktree, lambda _writer: run.step(), caller)
            if result is not None:
                return result
            if run.is_waiting:
                await anyio.sleep(_LOOK_AGAIN_S)
    finally:
        # Whoever asked may be gone; what was begun is cleared away all the same, by the thread that it belongs to.
        with anyio.CancelScope(shield=True), contextlib.suppress(DomainError):
            await manager.write(directory, params.worktree, lambda _writer: run.close(), Caller("ckptd"))


async def verify(daemon_: Daemon, peer: Peer, params: store.VerifyParams) -> store.VerifyResult:
    """Look for damage, a moment at a time: other reads of the store come in between."""
    caller, directory, manager = peer.caller(), _directory(params), daemon_.manager
    run = await manager.read(directory, params.worktree, lambda reader: reader.verify(params, caller))
    try:
        while True:
            result = await manager.read(directory, params.worktree, lambda _reader: run.step())
            if result is not None:
                return result
    finally:
        run.close()


HANDLERS: Final[dict[str, Handler]] = {
    "daemon.hello": hello,
    "daemon.status": daemon_status,
    "daemon.stop": stop,
    "rpc.discover": describe,
    "worktree.open": open_worktree,
    "worktree.list": list_worktrees,
    "worktree.status": status,
    "worktree.forget": forget,
    "worktree.resume": resume,
    "checkpoint.save": save,
    "checkpoint.head": head,
    "checkpoint.list": list_checkpoints,
    "checkpoint.show": show,
    "checkpoint.cat": cat,
    "checkpoint.diff": diff,
    "checkpoint.restore": restore,
    "checkpoint.undo": undo,
    "checkpoint.redo": redo,
    "checkpoint.drop": drop,
    "store.prune": prune,
    "store.gc": gc,
    "store.verify": verify,
}
