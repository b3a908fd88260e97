"""Checking what a store holds beside objects and refs: metadata, the operation log, and what can be derived again."""

import os
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.durable import read_if_there
from ckptd.shadow.record.oplog import Intent, Mark, Outcome
from ckptd.shadow.scan.model import load_model
from ckptd.shadow.store.metadata import read_metadata

__all__ = ["check_records"]

_HEAD: Final = re.compile(rb"(ref: refs/\S+|[0-9a-f]{40})\n?")


def check_records(folder: bytes, notes: list[str]) -> Iterator[tuple[bytes, str]]:
    """Give each damaged file and what is wrong with it; what can be derived again goes to ``notes``."""
    try:
        read_metadata(folder)
    except DomainError as error:
        yield b"ckpt/metadata.json", error.message
    damaged = _damaged_lines(os.path.join(folder, b"ckpt", b"log"))
    if damaged:
        yield b"ckpt/log", f"{damaged} lines cannot be read; operations that stood in them cannot be undone"
    model = read_if_there(os.path.join(folder, b"ckpt", b"model"))
    if model is not None and load_model(model) is None:
        notes.append("ckpt/model: damaged or of another version; the next save makes it anew")
    head = read_if_there(os.path.join(folder, b"HEAD"))
    if head is None or not _HEAD.fullmatch(head):
        notes.append("HEAD: damaged; it is set again from the operation log when the store is opened")


def _damaged_lines(path: bytes) -> int:
    """Count the lines of the log that are not records; its very end may be in the making."""
    decoder = msgspec.json.Decoder(Intent | Outcome | Mark)
    damaged = 0
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    damaged += not _is_record(decoder, line)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise from_os_error(error, "read the operation log", path) from error
    return damaged


def _is_record(decoder: "msgspec.json.Decoder[Intent | Outcome | Mark]", line: bytes) -> bool:
    try:
        decoder.decode(line)
    except msgspec.MsgspecError:
        return False
    return True
