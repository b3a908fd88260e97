"""How autosave is for a worktree, as the daemon tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["FallBack", "Reboot", "Scans", "WatchFailure", "WatchResult", "Watcher"]

Wire = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WatchFailure:
    """Why the last autosave has come to nothing: when, and in how many seconds it is tried again."""

    kind: str
    message: str
    time: str
    retry_in_s: float | None


@dataclass(frozen=True, slots=True)
class Watcher:
    """How changes are found: ``state`` is active, degraded, polling or off, ``reason`` says why it is not active.

    Counted since the daemon watches: ``seen`` what was told, ``saved`` checkpoints, ``failed`` attempts, ``rescans``
    that nobody asked for, ``missed`` those that found what had not been told, ``rebuilt`` watches.
    """

    state: str
    reason: str | None
    quiet_s: float
    max_wait_s: float
    directories: int
    seen: int
    saved: int
    failed: int
    rescans: int
    missed: int
    rebuilt: int
    failure: WatchFailure | None

    @property
    def on(self) -> bool:
        """Whether the worktree is saved without being asked."""
        return self.state != "off"

    @classmethod
    def from_wire(cls, wire: Wire) -> Watcher:
        """Read the wire's form; what a later daemon tells besides is passed over."""
        failure = wire["failure"]
        return cls(
            state=wire["state"],
            reason=wire["reason"],
            quiet_s=wire["quiet_s"],
            max_wait_s=wire["max_wait_s"],
            directories=wire["directories"],
            seen=wire["seen"],
            saved=wire["saved"],
            failed=wire["failed"],
            rescans=wire["rescans"],
            missed=wire["missed"],
            rebuilt=wire["rebuilt"],
            failure=None if failure is None else _failure(failure),
        )


@dataclass(frozen=True, slots=True)
class Reboot:
    """What autosave needs to go on after a reboot before any call comes, and whether it is there.

    ``unit``: the daemon's user unit is installed; ``enabled``: it starts with the session; ``linger``: the session
    begins at boot.
    """

    unit: bool
    enabled: bool
    linger: bool


@dataclass(frozen=True, slots=True)
class FallBack:
    """How often everything was looked at for this ``kind`` of reason; ``reason`` says the last one for people."""

    kind: str
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class Scans:
    """How it was found what had changed, since the daemon opened the store.

    ``watching``: the exact watcher is at work. So many saves have looked at what it names alone (``watched``), or at
    everything (``full``). ``fall_backs`` counts the looks, of saves and others, that went over everything although it
    was at work, the most frequent first; ``missed`` are paths that it had not named.
    """

    watching: bool
    watched: int
    full: int
    missed: int
    fall_backs: tuple[FallBack, ...]

    @classmethod
    def from_wire(cls, wire: Wire | None) -> Scans | None:
        """Read the wire's form; a daemon of an earlier version tells nothing of it."""
        if wire is None:
            return None
        fall_backs = tuple(FallBack(one["kind"], one["count"], one["reason"]) for one in wire["fall_backs"])
        return cls(wire["watching"], wire["watched"], wire["full"], wire["missed"], fall_backs)


@dataclass(frozen=True, slots=True)
class WatchResult:
    """The answer of watch() and watch_status(); ``halted`` is why autosave has stopped by itself, if it has.

    ``watcher`` is the one that wakes autosave up, ``scans`` tells of the one that saves go by.
    """

    watcher: Watcher
    state: str
    halted: str | None
    reboot: Reboot
    scans: Scans | None = None

    @classmethod
    def from_wire(cls, wire: Wire) -> WatchResult:
        """Read the wire's form."""
        reboot = wire["reboot"]
        return cls(
            watcher=Watcher.from_wire(wire["watcher"]),
            state=wire["state"],
            halted=wire["halted"],
            reboot=Reboot(reboot["unit"], reboot["enabled"], reboot["linger"]),
            scans=Scans.from_wire(wire.get("scans")),
        )


def _failure(wire: Wire) -> WatchFailure:
    return WatchFailure(wire["kind"], wire["message"], wire["time"], wire["retry_in_s"])
