"""What core needs of the git side, as Protocol classes: the composition root hands in what fulfils them."""

from typing import Protocol

from ckpt_protocol import checkpoint, store, worktree
from ckpt_protocol.structs import Worktree
from ckptd.core.caller import Caller

__all__ = ["Caller", "Catalog", "Collection", "OpenedStore", "Reader", "Verification", "Writer"]


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

    def status(self, params: worktree.StatusParams, caller: Caller) -> worktree.StatusResult:
        """Compare the worktree with head. ``state`` and ``halted`` of the result are the actor's to fill in."""
        ...

    def diff(self, params: checkpoint.DiffParams, caller: Caller) -> checkpoint.DiffResult:
        """Give a piece of a patch."""
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

    def tend(self) -> bool:
        """Do a little of what keeps the store small and quick, while nothing is asked for; tell whether there is more.

        It takes some ten milliseconds, for a request may come at any time.
        """
        ...

    def gc(self, params: store.GcParams, caller: Caller) -> "Collection":
        """Begin a collection; one that is under way ends where it is."""
        ...

    def close(self) -> None:
        """Let go of files and memory; nothing else is called afterwards."""
        ...


class Collection(Protocol):
    """A collection under way. It goes on in steps of the writer, so that other operations come in between."""

    @property
    def is_waiting(self) -> bool:
        """Whether there is no hurry to make the next step."""
        ...

    def step(self) -> store.GcResult | None:
        """Go on for a moment; give the result once it is there."""
        ...

    def close(self) -> None:
        """Forget what is not finished; may be called again."""
        ...


class Verification(Protocol):
    """A verification under way. It goes on in steps, so that other reads come in between."""

    def step(self) -> store.VerifyResult | None:
        """Go on for a moment; give the result once it is there. Nothing is called after that, nor after an error."""
        ...

    def close(self) -> None:
        """Let go of all files; may be called again."""
        ...


class Reader(Protocol):
    """The operations that only read the store. They run beside a Writer, on another thread, one at a time."""

    def head(self, params: checkpoint.HeadParams) -> checkpoint.HeadResult:
        """Give the base of comparison."""
        ...

    def list(self, params: checkpoint.ListParams) -> checkpoint.ListResult:
        """List checkpoints, newest first."""
        ...

    def show(self, params: checkpoint.ShowParams) -> checkpoint.ShowResult:
        """Give a checkpoint and what it changed."""
        ...

    def cat(self, params: checkpoint.CatParams) -> checkpoint.CatResult:
        """Give a piece of a file of a checkpoint."""
        ...

    def verify(self, params: store.VerifyParams, caller: Caller) -> Verification:
        """Begin to look for damage in the store; nothing of it is changed."""
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


class Catalog(Protocol):
    """The stores of checkpoint directories. Calls may come from several threads, for different worktrees."""

    def open(self, checkpoint_dir: bytes, place: Worktree, *, create: bool, force: bool) -> OpenedStore:
        """Open the store of a worktree.

        Raises DomainError: ``not_tracked`` where there is none and ``create`` is false, ``protected_place``
        where one would be made there without ``force``, ``identity_mismatch`` where the client's device and
        inode are not what the daemon sees at the path, ``not_a_directory``, ``store_format``, ``store_damaged``.
        A missing worktree that has a store opens (its checkpoints can be listed and restored).
        """
        ...

    def list(self, checkpoint_dir: bytes) -> worktree.ListResult:
        """List the tracked worktrees."""
        ...

    def dead(self, checkpoint_dir: bytes) -> store.PruneResult:
        """Tell what a prune would delete (``dry_run`` true); changes nothing."""
        ...

    def delete(self, checkpoint_dir: bytes, folder: bytes) -> None:
        """Delete one store folder, which nobody has open."""
        ...

    def find(self, checkpoint_dir: bytes, worktree_path: bytes) -> tuple[bytes, int] | None:
        """Give the folder and the number of checkpoints of a worktree's store, or None."""
        ...
