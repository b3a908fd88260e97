"""What a restore has left behind, so that autosave does not take the daemon's own work for somebody's edits.

A rollback leaves the worktree different from head, and an autosave right after it would save nothing that is not in
a checkpoint already. An edit that came in between is told by the plan: whatever differs from it is somebody else's.
"""

import os
from collections.abc import Iterable

from ckptd.errors import DomainError
from ckptd.shadow.objects.durable import read_derived, replace_file
from ckptd.shadow.trees.compare import compare, same_state
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.view import DirectoryView, find_state

__all__ = ["Settled"]

_NAME = b"settled"


class Settled:
    """The state of the worktree that the last restore has made. It can be lost: then autosave saves once too often."""

    def __init__(self, folder: bytes) -> None:
        self._path = os.path.join(folder, b"ckpt", _NAME)
        self._key: bytes | None = read_derived(self._path)
        self._expected: tuple[DirectoryView, dict[bytes, State | None]] | None = None

    def expect(self, before: DirectoryView, steps: Iterable[Step]) -> None:
        """Note what a restore has done: ``before`` is what it found, and all the steps were taken."""
        self._expected = (before, {step.path: step.after for step in steps})

    def is_own(self, now: DirectoryView) -> bool:
        """Tell whether the worktree is exactly as the last restore has left it."""
        if self._expected is not None:
            before, steps = self._expected
            self._expected = None
            self._set(_key(now) if _is_result(before, steps, now) else None)
        return self._key is not None and self._key == _key(now)

    def forget(self) -> None:
        """Nothing that a restore has left is of interest once something newer was saved."""
        self._expected = None
        self._set(None)

    def _set(self, key: bytes | None) -> None:
        if key == self._key:
            return
        self._key = key
        try:
            replace_file(self._path, key or b"", durable=False)
        except DomainError:
            # It can be lost.
            return


def _key(view: DirectoryView) -> bytes:
    tree, modes = view.key
    return tree.hex().encode() + b" " + (modes or b"").hex().encode()


def _is_result(before: DirectoryView, steps: dict[bytes, State | None], now: DirectoryView) -> bool:
    above = {folder for path in steps for folder in _folders(path)}
    for path, old, new in compare(before, now):
        if path in steps:
            if not same_state(new, steps[path]):
                return False
        elif path not in above or (new is not None and not new.is_dir) or (old is not None and not old.is_dir):
            return False
    return all(_stands(before, now, path, after) for path, after in steps.items())


def _stands(before: DirectoryView, now: DirectoryView, path: bytes, after: State | None) -> bool:
    state = find_state(now, path)
    # What rules leave out is not to be seen, before or after.
    return same_state(state, after) or (state is None and find_state(before, path) is None)


def _folders(path: bytes) -> Iterable[bytes]:
    folder = path.rpartition(b"/")[0]
    while folder:
        yield folder
        folder = folder.rpartition(b"/")[0]
