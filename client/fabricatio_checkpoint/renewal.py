"""A daemon of another build than this client: an older one that does nothing is asked to make room for ours.

The client never ends a process itself, and never one that works for somebody.
"""

from __future__ import annotations

from ckpt_protocol.version import BUILD, is_older
from fabricatio_checkpoint import launch
from fabricatio_checkpoint.link import BrokenLinkError, Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fabricatio_checkpoint.errors import CheckpointError

__all__ = ["after_call", "instead_of"]

_END_S = 10.0


def after_call(link: Link) -> bool:
    """Ask the daemon behind a link, with which calls work, to end if it is older and idle; True if it does."""
    peer = link.peer or {}
    return is_older(str(peer.get("build", "")), BUILD) and _make_room(link)


def instead_of(path: str, refused: CheckpointError) -> bool:
    """End the daemon at ``path``, which ``refused`` us for its protocol, if it is older and idle.

    True once it has ended, so that ours can be started; else ``refused`` has the hint that says what to do.
    """
    try:
        link = _dial(path)
        if link is None:
            return True
        try:
            return _replaced(link, refused)
        finally:
            link.close()
    except BrokenLinkError:
        # It is just ending.
        return True


def _replaced(link: Link, refused: CheckpointError) -> bool:
    build = str(_result(link.request("daemon.status", {})).get("version", ""))
    if is_older(BUILD, build):
        refused.hint = "update this client, or end the daemon with: ckpt daemon stop"
    if not is_older(build, BUILD):
        return False
    if _make_room(link) and link.wait_until_closed(_END_S):
        return True
    refused.hint = "it is older and at work: try again when it has finished, or end it with: ckpt daemon stop"
    return False


def _make_room(link: Link) -> bool:
    # A daemon that does not know this question refuses it, which is an answer as well.
    result = _result(link.request("daemon.stop", {"if_idle": True}))
    return bool(result) and result.get("stopping") is not False


def _dial(path: str) -> Link | None:
    sock = launch.dial(path)
    return None if sock is None else Link(sock, path, {})


def _result(reply: dict[str, Any]) -> dict[str, Any]:
    found = reply.get("result")
    return found if isinstance(found, dict) else {}
