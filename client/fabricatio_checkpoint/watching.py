"""How autosave is for a worktree, as the daemon tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Reboot", "WatchFailure", "WatchResult", "Watcher"]

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
class WatchResult:
    """The answer of watch() and watch_status(); ``halted`` is why autosave has stopped by itself, if it has."""

    watcher: Watcher
    state: str
    halted: str | None
    reboot: Reboot

    @classmethod
    def from_wire(cls, wire: Wire) -> WatchResult:
        """Read the wire's form."""
        reboot = wire["reboot"]
        return cls(
            watcher=Watcher.from_wire(wire["watcher"]),
            state=wire["state"],
            halted=wire["halted"],
            reboot=Reboot(reboot["unit"], reboot["enabled"], reboot["linger"]),
        )


def _failure(wire: Wire) -> WatchFailure:
    return WatchFailure(wire["kind"], wire["message"], wire["time"], wire["retry_in_s"])
