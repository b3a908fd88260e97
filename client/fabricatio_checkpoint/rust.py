"""The names that earlier versions kept in their native module."""

import os

from fabricatio_checkpoint.service import CheckpointService
from fabricatio_checkpoint.store import CheckPointStore

__all__ = ["CheckPointStore", "CheckpointService", "prune_stores"]


def prune_stores(stores_root: str | os.PathLike[str]) -> None:
    """Delete the shadow repositories under ``stores_root`` whose worktree directories no longer exist."""
    service = CheckpointService(stores_root)
    try:
        service.prune_invalid()
    finally:
        service.close()
