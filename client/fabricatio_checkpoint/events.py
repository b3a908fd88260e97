"""What happens to worktrees and stores, as the daemon tells it to those who listen."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from fabricatio_checkpoint.connection import Listening
from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.record import path_text

__all__ = ["Event", "EventStream"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that is true on disk now. ``kind`` is ``checkpoint.created``, ``worktree.changed``, ...

    ``seq`` counts all events of a daemon's life. ``lost``: ``missed`` events before this one were dropped because
    they were not read in time, so that whoever needs to know looks again. ``time`` is RFC 3339 in UTC, both paths are
    absolute, ``data`` depends on the kind.
    """

    seq: int
    time: str
    kind: str
    checkpoint_dir: str
    worktree: str | None
    data: Mapping[str, Any]
    lost: bool = False
    missed: int = 0

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Read the params of a notification."""
        return cls(
            seq=wire["seq"],
            time=wire["time"],
            kind=wire["kind"],
            checkpoint_dir=path_text(wire["checkpoint_dir"]),
            worktree=None if wire["worktree"] is None else path_text(wire["worktree"]),
            data=wire["data"],
            lost=wire.get("lost", False),
            missed=wire.get("missed", 0),
        )


class EventStream(Iterator[Event]):
    """The events from the moment it was made. An iterator and a context manager; it has a socket of its own.

    A daemon that ends raises ConnectionLost: what happened since can be seen in the stores, and listened to anew.
    """

    def __init__(self, listen: Callable[[], Listening]) -> None:
        self._listening = listen()

    def wait(self) -> Event | None:
        """Wait for the next event; None after close()."""
        while True:
            notice = self._listening.next()
            if notice is None:
                return None
            if notice.get("method") == "event":
                return _event(notice)

    def close(self) -> None:
        """Listen no longer; a thread that waits comes back. May be called again."""
        self._listening.close()

    def __next__(self) -> Event:
        event = self.wait()
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _event(notice: dict[str, Any]) -> Event:
    try:
        return Event.from_wire(notice["params"])
    except (KeyError, TypeError, ValueError) as error:
        raise error_of("internal", "an event is not as agreed", method="events.subscribe") from error
