"""What objects refer to, whoever wrote them: checkpoints are ours, but a store may hold what others put there."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.objects.store import ObjectStore

__all__ = ["Link", "Reach", "info_named", "links"]

_HEADER: Final = re.compile(rb"(tree|parent|object|type) (\S+)")
_INFO: Final = re.compile(rb"^Ckpt-Info: ([0-9a-f]{40})$", re.MULTILINE)
_FOLDER: Final = b"40000"
_FOREIGN_COMMIT: Final = b"160000"


class Link(NamedTuple):
    """A reference to an object: its kind and its id."""

    kind: bytes
    oid: bytes


def links(kind: bytes, data: bytes) -> Iterator[Link]:
    """Give what an object refers to; raises ValueError where it is malformed.

    A checkpoint also refers to the info commit that its message names, whether that has a ref or not.
    """
    if kind == b"tree":
        yield from _of_tree(data)
    elif kind in (b"commit", b"tag"):
        yield from _of_header(kind, data)


def _of_tree(data: bytes) -> Iterator[Link]:
    at = 0
    while at < len(data):
        space, zero = data.index(b" ", at), data.index(b"\0", at)
        oid = data[zero + 1 : zero + 21]
        if len(oid) < 20:
            raise ValueError("cut")
        mode = data[at:space]
        if mode != _FOREIGN_COMMIT:
            yield Link(b"tree" if mode in (_FOLDER, b"0" + _FOLDER) else b"blob", oid)
        at = zero + 21


def _of_header(kind: bytes, data: bytes) -> Iterator[Link]:
    header, _, text = data.partition(b"\n\n")
    found = filter(None, map(_HEADER.fullmatch, header.split(b"\n")))
    fields: list[tuple[bytes, bytes]] = [(match[1], match[2]) for match in found]
    if kind == b"tag":
        named = dict(fields)
        yield Link(named.get(b"type", b""), bytes.fromhex(named.get(b"object", b"").decode("ascii")))
        return
    for name, value in fields:
        if name in (b"tree", b"parent"):
            yield Link(b"tree" if name == b"tree" else b"commit", bytes.fromhex(value.decode("ascii")))
    info = _info_in(text)
    if info is not None:
        yield Link(b"commit", info)


def info_named(commit: bytes) -> bytes | None:
    """Give the id of the info commit that a checkpoint's bytes name."""
    return _info_in(commit.partition(b"\n\n")[2])


def _info_in(text: bytes) -> bytes | None:
    # Only what follows the last blank line is ours, and not the user's.
    match = _INFO.search(text.rpartition(b"\n\n")[2])
    return None if match is None else bytes.fromhex(match[1].decode("ascii"))


class Reach:
    """Walks from references to all objects that they need, each once.

    ``seen`` are the ids that are needed; ``lost`` those of them that are missing or damaged, with their kind, of which
    ``senseless`` can be read but mean nothing.
    ``has_blob`` tells whether a blob is there: blobs are not read by the walk itself.
    """

    def __init__(self, objects: ObjectStore, has_blob: Callable[[bytes], bool] | None = None) -> None:
        self.seen: Final[set[bytes]] = set()
        self.lost: Final[dict[bytes, bytes]] = {}
        self.senseless: Final[set[bytes]] = set()
        self._objects = objects
        self._has_blob = has_blob or objects.__contains__

    def walk(self, roots: Iterable[Link]) -> Iterator[int]:
        """Go on from these; gives after each object that was read how many are seen."""
        stack = list(roots)
        while stack:
            link = stack.pop()
            if link.oid in self.seen:
                continue
            self.seen.add(link.oid)
            if link.kind == b"blob":
                if not self._has_blob(link.oid):
                    self.lost[link.oid] = link.kind
                continue
            stack.extend(self.follow(link))
            yield len(self.seen)

    def follow(self, link: Link) -> list[Link]:
        """Give what an object refers to; nothing, and it is noted, where it cannot be read."""
        try:
            if link.oid == EMPTY_TREE:
                return []
            return list(links(link.kind, self._objects.read_own(link.oid, link.kind)))
        except (DomainError, ValueError) as error:
            if isinstance(error, DomainError) and error.kind not in ("object_missing", "store_damaged"):
                raise
            self.lose(link, senseless=isinstance(error, ValueError))
            return []

    def lose(self, link: Link, *, senseless: bool) -> None:
        """Count an object as lost."""
        self.lost[link.oid] = link.kind
        if senseless:
            self.senseless.add(link.oid)

    def root(self, oid: bytes) -> Link:
        """Find out what a ref points to: most are commits."""
        for kind in (b"commit", b"tag", b"tree", b"blob"):
            if self._objects.is_readable(oid, kind):
                return Link(kind, oid)
        return Link(b"commit", oid)
