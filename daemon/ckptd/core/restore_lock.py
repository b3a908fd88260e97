"""Keeps restores apart whose worktrees contain one another."""

import asyncio

__all__ = ["RestoreLocks", "Ticket"]


class Ticket:
    """A place in the order of restores. ``granted`` is done when the restore may begin, cancelled if withdrawn."""

    __slots__ = ("granted", "path")

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class RestoreLocks:
    """The restores that run or wait, in the order of their coming.

    One begins when no earlier one overlaps it. Everybody waits for earlier ones only, so there is no deadlock;
    and none is overtaken by one it would have to wait for, so none starves.
    """

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []

    def acquire(self, path: bytes) -> Ticket:
        """Queue for a restore of the worktree at an absolute real path."""
        ticket = Ticket(path)
        self._tickets.append(ticket)
        self._grant()
        return ticket

    def release(self, ticket: Ticket) -> None:
        """Give the lock back, or stop waiting for it. May be called again."""
        if ticket in self._tickets:
            self._tickets.remove(ticket)
            ticket.granted.cancel()
            self._grant()

    def _grant(self) -> None:
        for place, ticket in enumerate(self._tickets):
            earlier = self._tickets[:place]
            if not ticket.granted.done() and not any(_overlap(ticket.path, other.path) for other in earlier):
                ticket.granted.set_result(None)


def _overlap(one: bytes, other: bytes) -> bool:
    shorter, longer = sorted((one.rstrip(b"/") + b"/", other.rstrip(b"/") + b"/"), key=len)
    return longer.startswith(shorter)
