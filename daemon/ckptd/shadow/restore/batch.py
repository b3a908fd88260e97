"""The steps of a restore in one directory: each is done so that it can be taken back until the whole is verified."""

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from ckptd.shadow.restore.change import (
    Aside,
    Change,
    Chmodded,
    Created,
    Emptied,
    Exchanged,
    Made,
    Replaced,
    Spot,
    discard,
    set_aside,
    undone,
)
from ckptd.shadow.restore.exchange import NoExchange, Renamer
from ckptd.shadow.restore.handle import Pinned
from ckptd.shadow.restore.look import (
    Ident,
    Refused,
    confirm,
    confirm_open,
    lstat_or_none,
    opened_regular,
    refuse_kind,
    told,
)
from ckptd.shadow.restore.stage import Source, Staged, file_bits, stage, temporary_name
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import LINK

__all__ = ["Batch", "Tools"]

_NO_LINK: Final = frozenset({errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


@dataclass(slots=True)
class Tools:
    """What every batch of one restore works with, and what they find out together, several at a time.

    ``note`` is told how long the system took for a call of a kind, where that may be long.
    """

    source: Source
    umask: int
    renamer: Renamer
    hook: Callable[[str, bytes], None]
    note: Callable[[str, float], None]
    weak: bool = False
    written: set[tuple[int, int]] = field(default_factory=set)
    """Device and inode of everything written so far: where names fold together, it may seem to be to delete."""


class Batch:
    """The changes made in one directory, which is ``parent`` in the worktree; not yet final."""

    def __init__(self, tools: Tools, dir_fd: int, dev: int, parent: bytes) -> None:
        self._tools: Final = tools
        self._spot: Final = Spot(dir_fd, dev, tools.renamer)
        self._prefix: Final = parent + b"/" if parent else b""
        self._changes: Final[list[Change]] = []

    def take(self) -> list[Change]:
        """Give the changes since the last call; they are the caller's to commit or undo."""
        taken = self._changes[:]
        self._changes.clear()
        return taken

    # Every operation raises Refused, DomainError (from the source) or OSError, and then has left nothing behind.

    def write(self, name: bytes, before: State | None, after: State) -> None:
        """Put a file or link in a place that is free (``before`` None) or holds ``before``."""
        found = lstat_or_none(self._spot.fd, name)
        if before is None and found is not None:
            raise Refused("changed", "something is there now")
        if before is None or found is None:
            self._create(name, after)
            return
        refuse_kind(found, before)
        if before.oid != after.oid or (before.mode == LINK) != (after.mode == LINK):
            self._replace(name, before, after, found)
        elif after.mode != LINK:
            self._change_bits(name, before, after)

    def delete(self, name: bytes, before: State) -> None:
        """Take away the file or link ``before``; nothing there is as good."""
        found = lstat_or_none(self._spot.fd, name)
        if found is None:
            return
        refuse_kind(found, before)
        self._refuse_written(found)
        self._hook("before-aside", name)
        spare = set_aside(self._spot, name)
        if spare is None:
            return
        change = Aside(self._spot, name, spare, before)
        self._changes.append(change)
        # From here on an exception leaves the change to the caller, who undoes all that it has not committed.
        self._hook("aside", name)
        change.known = self._confirmed(change, spare, before)

    def remove_directory(self, name: bytes) -> None:
        """Note a directory that is to go if it is empty by then."""
        found = lstat_or_none(self._spot.fd, name)
        if found is None:
            return
        if not stat.S_ISDIR(found.st_mode):
            raise Refused("changed", "it is not a directory any more")
        self._refuse_written(found)
        self._changes.append(Emptied(self._spot, name))

    def make_directory(self, name: bytes, bits: int | None) -> None:
        """Make a directory, open to its owner until the rest of it is written; one that is there is as good."""
        self._hook("before-mkdir", name)
        try:
            os.mkdir(name, 0o700, dir_fd=self._spot.fd)
        except FileExistsError:
            self._require_directory(os.lstat(name, dir_fd=self._spot.fd))
            return
        change = Made(self._spot, name)
        self._changes.append(change)
        try:
            self._open_up(name, bits)
        except (Refused, OSError) as error:
            self._refuse_undone(change, error)
        self._hook("mkdir", name)

    def _open_up(self, name: bytes, bits: int | None) -> None:
        with self._pinned_directory(name) as held:
            found = held.found
            wanted = (0o755 & ~self._tools.umask) | (found.st_mode & stat.S_ISGID) if bits is None else bits
            held.set_bits(wanted | 0o700)
        self._tools.written.add((found.st_dev, found.st_ino))

    def directory_bits(self, name: bytes, bits: int, keep: int = 0) -> int:
        """Give a directory these bits and those of its own that ``keep`` selects; the former bits are returned."""
        with self._pinned_directory(name) as held:
            former = stat.S_IMODE(held.found.st_mode)
            self._set_bits(name, held, bits | (former & keep))
        return former

    def _pinned_directory(self, name: bytes) -> Pinned:
        # Looked at before it is opened: opening a device can do things.
        self._require_directory(os.lstat(name, dir_fd=self._spot.fd))
        held = Pinned.at(self._spot.fd, name)
        try:
            self._require_directory(held.found)
        except Refused:
            held.close()
            raise
        return held

    def _require_directory(self, found: os.stat_result) -> None:
        if not stat.S_ISDIR(found.st_mode):
            raise Refused("changed", "something that is not a directory is there now")
        if found.st_dev != self._spot.dev:
            raise Refused("other_mount")

    def _set_bits(self, name: bytes, held: Pinned, bits: int) -> None:
        former = stat.S_IMODE(held.found.st_mode)
        if bits == former:
            return
        self._hook("before-chmod", name)
        held.set_bits(bits)
        if not held.has(self._spot.fd, name):
            held.set_bits(former)
            raise Refused("changed", "it was replaced meanwhile")
        self._changes.append(Chmodded.of(self._spot, name, held, former))

    def _refuse_written(self, found: os.stat_result) -> None:
        if (found.st_dev, found.st_ino) in self._tools.written:
            raise Refused("case_fold", "this name stands for what was just written under another")

    def _hook(self, name: str, entry: bytes) -> None:
        self._tools.hook(name, self._prefix + entry)

    def _stage(self, name: bytes, after: State, bits: int, *, replaces: bool) -> Staged:
        staged = stage(self._spot.fd, self._tools.source, after, bits, replaces=replaces)
        if staged.took_s:
            self._tools.note("create", staged.took_s)
        try:
            self._hook("staged", name)
        except BaseException:
            discard(self._spot, staged.name, staged.ident, name)
            raise
        return staged

    def _create(self, name: bytes, after: State) -> None:
        staged = self._stage(name, after, file_bits(after, None, self._tools.umask), replaces=False)
        try:
            self._hook("before-create", name)
            self._place(name, staged)
        except BaseException:
            discard(self._spot, staged.name, staged.ident, name)
            raise
        self._hook("created", name)

    def _place(self, name: bytes, staged: Staged) -> None:
        try:
            sure = self._spot.renamer.place(self._spot.fd, self._spot.dev, staged.name, name)
        except FileExistsError as error:
            raise Refused("changed", "something is there now") from error
        if not sure:
            self._tools.weak = True
        self._changes.append(Created(self._spot, name, staged.ident))
        self._tools.written.add(staged.ident[:2])

    def _replace(self, name: bytes, before: State, after: State, found: os.stat_result) -> None:
        staged = self._stage(name, after, file_bits(after, found, self._tools.umask), replaces=True)
        try:
            self._hook("before-exchange", name)
            change = self._exchange(name, staged, before)
        except BaseException:
            discard(self._spot, staged.name, staged.ident, name)
            raise
        if change is None:
            return
        self._tools.written.add(staged.ident[:2])
        self._hook("exchanged", name)
        if change.temporary is not None:
            as_was = None if after.perm is not None else found
            change.known = self._confirmed(change, change.temporary, before, as_was)

    def _change_bits(self, name: bytes, before: State, after: State) -> None:
        with opened_regular(self._spot.fd, name) as held:
            found = confirm_open(held, before)
            if found.st_nlink == 1:
                self._set_bits(name, held, file_bits(after, found, self._tools.umask))
                return
        # The other names of this file are not part of the restore.
        self._replace(name, before, after, found)

    def _exchange(self, name: bytes, staged: Staged, before: State) -> Exchanged | Replaced | None:
        change: Exchanged | Replaced
        try:
            self._spot.renamer.exchange(self._spot.fd, self._spot.dev, staged.name, name)
            change = Exchanged(self._spot, name, staged, before)
        except FileNotFoundError:
            # It was deleted meanwhile, so there is nothing to lose.
            self._place(name, staged)
            return None
        except NoExchange:
            change = self._rename_over(name, staged, before)
        self._changes.append(change)
        return change

    def _rename_over(self, name: bytes, staged: Staged, before: State) -> Replaced:
        self._tools.weak = True
        spot = self._spot
        known = Ident.of(confirm(spot.fd, name, before))
        spare = self._second_link(name)
        try:
            self._hook("before-rename", name)
            if spot.ident(name) != known:
                raise Refused("changed", "it changed while it was compared")
            os.rename(staged.name, name, src_dir_fd=spot.fd, dst_dir_fd=spot.fd)
        except BaseException:
            if spare is not None:
                spot.unlink(spare)
            raise
        return Replaced(spot, name, staged, before, spare)

    def _second_link(self, name: bytes) -> bytes | None:
        spare = temporary_name()
        try:
            os.link(name, spare, src_dir_fd=self._spot.fd, dst_dir_fd=self._spot.fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            return None
        return spare

    def _confirmed(
        self, change: Change, displaced: bytes, before: State, as_was: os.stat_result | None = None
    ) -> Ident:
        try:
            found = confirm(self._spot.fd, displaced, before)
            if as_was is not None and stat.S_IMODE(found.st_mode) != stat.S_IMODE(as_was.st_mode):
                raise Refused("changed", "its permissions changed meanwhile")
        except (Refused, OSError) as error:
            self._refuse_undone(change, error)
        return Ident.of(found)

    def _refuse_undone(self, change: Change, error: Refused | OSError) -> NoReturn:
        self._changes.remove(change)
        note = undone(change)
        reason, detail = told(error)
        raise Refused(reason, "; ".join(filter(None, (detail, note))) or None) from error
