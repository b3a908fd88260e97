"""What a process with so many descriptors can have open: clients take a quarter of them, stores half."""

import resource
from typing import Final

__all__ = ["MAX_CONNECTIONS", "connection_limit", "descriptors", "store_limit"]

MAX_CONNECTIONS: Final = 512
_LEAST_CONNECTIONS: Final = 16

_EACH_STORE: Final = 40
"""Packs that were read lately, the operation log, and directories while they are walked."""


def descriptors() -> int | None:
    """Give how many descriptors this process may have; None where there is no limit."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def connection_limit(limit: int | None) -> int:
    """Give how many clients may be connected."""
    return MAX_CONNECTIONS if limit is None else max(_LEAST_CONNECTIONS, min(MAX_CONNECTIONS, limit // 4))


def store_limit(limit: int | None, wanted: int) -> int:
    """Give how many unused stores may stay open, at most ``wanted``."""
    return wanted if limit is None else max(1, min(wanted, limit // 2 // _EACH_STORE))
