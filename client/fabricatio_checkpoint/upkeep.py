"""What the calls that look after a store return: plain frozen records whose paths are text."""

from dataclasses import dataclass
from typing import Self

from fabricatio_checkpoint.record import Wire, path_text

__all__ = [
    "AffectedCheckpoint",
    "DamagedFile",
    "DamagedObject",
    "DropResult",
    "DroppedCheckpoint",
    "GcResult",
    "HoldingCheckpoint",
    "StoreUsage",
    "ThinResult",
    "UsageResult",
    "VerifyResult",
]


@dataclass(frozen=True, slots=True)
class AffectedCheckpoint:
    """A checkpoint that needs what is lost: ``paths`` of it, or all of it where it is not ``readable``.

    ``id`` is None where its ref cannot be read.
    """

    id: str | None
    seq: int
    readable: bool
    paths: int

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(wire["id"], wire["seq"], wire.get("readable", True), wire.get("paths", 0))


@dataclass(frozen=True, slots=True)
class DamagedObject:
    """An object that is ``missing`` or damaged, the checkpoints (by number) that need it, and where it stands in them.

    ``seqs`` and ``paths`` list the first of ``seq_count`` and ``path_count``.
    """

    id: str
    kind: str
    missing: bool
    seqs: tuple[int, ...]
    seq_count: int
    paths: tuple[str, ...]
    path_count: int

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(
            id=wire["id"],
            kind=wire["kind"],
            missing=wire["missing"],
            seqs=tuple(wire["seqs"]),
            seq_count=wire["seq_count"],
            paths=tuple(path_text(path) for path in wire["paths"]),
            path_count=wire["path_count"],
        )


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file of the store that is not as it should be; ``path`` is relative to the store's folder."""

    path: str
    problem: str

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(path_text(wire["path"]), wire["problem"])


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What a verification found. ``clean``: nothing is lost and nothing damaged.

    ``affected`` has every checkpoint that has lost something, ``damaged`` lists the first of ``damaged_count`` objects,
    ``files`` are damaged whether or not a checkpoint needs them; ``notes`` are no damage. ``objects`` are needed by
    checkpoints; ``bytes`` were read.
    """

    clean: bool
    read_data: bool
    checkpoints: int
    objects: int
    packs: int
    bytes: int
    affected: tuple[AffectedCheckpoint, ...]
    damaged: tuple[DamagedObject, ...]
    damaged_count: int
    files: tuple[DamagedFile, ...]
    notes: tuple[str, ...]

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(
            clean=wire["clean"],
            read_data=wire["read_data"],
            checkpoints=wire["checkpoints"],
            objects=wire["objects"],
            packs=wire["packs"],
            bytes=wire["bytes"],
            affected=tuple(AffectedCheckpoint.from_wire(each) for each in wire["affected"]),
            damaged=tuple(DamagedObject.from_wire(each) for each in wire["damaged"]),
            damaged_count=wire["damaged_count"],
            files=tuple(DamagedFile.from_wire(each) for each in wire["files"]),
            notes=tuple(wire["notes"]),
        )


@dataclass(frozen=True, slots=True)
class DroppedCheckpoint:
    """A checkpoint that is gone or, as a plan, would be; ``kind`` is None where it could not be read."""

    id: str
    seq: int
    kind: str | None
    tags: tuple[str, ...]

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(wire["id"], wire["seq"], wire["kind"], tuple(wire["tags"]))


@dataclass(frozen=True, slots=True)
class HoldingCheckpoint:
    """A checkpoint that has ``files`` of the contents that the dropped ones brought."""

    id: str
    seq: int
    files: int

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(wire["id"], wire["seq"], wire["files"])


@dataclass(frozen=True, slots=True)
class DropResult:
    """What a drop did; ``head`` is head after it.

    ``files`` counts the contents that the dropped checkpoints had and the ones before them had not, ``held`` are the
    other checkpoints that have some of those (``all_searched`` false: there were too many to look at all).
    """

    dropped: tuple[DroppedCheckpoint, ...]
    head: str | None
    files: int
    held: tuple[HoldingCheckpoint, ...]
    all_searched: bool
    dry_run: bool
    notes: tuple[str, ...]

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(
            dropped=tuple(DroppedCheckpoint.from_wire(each) for each in wire["dropped"]),
            head=wire["head"],
            files=wire["files"],
            held=tuple(HoldingCheckpoint.from_wire(each) for each in wire["held"]),
            all_searched=wire["all_searched"],
            dry_run=wire["dry_run"],
            notes=tuple(wire.get("notes", ())),
        )


@dataclass(frozen=True, slots=True)
class GcResult:
    """What a collection did or, as a plan, what it would remove; bytes are those of the whole store on disk.

    ``all_kept``: something is damaged, so that it is not known what is needed, and nothing was removed.
    """

    bytes_before: int
    bytes_after: int
    packs_before: int
    packs_after: int
    objects_removed: int
    removed_bytes: int
    refs_packed: int
    all_kept: bool
    dry_run: bool
    notes: tuple[str, ...]

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(
            bytes_before=wire["bytes_before"],
            bytes_after=wire["bytes_after"],
            packs_before=wire["packs_before"],
            packs_after=wire["packs_after"],
            objects_removed=wire["objects_removed"],
            removed_bytes=wire["removed_bytes"],
            refs_packed=wire["refs_packed"],
            all_kept=wire["all_kept"],
            dry_run=wire["dry_run"],
            notes=tuple(wire["notes"]),
        )


@dataclass(frozen=True, slots=True)
class ThinResult:
    """What went by rule or, as a plan, would go. ``left_bytes`` are what the other checkpoints need.

    ``over_cap``: that is more than ``max_store_bytes``, and only a person can decide what else may go.
    """

    dropped: tuple[DroppedCheckpoint, ...]
    frees_bytes: int
    left_bytes: int
    over_cap: bool
    dry_run: bool
    notes: tuple[str, ...]

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        dropped = tuple(DroppedCheckpoint.from_wire(each) for each in wire["dropped"])
        return cls(
            dropped, wire["frees_bytes"], wire["left_bytes"], wire["over_cap"], wire["dry_run"], tuple(wire["notes"])
        )


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """A store, by its worktree's ``path`` and its own (both absolute): its checkpoints by kind, and its size on disk.

    ``state`` is that of the worktree: ok, missing (proved gone) or unreachable; ``newest`` is RFC 3339 in UTC;
    ``watcher`` is as autosave has it, None where nothing watches. ``files`` are those that the last save counted,
    ``thinning_frees`` an estimate of the bytes that thin() would free; None where that is not known.
    """

    path: str
    store: str
    state: str
    bytes: int
    manual: int
    auto: int
    safety: int
    unreadable: int
    tags: int
    newest: str | None
    watcher: str | None = None
    files: int | None = None
    thinning_frees: int | None = None

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(
            path=path_text(wire["path"]),
            store=path_text(wire["store"]),
            state=wire["state"],
            bytes=wire["bytes"],
            manual=wire["manual"],
            auto=wire["auto"],
            safety=wire["safety"],
            unreadable=wire["unreadable"],
            tags=wire["tags"],
            newest=wire["newest"],
            watcher=wire.get("watcher"),
            files=wire.get("files"),
            thinning_frees=wire.get("thinning_frees"),
        )


@dataclass(frozen=True, slots=True)
class UsageResult:
    """The stores, the largest first; ``damaged`` are the folders of those that cannot be read at all."""

    stores: tuple[StoreUsage, ...]
    bytes: int
    max_store_bytes: int
    damaged: tuple[str, ...]

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(
            stores=tuple(StoreUsage.from_wire(each) for each in wire["stores"]),
            bytes=wire["bytes"],
            max_store_bytes=wire["max_store_bytes"],
            damaged=tuple(path_text(path) for path in wire["damaged"]),
        )
