"""Checking what a store holds beside objects and refs: metadata, the operation log, and what can be derived again."""

import os
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.durable import read_derived
from ckptd.shadow.objects.refs import CHECKPOINTS, Refs, seq_name
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import load_checkpoint
from ckptd.shadow.record.living import known_checkpoints
from ckptd.shadow.record.oplog import Intent, Mark, Outcome
from ckptd.shadow.scan.modelfile import load_model
from ckptd.shadow.store.metadata import read_metadata

__all__ = ["check_records", "check_refs"]

_HEAD: Final = re.compile(rb"(ref: refs/\S+|[0-9a-f]{40})\n?")


def check_records(folder: bytes, notes: list[str]) -> Iterator[tuple[bytes, str]]:
    """Give each damaged file and what is wrong with it; what can be derived again goes to ``notes``."""
    try:
        read_metadata(folder)
    except DomainError as error:
        yield b"ckpt/metadata.json", error.message
    _, damaged = _read_log(folder)
    if damaged:
        yield b"ckpt/log", f"{damaged} lines cannot be read; operations that stood in them cannot be undone"
    path = os.path.join(folder, b"ckpt", b"model")
    model = read_derived(path)
    if (model is None and os.path.lexists(path)) or (model is not None and load_model(model) is None):
        notes.append("ckpt/model: damaged or of another version; the next save makes it anew")
    head = read_derived(os.path.join(folder, b"HEAD"))
    if head is None or not _HEAD.fullmatch(head):
        notes.append("HEAD: damaged; it is set again from the operation log when the store is opened")


def check_refs(folder: bytes, refs: Refs, objects: ObjectStore) -> Iterator[tuple[bytes, str]]:
    """Give the refs that are gone, of checkpoints that the log knows and nobody has dropped."""
    for one in sorted(_without_ref(folder, refs)):
        # What is dropped or saved while one looks is told apart by a second look.
        if one in _without_ref(folder, refs) and bytes.fromhex(one) in objects:
            try:
                seq = load_checkpoint(objects, bytes.fromhex(one)).facts.seq
            except DomainError:
                continue
            yield CHECKPOINTS + seq_name(seq), "it is gone, and nobody dropped it; ckpt gc makes it anew"


def _without_ref(folder: bytes, refs: Refs) -> set[str]:
    lines, _ = _read_log(folder)
    # In this order, one line of an operation stands for all of them, as in the log that is open.
    intents = {line.n: line for line in lines if isinstance(line, Intent)}
    outcomes = {line.n: line for line in lines if isinstance(line, Outcome)}
    named = {oid.decode("ascii") for oid in refs.checkpoints().values()}
    if refs.checkpoint_names() - refs.checkpoints().keys():
        # One that cannot be read is told of by its own file.
        return set()
    return set(known_checkpoints(intents.values(), outcomes).living - named)


def _read_log(folder: bytes) -> tuple[list[Intent | Outcome | Mark], int]:
    """Give the records of the log, and how many lines are none; its very end may be in the making."""
    path = os.path.join(folder, b"ckpt", b"log")
    decoder = msgspec.json.Decoder(Intent | Outcome | Mark)
    records: list[Intent | Outcome | Mark] = []
    damaged = 0
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    try:
                        records.append(decoder.decode(line))
                    except msgspec.MsgspecError:
                        damaged += 1
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise from_os_error(error, "read the operation log", path) from error
    return records, damaged
