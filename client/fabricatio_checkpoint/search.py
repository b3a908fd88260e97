"""What a search finds: checkpoints that add or remove a text, and where."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from fabricatio_checkpoint.record import CheckpointRecord, path_text

__all__ = ["Occurrences", "SearchHit", "SearchPage"]

Wire = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Occurrences:
    """A path and how often the text is in it: ``before`` in what the checkpoint is compared with, ``after`` in it."""

    path: str
    before: int
    after: int

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        return cls(path_text(wire["path"]), wire["before"], wire["after"])


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A checkpoint and the paths where the text became more or less, sorted; ``left_out`` more are not listed."""

    checkpoint: CheckpointRecord
    paths: tuple[Occurrences, ...]
    left_out: int = 0

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        paths = tuple(Occurrences.from_wire(each) for each in wire["paths"])
        return cls(CheckpointRecord.from_wire(wire["checkpoint"]), paths, wire.get("left_out", 0))


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One answer of the daemon; ``next_seq`` is where to go on, None at the end. ``missed``: what cannot be read."""

    hits: tuple[SearchHit, ...]
    next_seq: int | None
    missed: int

    @classmethod
    def from_wire(cls, wire: Wire) -> Self:
        """Read the wire's form."""
        hits = tuple(SearchHit.from_wire(each) for each in wire["hits"])
        return cls(hits, wire["next_seq"], wire.get("damaged", 0) + wire.get("unread", 0))
