"""What a store says of itself: its format, and which worktree it belongs to."""

import os
from typing import Final

import msgspec

from ckpt_protocol.structs import WirePath, from_wire, to_wire
from ckpt_protocol.wirepath import PathError, check_absolute, to_text
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.durable import read_if_there, replace_file
from ckptd.shadow.store.mark import Mark, mark_of

__all__ = ["FORMAT", "Metadata", "describe", "owner_of", "read_metadata", "write_metadata"]

FORMAT: Final = 1

_WAY_OUT: Final = "bring ckpt/metadata.json back from a backup, or move the folder away and begin anew; git can read it"


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """``parent_dev`` and ``parent_fsid`` tell later whether a missing worktree is gone or only not mounted.

    ``ino``, ``birth``, ``dev`` and ``fsid`` are the worktree's Mark, the last three None in older stores; ``former``
    are the paths where it was before it was moved, the latest last.

    Numbers that a 64-bit JSON reader could lose are decimal strings. ``forced``: a protected place, by consent.
    ``autosave`` is what ``watch on`` and ``watch off`` have said last; None leaves it to the options.
    """

    format: int
    worktree: WirePath
    ino: str
    parent_dev: str
    parent_fsid: str
    created: str
    forced: bool = False
    autosave: bool | None = None
    birth: str | None = None
    dev: str | None = None
    fsid: str | None = None
    former: list[WirePath] = []

    @property
    def path(self) -> bytes:
        """The worktree's real path."""
        return from_wire(self.worktree)

    @property
    def paths(self) -> tuple[bytes, ...]:
        """The worktree's real path, and those that it had before."""
        return (self.path, *map(from_wire, self.former))

    def marked(self, mark: Mark) -> "Metadata":
        """Give the same for a directory that has taken the worktree's place."""
        return msgspec.structs.replace(self, ino=mark.ino, birth=mark.birth, dev=mark.dev, fsid=mark.fsid)

    def moved(self, to: "Metadata") -> "Metadata":
        """Give the same for a worktree that is now where ``to`` says; when it began and what was wished stays."""
        former = [*(path for path in self.former if path != to.worktree), self.worktree]
        return msgspec.structs.replace(to, created=self.created, autosave=self.autosave, former=former)


class _Format(msgspec.Struct):
    format: int


class _Owner(msgspec.Struct):
    worktree: WirePath


def describe(worktree: bytes, created: str, *, forced: bool) -> Metadata:
    """Look at a worktree that exists; raises OSError."""
    parent, mark = os.path.dirname(worktree), mark_of(worktree)
    return Metadata(
        format=FORMAT,
        worktree=to_wire(worktree),
        ino=mark.ino,
        birth=mark.birth,
        dev=mark.dev,
        fsid=mark.fsid,
        parent_dev=str(os.stat(parent).st_dev),
        parent_fsid=str(os.statvfs(parent).f_fsid),
        created=created,
        forced=forced,
    )


def write_metadata(folder: bytes, metadata: Metadata) -> None:
    """Write a store's metadata, durably."""
    replace_file(_path(folder), msgspec.json.encode(metadata) + b"\n")


def read_metadata(folder: bytes) -> Metadata:
    """Read a store's metadata.

    Raises DomainError: ``store_format`` for a format that this version does not know, which is left untouched;
    ``foreign_owner`` for a folder that another user has put there; ``store_damaged`` where it is missing or malformed.
    """
    _refuse_anothers(folder)
    data = read_if_there(_path(folder))
    if data is None:
        raise DomainError(
            "store_damaged", f"{to_text(folder)} is not a store: it has no metadata", hint=_WAY_OUT, paths=(folder,)
        )
    try:
        number = msgspec.json.decode(data, type=_Format).format
        if number != FORMAT:
            raise DomainError(
                "store_format",
                f"the store {to_text(folder)} has format {number}; this version knows format {FORMAT}",
                hint="use the version that made it; nothing was changed",
                paths=(folder,),
            )
        metadata = msgspec.json.decode(data, type=Metadata)
        for path in metadata.paths:
            check_absolute(path)
    except (msgspec.MsgspecError, PathError) as error:
        raise DomainError(
            "store_damaged", f"the metadata of {to_text(folder)} is malformed", hint=_WAY_OUT, paths=(folder,)
        ) from error
    return metadata


def _refuse_anothers(folder: bytes) -> None:
    """A restore writes what the store says: whoever can make one here could have anything written."""
    try:
        user = os.lstat(folder).st_uid
    except OSError as error:
        raise from_os_error(error, "look at", folder) from error
    if user != os.geteuid():
        raise DomainError(
            "foreign_owner",
            f"the store {to_text(folder)} belongs to user {user}, this is user {os.geteuid()}",
            hint="run as that user, or use a checkpoint directory that nobody else can write to",
            paths=(folder,),
        )


def owner_of(folder: bytes) -> bytes | None:
    """Tell which worktree a store belongs to, whatever else its metadata says; None where not even that is readable.

    Raises DomainError where the file cannot be read at all.
    """
    try:
        path = from_wire(msgspec.json.decode(read_if_there(_path(folder)) or b"", type=_Owner).worktree)
        check_absolute(path)
    except (msgspec.MsgspecError, PathError):
        return None
    return path


def _path(folder: bytes) -> bytes:
    return os.path.join(folder, b"ckpt", b"metadata.json")
