"""What a checkpoint holds, read from its objects and hashed; and a worktree in the same words."""

from ckptd.shadow.record.lookup import Loaded
from ckptd.shadow.trees.view import DirectoryView
from support.plainworld import World
from support.worktrees import Desk

__all__ = ["Contents", "contents", "held"]

Contents = dict[bytes, bytes | None]
"""By path: what a file holds or where a link leads; None for a directory."""


def contents(world: World) -> Contents:
    """Give what a worktree holds."""
    return {path: None if node.kind == "d" else node.data for path, node in world.items()}


def held(desk: Desk, loaded: Loaded) -> Contents:
    """Give all that a checkpoint holds; raises DomainError where any of it is missing or damaged."""
    found: Contents = {}
    stack: list[tuple[bytes, DirectoryView]] = [(b"", loaded.root)]
    while stack:
        start, view = stack.pop()
        for name, state in view.files().items():
            found[start + name] = desk.repo.objects.read_own(state.oid, b"blob")
        for name, below in view.dirs().items():
            found[start + name] = None
            stack.append((start + name + b"/", below))
    return found
