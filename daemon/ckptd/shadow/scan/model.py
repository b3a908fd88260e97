"""The tree model: what the last scan saw, a node a directory, and the object ids that follow from it."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from ckptd.shadow.scan.boot import UNKNOWN, Written
from ckptd.shadow.scan.entry import OID, doubted, state_of
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import DIRECTORY
from ckptd.shadow.trees.view import DirectoryView, Key

__all__ = ["DirNode", "dump_model", "iter_nodes", "load_model", "pack_nodes", "seal_records", "without_lost"]

_FORMAT: Final = 2
_CHECK_BYTES: Final = 20

_NONE: Final[frozenset[bytes]] = frozenset()

# A system writes to its disk what is older than half a minute; one that saves power, than ten.
_FLUSHED_NS: Final = 660_000_000_000


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
        self.entries = entries
        self.children = children
        # Most directories have none: the same one for all of them.
        self.ignored = ignored or _NONE
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


class _Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: bytes
    child_count: int
    perm: int
    tree: bytes
    modes: bytes | None
    ignored: list[bytes]
    entries: dict[bytes, bytes]


class _File(msgspec.Struct, frozen=True, array_like=True):
    """``records`` are _Record: packed one by one, for packing all at once would lock the interpreter for too long."""

    format: int
    fingerprint: bytes
    records: list[msgspec.Raw]
    boot: bytes = b""
    written_ns: int = 0


def dump_model(root: DirNode, fingerprint: bytes, written: Written = UNKNOWN) -> bytes:
    """Give the file form of a model; ``fingerprint`` tells which packs its ids rest on."""
    return seal_records(list(pack_nodes(root)), fingerprint, written)


def pack_nodes(root: DirNode) -> Iterator[msgspec.Raw]:
    """Give the records of the file form one by one: packing all takes long where there are many."""
    pack = msgspec.msgpack.Encoder().encode
    for name, node in _post_order(root):
        record = _Record(name, len(node.children), node.perm, node.tree, node.modes, sorted(node.ignored), node.entries)
        yield msgspec.Raw(pack(record))


def seal_records(records: list[msgspec.Raw], fingerprint: bytes, written: Written = UNKNOWN) -> bytes:
    """Give the file form of all records of a model; ``written`` is when the first of them was packed."""
    body = msgspec.msgpack.encode(_File(_FORMAT, fingerprint, records, *written))
    # A tree made from a flipped bit would be wrong for ever: nothing else would notice it.
    return hashlib.sha1(body, usedforsecurity=False).digest() + body


def load_model(data: bytes, boot: bytes = b"") -> tuple[DirNode, bytes] | None:
    """Read the file form; None for one of another format or a damaged one, since a scan makes it anew.

    ``boot`` is the run of the system. Where the model is of another one, what had changed shortly before it was
    written is to be read again: if the power was cut, the times of such a file may be on disk, and its content not.
    """
    body = memoryview(data)[_CHECK_BYTES:]
    if hashlib.sha1(body, usedforsecurity=False).digest() != data[:_CHECK_BYTES]:
        return None
    try:
        file = msgspec.msgpack.decode(body, type=_File)
        if file.format != _FORMAT:
            return None
        doubt_ns = file.written_ns - _FLUSHED_NS if boot and file.boot and boot != file.boot else None
        root = _unpack(file.records, doubt_ns)
    except msgspec.MsgspecError:
        return None
    return (root, file.fingerprint) if root is not None else None


def _unpack(records: list[msgspec.Raw], doubt_ns: int | None) -> DirNode | None:
    """Make the nodes of packed records; None where they are no tree. Raises MsgspecError."""
    unpack = msgspec.msgpack.Decoder(_Record).decode
    stack: list[tuple[bytes, DirNode]] = []
    for record in map(unpack, records):
        if record.child_count > len(stack):
            return None
        split = len(stack) - record.child_count
        children = dict(stack[split:])
        del stack[split:]
        # No basis: the ignore files are looked at again by the first scan.
        entries = record.entries
        if doubt_ns is not None:
            entries = {name: doubted(entry, doubt_ns) for name, entry in entries.items()}
        node = DirNode(entries, children, frozenset(record.ignored), record.perm, record.tree, record.modes, None)
        stack.append((record.name, node))
    return stack[0][1] if len(stack) == 1 else None


def without_lost(root: DirNode, has: Callable[[bytes], bool]) -> DirNode:
    """Give the model without what rests on objects that the store does not have.

    Such files are read again by the next scan, and trees written again, which heals the store.
    """
    done: list[tuple[bytes, DirNode]] = []
    for name, node in _post_order(root):
        split = len(done) - len(node.children)
        children = dict(done[split:])
        del done[split:]
        entries = {key: entry for key, entry in node.entries.items() if has(entry[OID])}
        whole = len(entries) == len(node.entries) and all(children[key] is node.children[key] for key in children)
        if not whole or not node.tree or not has(node.tree) or (node.modes and not has(node.modes)):
            node = DirNode(entries, children, node.ignored, node.perm, b"", b"", node.basis)
        done.append((name, node))
    return done[0][1]


def _post_order(root: DirNode) -> Iterator[tuple[bytes, DirNode]]:
    """Give nodes with their names, children (in the order of their dict) before parents."""
    stack: list[tuple[bytes, DirNode, bool]] = [(b"", root, False)]
    while stack:
        name, node, expanded = stack.pop()
        if expanded or not node.children:
            yield name, node
            continue
        stack.append((name, node, True))
        stack.extend((key, child, False) for key, child in reversed(node.children.items()))
