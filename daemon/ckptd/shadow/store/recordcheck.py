"""Checking what a store holds beside objects and refs: metadata, the operation log, and what can be derived again."""

import os
import re
from typing import Final

import msgspec

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.durable import read_derived
from ckptd.shadow.objects.pieces import Pieces
from ckptd.shadow.objects.refs import CHECKPOINTS, Refs, seq_name
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import load_checkpoint
from ckptd.shadow.record.living import known_checkpoints
from ckptd.shadow.record.oplog import Intent, Mark, Outcome
from ckptd.shadow.scan.modelfile import checking_model
from ckptd.shadow.store.metadata import read_metadata

__all__ = ["check_records", "check_refs"]

Flaw = tuple[bytes, str]
"""A damaged file, by its path below the store, and what is wrong with it."""

_HEAD: Final = re.compile(rb"(ref: refs/\S+|[0-9a-f]{40})\n?")


def check_records(folder: bytes, notes: list[str]) -> Pieces[list[Flaw]]:
    """Look in pieces which files are damaged; what can be derived again goes to ``notes``."""
    flaws: list[Flaw] = []
    try:
        read_metadata(folder)
    except DomainError as error:
        flaws.append((b"ckpt/metadata.json", error.message))
    _, damaged = yield from _reading_log(folder)
    if damaged:
        flaws.append((b"ckpt/log", f"{damaged} lines cannot be read; operations that stood in them cannot be undone"))
    if not (yield from _is_model_fine(os.path.join(folder, b"ckpt", b"model"))):
        notes.append("ckpt/model: damaged or of another version; the next save makes it anew")
    head = read_derived(os.path.join(folder, b"HEAD"))
    if head is None or not _HEAD.fullmatch(head):
        notes.append("HEAD: damaged; it is set again from the operation log when the store is opened")
    return flaws


def check_refs(folder: bytes, refs: Refs, objects: ObjectStore) -> Pieces[list[Flaw]]:
    """Look in pieces which refs are gone, of checkpoints that the log knows and nobody has dropped."""
    lost = yield from _without_ref(folder, refs)
    if lost:
        # What is dropped or saved while one looks is told apart by a second look.
        lost &= yield from _without_ref(folder, refs)
    flaws: list[Flaw] = []
    for one in sorted(lost):
        yield False
        if bytes.fromhex(one) in objects:
            try:
                seq = load_checkpoint(objects, bytes.fromhex(one)).facts.seq
            except DomainError:
                continue
            flaws.append((CHECKPOINTS + seq_name(seq), "it is gone, and nobody dropped it; ckpt gc makes it anew"))
    return flaws


def _is_model_fine(path: bytes) -> Pieces[bool]:
    """Tell whether there is none or it can be read."""
    model = read_derived(path)
    if model is None:
        return not os.path.lexists(path)
    return (yield from checking_model(model))


def _without_ref(folder: bytes, refs: Refs) -> Pieces[set[str]]:
    lines, _ = yield from _reading_log(folder)
    # In this order, one line of an operation stands for all of them, as in the log that is open.
    intents = {line.n: line for line in lines if isinstance(line, Intent)}
    outcomes = {line.n: line for line in lines if isinstance(line, Outcome)}
    named = {oid.decode("ascii") for oid in refs.checkpoints().values()}
    if refs.checkpoint_names() - refs.checkpoints().keys():
        # One that cannot be read is told of by its own file.
        return set()
    return set(known_checkpoints(intents.values(), outcomes).living - named)


def _reading_log(folder: bytes) -> Pieces[tuple[list[Intent | Outcome | Mark], int]]:
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
                yield False
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise from_os_error(error, "read the operation log", path) from error
    return records, damaged
