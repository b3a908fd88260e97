"""Methods about checkpoints: make, list, compare, read, restore."""

from typing import Annotated, Literal

import msgspec

from ckpt_protocol.structs import (
    END,
    Change,
    CheckpointRecord,
    Chunk,
    Kind,
    LeftOut,
    Natural,
    Request,
    Result,
    Stats,
    Token,
    WirePath,
    Worktree,
)

__all__ = [
    "CatParams",
    "CatResult",
    "DiffParams",
    "DiffResult",
    "Expected",
    "ExportParams",
    "ExportResult",
    "HeadParams",
    "HeadResult",
    "ListParams",
    "ListResult",
    "Occurrences",
    "RestoreParams",
    "RestoreResult",
    "SaveParams",
    "SaveResult",
    "SearchHit",
    "SearchParams",
    "SearchResult",
    "ShowParams",
    "ShowResult",
    "StepParams",
]

WORKTREE = "WORKTREE"
"""As ``to_id`` of a diff: the worktree as it is now."""


class Expected(Request, frozen=True, kw_only=True):
    """What a caller last saw at a path: the Git blob id of a file's content (of a link's target), or ``absent``."""

    path: WirePath
    oid: Annotated[str, msgspec.Meta(pattern=f"^([0-9a-f]{{40}}|absent){END}")]


class SaveParams(Request, frozen=True, kw_only=True):
    """``checkpoint.save``: make a checkpoint, and the store where there is none.

    ``full`` scans even where a watcher could tell, ``rehash`` reads every file.
    ``force`` saves a worktree that is suddenly empty, and makes a store for a protected place. ``expect_head`` and
    ``expect`` are as for ``checkpoint.restore``. What was made more than ``late_after_s`` seconds after it was asked
    for has ``late`` in its metadata: it may hold changes of the time in between.
    """

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token
    message: str | None = None
    kind: Literal["manual", "auto"] = "manual"
    tag: str | None = None
    meta: dict[str, str] = {}
    full: bool = False
    rehash: bool = False
    force: bool = False
    expect_head: str | None = None
    expect: list[Expected] = []
    late_after_s: Annotated[float, msgspec.Meta(gt=0)] | None = None


class SaveResult(Result, frozen=True, kw_only=True):
    """``created`` is false where nothing had changed and ``id`` is the checkpoint that already was.

    ``files`` counts the files and links in the checkpoint. ``notes`` says what the caller might not expect: a
    message that was not used, rules that suddenly drop most files.
    """

    id: str
    seq: int
    created: bool
    complete: bool
    skipped: list[LeftOut]
    excluded: list[LeftOut]
    files: int
    notes: list[str] = []
    stats: Stats | None = None


class HeadParams(Request, frozen=True, kw_only=True):
    """``checkpoint.head``: the base of comparison."""

    checkpoint_dir: WirePath
    worktree: Worktree


class HeadResult(Result, frozen=True, kw_only=True):
    """The head checkpoint."""

    id: str


class ListParams(Request, frozen=True, kw_only=True):
    """``checkpoint.list``: checkpoints, newest first; ``before_seq`` continues a list after its last entry.

    ``paths``: those that changed one of these. With ``follow`` a path that a checkpoint renamed is followed further
    back under its former name: empty at first, then the ``followed`` of the result before. None: names are just names.
    """

    checkpoint_dir: WirePath
    worktree: Worktree
    limit: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000
    before_seq: int | None = None
    kind: Kind | None = None
    meta: dict[str, str] = {}
    paths: list[WirePath] = []
    follow: list[WirePath] | None = None


class ListResult(Result, frozen=True, kw_only=True):
    """``more``: the list is full, and there are older checkpoints, whether they belong in it or not.

    ``damaged`` counts those that cannot be read, of those that were looked at. ``followed`` are the former names of
    ``paths`` that are followed by the end of this list.
    """

    checkpoints: list[CheckpointRecord]
    head: str | None
    more: bool
    damaged: int = 0
    followed: list[WirePath] = []


class SearchParams(Request, frozen=True, kw_only=True):
    """``checkpoint.search``: the checkpoints that add or remove a text, newest first.

    ``text`` are 1 to 4096 bytes, in either form that a path has. A checkpoint is compared as ``checkpoint.show`` does;
    it is a hit where the number of occurrences differs between the two sides of a path. ``ignore_case`` takes both
    cases of each letter for the same. ``before_seq`` continues after the checkpoint of that number: the ``next_seq`` of
    a result. ``limit`` is the largest number of hits in a result.
    """

    checkpoint_dir: WirePath
    worktree: Worktree
    text: WirePath
    ignore_case: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1000
    before_seq: int | None = None
    kind: Kind | None = None
    meta: dict[str, str] = {}
    paths: list[WirePath] = []


class Occurrences(Result, frozen=True, kw_only=True):
    """A path and how often the text is in it: ``before`` in what the checkpoint is compared with, ``after`` in it."""

    path: WirePath
    before: int
    after: int


class SearchHit(Result, frozen=True, kw_only=True):
    """A checkpoint and the paths where the text became more or less, sorted; ``left_out`` more are not listed."""

    checkpoint: CheckpointRecord
    paths: list[Occurrences]
    left_out: int = 0


class SearchResult(Result, frozen=True, kw_only=True):
    """What was found so far, perhaps nothing. ``next_seq`` is where to go on; None: everything has been looked at.

    ``searched`` counts the checkpoints of this result, ``damaged`` those among them that cannot be read or compared,
    ``unread`` the paths that could not be searched because content of theirs is lost.
    """

    hits: list[SearchHit]
    head: str | None
    next_seq: int | None
    searched: int
    damaged: int = 0
    unread: int = 0


class ShowParams(Request, frozen=True, kw_only=True):
    """``checkpoint.show``: a checkpoint and what it changed; ``id`` in any form that names one."""

    checkpoint_dir: WirePath
    worktree: Worktree
    id: str


class ShowResult(Result, frozen=True, kw_only=True):
    """``changes`` compares with ``base``: its recorded base, else the checkpoint before it, else nothing."""

    checkpoint: CheckpointRecord
    base: str | None
    changes: list[Change]
    skipped: list[LeftOut]
    excluded: list[LeftOut]


class DiffParams(Request, frozen=True, kw_only=True):
    """``checkpoint.diff``: a patch in chunks.

    ``from_id`` None means head; ``to_id`` is an id or ``WORKTREE``. The first call gives a ``cursor``; calls
    with it read on at ``offset`` in the very same patch.
    """

    checkpoint_dir: WirePath
    worktree: Worktree
    from_id: str | None = None
    to_id: str = WORKTREE
    paths: list[WirePath] = []
    format: Literal["patch", "stat", "name-status"] = "patch"
    context_lines: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    cursor: str | None = None
    offset: Natural = 0


class DiffResult(Result, frozen=True, kw_only=True):
    """A piece of the output at ``offset``; ``cursor`` is None where this is the last piece.

    ``notes`` come with the first piece: they name the files that are too large to be shown, and what differs and has
    no word in a patch (permission bits beyond git's, empty directories).
    """

    data: Chunk
    offset: int
    total_bytes: int
    cursor: str | None
    notes: list[str] = []


class CatParams(Request, frozen=True, kw_only=True):
    """``checkpoint.cat``: bytes of one file of a checkpoint, from ``offset``."""

    checkpoint_dir: WirePath
    worktree: Worktree
    id: str
    path: WirePath
    offset: Natural = 0
    length: Annotated[int, msgspec.Meta(ge=1, le=1_048_576)] = 1_048_576


class CatResult(Result, frozen=True, kw_only=True):
    """``mode`` is git's, in octal; a link's bytes are its target."""

    data: Chunk
    offset: int
    total_bytes: int
    mode: Literal["100644", "100755", "120000"]
    id: str


class ExportParams(Request, frozen=True, kw_only=True):
    """``checkpoint.export``: write a checkpoint, or some paths of it, to a place outside of the worktree.

    ``destination`` is absolute: a directory that is not there or is empty, or a file that is not there and whose name
    ends in ``.tar``. It appears when everything is in it.
    """

    checkpoint_dir: WirePath
    worktree: Worktree
    id: str
    destination: WirePath
    paths: list[WirePath] = []


class ExportResult(Result, frozen=True, kw_only=True):
    """``files`` counts files and links, ``bytes`` the content of the files."""

    id: str
    destination: WirePath
    files: int
    bytes: int


class RestoreParams(Request, frozen=True, kw_only=True):
    """``checkpoint.restore``: bring back a checkpoint, the whole tree or some paths.

    ``id`` None means head. ``paths`` None restores the whole tree and moves head; a list restores files and
    directories and leaves head. ``delete`` deletes given paths that the checkpoint does not have. ``digest``
    refuses any plan but the one with it. ``recreate`` makes a worktree that is missing.

    ``expect_head`` is refused with ``precondition_failed`` if a checkpoint that is neither an autosave nor made by the
    caller's own session is newer than it; ``expect`` if a path holds something else. Then nothing is changed.
    """

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token
    id: str | None = None
    paths: list[WirePath] | None = None
    dry_run: bool = False
    digest: str | None = None
    delete: bool = False
    skip_conflicts: bool = False
    recreate: bool = False
    expect_head: str | None = None
    expect: list[Expected] = []


class TagParams(Request, frozen=True, kw_only=True):
    """``checkpoint.tag``: name a checkpoint, which is then never thinned; ``move`` takes a name from another one."""

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token
    id: str
    name: str
    move: bool = False


class UntagParams(Request, frozen=True, kw_only=True):
    """``checkpoint.untag``: remove a name; the checkpoint stays."""

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token
    name: str


class TagResult(Result, frozen=True, kw_only=True):
    """Which checkpoint a name stands for now, and which it stood for before; None for none."""

    name: str
    id: str | None
    before: str | None


class DropParams(Request, frozen=True, kw_only=True):
    """``checkpoint.drop``: remove checkpoints by hand, with their tags.

    Refused without ``force`` (``checkpoint_needed``): what is tagged, and the safety checkpoints of what can still be
    undone, redone or resumed. The content leaves the store with the next ``store.gc``, if nothing else holds it.
    """

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token
    ids: list[str]
    dry_run: bool = False
    force: bool = False


class DroppedCheckpoint(Result, frozen=True, kw_only=True):
    """A checkpoint that is gone, or with ``dry_run`` would be; ``kind`` is None where it could not be read."""

    id: str
    seq: int
    kind: Kind | None
    tags: list[str]


class HoldingCheckpoint(Result, frozen=True, kw_only=True):
    """A checkpoint that has ``files`` of the contents that the dropped ones brought."""

    id: str
    seq: int
    files: int


class DropResult(Result, frozen=True, kw_only=True):
    """What a drop did. ``head`` is head after it: the newest manual or automatic checkpoint left, where head went.

    ``files`` counts the contents that the dropped checkpoints had and the ones that they are compared with had not;
    ``held`` are all other checkpoints that have some of those. ``all_searched`` false: there were too many to look at.
    """

    dropped: list[DroppedCheckpoint]
    head: str | None
    files: int
    held: list[HoldingCheckpoint]
    all_searched: bool
    dry_run: bool
    notes: list[str] = []


class StepParams(Request, frozen=True, kw_only=True):
    """``checkpoint.undo`` and ``checkpoint.redo``: reverse the newest restore, or the newest undo.

    ``session``: of the restores of this session; then paths that somebody has changed since are conflicts
    (``edited``). An undo with ``whole_session`` takes back all that the session changed, by its restores and by what it
    did between the saves around its tool calls; a path that others have been at is a conflict: ``edited``,
    ``other_session``, or ``unclear`` where the saves cannot tell. It is reversed by a redo.
    """

    checkpoint_dir: WirePath
    worktree: Worktree
    token: Token
    dry_run: bool = False
    digest: str | None = None
    skip_conflicts: bool = False
    expect_head: str | None = None
    expect: list[Expected] = []
    session: str | None = None
    whole_session: bool = False


class RestoreResult(Result, frozen=True, kw_only=True):
    """What a restore did, or with ``dry_run`` would do; every list is sorted by path.

    ``target`` is the checkpoint whose content is written. ``safety`` holds everything that was overwritten or
    deleted; None where the plan was empty. ``edited`` are paths that an undo, a redo or a restore that was cut off and
    gone on with overwrote although they had changed since. ``weak`` tells that the file system has no atomic exchange.
    """

    target: str | None
    written: list[WirePath]
    deleted: list[WirePath]
    kept: list[WirePath]
    conflicts: list[LeftOut]
    edited: list[WirePath]
    safety: str | None
    head: str | None
    digest: str
    weak: bool
    dry_run: bool
    notes: list[str] = []
    stats: Stats | None = None
