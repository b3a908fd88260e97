"""The passes of a restore that was cut off and gone on with, and what was there before all of them.

The rule is the one of ckptd.shadow.record.history.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ckpt_protocol.structs import from_wire
from ckptd.shadow.record.lookup import Lookup
from ckptd.shadow.record.oplog import Intent
from ckptd.shadow.trees.compare import same_state
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.view import DirectoryView, find_state

__all__ = ["Before", "origins", "passes_of", "planned", "state_before", "was_edited"]


class Before(NamedTuple):
    """What a safety checkpoint says of the worktree before one pass, and the paths that this pass was to change."""

    root: DirectoryView
    paths: Collection[bytes]


def planned(intent: Intent) -> set[bytes]:
    """Give the paths that any pass was to change."""
    return {from_wire(path) for paths in (intent.paths, *(later.paths for later in intent.resumed)) for path in paths}


def passes_of(intent: Intent, lookup: Lookup, *, answered: bool) -> list[Before]:
    """Give the passes of a restore, oldest first; raises DomainError where a safety checkpoint is gone.

    A pass of one that was not answered may have been cut off before its safety checkpoint was made: it wrote nothing.
    """
    ids = lookup.ids()
    later = [(one.safety, one.paths) for one in intent.resumed if answered or one.safety in ids]
    return [
        Before(lookup.open(safety).root, {from_wire(path) for path in paths})
        for safety, paths in [(intent.safety or "", intent.paths), *later]
    ]


def origins(passes: Sequence[Before], paths: Collection[bytes]) -> list[list[bytes]]:
    """Tell for each pass which of the paths have the state from before it, once the restore is undone."""
    if len(passes) == 1:
        return [sorted(paths)]
    found: list[list[bytes]] = [[] for _ in passes]
    for path in sorted(paths):
        number = _origin(passes, path)
        found[0 if _would_need_another(passes, path, number) else number].append(path)
    return found


def _origin(passes: Sequence[Before], path: bytes) -> int:
    for number, (root, paths) in enumerate(passes):
        if path in paths or find_state(root, path) is not None:
            return number
    return 0


def _would_need_another(passes: Sequence[Before], path: bytes, number: int) -> bool:
    """Tell whether something from before an earlier pass stands in the way above a path, or nothing stood there."""
    for folder in _above(path):
        for root, paths in passes[:number]:
            state = find_state(root, folder)
            if state is not None and not state.is_dir:
                return True
            if state is None and folder in paths:
                return True
            if state is not None:
                break
    return False


def _above(path: bytes) -> Iterator[bytes]:
    folder = path.rpartition(b"/")[0]
    while folder:
        yield folder
        folder = folder.rpartition(b"/")[0]


def state_before(passes: Sequence[Before], path: bytes) -> State | None:
    """Give what stood at a path before the first pass that was to change it."""
    for root, paths in passes:
        if path in paths:
            return find_state(root, path)
    return None


def was_edited(now: State | None, before: State | None, after: State | None) -> bool:
    """Tell whether something stands at a path that is neither from before a restore nor from the restore itself."""
    # Directories are open to their owner while they are worked in, and hold nothing themselves.
    if now is None or now.is_dir:
        return False
    return not same_state(now, before) and not same_state(now, after)
