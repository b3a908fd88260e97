"""The tree model: what the last scan saw, a node a directory, and the object ids that follow from it."""

from collections.abc import Callable, Iterator
from typing import Final

from ckptd.shadow.scan.entry import KIND, KINDS, OID, state_of
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import DIRECTORY
from ckptd.shadow.trees.view import DirectoryView, Key, Mark

__all__ = ["DirNode", "iter_nodes", "new_nodes", "post_order", "without_lost"]

# Most directories have no directories or nothing ignored, and many no files: the same ones for all of them.
_NO_FILES: Final[dict[bytes, bytes]] = {}
_NO_CHILDREN: "Final[dict[bytes, DirNode]]" = {}
_NONE_IGNORED: Final[frozenset[bytes]] = frozenset()


class DirNode:
    """One directory. Never changed once a scan has finished it, so that old and new models share nodes.

    ``entries`` holds packed values of files and links by name (see ``entry``), ``children`` the directories;
    ``ignored`` the names that rules leave out, directories with a slash at the end; ``perm`` the directory's
    permission bits; ``tree`` its tree id, ``modes`` the id of its permission exceptions (None: none); both are
    empty where they have to be made again. ``files_below`` counts files and links. ``basis`` is what the ignored
    names were decided by: while it is the very same object, known names need no new decision.
    ``one_basis``: so were the directories below. ``sign`` is the directory's (see ``folder``) at a moment when its
    names were those of the node: alone of all it is set later, too, for it holds whatever comes of the scan that found
    it. It is only the place where no such moment is known, and empty where not even that is.
    """

    __slots__ = ("basis", "children", "entries", "files_below", "ignored", "modes", "one_basis", "perm", "sign", "tree")

    def __init__(
        self,
        entries: dict[bytes, bytes],
        children: "dict[bytes, DirNode]",
        ignored: frozenset[bytes],
        perm: int,
        tree: bytes,
        modes: bytes | None,
        basis: object,
        sign: bytes = b"",
    ) -> None:
        self.entries = entries or _NO_FILES
        self.children = children or _NO_CHILDREN
        self.ignored = ignored or _NONE_IGNORED
        self.perm = perm
        self.tree = tree
        self.modes = modes
        self.basis = basis
        self.sign = sign
        self.one_basis: bool = all(node.one_basis and node.basis is basis for node in children.values())
        self.files_below: int = len(entries) + sum([node.files_below for node in children.values()])

    @property
    def key(self) -> Key:
        """Content and permission bits of everything below, as ids."""
        return self.tree, self.modes

    def files(self) -> dict[bytes, State]:
        """Give files and links by name."""
        return {name: state_of(entry) for name, entry in self.entries.items()}

    def marks(self) -> dict[bytes, Mark]:
        """Give files and links by id and kind."""
        kinds = KINDS
        return {name: (entry[OID], kinds[entry[KIND]]) for name, entry in self.entries.items()}

    def dirs(self) -> dict[bytes, DirectoryView]:
        """Give directories by name."""
        return dict(self.children)

    def state(self) -> State:
        """Give the directory's own state."""
        return State(DIRECTORY, b"", self.perm)

    def file(self, name: bytes) -> State | None:
        """Give one file or link."""
        entry = self.entries.get(name)
        return None if entry is None else state_of(entry)

    def dir(self, name: bytes) -> DirectoryView | None:
        """Give one directory."""
        return self.children.get(name)


def iter_nodes(root: DirNode) -> Iterator[tuple[bytes, DirNode]]:
    """Give each directory's path and node, parents before children."""
    stack = [(b"", root)]
    while stack:
        path, node = stack.pop()
        yield path, node
        prefix = path + b"/" if path else b""
        stack.extend((prefix + name, child) for name, child in node.children.items())


def new_nodes(root: DirNode, before: DirNode | None) -> Iterator[DirNode]:
    """Give the nodes of a model that an earlier one has not at the same path, which may be none."""
    stack: list[tuple[DirNode, DirNode | None]] = [(root, before)]
    while stack:
        node, old = stack.pop()
        if node is not old:
            yield node
            known = old.children if old is not None else {}
            stack.extend((child, known.get(name)) for name, child in node.children.items())


def without_lost(root: DirNode, has: Callable[[bytes], bool]) -> DirNode:
    """Give the model without what rests on objects that the store does not have.

    Such files are read again by the next scan, and trees written again, which heals the store.
    """
    done: list[tuple[bytes, DirNode]] = []
    for name, node in post_order(root):
        split = len(done) - len(node.children)
        children = dict(done[split:])
        del done[split:]
        entries = {key: entry for key, entry in node.entries.items() if has(entry[OID])}
        whole = len(entries) == len(node.entries) and all(children[key] is node.children[key] for key in children)
        if not whole or not node.tree or not has(node.tree) or (node.modes and not has(node.modes)):
            node = DirNode(entries, children, node.ignored, node.perm, b"", b"", node.basis)
        done.append((name, node))
    return done[0][1]


def post_order(root: DirNode) -> Iterator[tuple[bytes, DirNode]]:
    """Give nodes with their names, children (in the order of their dict) before parents."""
    stack: list[tuple[bytes, DirNode, bool]] = [(b"", root, False)]
    while stack:
        name, node, expanded = stack.pop()
        if expanded or not node.children:
            yield name, node
            continue
        stack.append((name, node, True))
        stack.extend((key, child, False) for key, child in reversed(node.children.items()))
