"""Methods about the stores of a checkpoint directory."""

from typing import Literal

from ckpt_protocol.checkpoint import DroppedCheckpoint
from ckpt_protocol.structs import Request, Result, Token, WirePath, Worktree

__all__ = [
    "AffectedCheckpoint",
    "DamagedFile",
    "DamagedObject",
    "GcParams",
    "GcResult",
    "PruneParams",
    "PruneResult",
    "PrunedStore",
    "StoreUsage",
    "ThinParams",
    "ThinResult",
    "UsageParams",
    "UsageResult",
    "VerifyParams",
    "VerifyResult",
]


class PruneParams(Request, frozen=True, kw_only=True):
    """``store.prune``: delete the stores of worktrees that are proved gone."""

    checkpoint_dir: WirePath
    token: Token
    dry_run: bool = False


class PrunedStore(Result, frozen=True, kw_only=True):
    """A store that was (or with ``dry_run`` would be) deleted."""

    path: WirePath
    store: WirePath
    checkpoints: int
    bytes: int


class PruneResult(Result, frozen=True, kw_only=True):
    """``unreachable`` are worktrees that cannot be seen now and whose stores stay."""

    pruned: list[PrunedStore]
    unreachable: list[WirePath]
    dry_run: bool


class VerifyParams(Request, frozen=True, kw_only=True):
    """``store.verify``: look for damage in a worktree's store, and change nothing.

    ``read_data`` also reads and hashes the content of every file; without it, only that it is there is looked at.
    """

    checkpoint_dir: WirePath
    worktree: Worktree
    read_data: bool = False


class AffectedCheckpoint(Result, frozen=True, kw_only=True):
    """A checkpoint that needs what is lost. ``id`` is None where its ref cannot be read.

    ``paths`` counts the lost files and directories in it; ``readable`` false: all of it is lost.
    """

    id: str | None
    seq: int
    readable: bool = True
    paths: int = 0


class DamagedObject(Result, frozen=True, kw_only=True):
    """An object that a checkpoint needs; ``missing``, else what is there is not what it was.

    ``seqs`` are the checkpoints that need it, and ``paths`` where it stands in them (``""``: the whole tree), both at
    most as many as the result's ``listed_most``; ``seq_count`` and ``path_count`` count all of them.
    """

    id: str
    kind: str
    missing: bool
    seqs: list[int]
    seq_count: int
    paths: list[WirePath]
    path_count: int


class DamagedFile(Result, frozen=True, kw_only=True):
    """A file of the store that is not as it should be; ``path`` is relative to the store's folder."""

    path: WirePath
    problem: str


class VerifyResult(Result, frozen=True, kw_only=True):
    """What was found. ``clean``: nothing is lost and nothing damaged.

    ``affected`` has every checkpoint that has lost something, ``damaged`` the objects (of ``damaged_count``), ``files``
    the files that are damaged, whether or not a checkpoint needs them. ``notes`` are no damage: what can be derived
    again, and what killed processes left. ``objects`` counts those that refs need.
    """

    clean: bool
    read_data: bool
    checkpoints: int
    objects: int
    packs: int
    bytes: int
    affected: list[AffectedCheckpoint]
    damaged: list[DamagedObject]
    damaged_count: int
    listed_most: int
    files: list[DamagedFile]
    notes: list[str]


class GcParams(Request, frozen=True, kw_only=True):
    """``store.gc``: remove what nothing needs from a worktree's store, and make few packs of many."""

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token
    dry_run: bool = False


class GcResult(Result, frozen=True, kw_only=True):
    """What a collection did, or with ``dry_run`` what it would remove.

    ``bytes_before`` and ``bytes_after`` are the space that the whole store takes on disk. ``all_kept``: something is
    damaged, so that it is not known what is needed, and nothing was removed.
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
    notes: list[str]


class ThinParams(Request, frozen=True, kw_only=True):
    """``store.thin``: remove what goes by the daemon's options ``keep_*`` and ``max_store_bytes``."""

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token
    dry_run: bool = False


class ThinResult(Result, frozen=True, kw_only=True):
    """What went, or with ``dry_run`` would go: automatic checkpoints, safety ones that no undo needs, and old manual
    ones where an option says so.

    ``frees_bytes`` leave the store with the next ``store.gc``; ``left_bytes`` are what the others need. ``over_cap``:
    that is still more than ``max_store_bytes``, and only a person can decide what else may go.
    """

    dropped: list[DroppedCheckpoint]
    frees_bytes: int
    left_bytes: int
    over_cap: bool
    dry_run: bool
    notes: list[str]


class UsageParams(Request, frozen=True, kw_only=True):
    """``store.usage``: tell what the stores of a checkpoint directory hold, or only that of one worktree."""

    checkpoint_dir: WirePath
    worktree: Worktree | None = None


class StoreUsage(Result, frozen=True, kw_only=True):
    """A store: ``bytes`` on the disk, its checkpoints by kind, and the time of the newest.

    ``watcher`` tells how changes are found for autosave; None where nothing watches. ``files`` are the files and links
    that the last save counted, ``thinning_frees`` the bytes that ``store.thin`` would free by the rules ``keep_*``: an
    estimate, for which the automatic ones alone are looked at, and where they are many some of them. Both are None
    where they are not known.
    """

    path: WirePath
    store: WirePath
    state: Literal["ok", "missing", "unreachable"]
    bytes: int
    manual: int
    auto: int
    safety: int
    unreadable: int
    tags: int
    newest: str | None
    watcher: Literal["active", "degraded", "polling", "off"] | None = None
    files: int | None = None
    thinning_frees: int | None = None


class UsageResult(Result, frozen=True, kw_only=True):
    """``stores``, the largest first; ``damaged`` are those that cannot be read at all.

    ``max_store_bytes`` is the option: a store above it loses automatic checkpoints first.
    """

    stores: list[StoreUsage]
    bytes: int
    max_store_bytes: int
    damaged: list[WirePath]
