"""Undo for worktrees that AI agents edit: checkpoints in shadow repositories, kept by a per-user daemon.

Names are loaded when they are first used, so that the command line pays for nothing that it does not need.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fabricatio_checkpoint.aio import AsyncCheckpointService, AsyncCheckPointStore
    from fabricatio_checkpoint.capabilities.checkpoint import Checkpoint
    from fabricatio_checkpoint.config import checkpoint_config
    from fabricatio_checkpoint.errors import (
        CheckpointError,
        ConnectionLost,
        DaemonStartError,
        InputError,
        InternalError,
        Interrupted,
        StateError,
        StorageError,
        TransportError,
    )
    from fabricatio_checkpoint.events import Event
    from fabricatio_checkpoint.hooks import Guard, guarded
    from fabricatio_checkpoint.inited_service import get_checkpoint_service
    from fabricatio_checkpoint.progress import Progress
    from fabricatio_checkpoint.rust import prune_stores
    from fabricatio_checkpoint.service import CheckpointService
    from fabricatio_checkpoint.store import CheckPointStore, blob_id

__all__ = [
    "AsyncCheckPointStore",
    "AsyncCheckpointService",
    "CheckPointStore",
    "Checkpoint",
    "CheckpointError",
    "CheckpointService",
    "ConnectionLost",
    "DaemonStartError",
    "Event",
    "Guard",
    "InputError",
    "InternalError",
    "Interrupted",
    "Progress",
    "StateError",
    "StorageError",
    "TransportError",
    "blob_id",
    "checkpoint_config",
    "get_checkpoint_service",
    "guarded",
    "prune_stores",
]

_HOMES = {
    "AsyncCheckPointStore": "aio",
    "AsyncCheckpointService": "aio",
    "Guard": "hooks",
    "guarded": "hooks",
    "blob_id": "store",
    "CheckPointStore": "store",
    "Checkpoint": "capabilities.checkpoint",
    "CheckpointService": "service",
    "Event": "events",
    "Progress": "progress",
    "checkpoint_config": "config",
    "get_checkpoint_service": "inited_service",
    "prune_stores": "rust",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from ckpt_protocol.version import BUILD

        return BUILD
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
