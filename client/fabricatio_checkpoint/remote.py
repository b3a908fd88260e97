"""Connecting where the system does not say whose the daemon is: both sides prove that they know the token."""

from __future__ import annotations

import os
import time

from ckpt_protocol import remote
from ckpt_protocol.endpoint import AddressError, Endpoint, InsecureFileError, parse
from ckpt_protocol.proof import UnprovedError
from fabricatio_checkpoint.errors import error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fabricatio_checkpoint.launch import Channel

__all__ = ["dial"]

_DEADLINE_S = 3.0
"""How long a daemon that has its lock may take to say in the address file where it listens."""
_PAUSE_S = 0.05


def dial(text: str) -> Channel | None:
    """Connect and prove; None where no daemon listens, as after one that was killed.

    Raises TransportError ``forbidden_peer`` for a listener that does not know the token although a daemon runs, and
    for an address or token file that others may read; InputError for an address that is none; OSError.
    """
    try:
        return _dial(parse(text), time.monotonic() + _DEADLINE_S)
    except AddressError as error:
        raise error_of("bad_option", str(error), hint="correct the option socket") from error
    except InsecureFileError as error:
        raise error_of("forbidden_peer", str(error)) from error


def _dial(endpoint: Endpoint, deadline: float) -> Channel | None:
    while True:
        try:
            return _connect(endpoint)
        except (UnprovedError, FileNotFoundError) as error:
            # The port of a daemon that was killed may be another program's by now: its address file is a leftover
            # then. Where a daemon lives, it is just about to replace it, or somebody stands in its way.
            if not _is_locked(endpoint.file + ".lock"):
                return None
            if time.monotonic() > deadline:
                raise error_of(
                    "forbidden_peer",
                    f"cannot trust what listens at {endpoint.text}: {error}",
                    hint="end the daemon and its listener, or set the option socket to another address",
                ) from error
        time.sleep(_PAUSE_S)


def _connect(endpoint: Endpoint) -> Channel | None:
    if endpoint.scheme == "pipe":
        from fabricatio_checkpoint import pipe

        return pipe.connect(endpoint)
    return remote.connect(endpoint)


def _is_locked(path: str) -> bool:
    """Tell whether a daemon holds the address; for the wink of an eye this holds it itself, so daemons try twice."""
    try:
        import fcntl
    except ImportError:
        # No such locks on Windows: whoever listens there without the token is not trusted, whatever the reason.
        return True
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
