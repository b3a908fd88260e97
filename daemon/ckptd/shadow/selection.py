"""Which differences a restore of some paths is about."""

from collections.abc import Collection, Sequence

from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError
from ckptd.shadow.compare import Delta, compare, same_state
from ckptd.shadow.tree import LINK
from ckptd.shadow.view import DirectoryView, find_state, find_view

__all__ = ["select_exactly", "select_paths"]


def select_paths(
    paths: Sequence[bytes], current: DirectoryView, target: DirectoryView, name: str, *, delete: bool
) -> list[Delta]:
    """Give what differs at and below the paths, and the directories above them that have to be made.

    Raises DomainError: ``path_not_in_checkpoint`` for one that checkpoint ``name`` lacks (unless ``delete``),
    ``beyond_symlink`` and ``bad_path`` where something that is no directory stands above one in the worktree.
    """
    found: dict[bytes, Delta] = {}
    given = set(paths)
    for path in paths:
        wanted = find_state(target, path)
        if wanted is None and (not delete or find_state(current, path) is None):
            raise _not_there(path, name, deletable=find_state(current, path) is not None)
        for delta in _parents(path, current, target, given) if wanted is not None else ():
            found[delta.path] = delta
        _take(found, Delta(path, find_state(current, path), wanted))
        for delta in compare(find_view(current, path), find_view(target, path), path):
            _take(found, delta)
    return list(found.values())


def select_exactly(
    paths: Sequence[bytes], current: DirectoryView, target: DirectoryView
) -> tuple[list[Delta], list[bytes]]:
    """Give what differs at these very paths, and what else lies below directories that would go.

    The second list holds the paths that must stay, and so the directories above them.
    """
    found: dict[bytes, Delta] = {}
    staying: list[bytes] = []
    exact = set(paths)
    for path in paths:
        delta = Delta(path, find_state(current, path), find_state(target, path))
        if delta.new is not None:
            for parent in _parents(path, current, target, exact):
                found.setdefault(parent.path, parent)
        _take(found, delta)
        if delta.new is None and delta.old is not None and delta.old.is_dir:
            below = compare(find_view(current, path), None, path)
            staying += [one.path for one in below if one.path not in exact]
    return list(found.values()), staying


def _take(found: dict[bytes, Delta], delta: Delta) -> None:
    if not same_state(delta.old, delta.new):
        found[delta.path] = delta


def _parents(
    path: bytes, current: DirectoryView, target: DirectoryView, replaced: Collection[bytes] = ()
) -> list[Delta]:
    """Give the missing directories above a path.

    Raises where another thing stands in their place, unless it is among ``replaced``: those are dealt with anyway.
    """
    found: list[Delta] = []
    folder = path.rpartition(b"/")[0]
    while folder and folder not in replaced:
        here = find_state(current, folder)
        if here is not None and not here.is_dir:
            is_link = here.mode == LINK
            raise DomainError(
                "beyond_symlink" if is_link else "bad_path",
                f"{to_text(path)}: {to_text(folder)} is {'a symbolic link' if is_link else 'a file'} now",
                hint=f"roll back {to_text(folder)} itself, or reset the whole worktree",
                paths=(path,),
            )
        if here is None:
            found.append(Delta(folder, None, find_state(target, folder)))
        folder = folder.rpartition(b"/")[0]
    return found


def _not_there(path: bytes, name: str, *, deletable: bool) -> DomainError:
    return DomainError(
        "path_not_in_checkpoint",
        f"{to_text(path)} is not in checkpoint {name}",
        hint="to delete it from the worktree: --delete" if deletable else "ckpt ls PATH shows where it is",
        paths=(path,),
    )
