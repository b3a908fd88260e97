"""Proving, before a restore's first write, that everything it is going to write can be written.

Missing or damaged content is never taken for absent, and never found when half of the files are written.
"""

import threading
from collections.abc import Iterable, Iterator
from typing import Final

from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import CHUNK_BYTES
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.restore.stage import is_link_target
from ckptd.shadow.scan.exclusion import Exclusion
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.tree import LINK

__all__ = ["DAMAGE", "HELD_BYTES", "Proved", "unwritable"]

DAMAGE: Final = frozenset({"object_missing", "store_damaged"})
_MAX_NAME_BYTES: Final = 255
HELD_BYTES: Final = 32 * 1024 * 1024
"""As much of what has been proved is kept in memory until it is written."""
_SMALL_BYTES: Final = CHUNK_BYTES


class Proved:
    """The content that a restore is going to write: read once, proved, and held as long as it is small.

    Up to ``most_bytes`` of blobs are held; the others are read again when they are written, and proved again. Content
    may be asked for by several threads at once, of objects that are used by one at a time.
    """

    def __init__(self, objects: ObjectStore, most_bytes: int = HELD_BYTES) -> None:
        self._objects: Final = objects
        self._reading: Final = threading.Lock()
        self._left_bytes = most_bytes
        self._held: Final[dict[bytes, bytes]] = {}
        self._sizes: Final[dict[bytes, int]] = {}

    def prove(self, oid: bytes) -> bytes:
        """Read a blob and give how it begins; raises DomainError as ObjectStore.chunks() does."""
        data = self._objects.whole(oid, _SMALL_BYTES)
        if data is None:
            start = b""
            for chunk in self._objects.chunks(oid):
                start = start or chunk
            return start
        self._sizes[oid] = len(data)
        if len(data) <= self._left_bytes:
            self._left_bytes -= len(data)
            self._held[oid] = data
        return data

    def chunks(self, oid: bytes) -> Iterable[bytes]:
        """Give a blob's content in pieces; raises DomainError as ObjectStore.chunks() does."""
        held = self._held.get(oid)
        return self._read_again(oid) if held is None else (held,)

    def _read_again(self, oid: bytes) -> Iterator[bytes]:
        pieces = iter(self._objects.chunks(oid))
        while True:
            # What is begun stays readable between two pieces, whatever else is read meanwhile.
            with self._reading:
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def size(self, oid: bytes) -> int:
        """Give the size of a blob in bytes; raises DomainError ``object_missing``."""
        known = self._sizes.get(oid)
        return self._objects.size(oid) if known is None else known


def unwritable(steps: Iterable[Step], content: Proved, asker: Asker) -> list[Exclusion]:
    """Give the steps that cannot be done, and why: all content is read and its hash checked.

    The reasons are ``object_missing``, ``store_damaged``, ``bad_link`` (no link can have this target) and
    ``bad_name`` (no file system takes it). Raises DomainError ``cancelled``, and what is no fault of one object.
    """
    proof = _Proof(content)
    found = []
    for step in steps:
        asker.check("restore")
        problem = proof.problem(step)
        if problem is not None:
            found.append(problem)
    return found


class _Proof:
    def __init__(self, content: Proved) -> None:
        self._content = content
        self._known: dict[tuple[bytes, bool], tuple[str, str] | None] = {}

    def problem(self, step: Step) -> Exclusion | None:
        after = step.after
        if after is None:
            return None
        if len(step.path.rpartition(b"/")[2]) > _MAX_NAME_BYTES:
            return Exclusion(step.path, "bad_name", "its name is too long for a file system")
        if after.is_dir or (step.before is not None and step.before.oid == after.oid):
            return None
        key = (after.oid, after.mode == LINK)
        if key not in self._known:
            self._known[key] = self._content_problem(after)
        told = self._known[key]
        return None if told is None else Exclusion(step.path, *told)

    def _content_problem(self, after: State) -> tuple[str, str] | None:
        try:
            start = self._content.prove(after.oid)
        except DomainError as error:
            if error.kind not in DAMAGE:
                raise
            return error.kind, error.message
        if after.mode == LINK and not is_link_target(start):
            return "bad_link", "the target of this link can't stand in a file system"
        return None
