"""Whose request comes next: the owners of requests take turns, and the requests of each keep their order."""

from collections.abc import Hashable

from ckptd.core.event import Request

__all__ = ["Turns", "next_of"]

Turns = tuple[Hashable, ...]
"""The owners whose requests wait or run, the one served longest ago first; one that is not here was not served yet."""


def next_of(queue: tuple[Request, ...], turns: Turns) -> tuple[Request, tuple[Request, ...], Turns]:
    """Give the request that is next, the others that wait, and the turns after it; the queue is not empty."""
    served = {owner: place for place, owner in enumerate(turns)}
    # Of those that come first in the same way, min() takes the one that has waited longest.
    chosen = min(queue, key=lambda request: served.get(request.owner, -1))
    others = tuple(request for request in queue if request is not chosen)
    waiting = {request.owner for request in others}
    return chosen, others, (*(one for one in turns if one in waiting and one != chosen.owner), chosen.owner)
