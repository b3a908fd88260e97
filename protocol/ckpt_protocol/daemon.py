"""Methods about the daemon itself. These stay readable across all versions."""

import msgspec

from ckpt_protocol.structs import Request, Result, WirePath

__all__ = [
    "HelloParams",
    "HelloResult",
    "OpenStore",
    "StatusParams",
    "StatusResult",
    "StopParams",
    "StopResult",
]


class HelloParams(Request, frozen=True, kw_only=True):
    """``daemon.hello``: the first call of a connection. ``client`` names the program that asks.

    ``capabilities``: what the client can do with. ``progress``: it wants ``$/progress``. Others are passed over.
    """

    protocol: int
    build: str
    client: str
    session: str | None = None
    capabilities: list[str] | msgspec.UnsetType = msgspec.UNSET


class HelloResult(Result, frozen=True, kw_only=True):
    """Who answers. ``capabilities`` are the methods it has."""

    protocol: int
    build: str
    pid: int
    capabilities: list[str]


class StatusParams(Request, frozen=True, kw_only=True):
    """``daemon.status``: who runs, and which stores are open. Needs no hello."""


class OpenStore(Result, frozen=True, kw_only=True):
    """A store that the daemon has open, and its actor's state; ``halted`` is why automatic work has stopped.

    ``watcher`` is how changes are found where autosave is on: ``active``, ``degraded`` or ``polling``.
    """

    worktree: WirePath
    store: WirePath
    state: str
    queued: int
    watcher: str | None = None
    watcher_reason: str | None = None
    halted: str | None = None


class StatusResult(Result, frozen=True, kw_only=True):
    """``uptime_s`` in seconds."""

    pid: int
    version: str
    protocol: int
    socket: WirePath
    uptime_s: float
    connections: int
    stores: list[OpenStore]


class StopParams(Request, frozen=True, kw_only=True):
    """``daemon.stop``: finish what runs, answer what is queued, and end. Needs no hello.

    ``if_idle``: only if nothing else runs or waits, and only if the next start is not the very same build again; a
    client of a newer build asks so.
    """

    if_idle: bool = False


class StopResult(Result, frozen=True, kw_only=True):
    """``pid`` ends soon after this answer, unless ``stopping`` is false."""

    pid: int
    stopping: bool = True
