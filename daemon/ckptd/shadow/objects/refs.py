"""The refs of a store: checkpoints, their info commits, tags, and HEAD. Loose ones are written by us alone."""

import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.durable import StagedFile, read_derived, read_if_there, replace_file
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.packedrefs import PackedRefs
from ckptd.shadow.objects.pieces import Pieces, beside
from ckptd.shadow.objects.syncing import Unsynced, fsync_dir, sync_folders, sync_together

__all__ = ["CHECKPOINTS", "COPIES", "INFOS", "TAGS", "Refs", "StagedCheckpoint", "seq_name"]

CHECKPOINTS: Final = b"refs/checkpoints/"
INFOS: Final = b"refs/ckpt-info/"
TAGS: Final = b"refs/tags/"
COPIES: Final = b"refs/ckpt-legacy/"

_ID: Final = re.compile(rb"[0-9a-f]{40}")
_READ_AT_ONCE: Final = 100
_SETTLED_NS: Final = 2_000_000_000
_UNBORN: Final = b"ref: refs/heads/unborn\n"


def seq_name(seq: int) -> bytes:
    """Give the last part of a checkpoint's ref name."""
    return b"%010d" % seq


class _Listed(NamedTuple):
    """The checkpoints as last listed; ``stamp`` None: they have to be listed again.

    ``newest`` is the highest of all ``names``; ``shorter`` is the same without the newest, where that was just added.
    """

    stamp: tuple[int, int] | None
    by_seq: dict[int, bytes]
    names: frozenset[int]
    newest: int = 0
    shorter: Mapping[int, bytes] | None = None


class StagedCheckpoint(NamedTuple):
    """The refs of a checkpoint that have no names yet, the checkpoint's own last. Left without them, they are gone."""

    seq: int
    commit: bytes
    before: _Listed
    files: list[StagedFile]

    @property
    def unsynced(self) -> list[Unsynced]:
        """What has to be on disk before they get their names."""
        return [file.unsynced for file in self.files]

    def drop(self) -> None:
        """Remove those that have no name. Raises nothing; may be called again."""
        for file in self.files:
            file.drop()

    def __enter__(self) -> "StagedCheckpoint":
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()


class Refs:
    """Reads and writes the refs of one bare repository. Ids are 40 hex digits, as bytes.

    One thread writes; others may read beside it, and need not look again for what it has just written.
    """

    def __init__(self, git_dir: bytes) -> None:
        self._git_dir = git_dir
        self._packed_refs = PackedRefs(git_dir)
        self._unsynced: set[bytes] = set()
        self._listed = _Listed(None, {}, frozenset())

    def checkpoints(self) -> Mapping[int, bytes]:
        """Give all checkpoints by sequence number, in order. A ref that cannot be read is left out.

        The very same object comes again while nothing has changed.
        """
        return self._list().by_seq

    def added_to(self, known: Mapping[int, bytes] | None, now: Mapping[int, bytes]) -> tuple[int, bytes] | None:
        """Give the one checkpoint that ``now`` has more than ``known``, an earlier answer; None: any may differ."""
        listed = self._listed
        if known is None or listed.shorter is not known or listed.by_seq is not now:
            return None
        return next(reversed(now.items()))

    def checkpoint_names(self) -> frozenset[int]:
        """Give the sequence numbers of all refs that are there, readable or not."""
        return self._list().names

    def newest_name(self) -> int:
        """Give the highest sequence number of all refs that are there; 0 where there is none."""
        return self._list().newest

    def info(self, seq: int) -> bytes | None:
        """Give the id of a checkpoint's info commit, where it has one."""
        return self._read(INFOS + seq_name(seq))

    def tags(self) -> dict[str, bytes]:
        """Give all tags and what they point to."""
        return {name.decode("utf-8", "surrogateescape"): oid for name, oid in self._under(TAGS).items()}

    def write_checkpoint(self, seq: int, commit: bytes, info: bytes | None) -> None:
        """Make a checkpoint durable: its info first, so that none is ever without the info it names."""
        with self.stage_checkpoint(seq, commit, info) as staged:
            sync_together(staged.unsynced)
            sync_folders(self.name_info(staged))
            self.name_checkpoint(staged)

    def stage_checkpoint(self, seq: int, commit: bytes, info: bytes | None) -> "StagedCheckpoint":
        """Write the refs of a checkpoint without their names; raises DomainError where the disk refuses.

        When they are on disk name_info() is to follow, and when all names that a checkpoint needs are, too,
        name_checkpoint().
        """
        before = self._list()
        refs = [(CHECKPOINTS, commit)] if info is None else [(INFOS, info), (CHECKPOINTS, commit)]
        staged = StagedCheckpoint(seq, commit, before, [])
        try:
            for prefix, oid in refs:
                path = os.path.join(self._git_dir, prefix + seq_name(seq))
                self._make_folder(os.path.dirname(path))
                staged.files.append(StagedFile(path, oid + b"\n"))
        except DomainError:
            staged.drop()
            raise
        return staged

    def name_info(self, staged: "StagedCheckpoint") -> list[bytes]:
        """Give a checkpoint's info its ref, if there is one; give the directories to be synced. Raises DomainError."""
        return [info.give_name() for info in staged.files[:-1]]

    def name_checkpoint(self, staged: "StagedCheckpoint") -> None:
        """Give a checkpoint its ref, durably; raises DomainError where the disk refuses."""
        sync_folders([staged.files[-1].give_name()])
        reach("checkpoint-durable")
        seq, commit, before = staged.seq, staged.commit, staged.before
        by_seq = {**before.by_seq, seq: commit}
        last = next(reversed(before.by_seq), 0)
        ordered = by_seq if seq > last else dict(sorted(by_seq.items()))
        # What we have written ourselves need not be read again.
        shorter = before.by_seq if seq > last else None
        newest = max(before.newest, seq)
        self._listed = _Listed(self._own_stamp(), ordered, before.names | {seq}, newest, shorter)

    def bring_back(self, found: Mapping[int, tuple[bytes, bytes | None]]) -> None:
        """Make the refs of checkpoints anew, durably and all at once: ids of commit and info by sequence number.

        Raises DomainError where the disk refuses.
        """
        self._listed = _Listed(None, {}, frozenset())
        refs = {CHECKPOINTS + seq_name(seq): commit for seq, (commit, _) in found.items()}
        refs |= {INFOS + seq_name(seq): info for seq, (_, info) in found.items() if info is not None}
        self._make_folder(os.path.join(self._git_dir, CHECKPOINTS.rstrip(b"/")))
        self._packed_refs.rewrite(refs)
        # What lies in its place, unreadable or of nothing, would count before it.
        self._unlink([ref for ref, oid in refs.items() if self._read(ref) != oid or self._read_loose(ref) is None])

    def withdraw_info(self, seq: int) -> None:
        """Take back the info of a checkpoint that never came to be; raises DomainError where the disk refuses."""
        if seq not in self.checkpoint_names():
            self._unlink([INFOS + seq_name(seq)])

    def withdraw_checkpoint(self, seq: int) -> None:
        """Take back a checkpoint that was just written; raises DomainError where the disk refuses."""
        # Its folder's time may not tell: it was changed in this very instant.
        self._listed = _Listed(None, {}, frozenset())
        for prefix in (CHECKPOINTS, INFOS):
            path = os.path.join(self._git_dir, prefix + seq_name(seq))
            try:
                os.unlink(path)
                fsync_dir(os.path.dirname(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise from_os_error(error, "delete the ref", path) from error

    def withdraw_tag(self, name: str, commit: bytes) -> None:
        """Take back a tag that was just written, if it points to this commit; raises DomainError."""
        path = os.path.join(self._git_dir, TAGS + name.encode("utf-8"))
        if self._read_loose(TAGS + name.encode("utf-8")) == commit:
            try:
                os.unlink(path)
            except OSError as error:
                raise from_os_error(error, "delete the ref", path) from error

    def write_tag(self, name: str, commit: bytes) -> None:
        """Point a tag to a commit."""
        self._write(TAGS + name.encode("utf-8"), commit)
        reach("tag-durable")

    def delete(self, seqs: Collection[int], tags: Collection[str] = (), copies: Collection[str] = ()) -> None:
        """Delete checkpoints with their infos, tags, and notes of copies, durably; what is gone already is no fault.

        Raises DomainError where the disk refuses; some of them may then be gone.
        """
        self._listed = _Listed(None, {}, frozenset())
        # The checkpoint before its info, so that none is ever without the info it names.
        names = [prefix + seq_name(seq) for prefix in (CHECKPOINTS, INFOS) for seq in seqs]
        names += [TAGS + name.encode("utf-8", "surrogateescape") for name in tags]
        names += [COPIES + old.encode("ascii") for old in copies]
        packed = self._packed_refs.refs()
        if any(name in packed for name in names):
            self._packed_refs.rewrite({}, frozenset(names))
        # Of thousands that are packed none has a file: to look for each costs more than all the rest.
        loose = {prefix + name for prefix in (CHECKPOINTS, INFOS, TAGS, COPIES) for name in self._loose_names(prefix)}
        self._unlink([name for name in names if name in loose])
        # The file of one that was packed a moment ago must not come back with the power.
        sync_folders(sorted(self._unsynced))
        self._unsynced.clear()

    def pack(self, at_least: int) -> Pieces[int]:
        """Move the loose refs of checkpoints into the one packed file if there are so many; give how many have moved.

        It may be left at any time: what is in both places is the same. Raises DomainError where the disk refuses.
        """
        found: dict[bytes, bytes] = {}
        for number, ref in enumerate(self._loose_checkpoints(), 1):
            oid = self._read_loose(ref)
            if oid is not None:
                found[ref] = oid
            if not number % _READ_AT_ONCE:
                yield False
        loose = self._there(found)
        if len(loose) < max(at_least, 1):
            return 0
        if not (yield from self._packed_refs.adding(loose, lambda: len(self._there(loose)) == len(loose))):
            # Some have been dropped meanwhile: none of them comes back.
            loose = self._there(loose)
            self._packed_refs.rewrite(loose)
        self._listed = _Listed(None, {}, frozenset())
        folders = {os.path.dirname(os.path.join(self._git_dir, ref)) for ref in loose}
        for ref in loose:
            # Each time: what is dropped in between syncs what had gone by then.
            self._unsynced |= folders
            # A file that goes takes a millisecond on some disks.
            self._unlink([ref], durable=False)
            yield False
        yield from beside(partial(sync_folders, sorted(folders)))
        self._unsynced -= folders
        return len(loose)

    def _there(self, refs: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Give those refs that are still loose."""
        there = set(self._loose_checkpoints())
        return {ref: oid for ref, oid in refs.items() if ref in there}

    def loose_count(self) -> int:
        """Count the loose refs of checkpoints, without reading them."""
        return len(self._loose_checkpoints())

    def _loose_checkpoints(self) -> list[bytes]:
        prefixes = (CHECKPOINTS, INFOS)
        return [prefix + name for prefix in prefixes for name in self._loose_names(prefix) if name.isdigit()]

    def unreadable(self) -> Iterator[tuple[bytes, str]]:
        """Give the files of refs that cannot be read, and what is wrong."""
        if self._packed_refs.bad_lines():
            yield b"packed-refs", f"{self._packed_refs.bad_lines()} lines are no refs"
        packed = self._packed_refs.refs()
        for name in self._loose_names(b"refs/"):
            ref = b"refs/" + name
            if self._read_loose(ref) is None and os.path.exists(os.path.join(self._git_dir, ref)):
                rest = "; the packed one stands in for it" if ref in packed else ""
                yield ref, f"this is no id of a checkpoint{rest}"

    def _unlink(self, refs: Collection[bytes], *, durable: bool = True) -> None:
        folders = set()
        for ref in refs:
            path = os.path.join(self._git_dir, ref)
            try:
                os.unlink(path)
                folders.add(os.path.dirname(path))
                reach("ref-deleted")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise from_os_error(error, "delete the ref", path) from error
        for folder in sorted(folders if durable else ()):
            try:
                fsync_dir(folder)
            except OSError as error:
                raise from_os_error(error, "delete refs in", folder) from error

    def copies(self) -> dict[str, bytes]:
        """Give the old ids of the checkpoints of 0.3.6 that were copied, and the ids of their copies."""
        return {name.decode("ascii", "replace"): oid for name, oid in self._under(COPIES).items()}

    def write_copy(self, old: str, commit: bytes) -> None:
        """Note under which id a checkpoint of 0.3.6 was copied."""
        self._write(COPIES + old.encode("ascii"), commit)

    def everything(self) -> dict[bytes, bytes]:
        """Give all refs by their full names, whoever made them."""
        return {b"refs/" + name: oid for name, oid in self._under(b"refs/").items()}

    def head(self) -> bytes | None:
        """Give the id in HEAD, None while there is none."""
        data = read_derived(os.path.join(self._git_dir, b"HEAD"))
        return data.strip() if data is not None and _ID.fullmatch(data.strip()) else None

    def write_head(self, commit: bytes | None) -> None:
        """Set HEAD; it is derived from the operation log, so it need not be durable."""
        data = _UNBORN if commit is None else commit + b"\n"
        replace_file(os.path.join(self._git_dir, b"HEAD"), data, durable=False)
        reach("head-written")

    def _list(self) -> "_Listed":
        """List the checkpoints if they may have changed; one that is known is not read again, for none ever moves."""
        now_ns = time.time_ns()
        stamp = self._stamp()
        known = self._listed
        if stamp is not None and stamp == known.stamp:
            return known
        names = {int(name) for name in self._loose_names(CHECKPOINTS) if name.isdigit()}
        loose = {seq: known.by_seq.get(seq) or self._read_loose(CHECKPOINTS + seq_name(seq)) for seq in names}
        # Packed ones come second: what git packs meanwhile is then seen twice rather than never.
        found = {int(name): oid for name, oid in self._packed(CHECKPOINTS).items() if name.isdigit()}
        found.update((seq, oid) for seq, oid in loose.items() if oid is not None)
        # What changed just now can change again within the same tick of its clock.
        settled = stamp is not None and max(stamp) < now_ns - _SETTLED_NS
        every = frozenset(names | found.keys())
        listed = _Listed(stamp if settled else None, dict(sorted(found.items())), every, max(every, default=0))
        self._listed = listed
        return listed

    def _stamp(self) -> tuple[int, int] | None:
        """Give what changes with any checkpoint's ref: the times of its folder, and of the packed refs."""
        try:
            folder_ns = os.stat(os.path.join(self._git_dir, CHECKPOINTS)).st_mtime_ns
        except OSError:
            return None
        try:
            return folder_ns, os.stat(os.path.join(self._git_dir, b"packed-refs")).st_mtime_ns
        except OSError:
            return folder_ns, 0

    def _own_stamp(self) -> tuple[int, int] | None:
        """Give the stamp of a change of our own, which no later change can have, however soon it comes.

        The clock of a file system may tick every few milliseconds only; the folder gets a time between the ticks.
        """
        try:
            now_ns = time.time_ns()
            os.utime(os.path.join(self._git_dir, CHECKPOINTS), ns=(now_ns, now_ns))
        except OSError:
            return None
        return self._stamp()

    def _read_loose(self, ref: bytes) -> bytes | None:
        """Give the id in a ref's own file; None where it holds none, or cannot be read for a reason of its own."""
        try:
            data = read_if_there(os.path.join(self._git_dir, ref))
        except DomainError as error:
            if error.kind == "too_many_files":
                raise
            return None
        return data.strip() if data is not None and _ID.fullmatch(data.strip()) else None

    def _read(self, ref: bytes) -> bytes | None:
        loose = self._read_loose(ref)
        if loose is not None:
            return loose
        return self._packed_refs.refs().get(ref)

    def _under(self, prefix: bytes) -> dict[bytes, bytes]:
        loose = {name: self._read_loose(prefix + name) for name in self._loose_names(prefix)}
        return {**self._packed(prefix), **{name: oid for name, oid in loose.items() if oid is not None}}

    def _loose_names(self, prefix: bytes) -> list[bytes]:
        top = os.path.join(self._git_dir, prefix)
        names: list[bytes] = []
        for folder, _, files in os.walk(top, onerror=_refuse):
            inside = os.path.relpath(folder, top)
            kept = [name for name in files if not name.endswith(b".lock") and name[:1] != b"."]
            names += kept if inside == b"." else [os.path.join(inside, name) for name in kept]
        return names

    def _packed(self, prefix: bytes) -> Mapping[bytes, bytes]:
        return self._packed_refs.below(prefix)

    def _write(self, ref: bytes, commit: bytes) -> None:
        path = os.path.join(self._git_dir, ref)
        self._make_folder(os.path.dirname(path))
        replace_file(path, commit + b"\n")

    def _make_folder(self, folder: bytes) -> None:
        """Make a folder of refs, durably: git removes empty ones when it packs refs."""
        if os.path.isdir(folder):
            return
        parent = os.path.dirname(folder)
        if folder == self._git_dir or len(parent) >= len(folder):
            # The store itself is gone: nothing must be acknowledged in a husk of it.
            raise DomainError("store_damaged", f"the store {to_text(self._git_dir)} is gone")
        self._make_folder(parent)
        try:
            os.mkdir(folder, 0o700)
            fsync_dir(parent)
        except OSError as error:
            raise from_os_error(error, "make the folder", folder) from error


def _refuse(error: OSError) -> None:
    """Tell a folder that is not there from one that cannot be listed: refs not seen are not refs gone."""
    if not isinstance(error, FileNotFoundError):
        raise from_os_error(error, "list the refs in", os.fsencode(error.filename)) from error
