"""Directories as restores and comparisons see them, whether of a checkpoint or of the worktree."""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.trees.modes import DEFAULTS, OWN_NAME, child_name, parse_exceptions
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import DIRECTORY, LINK, TreeEntry, find_entry, mode_text, parse_tree

__all__ = [
    "UNRECORDED",
    "DirectoryView",
    "Key",
    "Mark",
    "StoredTree",
    "find_state",
    "find_states",
    "find_view",
    "link_above",
    "not_in_checkpoint",
]

Key = tuple[bytes, bytes | None]
"""A tree id, and the id of its tree of permission exceptions (empty: not recorded; None: no exceptions)."""

Mark = tuple[bytes, tuple[bytes, int | None]]
"""A blob's id, git's text for its mode, and permission bits that are an exception, if they are and are known."""

UNRECORDED: Final = b""

_PLAIN: Final = {mode: (mode_text(mode), None) for mode in (*DEFAULTS, LINK)}

_ELSEWHERE: Final = "ckpt ls PATH shows the checkpoints that changed a path"


class DirectoryView(Protocol):
    """One directory: what it holds, and a key that is equal only for equal content."""

    @property
    def key(self) -> Key:
        """Content and permission bits of everything below, as ids."""
        ...

    def files(self) -> dict[bytes, State]:
        """Give files and links by name."""
        ...

    def marks(self) -> dict[bytes, Mark]:
        """Give what files and links are known by, at less expense: where two marks are equal the states are, too."""
        ...

    def dirs(self) -> "dict[bytes, DirectoryView]":
        """Give directories by name."""
        ...

    def state(self) -> State:
        """Give the directory's own state."""
        ...

    def file(self, name: bytes) -> State | None:
        """Give one file or link, without looking at the others."""
        ...

    def dir(self, name: bytes) -> "DirectoryView | None":
        """Give one directory, without looking at the others."""
        ...


class StoredTree:
    """A directory of a checkpoint; trees are read when they are looked into.

    ``modes`` is the id of its permission exceptions: None for none, UNRECORDED where nobody knows (every State
    then has no permission bits).
    """

    __slots__ = ("_children", "_data", "_entries", "_exceptions", "_modes", "_objects", "_oid", "_perm")

    def __init__(self, objects: ObjectStore, oid: bytes, modes: bytes | None, perm: int | None = None) -> None:
        self._objects = objects
        self._oid = oid
        self._modes = modes
        self._perm = perm
        self._data: bytes | None = None
        self._entries: dict[bytes, TreeEntry] | None = None
        self._children: dict[bytes, StoredTree] = {}
        self._exceptions: tuple[dict[bytes, int], dict[bytes, bytes]] | None = None

    @property
    def key(self) -> Key:
        """The two ids."""
        return self._oid, self._modes

    def state(self) -> State:
        """A directory with its recorded bits."""
        return State(DIRECTORY, b"", self._perm)

    def files(self) -> dict[bytes, State]:
        """Files and links with their recorded bits."""
        return {name: self._file(name, entry) for name, entry in self._read().items() if entry.mode != DIRECTORY}

    def marks(self) -> dict[bytes, Mark]:
        """Files and links by id, kind and recorded bits."""
        plain = _PLAIN
        marks: dict[bytes, Mark] = {
            name: (oid, plain[mode]) for name, (mode, oid) in self._read().items() if mode != DIRECTORY
        }
        if self._modes:
            for name, perm in self._read_modes()[0].items():
                if name in marks:
                    oid, (text, _) = marks[name]
                    marks[name] = oid, (text, perm)
        return marks

    def dirs(self) -> dict[bytes, DirectoryView]:
        """Directories, not yet read."""
        return {name: self._dir(name, entry) for name, entry in self._read().items() if entry.mode == DIRECTORY}

    def file(self, name: bytes) -> State | None:
        """One file or link with its recorded bits."""
        entry = self._read().get(name)
        return None if entry is None or entry.mode == DIRECTORY else self._file(name, entry)

    def dir(self, name: bytes) -> DirectoryView | None:
        """One directory, not yet read."""
        entry = self._read().get(name)
        return None if entry is None or entry.mode != DIRECTORY else self._dir(name, entry)

    def look(self, name: bytes) -> "StoredTree | State | None":
        """One directory, file or link, or nothing, without judging the names beside it: for whoever writes none."""
        if self._entries is not None:
            entry = self._entries.get(name)
        else:
            self._data = self._load() if self._data is None else self._data
            entry = find_entry(self._data, name)
        if entry is None:
            return None
        return self._dir(name, entry) if entry.mode == DIRECTORY else self._file(name, entry)

    def _file(self, name: bytes, entry: TreeEntry) -> State:
        return State(entry.mode, entry.oid, self._perm_of(entry.mode, name))

    def _dir(self, name: bytes, entry: TreeEntry) -> "StoredTree":
        found = self._children.get(name)
        if found is None:
            modes = UNRECORDED if self._modes == UNRECORDED else self._read_modes()[1].get(name)
            found = StoredTree(self._objects, entry.oid, modes, self._perm_of(DIRECTORY, name))
            self._children[name] = found
        return found

    def _perm_of(self, mode: int, name: bytes) -> int | None:
        if self._modes == UNRECORDED:
            return None
        recorded = self._read_modes()[0].get(name)
        return recorded if recorded is not None else DEFAULTS.get(mode)

    def _read(self) -> dict[bytes, TreeEntry]:
        if self._entries is None:
            self._entries = parse_tree(self._load())
        return self._entries

    def _load(self) -> bytes:
        # The empty tree is known to git without being stored.
        return b"" if self._oid == EMPTY_TREE else self._objects.read(self._oid, b"tree")

    def _read_modes(self) -> tuple[dict[bytes, int], dict[bytes, bytes]]:
        if self._exceptions is None:
            self._exceptions = ({}, {}) if not self._modes else self._load_modes(self._modes)
        return self._exceptions

    def _load_modes(self, oid: bytes) -> tuple[dict[bytes, int], dict[bytes, bytes]]:
        entries = parse_tree(self._objects.read(oid, b"tree"))
        own = entries.pop(OWN_NAME, None)
        perms = {} if own is None else parse_exceptions(self._objects.read(own.oid, b"blob"))
        children = {name[len(child_name(b"")) :]: entry.oid for name, entry in entries.items()}
        return perms, children


def find_view(root: DirectoryView, path: bytes) -> DirectoryView | None:
    """Give the directory at a path (empty: the root), or None."""
    view: DirectoryView | None = root
    for name in path.split(b"/") if path else ():
        if view is None:
            return None
        view = view.dir(name)
    return view


def find_state(root: DirectoryView, path: bytes) -> State | None:
    """Give what stands at a path, or None.

    Raises DomainError ``store_damaged`` or ``object_missing`` where it cannot be known: never taken for nothing.
    """
    folder, name = _split(path)
    return _state_in(find_view(root, folder), name)


def find_states(root: DirectoryView, paths: Iterable[bytes]) -> Iterator[State | None]:
    """Give what stands at each of the paths, as find_state(); best where those of a directory come together."""
    view: DirectoryView | None = root
    known = b""
    for path in paths:
        folder, name = _split(path)
        if folder != known:
            known, view = folder, find_view(root, folder)
        yield _state_in(view, name)


def _split(path: bytes) -> tuple[bytes, bytes]:
    if not path:
        raise DomainError("bad_path", "the worktree itself is not one of its paths")
    folder, _, name = path.rpartition(b"/")
    return folder, name


def _state_in(view: DirectoryView | None, name: bytes) -> State | None:
    if view is None:
        return None
    found = view.file(name)
    if found is not None:
        return found
    child = view.dir(name)
    return None if child is None else child.state()


def link_above(root: DirectoryView, path: bytes) -> bytes | None:
    """Give the link that a path would lead through, or None."""
    view: DirectoryView | None = root
    names = path.split(b"/")
    for depth, name in enumerate(names[:-1], 1):
        found = view.file(name) if view is not None else None
        if found is not None:
            return b"/".join(names[:depth]) if found.mode == LINK else None
        view = view.dir(name) if view is not None else None
    return None


def not_in_checkpoint(root: DirectoryView, path: bytes, name: str, hint: str = _ELSEWHERE) -> DomainError:
    """Give the error for a path that checkpoint ``name`` lacks: ``path_not_in_checkpoint``.

    ``beyond_symlink`` where a link of the checkpoint is why: it has the file under another path, if at all.
    """
    link = link_above(root, path)
    if link is None:
        text = f"{to_text(path)} is not in checkpoint {name}"
        return DomainError("path_not_in_checkpoint", text, hint=hint, paths=(path,))
    return DomainError(
        "beyond_symlink",
        f"{to_text(path)} is beyond a symbolic link: {to_text(link)} is one in checkpoint {name}",
        hint="give the path that the link leads to, if that is in the worktree, or the link itself",
        paths=(path,),
    )
