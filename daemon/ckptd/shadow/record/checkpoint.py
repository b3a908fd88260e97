"""A checkpoint as the store holds it: one commit without parents."""

import re
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from ckpt_protocol.structs import CheckpointRecord, Kind, Renamed
from ckptd.errors import DomainError
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.info import NO_INFO, Info, read_info, read_modes
from ckptd.shadow.record.message import Facts, format_message, parse_message
from ckptd.shadow.trees.view import UNRECORDED, Key, StoredTree

__all__ = [
    "Checkpoint",
    "format_checkpoint",
    "format_commit",
    "info_tree",
    "load_checkpoint",
    "load_info",
    "rfc3339",
    "root_key",
    "root_of",
]

_KINDS: Final[dict[str, Kind]] = {"manual": "manual", "auto": "auto", "safety": "safety"}
_IDENTITY: Final = "fabricatio-checkpoint <checkpoint@localhost>"
_HEADER: Final = re.compile(rb"tree ([0-9a-f]{40})\nauthor .* (\d{1,11}) \+0000\ncommitter .*\n\n")


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """``id`` and ``tree`` are 40 hex digits and 20 bytes; ``time_s`` is Unix time; ``legacy``: made by 0.3.6.

    Tens of thousands are remembered: the garbage collector need look at none of them.
    """

    id: str
    tree: bytes
    time_s: int
    text: str | None
    facts: Facts
    legacy: bool = False

    @property
    def kind(self) -> Kind:
        """What it was made as; what a later version made of it is as good as made by hand."""
        return _KINDS.get(self.facts.kind, "manual")

    def record(self, tags: list[str], renames: Sequence[Renamed] = ()) -> CheckpointRecord:
        """Give the form that lists show; ``renames`` are of the paths that a list follows."""
        facts = self.facts
        return CheckpointRecord(
            id=self.id,
            seq=facts.seq,
            time=rfc3339(self.time_s),
            kind=self.kind,
            message=self.text,
            tags=tags,
            meta=facts.meta,
            complete=facts.complete,
            scan="watched" if facts.scan == "watched" else "full",
            base=facts.base,
            client=facts.client,
            legacy=self.legacy,
            renames=list(renames),
        )


def rfc3339(time_s: int) -> str:
    """Give Unix time as RFC 3339 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s))


def format_commit(tree: bytes, time_s: int, message: bytes) -> bytes:
    """Give the bytes of a commit object: a fixed identity, no parent, UTC."""
    who = f"{_IDENTITY} {time_s} +0000"
    return f"tree {tree.hex()}\nauthor {who}\ncommitter {who}\n\n".encode() + message


def format_checkpoint(tree: bytes, time_s: int, text: str | None, facts: Facts) -> bytes:
    """Give the bytes of a checkpoint's commit."""
    return format_commit(tree, time_s, format_message(text, facts))


def load_checkpoint(objects: ObjectStore, oid: bytes) -> Checkpoint:
    """Read a checkpoint; raises DomainError ``object_missing`` or ``store_damaged``."""
    data = objects.read(oid, b"commit")
    match = _HEADER.match(data)
    if match is None:
        raise DomainError("store_damaged", f"commit {oid.hex()} is not a checkpoint")
    text, facts = parse_message(data[match.end() :])
    return Checkpoint(oid.hex(), bytes.fromhex(match[1].decode()), int(match[2]), text, facts)


def info_tree(objects: ObjectStore, checkpoint: Checkpoint) -> bytes | None:
    """Give the tree of the info that a checkpoint names, None where it names none; raises DomainError, ValueError."""
    if checkpoint.facts.info is None:
        return None
    match = _HEADER.match(objects.read(bytes.fromhex(checkpoint.facts.info), b"commit"))
    if match is None:
        raise DomainError("store_damaged", f"the info of checkpoint {checkpoint.id} is none")
    return bytes.fromhex(match[1].decode())


def load_info(objects: ObjectStore, checkpoint: Checkpoint) -> Info | None:
    """Read what is told beside a checkpoint: nothing if it names no info, None if the info it names is gone."""
    try:
        tree = info_tree(objects, checkpoint)
        return NO_INFO if tree is None else read_info(objects, tree)
    except (DomainError, ValueError):
        return None


def root_key(objects: ObjectStore, checkpoint: Checkpoint, modes: dict[bytes, bytes | None]) -> Key:
    """Give the key of a checkpoint's root directory, as root_of() has it, without reading more than that needs.

    ``modes`` remembers the permission exceptions by the tree of the info: most checkpoints have those of another.
    """
    try:
        tree = info_tree(objects, checkpoint)
        if tree is not None and tree not in modes:
            modes[tree] = read_modes(objects, tree)
    except (DomainError, ValueError):
        return checkpoint.tree, UNRECORDED
    return checkpoint.tree, None if tree is None else modes[tree]


def root_of(objects: ObjectStore, checkpoint: Checkpoint, info: Info | None) -> StoredTree:
    """Give the root directory of a checkpoint, permission bits included where they are known."""
    return StoredTree(objects, checkpoint.tree, UNRECORDED if info is None else info.modes)
