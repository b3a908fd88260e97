"""Whose a change is, as far as the saves around tool calls can tell. Pure.

A session saves before its tool call. What differs from there to the next checkpoint is its own; where it is known to be
a tool call (``is_call``), to the session's own next save, whatever others save meanwhile. Where several sessions are at
work at once, or where checkpoints in between are gone, a change may be anybody's: that is said, and never guessed.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from ckptd.shadow.trees.compare import same_state
from ckptd.shadow.trees.step import State

__all__ = ["Entry", "Ledger", "Save", "Share", "Why", "share_of", "workers"]

Share = Literal["own", "unclear", "other"]


class Save(NamedTuple):
    """A checkpoint, and what is known of the time from it to the next one.

    ``begins``: its session is about to change something, by a tool call where ``is_call``. ``late``: it was made when
    that may have begun already. ``gap``: checkpoints between it and the next are gone; ``lost`` are sessions of those.
    """

    session: str | None = None
    begins: bool = False
    is_call: bool = False
    late: bool = False
    gap: bool = False
    lost: frozenset[str] = frozenset()


class Why(NamedTuple):
    """Why a path is not taken back: ``edited``, ``other_session`` or ``unclear``, and what is known of it."""

    reason: str
    detail: str


def workers(saves: Sequence[Save]) -> list[frozenset[str]]:
    """Give the sessions that may have been at work from each save to the next one, and from the last one to now."""
    found: list[set[str]] = [set(save.lost) for save in saves]
    following: dict[str, int] = {}
    for number in range(len(saves) - 1, -1, -1):
        save = saves[number]
        if save.session is None:
            continue
        if save.begins:
            end = following.get(save.session, number + 1) if save.is_call else number + 1
            for at in range(number, end):
                found[at].add(save.session)
        if save.late and number:
            found[number - 1].add(save.session)
        following[save.session] = number
    return [frozenset(one) for one in found]


def share_of(session: str, working: frozenset[str], save: Save) -> Share:
    """Tell whose the changes after a save are, for who asks about one session."""
    if session not in working:
        return "other"
    return "unclear" if save.gap or len(working) > 1 else "own"


class Entry(NamedTuple):
    """A path that a session has changed: what stood there before (``origin``, in checkpoint ``source``).

    ``left`` is what the session left there, ``why`` it is not to be taken back, or None. ``is_mixed``: the session went
    on with what others had made, or may have.
    """

    origin: State | None
    source: str
    left: State | None = None
    why: Why | None = None
    is_mixed: bool = False


class Ledger:
    """What a session has changed and nobody has taken back, by path; changes are told in the order of time.

    A path that stands again as it did before the session's first change counts as taken back, whoever did it; and one
    that stands again as the session left it, as if others had not been there.
    """

    def __init__(self) -> None:
        self.entries: dict[bytes, Entry] = {}

    def own(self, path: bytes, before: State | None, after: State | None, source: str) -> None:
        """The session changed a path; ``source`` is the checkpoint that has it as it was."""
        entry = self.entries.get(path, Entry(before, source))
        self._put(path, entry._replace(left=after, is_mixed=entry.is_mixed or entry.why is not None), after)

    def unclear(self, path: bytes, before: State | None, after: State | None, source: str, why: Why) -> None:
        """The session, or somebody else, changed a path."""
        entry = self.entries.get(path, Entry(before, source))
        self._put(path, entry._replace(why=entry.why or why, is_mixed=True), after)

    def other(self, path: bytes, after: State | None, why: Why) -> None:
        """Somebody else changed a path."""
        entry = self.entries.get(path)
        if entry is not None:
            is_back = not entry.is_mixed and same_state(after, entry.left)
            self._put(path, entry._replace(why=None if is_back else entry.why or why), after)

    def put_back(self, path: bytes, entry: Entry | None) -> None:
        """A change of a path was reversed: all is as if it had not been made."""
        if entry is not None:
            self.entries[path] = entry
        else:
            self.entries.pop(path, None)

    def _put(self, path: bytes, entry: Entry, after: State | None) -> None:
        self.put_back(path, None if same_state(after, entry.origin) else entry)
