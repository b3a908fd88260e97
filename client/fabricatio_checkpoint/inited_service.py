"""The one service of this process."""

import os
import threading

from fabricatio_checkpoint.service import CheckpointService

__all__ = ["get_checkpoint_service", "service_for"]

_LOCK = threading.RLock()
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)
_services: dict[bytes | None, CheckpointService] = {}
os.register_at_fork(after_in_child=_services.clear)


def get_checkpoint_service() -> CheckpointService:
    """Give the process's service, made with the options of the configuration chain; a forked child gets its own.

    Raises InputError for options that are wrong.
    """
    with _LOCK:
        if None not in _services:
            _services[None] = CheckpointService()
        return _services[None]


def service_for(checkpoint_dir: bytes) -> CheckpointService:
    """Give a service for a checkpoint directory: the process's own where it is that one."""
    with _LOCK:
        found = get_checkpoint_service()
        if os.fsencode(found.stores_root) == checkpoint_dir:
            return found
        if checkpoint_dir not in _services:
            _services[checkpoint_dir] = CheckpointService(os.fsdecode(checkpoint_dir))
        return _services[checkpoint_dir]
