"""Named steps of the engine: where the tests kill it, to see what is on disk by then.

Nobody listens but a program of the tests that has called ``listen``: no option, file or variable of a worktree or of
the environment leads here, and a step that nobody listens to costs one look at an empty list.
"""

from collections.abc import Callable
from typing import Final

__all__ = ["FAILPOINTS", "listen", "reach", "reach_in_worktree"]

FAILPOINTS: Final[dict[str, str]] = {
    "store-written": "a new store is whole, under a temporary name",
    "store-named": "a new store has its name",
    "store-aside": "a store that is to be deleted has left its name",
    "opened": "a store is found, and nothing of it has been looked at",
    "swept": "the temporary files of the last process have gone from a store",
    "recovered": "the operations that were cut off are closed, or found to be open",
    "settled": "a store is open: HEAD is what the log says",
    "scanned": "a save or restore has looked at the worktree",
    "pack-written": "a pack's bytes are written, not synced",
    "pack-synced": "a pack is on disk under its temporary name",
    "index-synced": "so is its index",
    "pack-named": "a pack has its name, and no index has",
    "index-named": "both have their names, which are not synced",
    "pack-durable": "a pack can be read, whatever happens",
    "file-written": "a small file (ref, HEAD, model, metadata) is written under a temporary name",
    "file-named": "it has taken the place of the old one, and its name is not synced",
    "log-written": "a line of the log is written, not synced",
    "log-durable": "a line of the log is on disk, as far as it has to be",
    "log-kept": "a log that is about to be cut has a second name",
    "log-cut": "a log that has been cut is on disk, in the place of the long one",
    "info-durable": "a checkpoint's info has its ref, the checkpoint has none",
    "checkpoint-durable": "a checkpoint has its ref",
    "tag-durable": "a tag points to its checkpoint",
    "refs-packed": "the file of packed refs is new, and on disk",
    "ref-deleted": "a ref that is dropped, or stands in the packed file now, has lost its own file",
    "head-written": "HEAD is set",
    "model-written": "the model is on disk",
    "planned": "a restore knows what to do",
    "safe": "the safety checkpoint's objects are on disk; nothing names them",
    "begun": "a restore has its intent and its safety checkpoint on disk",
    "restored": "all steps of a restore are done, and not synced",
    "synced": "they are synced, and nothing tells that the restore is done",
    "concluded": "a restore's outcome is on disk",
    "merged": "a merged pack is on disk, beside those that it replaces",
    "pack-hidden": "a pack that was merged has lost its index",
    "packs-gone": "all packs that were merged are gone, which is not synced",
    "worktree-opened": "a restore has walked to a directory",
    "worktree-staged": "a new file is finished under a temporary name",
    "worktree-before-create": "it is about to get its place",
    "worktree-created": "it has it",
    "worktree-before-exchange": "a new file is about to change places with the old one",
    "worktree-before-rename": "the same, on a file system that cannot exchange",
    "worktree-exchanged": "it has; the old one is not compared",
    "worktree-before-aside": "a file is about to leave its place",
    "worktree-aside": "it has, and is not compared",
    "worktree-before-mkdir": "a directory is about to be made",
    "worktree-mkdir": "it is",
    "worktree-before-chmod": "permission bits are about to change",
    "worktree-before-verify": "a directory's changes are made, its way from the root not walked again",
    "worktree-verified": "it is, and nothing old has been removed",
    "worktree-before-unlink": "a change is about to be made final",
    "worktree-unlinked": "it is",
    "worktree-before-undo": "a change is about to be taken back",
}
"""Every step by name, and what is true when it is reached."""

_listeners: Final[list[Callable[[str, bytes], None]]] = []


def listen(listener: Callable[[str, bytes], None]) -> Callable[[], None]:
    """Tell ``listener`` the name and path of each step from now on; give what ends that. For tests alone."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def reach(name: str, path: bytes = b"") -> None:
    """Say that a step of the table is reached."""
    for listener in _listeners:
        listener(name, path)


def reach_in_worktree(point: str, path: bytes) -> None:
    """Say it of a step of the writer in the worktree; ``path`` is relative to it."""
    if _listeners:
        reach("worktree-" + point, path)
