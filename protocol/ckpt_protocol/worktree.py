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
    "ForgetParams",
    "ForgetResult",
    "Interruption",
    "ListParams",
    "ListResult",
    "OpenParams",
    "OpenResult",
    "ResumeParams",
    "StatusParams",
    "StatusResult",
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
    ``halted`` the reason where it is HALTED.
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
