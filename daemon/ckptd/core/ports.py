"""What core needs of the git side, as Protocol classes: the composition root hands in what fulfils them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ckpt_protocol import checkpoint, store, worktree
from ckpt_protocol.structs import Worktree
from ckptd.autosave import Autosave
from ckptd.core.caller import Caller

__all__ = [
    "Caller",
    "Catalog",
    "Coverage",
    "News",
    "OpenedStore",
    "Reader",
    "Run",
    "Snapshot",
    "WatchPlan",
    "Watches",
    "Writer",
]


R_co = TypeVar("R_co", covariant=True)


class Snapshot(Protocol):
    """A worktree as it was seen, for a Reader."""

    def close(self) -> None:
        """Let go of what is kept of it; may be called again."""
        ...


class Writer(Protocol):
    """The operations of one worktree that look at or change it. One thread at a time calls them."""

    def check_place(self, place: Worktree) -> None:
        """Compare a client's view of the worktree with the daemon's, before each operation.

        Raises DomainError ``identity_mismatch``. A missing worktree is no mismatch where the client misses it too.
        """
        ...

    def save(self, params: checkpoint.SaveParams, caller: Caller) -> checkpoint.SaveResult:
        """Make a checkpoint of the worktree as it is."""
        ...

    def autosave(self, params: checkpoint.SaveParams, caller: Caller) -> checkpoint.SaveResult:
        """Make a checkpoint that nobody asked for: never one of the daemon's own work, or of what may be an accident.

        Raises DomainError ``worktree_replaced`` and ``rules_drop`` besides what a save raises.
        """
        ...

    def set_autosave(self, on: bool) -> Autosave:
        """Remember durably whether the worktree is to be saved without being asked; give the options."""
        ...

    def watch_plan(self) -> "WatchPlan":
        """Tell what is worth watching, by the last scan; touches no file."""
        ...

    def status(self, params: worktree.StatusParams, caller: Caller) -> worktree.StatusResult:
        """Compare the worktree with head. ``state`` and ``halted`` of the result are the actor's to fill in."""
        ...

    def scans(self) -> worktree.Scans:
        """Tell how saves have found what had changed; touches no file."""
        ...

    def snapshot(self, params: checkpoint.DiffParams, caller: Caller) -> Snapshot | None:
        """Look at the worktree; what was seen is for the diff() of the Reader.

        None while there are several that are not closed: what each keeps takes room.
        """
        ...

    def restore(self, params: checkpoint.RestoreParams, caller: Caller) -> checkpoint.RestoreResult:
        """Bring back a checkpoint, or some paths of it."""
        ...

    def undo(self, params: checkpoint.StepParams, caller: Caller) -> checkpoint.RestoreResult:
        """Reverse the newest restore that is not undone."""
        ...

    def redo(self, params: checkpoint.StepParams, caller: Caller) -> checkpoint.RestoreResult:
        """Reverse the newest undo."""
        ...

    def resume(self, params: worktree.ResumeParams, caller: Caller) -> checkpoint.RestoreResult:
        """Finish or undo the restore that was cut off."""
        ...

    def tag(self, params: checkpoint.TagParams, caller: Caller) -> checkpoint.TagResult:
        """Name a checkpoint."""
        ...

    def untag(self, params: checkpoint.UntagParams, caller: Caller) -> checkpoint.TagResult:
        """Remove a name."""
        ...

    def drop(self, params: checkpoint.DropParams, caller: Caller) -> checkpoint.DropResult:
        """Remove checkpoints by hand."""
        ...

    def thin(self, params: store.ThinParams, caller: Caller) -> "Run[store.ThinResult]":
        """Begin to remove the checkpoints that go by rule."""
        ...

    @property
    def pressure(self) -> float:
        """Above 0 where tend() must not wait until nothing is asked for, since the store grows while it waits.

        It is to have so many times as long as what was asked for has taken. For any thread.
        """
        ...

    def tend(self, is_wanted: Callable[[], bool], at_most_s: float) -> bool:
        """Do a little of what keeps the store small and quick, while nothing is asked for; tell whether there is more.

        It takes up to so many seconds, and a few milliseconds once it ``is_wanted`` for something else.
        """
        ...

    def gc(self, params: store.GcParams, caller: Caller) -> "Run[store.GcResult]":
        """Begin a collection; one that is under way ends where it is."""
        ...

    def close(self) -> None:
        """Let go of files and memory; nothing else is called afterwards."""
        ...


class Run(Protocol[R_co]):
    """What was begun and takes long. It goes on in steps of one thread, so that others come in between."""

    @property
    def is_waiting(self) -> bool:
        """Whether there is no hurry to make the next step."""
        ...

    def step(self) -> R_co | None:
        """Go on for a moment; give the result once it is there. Nothing is called after that, nor after an error."""
        ...

    def close(self) -> None:
        """Take away what is not finished, and let go of all files; may be called again."""
        ...


class Reader(Protocol):
    """The operations that only read the store. They run beside a Writer, on another thread, one at a time."""

    def head(self, params: checkpoint.HeadParams) -> checkpoint.HeadResult:
        """Give the base of comparison."""
        ...

    def list(self, params: checkpoint.ListParams, caller: Caller) -> Run[checkpoint.ListResult]:
        """Begin to list checkpoints, newest first."""
        ...

    def show(self, params: checkpoint.ShowParams, caller: Caller) -> Run[checkpoint.ShowResult]:
        """Begin to find out what a checkpoint changed."""
        ...

    def diff(
        self, params: checkpoint.DiffParams, caller: Caller, snapshot: Snapshot | None = None
    ) -> Run[checkpoint.DiffResult]:
        """Begin to make a patch, or to read on in one; ``snapshot`` is the worktree's, where it leads there."""
        ...

    def search(self, params: checkpoint.SearchParams, caller: Caller) -> Run[checkpoint.SearchResult]:
        """Begin to look for a text in what checkpoints changed."""
        ...

    def cat(self, params: checkpoint.CatParams) -> checkpoint.CatResult:
        """Give a piece of a file of a checkpoint."""
        ...

    def export(self, params: checkpoint.ExportParams, caller: Caller) -> Run[checkpoint.ExportResult]:
        """Begin to write a checkpoint to a place outside of the worktree."""
        ...

    def verify(self, params: store.VerifyParams, caller: Caller) -> Run[store.VerifyResult]:
        """Begin to look for damage in the store; nothing of it is changed."""
        ...

    def let_go(self) -> None:
        """Close what the next read opens again."""
        ...

    def close(self) -> None:
        """Let go of files and memory; nothing else is called afterwards."""
        ...


class OpenedStore(Protocol):
    """A store that is open: ``folder`` is its absolute path, ``created`` tells whether it is new."""

    @property
    def folder(self) -> bytes:
        """The absolute path of the store's folder."""
        ...

    @property
    def created(self) -> bool:
        """Whether the store was made by this opening."""
        ...

    @property
    def writer(self) -> Writer:
        """The operations that look at or change the worktree."""
        ...

    @property
    def reader(self) -> Reader:
        """The operations that only read the store."""
        ...

    @property
    def interrupted(self) -> str | None:
        """The safety checkpoint of a restore that was cut off, None where there is none."""
        ...

    @property
    def autosave(self) -> Autosave:
        """The options of autosave, as they were when the store was opened."""
        ...


class Catalog(Protocol):
    """The stores of checkpoint directories. Calls may come from several threads, for different worktrees."""

    def open(self, checkpoint_dir: bytes, place: Worktree, *, create: bool, force: bool) -> OpenedStore:
        """Open the store of a worktree.

        Raises DomainError: ``not_tracked`` where there is none and ``create`` is false, ``protected_place``
        where one would be made there without ``force``, ``identity_mismatch`` where the client's device and
        inode are not what the daemon sees at the path, ``not_a_directory``, ``store_format``, ``store_damaged``;
        ``worktree_moved`` where it is proved that the directory is another worktree that was moved: ``paths`` are
        both, the old one last, and adopt() is to be called.
        A missing worktree that has a store opens (its checkpoints can be listed and restored).
        """
        ...

    def list(self, checkpoint_dir: bytes) -> worktree.ListResult:
        """List the tracked worktrees."""
        ...

    def usage(self, checkpoint_dir: bytes, worktree_path: bytes | None) -> Run[store.UsageResult]:
        """Begin to tell what the stores hold, or that of one worktree."""
        ...

    def dead(self, checkpoint_dir: bytes) -> store.PruneResult:
        """Tell what a prune would delete (``dry_run`` true); changes nothing."""
        ...

    def delete(self, checkpoint_dir: bytes, folder: bytes) -> None:
        """Delete one store folder, which nobody has open."""
        ...

    def adopt(
        self, checkpoint_dir: bytes, place: Worktree, old: bytes, *, force: bool, dry_run: bool
    ) -> worktree.AdoptResult:
        """Make a store that of another directory; nobody has it open, nor one of that directory.

        ``old`` is the path of its worktree until now, or its own. Raises DomainError: ``not_tracked`` where there is
        no such store, ``two_claimants`` where the old path is still a directory's, where several stores are of it or
        the directory has checkpoints of its own; and for places that cannot be a worktree.
        """
        ...

    def find(self, checkpoint_dir: bytes, worktree_path: bytes) -> tuple[bytes, int] | None:
        """Give the folder and the number of checkpoints of a worktree's store, or None."""
        ...

    def watched(self, checkpoint_dir: bytes) -> "Sequence[bytes]":
        """Give the worktrees that are to be saved by themselves."""
        ...


class WatchPlan(Protocol):
    """What is worth watching of a worktree. Immutable; any thread may use it. Paths are relative, the root is empty."""

    @property
    def directories(self) -> Sequence[bytes]:
        """The directories that a scan looks into."""
        ...

    def leaves_out(self, path: bytes) -> bool:
        """Tell whether a path is known to be left out by the rules."""
        ...

    def is_directory(self, path: bytes) -> bool:
        """Tell whether a path is one of the directories."""
        ...


class Coverage(NamedTuple):
    """What has come of an attempt to watch. ``native``: changes in ``watched`` directories will be told.

    ``fresh``: since this attempt, so what went before is not known. ``left`` directories are there and cannot be
    watched. ``reason`` says why not all is well.
    """

    native: bool
    fresh: bool
    watched: int
    left: int
    reason: str | None


class News(Protocol):
    """Who is told of changes; called in the event loop, and never at once from within a call."""

    def seen(self, paths: Sequence[bytes], *, more: bool) -> None:
        """Something has changed at these relative paths, and elsewhere if ``more``."""
        ...

    def broken(self, reason: str, *, over_budget: bool = False) -> None:
        """Nothing is told any more, until the next coverage; ``over_budget``: another worktree needs the place."""
        ...


class Watches(Protocol):
    """Watches worktrees. Its word is a reason to look, and its silence proves nothing."""

    def add(self, path: bytes, step_s: float, news: News) -> int:
        """Take a worktree, of which changes are to be told within two steps; gives its number."""
        ...

    def remove(self, number: int) -> None:
        """Forget a worktree."""
        ...

    async def cover(
        self, number: int, directories: Sequence[bytes], *, try_out: bool = False, afresh: bool = False
    ) -> Coverage:
        """Watch these directories and no others; never fails. ``afresh`` trusts nothing that is watched already."""
        ...
