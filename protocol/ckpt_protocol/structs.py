"""Parts that the Structs of several methods share."""

from typing import Annotated, Literal

import msgspec

from ckpt_protocol import wirepath

__all__ = [
    "END",
    "Change",
    "ChangeKind",
    "CheckpointRecord",
    "Chunk",
    "LeftOut",
    "Part",
    "PathB64",
    "Renamed",
    "Request",
    "Result",
    "Stats",
    "WirePath",
    "Worktree",
    "from_wire",
    "to_wire",
]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what a client sends: an unknown field is refused, never passed over."""


class Request(Part, frozen=True, kw_only=True):
    """Base of params.

    ``deadline_s``: after so many seconds without an answer the request is called off where that can be, and answered
    with ``deadline_exceeded``; None and nothing: it may take as long as it does.
    """

    deadline_s: Annotated[float, msgspec.Meta(gt=0)] | msgspec.UnsetType | None = msgspec.UNSET


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Base of results: a reader passes over fields that it does not know, so that fields can be added."""


class PathB64(Part, frozen=True, kw_only=True):
    """A name that is not UTF-8, as canonical base64 of its bytes."""

    b64: str


WirePath = str | PathB64

# "$" of Python's patterns also stands before a last line feed; this end is the end in every dialect.
END = r"(?![\s\S])"
Token = Annotated[str, msgspec.Meta(pattern=f"^[0-9a-f]{{32}}{END}", description="128 random bits made by the client")]
Natural = Annotated[int, msgspec.Meta(ge=0)]
Decimal = Annotated[
    str, msgspec.Meta(pattern=f"^(0|[1-9][0-9]{{0,19}}){END}", description="an unsigned 64-bit integer")
]


def to_wire(path: bytes) -> WirePath:
    """Give the wire form of the bytes of a path."""
    value = wirepath.encode(path)
    return value if isinstance(value, str) else PathB64(b64=value["b64"])


def from_wire(path: WirePath) -> bytes:
    """Give the bytes of a wire path; raises wirepath.PathError where it has no valid form."""
    return wirepath.decode(path) if isinstance(path, str) else wirepath.decode_b64(path.b64)


class Worktree(Part, frozen=True, kw_only=True):
    """A directory as the client sees it: absolute real path, device and inode.

    The daemon compares device and inode with its own view of the path: a client in another mount namespace is
    refused instead of answered about the wrong directory. Both are None where the directory does not exist.
    """

    path: WirePath
    dev: Decimal | None = None
    ino: Decimal | None = None


ChangeKind = Literal["added", "modified", "deleted", "type", "mode"]


class Change(Result, frozen=True, kw_only=True):
    """One path that differs; ``dir`` for a directory that is listed only because it is empty."""

    path: WirePath
    change: ChangeKind
    dir: bool = False


class LeftOut(Result, frozen=True, kw_only=True):
    """A path that is not in a checkpoint, and why (a word such as ``unreadable``, ``special``, ``large``)."""

    path: WirePath
    reason: str
    detail: str | None = None


class Stats(Result, frozen=True, kw_only=True):
    """The work that an operation took. ``bytes_hashed`` are those of the worktree's files that were opened.

    ``files_written`` counts files and links of the worktree that a restore made or changed.
    """

    files_opened: int = 0
    bytes_hashed: int = 0
    directories_listed: int = 0
    objects_written: int = 0
    packs_written: int = 0
    files_written: int = 0


Kind = Literal["manual", "auto", "safety"]


class Renamed(Result, frozen=True, kw_only=True):
    """A path that came with a checkpoint, and the one under which it was until then."""

    path: WirePath
    renamed_from: WirePath


class CheckpointRecord(Result, frozen=True, kw_only=True):
    """A checkpoint as lists show it; ``time`` is RFC 3339 in UTC, ``message`` None where none was given.

    ``legacy``: made by version 0.3.6 and read where it left it; its ``seq`` is 0 or less, before all others.
    ``renames``: of the paths that a list follows, those that this checkpoint renamed.
    """

    id: str
    seq: int
    time: str
    kind: Kind
    message: str | None
    tags: list[str]
    meta: dict[str, str]
    complete: bool
    scan: Literal["full", "watched"] = "full"
    base: str | None = None
    client: str | None = None
    legacy: bool = False
    renames: list[Renamed] = []


class Chunk(Result, frozen=True, kw_only=True):
    """A piece of bytes that need not be text, as base64."""

    b64: str
