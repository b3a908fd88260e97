"""What the calls of a store and a service return: plain frozen records whose paths are text.

Paths are relative to the worktree unless said otherwise, and spelled as ``os.fsdecode`` gives them.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ckpt_protocol.wirepath import decode
from fabricatio_checkpoint.watching import Scans, Watcher

__all__ = [
    "Change",
    "CheckpointRecord",
    "Interruption",
    "LeftOut",
    "Patch",
    "PruneResult",
    "PrunedStore",
    "Renamed",
    "RestoreResult",
    "SaveResult",
    "ShowResult",
    "StatusResult",
    "Workspace",
    "path_text",
]

Wire = Mapping[str, Any]


def path_text(value: object) -> str:
    """Give the text of a path as it came over the wire; raises ValueError for what is not one."""
    return os.fsdecode(decode(value))


def _paths(wire: Wire, name: str) -> tuple[str, ...]:
    return tuple(path_text(value) for value in wire[name])


@dataclass(frozen=True, slots=True)
class Renamed:
    """A path that came with a checkpoint, and the one under which it was until then."""

    path: str
    renamed_from: str

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(path_text(wire["path"]), path_text(wire["renamed_from"]))


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint. ``seq`` is its order, ``time`` RFC 3339 in UTC, ``kind`` manual, auto or safety.

    ``complete`` is false where something could not be read; ``scan`` is full or watched; ``base`` is the checkpoint
    it was compared with; ``client`` names who asked for it. ``legacy``: made by 0.3.6, ``seq`` is then 0 or less.
    ``renames``: of paths that are followed, those that this checkpoint renamed.
    """

    id: str
    seq: int
    time: str
    kind: str
    message: str | None
    tags: tuple[str, ...]
    meta: Mapping[str, str]
    complete: bool
    scan: str = "full"
    base: str | None = None
    client: str | None = None
    legacy: bool = False
    renames: tuple[Renamed, ...] = ()

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(
            id=wire["id"],
            seq=wire["seq"],
            time=wire["time"],
            kind=wire["kind"],
            message=wire["message"],
            tags=tuple(wire["tags"]),
            meta=dict(wire["meta"]),
            complete=wire["complete"],
            scan=wire.get("scan", "full"),
            base=wire.get("base"),
            client=wire.get("client"),
            legacy=wire.get("legacy", False),
            renames=tuple(Renamed.from_wire(each) for each in wire.get("renames", ())),
        )


@dataclass(frozen=True, slots=True)
class Change:
    """A path that differs: ``change`` is added, modified, deleted, type or mode; ``dir`` for an empty directory."""

    path: str
    change: str
    dir: bool = False

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(path_text(wire["path"]), wire["change"], wire.get("dir", False))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A path that was left out, and why: a word such as ``unreadable``, ``special``, ``large``."""

    path: str
    reason: str
    detail: str | None = None

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(path_text(wire["path"]), wire["reason"], wire.get("detail"))


def _left_out(wire: Wire, name: str) -> tuple[LeftOut, ...]:
    return tuple(LeftOut.from_wire(each) for each in wire[name])


def _changes(wire: Wire) -> tuple[Change, ...]:
    return tuple(Change.from_wire(each) for each in wire["changes"])


def _record(wire: Wire | None) -> CheckpointRecord | None:
    return None if wire is None else CheckpointRecord.from_wire(wire)


@dataclass(frozen=True, slots=True)
class SaveResult:
    """A save. ``created`` is false where nothing had changed and ``id`` is the checkpoint that already was.

    ``skipped`` could not be read (``complete`` is then false), ``excluded`` is left out by policy; ``files`` counts
    files and links. ``stats`` counts the work that it took, such as ``files_opened``.
    """

    id: str
    seq: int
    created: bool
    complete: bool
    skipped: tuple[LeftOut, ...]
    excluded: tuple[LeftOut, ...]
    files: int
    notes: tuple[str, ...] = ()
    stats: Mapping[str, int] = field(default_factory=dict, hash=False)

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(
            id=wire["id"],
            seq=wire["seq"],
            created=wire["created"],
            complete=wire["complete"],
            skipped=_left_out(wire, "skipped"),
            excluded=_left_out(wire, "excluded"),
            files=wire["files"],
            notes=tuple(wire.get("notes", ())),
            stats=wire.get("stats") or {},
        )


@dataclass(frozen=True, slots=True)
class Interruption:
    """A restore that was cut off: ``verb`` is what it was, ``time`` when it began, ``safety`` its safety checkpoint.

    ``before``, ``after`` and ``other`` count its paths by what stands there now: what stood there before it, what it
    was to leave there, something else (``others`` names up to 100 of these). They are None where that is not known.
    """

    verb: str
    time: str
    client: str
    session: str | None
    target: str | None
    safety: str
    before: int | None
    after: int | None
    other: int | None
    others: tuple[str, ...]

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(
            verb=wire["verb"],
            time=wire["time"],
            client=wire["client"],
            session=wire["session"],
            target=wire["target"],
            safety=wire["safety"],
            before=wire["before"],
            after=wire["after"],
            other=wire["other"],
            others=_paths(wire, "others"),
        )


@dataclass(frozen=True, slots=True)
class StatusResult:
    """What differs from ``head``, sorted by path.

    ``last_manual`` is given where head is an autosave; ``interrupted`` is the safety checkpoint of a restore that
    did not end, ``interruption`` all that is known of it; ``state`` is the daemon's word, ``halted`` the reason where
    automatic work has stopped; ``notes`` say what only a person can put right; ``scans`` how saves find what changed.
    """

    head: str | None
    head_record: CheckpointRecord | None
    last_manual: CheckpointRecord | None
    changes: tuple[Change, ...]
    skipped: tuple[LeftOut, ...]
    excluded: tuple[LeftOut, ...]
    files: int
    state: str
    halted: str | None
    interrupted: str | None
    interruption: Interruption | None = None
    watcher: Watcher | None = None
    notes: tuple[str, ...] = ()
    scans: Scans | None = None

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(
            head=wire["head"],
            head_record=_record(wire["head_record"]),
            last_manual=_record(wire["last_manual"]),
            changes=_changes(wire),
            skipped=_left_out(wire, "skipped"),
            excluded=_left_out(wire, "excluded"),
            files=wire["files"],
            state=wire["state"],
            halted=wire["halted"],
            interrupted=wire["interrupted"],
            interruption=None if wire.get("interruption") is None else Interruption.from_wire(wire["interruption"]),
            watcher=None if wire.get("watcher") is None else Watcher.from_wire(wire["watcher"]),
            notes=tuple(wire.get("notes", ())),
            scans=Scans.from_wire(wire.get("scans")),
        )


@dataclass(frozen=True, slots=True)
class ShowResult:
    """A checkpoint and what it changed compared with ``base``."""

    checkpoint: CheckpointRecord
    base: str | None
    changes: tuple[Change, ...]
    skipped: tuple[LeftOut, ...]
    excluded: tuple[LeftOut, ...]

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(
            checkpoint=CheckpointRecord.from_wire(wire["checkpoint"]),
            base=wire["base"],
            changes=_changes(wire),
            skipped=_left_out(wire, "skipped"),
            excluded=_left_out(wire, "excluded"),
        )


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch, or its beginning: ``total_bytes`` is what the whole one has.

    ``notes`` name what differs and has no word in a patch, and the files that are too large for one.
    """

    data: bytes
    total_bytes: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What a reset, rollback, undo or redo did or, as a plan (``dry_run``), would do; always true.

    ``target`` is the checkpoint whose content is written; ``safety`` holds everything that was overwritten or
    deleted (None where there was nothing to do); ``kept`` stays because it was never in a checkpoint; ``edited``
    had changed since the restore that is undone; ``weak`` tells that the file system has no atomic exchange.
    ``digest`` names exactly this plan.
    """

    target: str | None
    written: tuple[str, ...]
    deleted: tuple[str, ...]
    kept: tuple[str, ...]
    conflicts: tuple[LeftOut, ...]
    edited: tuple[str, ...]
    safety: str | None
    head: str | None
    digest: str
    weak: bool
    dry_run: bool
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(
            target=wire["target"],
            written=_paths(wire, "written"),
            deleted=_paths(wire, "deleted"),
            kept=_paths(wire, "kept"),
            conflicts=_left_out(wire, "conflicts"),
            edited=_paths(wire, "edited"),
            safety=wire["safety"],
            head=wire["head"],
            digest=wire["digest"],
            weak=wire["weak"],
            dry_run=wire["dry_run"],
            notes=tuple(wire.get("notes", ())),
        )


@dataclass(frozen=True, slots=True)
class Workspace:
    """A tracked worktree and its store, both absolute; ``state`` is ok, missing (proved gone) or unreachable."""

    path: str
    store: str
    state: str
    checkpoints: int
    bytes: int

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(path_text(wire["path"]), path_text(wire["store"]), wire["state"], wire["checkpoints"], wire["bytes"])


@dataclass(frozen=True, slots=True)
class PrunedStore:
    """A store that was, or as a plan would be, deleted; both paths absolute."""

    path: str
    store: str
    checkpoints: int
    bytes: int

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(path_text(wire["path"]), path_text(wire["store"]), wire["checkpoints"], wire["bytes"])


@dataclass(frozen=True, slots=True)
class PruneResult:
    """The stores that went; ``unreachable`` are worktrees that cannot be seen now and whose stores stay."""

    pruned: tuple[PrunedStore, ...]
    unreachable: tuple[str, ...]
    dry_run: bool

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        pruned = tuple(PrunedStore.from_wire(each) for each in wire["pruned"])
        return cls(pruned, _paths(wire, "unreachable"), wire["dry_run"])


@dataclass(frozen=True, slots=True)
class Adoption:
    """A history that a moved worktree goes on with: its ``path`` now and its ``old`` one; ids are as they were.

    ``sure``: inode and birth time say that it is the same directory; else only the caller does.
    """

    path: str
    old: str
    store: str
    checkpoints: int
    sure: bool
    dry_run: bool

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        paths = (path_text(wire["path"]), path_text(wire["old"]), path_text(wire["store"]))
        return cls(*paths, wire["checkpoints"], wire["sure"], wire["dry_run"])
