"""One worktree's watcher: what it knows of its own health, in numbers and in one word. Pure."""

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from ckptd.core.ports import Coverage

__all__ = [
    "ACTIVE",
    "DEGRADED",
    "IDLE_RESCAN_S",
    "LONGEST_PAUSE_S",
    "OFF",
    "POLLING",
    "Counters",
    "Health",
    "health_of",
    "pause_s",
    "rescan_s",
]

ACTIVE: Final = "active"
"""Changes are told, in every directory."""
DEGRADED: Final = "degraded"
"""Changes are told in some directories, and looked for in all."""
POLLING: Final = "polling"
"""Changes are not told, and looked for."""
OFF: Final = "off"

IDLE_RESCAN_S: Final = 300.0
"""So often a watcher that tells of changes is checked by a scan."""

_SCANS_APART: Final = 20
"""Looking for changes takes at most this part of the time."""

_FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
"""What cannot be watched is tried again so often."""


State = Literal["active", "degraded", "polling", "off"]


class Health(NamedTuple):
    """``state`` is one of the words above, ``reason`` why it is not active."""

    state: State = POLLING
    reason: str | None = "it is about to be watched"


@dataclass(slots=True)
class Counters:
    """``seen`` times something was told; ``rescans`` that nobody asked for, of which ``missed`` found what was not.

    ``saved`` checkpoints were made; watches were put ``rebuilt`` times; ``directories`` are watched now.
    """

    seen: int = 0
    saved: int = 0
    failed: int = 0
    rescans: int = 0
    missed: int = 0
    rebuilt: int = 0
    directories: int = 0
    breaks: list[float] = field(default_factory=list)


def health_of(coverage: Coverage) -> Health:
    """Say how things are after an attempt to watch."""
    if not coverage.native:
        return Health(POLLING, coverage.reason or "changes are not told here")
    if coverage.left:
        return Health(DEGRADED, f"{coverage.left} directories are not watched: {coverage.reason}")
    return Health(ACTIVE, None)


def rescan_s(state: str, quiet_s: float, max_wait_s: float, scan_s: float, idle_s: float = IDLE_RESCAN_S) -> float:
    """Say after how long to look without being told to, ``scan_s`` being what a look takes.

    A change that nobody tells has to be saved in time all the same: the look is followed by a quiet period.
    """
    if state == ACTIVE:
        return max(idle_s, _SCANS_APART * scan_s)
    return max(quiet_s, min(max_wait_s - quiet_s, _SCANS_APART * scan_s + quiet_s))


def pause_s(breaks: int) -> float:
    """Say how long to wait before the next attempt to watch what broke so many times of late."""
    return float(min(LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(breaks - 1, 10)))
