"""Methods about a worktree as a whole."""

from typing import Literal

from ckpt_protocol.structs import (
    Change,
    CheckpointRecord,
    LeftOut,
    Request,
    Result,
    Token,
    WirePath,
    Worktree,
)

__all__ = [
    "AdoptParams",
    "AdoptResult",
    "FallBack",
    "FallBackKind",
    "ForgetParams",
    "ForgetResult",
    "Interruption",
    "ListParams",
    "ListResult",
    "OpenParams",
    "OpenResult",
    "ResumeParams",
    "Scans",
    "StatusParams",
    "StatusResult",
    "WatchFailure",
    "WatchParams",
    "WatchReboot",
    "WatchResult",
    "Watcher",
    "Workspace",
]


class OpenParams(Request, frozen=True, kw_only=True):
    """``worktree.open``: make the store of a worktree if there is none. ``force`` allows a protected place."""

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token
    force: bool = False


class OpenResult(Result, frozen=True, kw_only=True):
    """``created`` tells whether the store is new."""

    store: WirePath
    created: bool
    head: str | None


class ListParams(Request, frozen=True, kw_only=True):
    """``worktree.list``: the worktrees that have a store in a checkpoint directory."""

    checkpoint_dir: WirePath


class Workspace(Result, frozen=True, kw_only=True):
    """A tracked worktree: ``missing`` is proved gone, ``unreachable`` may come back (an unmounted volume)."""

    path: WirePath
    store: WirePath
    state: Literal["ok", "missing", "unreachable"]
    checkpoints: int
    bytes: int


class ListResult(Result, frozen=True, kw_only=True):
    """Sorted by path. ``damaged`` names store folders whose metadata cannot be read."""

    workspaces: list[Workspace]
    damaged: list[WirePath]


class WatchFailure(Result, frozen=True, kw_only=True):
    """Why the last autosave has come to nothing, when that was, and in how many seconds it is tried again."""

    kind: str
    message: str
    time: str
    retry_in_s: float | None


class Watcher(Result, frozen=True, kw_only=True):
    """How a worktree's changes are found, and what has come of it since the daemon watches it.

    ``active``: the system tells of them; ``degraded``: not everywhere; ``polling``: they are looked for; ``off``:
    nothing is saved without being asked for. ``reason`` says why it is not active. ``directories`` are watched;
    ``seen`` counts what was told, ``saved`` the checkpoints that were made, ``failed`` the attempts that failed,
    ``rescans`` the looks that nobody asked for, ``missed`` those of them that found what had not been told, and
    ``rebuilt`` how often watches were put. ``failure`` stays until something is saved.
    """

    state: Literal["active", "degraded", "polling", "off"]
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


class WatchParams(Request, frozen=True, kw_only=True):
    """``worktree.watch``: turn autosave on (the store is made if there is none) or off, or ask how it is.

    ``force`` allows a protected place.
    """

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token
    action: Literal["on", "off", "status"]
    force: bool = False


class WatchReboot(Result, frozen=True, kw_only=True):
    """What autosave needs to go on after a reboot, before any client asks for something, and whether it has it.

    ``unit``: the user unit of the daemon is installed; ``enabled``: it starts with the session; ``linger``: the
    session begins at boot, not at the login.
    """

    unit: bool
    enabled: bool
    linger: bool


FallBackKind = Literal[
    "starting", "overflow", "too_many", "cookie", "limit", "replaced", "unsaved", "options", "rules", "missed", "error"
]
"""Why everything had to be looked at.

The watcher has just begun (``starting``), was told too much at once (``overflow``) or too much to remember, does not
answer in time (``cookie``), may not watch so much (``limit``), watched another directory (``replaced``), was found to
be wrong (``missed``), or failed. Or the last scan was not the last save's, was by other options, or by other rules,
mounts or second names of files (``rules``).
"""


class FallBack(Result, frozen=True, kw_only=True):
    """How often everything was looked at for this reason; ``reason`` says the last one for people."""

    kind: FallBackKind
    count: int
    reason: str


class Scans(Result, frozen=True, kw_only=True):
    """How it was found what had changed, since the daemon opened the store.

    ``watching``: the exact watcher is at work, which names what may have changed. So many saves have looked at that
    alone (``watched``), or at everything (``full``). ``fall_backs`` counts the looks, of saves and others, that went
    over everything although it was at work, the most frequent first; ``missed`` are paths that it had not named.
    """

    watching: bool
    watched: int
    full: int
    missed: int
    fall_backs: list[FallBack]


class WatchResult(Result, frozen=True, kw_only=True):
    """``state`` is the actor's, ``halted`` why autosave has stopped if it has.

    ``watcher`` is the one that wakes autosave up, ``scans`` tells of the one that saves go by.
    """

    watcher: Watcher
    state: str
    halted: str | None
    reboot: WatchReboot
    scans: Scans | None = None


class StatusParams(Request, frozen=True, kw_only=True):
    """``worktree.status``: what differs from head."""

    checkpoint_dir: WirePath
    worktree: Worktree


class Interruption(Result, frozen=True, kw_only=True):
    """A restore that was cut off: ``verb`` is what it was, ``time`` (RFC 3339, UTC) when it began.

    ``safety`` is its safety checkpoint, ``target`` what it was writing. ``before``, ``after`` and ``other`` count its
    paths by what stands there now: what stood there before it, what it was to leave there, something else. They are
    None where that is not known any more. ``others`` names some of the last ones, sorted; at most 100.
    """

    verb: Literal["reset", "rollback", "undo", "redo"]
    time: str
    client: str
    session: str | None
    target: str | None
    safety: str
    before: int | None
    after: int | None
    other: int | None
    others: list[WirePath]


class StatusResult(Result, frozen=True, kw_only=True):
    """``changes`` compares the worktree with head, sorted by path.

    ``last_manual`` is given where head is an autosave. ``interrupted`` is the safety checkpoint of a restore
    that did not end, ``interruption`` all that is known of it; ``worktree.resume`` ends it. ``state`` is the actor's,
    ``halted`` the reason where it is HALTED. ``watcher`` tells of autosave, ``scans`` of how saves find what has
    changed. ``notes`` say what only a person can put right: a store above its cap by what is never thinned.
    """

    head: str | None
    head_record: CheckpointRecord | None
    last_manual: CheckpointRecord | None
    changes: list[Change]
    skipped: list[LeftOut]
    excluded: list[LeftOut]
    files: int
    state: str
    halted: str | None
    interrupted: str | None
    interruption: Interruption | None = None
    watcher: Watcher | None = None
    notes: list[str] = []
    scans: Scans | None = None


class ResumeParams(Request, frozen=True, kw_only=True):
    """``worktree.resume``: end a restore that was cut off, over exactly its paths.

    ``finish`` goes on with it, ``undo`` brings back what stood there before it. ``digest`` refuses any plan but the
    one with it. Answered as every restore: ``edited`` names what was changed after the restore was cut off.
    """

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token
    action: Literal["finish", "undo"]
    dry_run: bool = False
    digest: str | None = None
    skip_conflicts: bool = False


class ForgetParams(Request, frozen=True, kw_only=True):
    """``worktree.forget``: delete a worktree's store. The worktree itself is not touched."""

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token


class ForgetResult(Result, frozen=True, kw_only=True):
    """The folder that is gone, and how many checkpoints went with it."""

    store: WirePath
    checkpoints: int


class AdoptParams(Request, frozen=True, kw_only=True):
    """``worktree.adopt``: go on with the history of a worktree that was moved here.

    ``old`` is the path where it was, or the folder of its store. ``force`` allows a protected place. ``dry_run``
    changes nothing.
    """

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token
    old: WirePath
    force: bool = False
    dry_run: bool = False


class AdoptResult(Result, frozen=True, kw_only=True):
    """The worktree's ``path`` now and its ``old`` one, and its store with so many checkpoints, ids as they were.

    ``sure``: inode and birth time say that it is the same directory; else only the one who asks does.
    """

    path: WirePath
    old: WirePath
    store: WirePath
    checkpoints: int
    sure: bool
    dry_run: bool
