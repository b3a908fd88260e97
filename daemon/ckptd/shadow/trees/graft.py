"""Putting single paths into a tree that lacks them: how a safety checkpoint holds what rules leave out."""

from collections.abc import Mapping

from ckptd.shadow.objects.pack import ObjectSink
from ckptd.shadow.trees.modes import format_exceptions, is_exception, modes_tree
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import DIRECTORY, TreeEntry, format_tree
from ckptd.shadow.trees.view import DirectoryView, Key

__all__ = ["graft"]

_Nested = dict[bytes, "State | _Branch"]


class _Branch:
    """A directory that gains something."""

    __slots__ = ("inside", "state")

    def __init__(self) -> None:
        self.inside: _Nested = {}
        self.state: State | None = None


def graft(root: DirectoryView, additions: Mapping[bytes, State], sink: ObjectSink) -> Key:
    """Write the trees of ``root`` with ``additions`` in them; return the ids of the new root and its exceptions."""
    if not additions:
        return root.key
    top = _Branch()
    for path, state in sorted(additions.items()):
        branch = top
        *folders, name = path.split(b"/")
        for folder in folders:
            branch = _descend(branch, folder)
        if state.is_dir:
            _descend(branch, name).state = state
        else:
            branch.inside[name] = state
    return _write(top, root, sink)


def _descend(branch: _Branch, name: bytes) -> _Branch:
    found = branch.inside.get(name)
    if not isinstance(found, _Branch):
        found = branch.inside[name] = _Branch()
    return found


def _write(branch: _Branch, view: DirectoryView | None, sink: ObjectSink) -> Key:
    files = dict(view.files()) if view is not None else {}
    dirs = view.dirs() if view is not None else {}
    keys = {name: child.key for name, child in dirs.items()}
    perms = {name: child.state().perm for name, child in dirs.items()}
    for name, addition in branch.inside.items():
        if isinstance(addition, _Branch):
            files.pop(name, None)
            keys[name] = _write(addition, dirs.get(name), sink)
            if addition.state is not None:
                perms[name] = addition.state.perm
        else:
            keys.pop(name, None)
            files[name] = addition
    tree = {name: TreeEntry(state.mode, state.oid) for name, state in files.items()}
    tree.update((name, TreeEntry(DIRECTORY, oid)) for name, (oid, _) in keys.items())
    return sink.add(b"tree", format_tree(tree)), _write_modes(files, keys, perms, sink)


def _write_modes(
    files: Mapping[bytes, State],
    keys: Mapping[bytes, Key],
    perms: Mapping[bytes, int | None],
    sink: ObjectSink,
) -> bytes | None:
    odd = {name: state.perm for name, state in files.items() if _is_odd(state.mode, state.perm)}
    odd.update((name, perms.get(name)) for name in keys if _is_odd(DIRECTORY, perms.get(name)))
    below = {name: modes for name, (_, modes) in keys.items() if modes}
    recorded = {name: perm for name, perm in odd.items() if perm is not None}
    if not recorded and not below:
        return None
    blob = sink.add(b"blob", format_exceptions(recorded)) if recorded else None
    return sink.add(b"tree", format_tree(modes_tree(blob, below)))


def _is_odd(mode: int, perm: int | None) -> bool:
    return perm is not None and is_exception(mode, perm)
