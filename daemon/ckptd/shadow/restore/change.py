"""What a restore has done in a directory so far, each piece with the way back.

A change is committed once its directory has been found in its place again, else undone. Neither ever removes a
file that is not ours and was not found, by content, to be what a checkpoint holds: in doubt it gets a visible name.
"""

import errno
import os
from dataclasses import dataclass
from typing import Final, Protocol

from ckpt_protocol.wirepath import to_text
from ckptd.shadow.restore.exchange import Renamer
from ckptd.shadow.restore.handle import Pinned
from ckptd.shadow.restore.look import Ident, Refused, confirm, lstat_or_none
from ckptd.shadow.restore.stage import Staged, temporary_name
from ckptd.shadow.trees.step import State

__all__ = [
    "Aside",
    "Change",
    "Chmodded",
    "Created",
    "Emptied",
    "Exchanged",
    "Made",
    "Replaced",
    "Spot",
    "discard",
    "make_visible",
    "put_back",
    "rescue",
    "set_aside",
    "undone",
]

RESCUED: Final = b"ckpt-rescued-"
_STAYS: Final = "somebody wrote to the new file already, so it stays; the safety checkpoint holds the former one"


@dataclass(frozen=True, slots=True)
class Spot:
    """A directory that is being worked in, and how to rename things there."""

    fd: int
    dev: int
    renamer: Renamer

    def ident(self, name: bytes) -> Ident | None:
        """Look at a name; None where there is nothing. Raises OSError."""
        found = lstat_or_none(self.fd, name)
        return Ident.of(found) if found is not None else None

    def unlink(self, name: bytes) -> None:
        """Remove a file or link. Raises OSError."""
        os.unlink(name, dir_fd=self.fd)


class Change(Protocol):
    """One thing done. ``undo`` gives a text where something was left to tell."""

    @property
    def spot(self) -> Spot:
        """Where."""
        ...

    @property
    def name(self) -> bytes:
        """To which name."""
        ...

    @property
    def temporary(self) -> bytes | None:
        """The temporary name that what was found there may have."""
        ...

    def commit(self) -> None:
        """Make it final. Raises Refused or OSError where it must be undone instead."""
        ...

    def undo(self) -> str | None:
        """Take it back. Raises OSError."""
        ...


def make_visible(spot: Spot, temporary: bytes, name: bytes = b"") -> bytes:
    """Give a thing that has lost its place a name that people see, next to that place; returns that name."""
    unique = RESCUED + os.urandom(4).hex().encode()
    visible = b"%s.%s" % (name, unique) if name and len(name) + len(unique) < 255 else unique
    try:
        spot.renamer.place(spot.fd, spot.dev, temporary, visible)
    except OSError:
        # Better kept under an odd name than not at all.
        return temporary
    return visible


def rescue(spot: Spot, temporary: bytes, name: bytes) -> str:
    """Do that, and tell it in words."""
    return f"what was found there is kept as {to_text(make_visible(spot, temporary, name))}"


def put_back(spot: Spot, temporary: bytes, name: bytes) -> str | None:
    """Give a thing its name again, unless somebody has taken it. Raises OSError."""
    try:
        spot.renamer.place(spot.fd, spot.dev, temporary, name)
    except FileExistsError:
        return rescue(spot, temporary, name)
    return None


def discard(spot: Spot, temporary: bytes, known: Ident | None, name: bytes) -> str | None:
    """Remove a temporary if it is exactly the file that is ``known``, else keep it. Raises OSError."""
    found = spot.ident(temporary)
    if found is None:
        return None
    if found != known:
        return rescue(spot, temporary, name)
    spot.unlink(temporary)
    return None


def set_aside(spot: Spot, name: bytes) -> bytes | None:
    """Give whatever has a name a temporary one, and return that; None where there is nothing. Raises OSError."""
    spare = temporary_name()
    try:
        spot.renamer.set_aside(spot.fd, spot.dev, name, spare)
    except FileNotFoundError:
        return None
    return spare


def _delete(spot: Spot, temporary: bytes, known: Ident | None, before: State) -> None:
    found = spot.ident(temporary)
    if found is None:
        return
    if found != known:
        # Whoever holds the file open may have written to it since it was compared.
        confirm(spot.fd, temporary, before)
    spot.unlink(temporary)


@dataclass(slots=True)
class Created:
    """A file or link at a place that was free."""

    spot: Spot
    name: bytes
    ours: Ident
    temporary: bytes | None = None

    def commit(self) -> None:
        """Nothing is left to do."""

    def undo(self) -> str | None:
        """Remove it, if it is still as it was made."""
        spare = set_aside(self.spot, self.name)
        if spare is None:
            return None
        if self.spot.ident(spare) != self.ours:
            return put_back(self.spot, spare, self.name)
        self.spot.unlink(spare)
        return None


@dataclass(slots=True)
class Aside:
    """A file or link that has left its place, to be deleted. ``known`` is set once its content was compared."""

    spot: Spot
    name: bytes
    temporary: bytes
    before: State
    known: Ident | None = None

    def commit(self) -> None:
        """Delete it."""
        _delete(self.spot, self.temporary, self.known, self.before)

    def undo(self) -> str | None:
        """Put it back."""
        return put_back(self.spot, self.temporary, self.name)


@dataclass(slots=True)
class Exchanged:
    """New content in its place; what was there has the temporary name."""

    spot: Spot
    name: bytes
    staged: Staged
    before: State
    known: Ident | None = None

    @property
    def temporary(self) -> bytes:
        """The name that what was there has now."""
        return self.staged.name

    def commit(self) -> None:
        """Delete what was there."""
        _delete(self.spot, self.temporary, self.known, self.before)

    def undo(self) -> str | None:
        """Bring back what was there."""
        if not self._swap():
            return put_back(self.spot, self.temporary, self.name)
        if self.spot.ident(self.temporary) == self.staged.ident:
            self.spot.unlink(self.temporary)
            return None
        # What came out is not what was put in: somebody's newer file, which goes back to the place it was taken from.
        if not self._swap():
            return put_back(self.spot, self.temporary, self.name)
        return discard(self.spot, self.temporary, self.known, self.name) or _STAYS

    def _swap(self) -> bool:
        try:
            self.spot.renamer.exchange(self.spot.fd, self.spot.dev, self.temporary, self.name)
        except FileNotFoundError:
            return False
        return True


@dataclass(slots=True)
class Replaced:
    """New content in its place on a file system without exchange; ``temporary`` is a second link to what was there."""

    spot: Spot
    name: bytes
    staged: Staged
    before: State
    temporary: bytes | None
    known: Ident | None = None

    def commit(self) -> None:
        """Delete what was there."""
        if self.temporary is not None:
            _delete(self.spot, self.temporary, self.known, self.before)

    def undo(self) -> str | None:
        """Bring back what was there, if a link to it could be kept and nobody has replaced the new file."""
        if self.temporary is None:
            return "it could not be put back: this file system has no way to; the safety checkpoint holds it"
        found = self.spot.ident(self.name)
        if found is None:
            return put_back(self.spot, self.temporary, self.name)
        if found != self.staged.ident:
            return discard(self.spot, self.temporary, self.known, self.name) or _STAYS
        os.rename(self.temporary, self.name, src_dir_fd=self.spot.fd, dst_dir_fd=self.spot.fd)
        return None


@dataclass(slots=True)
class Made:
    """A new directory."""

    spot: Spot
    name: bytes
    temporary: bytes | None = None

    def commit(self) -> None:
        """Nothing is left to do."""

    def undo(self) -> str | None:
        """Remove it if it is still empty."""
        try:
            os.rmdir(self.name, dir_fd=self.spot.fd)
        except FileNotFoundError:
            pass
        return None


@dataclass(slots=True)
class Emptied:
    """A directory that is to go, if nothing is left in it."""

    spot: Spot
    name: bytes
    temporary: bytes | None = None

    def commit(self) -> None:
        """Remove it."""
        try:
            os.rmdir(self.name, dir_fd=self.spot.fd)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise Refused("not_empty") from error
            raise

    def undo(self) -> str | None:
        """Nothing was done yet."""
        return None


@dataclass(slots=True)
class Chmodded:
    """Other permission bits on a file or directory that stays where it is; ``former`` are those it had."""

    spot: Spot
    name: bytes
    known: tuple[int, int, int]
    former: int
    temporary: bytes | None = None

    @classmethod
    def of(cls, spot: Spot, name: bytes, held: Pinned, former: int) -> "Chmodded":
        """Note that the bits of what is held have been set."""
        return cls(spot, name, _dev_ino_mode(os.fstat(held.fd)), former)

    def commit(self) -> None:
        """Nothing is left to do."""

    def undo(self) -> str | None:
        """Set the former bits."""
        found = lstat_or_none(self.spot.fd, self.name)
        if found is None or _dev_ino_mode(found) != self.known:
            return None
        with Pinned.at(self.spot.fd, self.name) as held:
            if _dev_ino_mode(held.found) == self.known:
                held.set_bits(self.former)
        return None


def _dev_ino_mode(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_dev, found.st_ino, found.st_mode


def undone(change: Change) -> str | None:
    """Take a change back; an error becomes the text that tells of it. What it was about is not lost."""
    try:
        return change.undo()
    except OSError as error:
        note = f"it could not be put back as it was: {error.strerror}"
    try:
        if change.temporary is not None and change.spot.ident(change.temporary) is not None:
            return f"{note}; {rescue(change.spot, change.temporary, change.name)}"
    except OSError:
        note += f"; look for {to_text(change.temporary or b'')}"
    return note
