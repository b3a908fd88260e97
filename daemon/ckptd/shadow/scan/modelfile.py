"""The file form of a model: a checksum after a zlib stream of messages, each a length of four bytes and MessagePack.

The first message says what it is of; the others hold the nodes, children before parents, many small ones in one.
Names, times and inodes of neighbours are alike: compressed it takes half the space.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ckptd.shadow.objects.pieces import Pieces
from ckptd.shadow.scan.boot import UNKNOWN, Written
from ckptd.shadow.scan.entry import doubted
from ckptd.shadow.scan.model import DirNode, post_order

__all__ = ["FORMAT", "checking_model", "dump_model", "load_model", "pack_model"]

FORMAT: Final = 3
_CHECK_BYTES: Final = 20
_LENGTH: Final = struct.Struct(">I")
_GROUP_ENTRIES: Final = 256
_PIECE_BYTES: Final = 1 << 16
_LEVEL: Final = 1

# A system writes to its disk what is older than half a minute; one that saves power, than ten.
_FLUSHED_NS: Final = 660_000_000_000


class _Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: bytes
    child_count: int
    perm: int
    tree: bytes
    modes: bytes | None
    ignored: list[bytes]
    entries: dict[bytes, bytes]


class _Head(msgspec.Struct, frozen=True, array_like=True):
    format: int
    fingerprint: bytes
    boot: bytes = b""
    written_ns: int = 0


def dump_model(root: DirNode, fingerprint: bytes, written: Written = UNKNOWN) -> bytes:
    """Give the file form of a model; as pack_model()."""
    return b"".join(pack_model(root, fingerprint, written))


def pack_model(root: DirNode, fingerprint: bytes, written: Written = UNKNOWN) -> Iterator[bytes]:
    """Give the file form of a model in pieces, some of them empty: each is made of a bounded part of the model.

    ``fingerprint`` tells which packs its ids rest on, ``written`` is when the first piece is asked for.
    """
    packer = zlib.compressobj(_LEVEL)
    digest = hashlib.sha1(usedforsecurity=False)
    for message in _messages(root, _Head(FORMAT, fingerprint, *written)):
        framed = _LENGTH.pack(len(message)) + message
        for at in range(0, len(framed), _PIECE_BYTES):
            piece = packer.compress(framed[at : at + _PIECE_BYTES])
            digest.update(piece)
            yield piece
    end = packer.flush()
    digest.update(end)
    # A tree made from a flipped bit would be wrong for ever: nothing else would notice it.
    yield end + digest.digest()


def _messages(root: DirNode, head: _Head) -> Iterator[bytes]:
    pack = msgspec.msgpack.Encoder().encode
    yield pack(head)
    for group in _groups(root):
        yield pack(group)


def _groups(root: DirNode) -> Iterator[list[_Record]]:
    group: list[_Record] = []
    size = 0
    for name, node in post_order(root):
        ignored = sorted(node.ignored)
        group.append(_Record(name, len(node.children), node.perm, node.tree, node.modes, ignored, node.entries))
        size += 1 + len(node.entries) + len(ignored)
        if size >= _GROUP_ENTRIES:
            yield group
            group, size = [], 0
    if group:
        yield group


def load_model(data: bytes, boot: bytes = b"") -> tuple[DirNode, bytes] | None:
    """Read the file form: the root and the fingerprint. None where it is damaged or of another format.

    A scan makes it anew then. ``boot`` is the run of the system. Where the model is of another one, what had changed
    shortly before it was written is to be read again: if the power was cut, the times of such a file may be on disk,
    and its content not.
    """
    try:
        opened = _open(data)
        if opened is None:
            return None
        head, messages = opened
        doubt_ns = head.written_ns - _FLUSHED_NS if boot and head.boot and boot != head.boot else None
        root = _unpack(_records(messages), doubt_ns)
    except (msgspec.MsgspecError, zlib.error):
        return None
    return (root, head.fingerprint) if root is not None else None


def checking_model(data: bytes) -> Pieces[bool]:
    """Tell in pieces whether load_model() can read this; no more than a few records of it are held at a time."""
    depth = 0
    try:
        opened = _open(data)
        for record in _records(opened[1]) if opened is not None else ():
            if not 0 <= record.child_count <= depth:
                return False
            depth += 1 - record.child_count
            yield False
    except (msgspec.MsgspecError, zlib.error):
        return False
    return depth == 1


def _open(data: bytes) -> tuple[_Head, Iterator[memoryview]] | None:
    """Give what a model begins with, and what follows; None, MsgspecError and zlib.error tell that it is none."""
    view = memoryview(data)
    if hashlib.sha1(view[:-_CHECK_BYTES], usedforsecurity=False).digest() != data[-_CHECK_BYTES:]:
        return None
    messages = _split(zlib.decompress(view[:-_CHECK_BYTES]))
    head = msgspec.msgpack.decode(next(messages, b""), type=_Head)
    return (head, messages) if head.format == FORMAT else None


def _split(data: bytes) -> Iterator[memoryview]:
    """Give the messages; an end that is cut is given as it is, and is no MessagePack."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        length = int.from_bytes(view[at : at + _LENGTH.size])
        at += _LENGTH.size
        yield view[at : at + length]
        at += length


def _records(messages: Iterable[memoryview]) -> Iterator[_Record]:
    unpack = msgspec.msgpack.Decoder(list[_Record]).decode
    for message in messages:
        yield from unpack(message)


def _unpack(records: Iterable[_Record], doubt_ns: int | None) -> DirNode | None:
    """Make the nodes of records; None where they are no tree. Raises what the records raise."""
    stack: list[tuple[bytes, DirNode]] = []
    for record in records:
        if not 0 <= record.child_count <= len(stack):
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
