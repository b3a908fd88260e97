"""Which differences a restore of some paths is about."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError
from ckptd.shadow.trees.compare import Delta, compare, same_state
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import LINK
from ckptd.shadow.trees.view import DirectoryView, find_state, find_view, link_above, not_in_checkpoint

__all__ = ["Standing", "select_exactly", "select_paths"]

Standing = Callable[[bytes], State | None]
"""Tells what kind of thing stands at a path where the scan saw nothing: what rules leave out may be in the way."""

_ELSEWHERE: Final = "ckpt ls PATH shows where it is"
_DELETE: Final = "to delete it from the worktree: --delete"
_BEYOND: Final = "give the path that the link leads to, if that is in the worktree, or the link itself"
_LEFT_OUT: Final = "that does not mean that it was not there: rules, its size or its permissions kept it out"


def select_paths(
    paths: Sequence[bytes],
    current: DirectoryView,
    target: DirectoryView,
    name: str,
    *,
    delete: bool,
    standing: Standing,
    says_absent: Callable[[bytes, bool], bool],
) -> list[Delta]:
    """Give what differs at and below the paths, and the directories above them that have to be made.

    ``says_absent`` tells whether a path that the checkpoint lacks was really absent when it was made.

    Raises DomainError: ``path_not_in_checkpoint`` for one that checkpoint ``name`` lacks (unless ``delete``),
    ``beyond_symlink`` where the checkpoint or the worktree has a link above one, ``bad_path`` where the worktree has
    a file there.
    """
    found: dict[bytes, Delta] = {}
    given = set(paths)
    for path in paths:
        wanted = find_state(target, path)
        if wanted is None and (not delete or find_state(current, path) is None):
            here = find_state(current, path) or standing(path)
            covered = says_absent(path, here is not None and here.is_dir)
            raise _missing(path, current, target, name, covered=covered)
        if wanted is not None:
            above = _Above(path, current, target, given, standing)
            if above.obstacle is not None:
                raise _obstructed(path, *above.obstacle)
            found.update({delta.path: delta for delta in above.missing})
        _take(found, Delta(path, find_state(current, path), wanted))
        for delta in compare(find_view(current, path), find_view(target, path), path):
            _take(found, delta)
    return list(found.values())


def select_exactly(
    paths: Sequence[bytes], current: DirectoryView, target: DirectoryView, standing: Standing
) -> tuple[list[Delta], list[bytes]]:
    """Give what differs at these very paths, and what else lies below directories that would go.

    A path that neither side has is given too: the scan may have left out what is there. The second list holds the
    paths that must stay, and so the directories above them.
    """
    found: dict[bytes, Delta] = {}
    staying: list[bytes] = []
    exact = set(paths)
    for path in paths:
        delta = Delta(path, find_state(current, path), find_state(target, path))
        if delta.new is not None:
            above = _Above(path, current, target, exact, standing)
            found.update({parent.path: parent for parent in above.missing})
        if delta.old is None and delta.new is None:
            found[path] = delta
        _take(found, delta)
        if delta.new is None and delta.old is not None and delta.old.is_dir:
            below = compare(find_view(current, path), None, path)
            staying += [one.path for one in below if one.path not in exact]
    return list(found.values()), staying


def _missing(path: bytes, current: DirectoryView, target: DirectoryView, name: str, *, covered: bool) -> DomainError:
    link = link_above(current, path)
    if link is not None and link_above(target, path) is None:
        text = f"{to_text(path)} is beyond a symbolic link: {to_text(link)} is one now"
        return DomainError("beyond_symlink", text, hint=_BEYOND, paths=(path,))
    if not covered:
        return not_in_checkpoint(target, path, name, _LEFT_OUT)
    here = find_state(current, path)
    return not_in_checkpoint(target, path, name, _ELSEWHERE if here is None else _DELETE)


def _take(found: dict[bytes, Delta], delta: Delta) -> None:
    if not same_state(delta.old, delta.new):
        found[delta.path] = delta


class _Above:
    """The directories above a path: those that are missing, and what stands in the place of one.

    The walk up ends at one of ``replaced``: those are dealt with anyway.
    """

    def __init__(
        self,
        path: bytes,
        current: DirectoryView,
        target: DirectoryView,
        replaced: Collection[bytes],
        standing: Standing,
    ) -> None:
        self.missing: list[Delta] = []
        self.obstacle: tuple[bytes, State] | None = None
        folder = path.rpartition(b"/")[0]
        while folder and folder not in replaced:
            here = find_state(current, folder) or standing(folder)
            if here is None:
                self.missing.append(Delta(folder, None, find_state(target, folder)))
            elif not here.is_dir:
                self.obstacle = (folder, here)
                self.missing.clear()
            folder = folder.rpartition(b"/")[0]


def _obstructed(path: bytes, folder: bytes, here: State) -> DomainError:
    is_link = here.mode == LINK
    what = "a symbolic link" if is_link else "a file"
    return DomainError(
        "beyond_symlink" if is_link else "bad_path",
        f"{to_text(path)} is beyond {what}: {to_text(folder)} is one now",
        hint=f"roll back {to_text(folder)} itself, or reset the whole worktree",
        paths=(path,),
    )
