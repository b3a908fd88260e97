"""The scan: one walk of the worktree that reads what differs from the model and nothing else.

Everything is opened relative to a handle of its directory and no link is followed, so a path that is swapped
during the walk leads nowhere else. A path that cannot be read is listed and never fails the walk.
"""

import contextlib
import errno
import os
import stat
import sys
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.pack import ObjectSink
from ckptd.shadow.objects.pulse import Pulse
from ckptd.shadow.scan.basis import Basis, BasisMaker
from ckptd.shadow.scan.entry import (
    KIND,
    KINDS,
    OID,
    SIGNATURE,
    is_racy,
    is_settled,
    is_young,
    mode_of,
    pack_entry,
    signature,
)
from ckptd.shadow.scan.exclusion import LARGE, NAME, OTHER_MOUNT, SPECIAL, STORE, UNREADABLE, UNSTABLE, Exclusion
from ckptd.shadow.scan.folder import folder_sign, place_of
from ckptd.shadow.scan.foreignstore import is_store_folder, may_be_store
from ckptd.shadow.scan.frames import DIR_FLAGS, Frame, FrameStack, reopen
from ckptd.shadow.scan.helpers import HashJob, Help, HelperRun
from ckptd.shadow.scan.look import Look, covers, look_at, look_into
from ckptd.shadow.scan.model import DirNode
from ckptd.shadow.scan.mounts import clock_margin_ns, is_local, mounts_below
from ckptd.shadow.scan.reading import (
    STREAM_ABOVE_BYTES,
    ReadResult,
    read_file,
    read_link,
    refuse_shortage,
)
from ckptd.shadow.scan.survey import Survey
from ckptd.shadow.scan.temporary import is_temporary
from ckptd.shadow.trees.modes import format_exceptions, is_exception, modes_tree
from ckptd.shadow.trees.tree import DIRECTORY, format_tree, is_git_dir, join_tree

__all__ = ["TELLING", "ScanLimits", "ScanResult", "Scanner"]

TELLING: Final = frozenset({b".git", b".gitignore", b".ckptignore", b".lock", b"HEAD", b"ckpt", b"objects"})
"""Names by which a directory has rules, is a repository, or is a store."""

_DOT: Final = ord(".")
_ENCODING: Final = sys.getfilesystemencoding()
_ERRORS: Final = sys.getfilesystemencodeerrors()


class ScanLimits(NamedTuple):
    """Policy of a scan. ``guard`` are (device, inode) of directories that are never entered: the stores.

    After ``keep_files`` files or ``keep_bytes`` bytes have been read, what has been seen is kept. ``help_after`` files
    are read before others are asked to help: starting them takes as long as reading a thousand or two.
    """

    max_file_bytes: int = 100 * 1024 * 1024
    one_file_system: bool = True
    guard: frozenset[tuple[int, int]] = frozenset()
    keep_files: int = 50_000
    keep_bytes: int = 256 * 1024 * 1024
    help_after: int = 3_000


class ScanResult(NamedTuple):
    """What a scan saw. ``read_count`` files were opened, ``read_bytes`` bytes of them hashed, and ``listed_count``
    directories listed; ``problems`` are sentences for people.

    ``unknown_rules`` are ignore files that could not be read. ``linked`` are the files with more than one name,
    ``mounts`` the mount points below the root, ``place`` its device and inode, ``repositories`` what was known by
    then of Git repositories in it. ``partial``: only what was said to have changed was looked at; then ``entered`` are
    the directories that were listed whole, parents first.
    """

    root: DirNode
    skipped: list[Exclusion]
    excluded: list[Exclusion]
    problems: list[str]
    unknown_rules: list[bytes]
    read_count: int
    read_bytes: int
    listed_count: int
    linked: frozenset[bytes] = frozenset()
    mounts: frozenset[bytes] = frozenset()
    place: tuple[int, int] = (0, 0)
    repositories: tuple[Basis, ...] = ()
    partial: bool = False
    entered: tuple[bytes, ...] = ()


class Scanner:
    """Scans one worktree, again and again, with what it learned before.

    ``cancelled`` is asked between files, and between the pieces of a large one, and raises DomainError ``cancelled``
    through scan(); ``progress`` is told files and bytes read, some times a second.
    """

    def __init__(
        self,
        root: bytes,
        basis_maker: BasisMaker,
        limits: ScanLimits,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._root = root
        self._basis_maker = basis_maker
        self._limits = limits
        self._clock_ns = clock_ns

    @property
    def limits(self) -> ScanLimits:
        """The policy of its scans."""
        return self._limits

    def scan(
        self,
        old: DirNode | None,
        sink: ObjectSink,
        *,
        rehash: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda _files, _bytes: None,
        keep: Callable[[DirNode], None] = lambda _so_far: None,
        helped: Help = lambda _read: None,
    ) -> ScanResult:
        """Walk the worktree; new blobs and trees go to ``sink``. ``rehash`` reads every file.

        ``keep`` is given a model of what has been seen, now and then and where the walk ends with an error; its objects
        are in the sink. ``helped`` is asked once very many files have to be read: whoever it gives reads most of the
        rest. Raises DomainError: ``worktree_missing`` or ``not_a_directory`` for the root alone, what the sink, the
        help and ``keep`` raise, and ``cancelled``.
        """
        pulse = Pulse(cancelled, progress)
        walk = _Walk(self._limits, self._basis_maker, sink, self._clock_ns, rehash, pulse, keep, helped)
        return self._run(walk, pulse, old, None, None)

    def rescan(
        self,
        before: ScanResult,
        look: Look,
        sink: ObjectSink,
        *,
        cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda _files, _bytes: None,
    ) -> ScanResult | None:
        """Look at some names only, and take everything else as ``before`` has it, which was a scan by this scanner.

        None where that cannot be right: rules, mounts or the root itself are no longer what they were, or a file has
        become known to have more than one name, for any path may be the other. Such files are looked at in any case,
        and so is what was skipped, and what was a store. Raises DomainError as scan() does.
        """
        if not self._is_base(before):
            return None
        stores = [item.path for item in before.excluded if item.reason == STORE]
        for path in (*before.linked, *(item.path for item in before.skipped), *stores):
            folder, _, name = path.rpartition(b"/")
            look_into(look, folder).names.add(name)
        pulse = Pulse(cancelled, progress)
        walk = _Walk(self._limits, self._basis_maker, sink, self._clock_ns, False, pulse, _keep_nothing, _help_nothing)
        try:
            return self._run(walk, pulse, before.root, look, before)
        except _ElsewhereError:
            return None

    def review(
        self,
        before: ScanResult,
        sink: ObjectSink,
        *,
        cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda _files, _bytes: None,
        keep: Callable[[DirNode], None] = lambda _so_far: None,
        helped: Help = lambda _read: None,
    ) -> ScanResult | None:
        """Look at everything as scan() does, faster: what is as ``before`` has it, a scan by this scanner, stays so.

        None where that cannot be right, as in rescan(). Raises DomainError as scan() does.
        """
        if not self._is_base(before):
            return None
        pulse = Pulse(cancelled, progress)
        fd, found = self._open_root()
        try:
            margin_ns = clock_margin_ns(found.st_dev)
            survey = Survey(fd, self._clock_ns, margin_ns, pulse, is_dated=is_local(found.st_dev))
            survey.run(before.root)
        finally:
            os.close(fd)
        # What has no place in the model: nothing tells whether it is still as it was.
        for item in (*before.excluded, *before.skipped):
            survey.name(item.path)
        walk = _Walk(self._limits, self._basis_maker, sink, self._clock_ns, False, pulse, keep, helped)
        walk.listed_count = survey.looked_at
        try:
            return self._run(walk, pulse, before.root, look_at(survey.names), before, whole=True)
        except _ElsewhereError:
            return None

    def _is_base(self, before: ScanResult) -> bool:
        """Tell whether what has not changed since a scan is as that scan has it."""
        if before.problems or before.unknown_rules:
            return False
        return all(map(self._basis_maker.is_current, before.repositories))

    def _run(
        self,
        walk: "_Walk",
        pulse: Pulse,
        old: DirNode | None,
        look: Look | None,
        before: ScanResult | None,
        *,
        whole: bool = False,
    ) -> ScanResult:
        # What a scan that was called off had found belongs to no result.
        self._basis_maker.take_unknown_rules()
        self._basis_maker.take_problems()
        self._basis_maker.take_repositories()
        fd, found = self._open_root()
        place = (found.st_dev, found.st_ino)
        walk.root_dev = found.st_dev
        walk.margin_ns = clock_margin_ns(found.st_dev)
        walk.mounts = mounts_below(self._root)
        if before is not None and (before.place, before.mounts) != (place, walk.mounts):
            os.close(fd)
            raise _ElsewhereError
        frame = Frame(fd, b"", b"", stat.S_IMODE(found.st_mode), old, self._basis_maker.root)
        frame.look = look
        root = walk.run(frame)
        repositories = self._basis_maker.take_repositories()
        if before is not None:
            if not whole and not walk.linked <= before.linked:
                raise _ElsewhereError
            repositories += walk.carry_over(before)
        unknown = self._basis_maker.take_unknown_rules()
        problems = self._basis_maker.take_problems()
        listed = {item.path for item in walk.skipped}
        problems += [f"cannot read the ignore rules in {to_text(path)}" for path in unknown if path not in listed]
        partial = before is not None and not whole
        return ScanResult(
            root,
            sorted(walk.skipped),
            sorted(walk.excluded),
            problems,
            unknown,
            pulse.files,
            pulse.bytes,
            walk.listed_count,
            frozenset(walk.linked),
            walk.mounts,
            place,
            tuple(repositories),
            partial=partial,
            # As many paths as there are directories, for as long as the result counts: a look at everything needs none.
            entered=tuple(walk.entered) if partial else (),
        )

    def _open_root(self) -> tuple[int, os.stat_result]:
        try:
            fd = os.open(self._root, DIR_FLAGS)
        except FileNotFoundError as error:
            raise DomainError(
                "worktree_missing", f"the worktree {to_text(self._root)} does not exist", paths=(self._root,)
            ) from error
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise DomainError(
                    "not_a_directory", f"{to_text(self._root)} is not a directory", paths=(self._root,)
                ) from error
            raise from_os_error(error, "open the worktree", self._root) from error
        return fd, os.fstat(fd)


class _ElsewhereError(Exception):
    """What a partial scan would build on is not there any more."""


class _Walk:
    """The state of one scan."""

    def __init__(
        self,
        limits: ScanLimits,
        basis_maker: BasisMaker,
        sink: ObjectSink,
        clock_ns: Callable[[], int],
        rehash: bool,
        pulse: Pulse,
        keep: Callable[[DirNode], None],
        helped: Help,
    ) -> None:
        self._limits = limits
        self._basis_maker = basis_maker
        self._sink = sink
        self._clock_ns = clock_ns
        self._rehash = rehash
        self._pulse = pulse
        self._keep = keep
        self._helped = helped
        self._run: HelperRun | None = None
        self._alone_until = limits.help_after
        self._waiting: list[tuple[Frame, Frame]] = []
        self._kept_files = 0
        self._kept_bytes = 0
        self.root_dev = 0
        self.margin_ns = 0
        self.mounts: frozenset[bytes] = frozenset()
        self.skipped: list[Exclusion] = []
        self.excluded: list[Exclusion] = []
        self.listed_count = 0
        self.linked: set[bytes] = set()
        self.looked_at: set[bytes] = set()
        self.entered: list[bytes] = []

    def carry_over(self, before: ScanResult) -> list[Basis]:
        """Take over what an earlier scan said of paths that this one has not looked at; give its repositories there."""
        tops = frozenset(self.looked_at)
        self.skipped += [item for item in before.skipped if not covers(tops, item.path)]
        self.excluded += [item for item in before.excluded if not covers(tops, item.path)]
        self.linked |= {path for path in before.linked if not covers(tops, path)}
        return [basis for basis in before.repositories if not covers(tops, basis.path)]

    def run(self, root: Frame) -> DirNode:
        self._stack = stack = FrameStack(root)
        try:
            self._list(root)
            while True:
                frame = stack.top
                if frame.pending:
                    child = self._enter(frame, *frame.pending.pop())
                    if child is not None:
                        stack.push(child)
                        self._list(child)
                    continue
                if stack.is_at_root:
                    return self._finish_waiting(frame) if frame.waits else self._finish(frame)
                node = None if frame.waits else self._finish(frame)
                above = stack.pop()
                if node is not None:
                    self._place(above, frame, node)
                else:
                    above.waits = True
                    self._waiting.append((frame, above))
        except DomainError:
            with contextlib.suppress(DomainError):
                self._keep_so_far()
            raise
        finally:
            stack.close()
            if self._run is not None:
                self._run.close()
                # It knows how we read a job: left alone, the two would hold each other, and all that was seen.
                self._run = None

    def _finish_waiting(self, root: Frame) -> DirNode:
        """Wait for everything that others read, then finish the directories that waited for it, innermost first."""
        assert self._run is not None  # or there would be nothing to wait for
        self._wait_for(self._run)
        self._take_jobs(self._run.settle())
        while self._run.busy:
            # Somebody died with what had been done.
            self._wait_for(self._run)
            self._take_jobs(self._run.settle())
        for frame, above in self._waiting:
            self._pulse.beat()
            self._place(above, frame, self._finish(frame))
        return self._finish(root)

    def _wait_for(self, run: HelperRun) -> None:
        while run.busy:
            self._count(run.pump(wait=True))
            self._pulse.beat()
            # What is as good as done is not kept twice.
            if run.busy and self._is_much():
                self._keep_so_far()

    def _is_much(self) -> bool:
        """Tell whether so much was read that it is a pity to lose it."""
        files, read_bytes = self._pulse.files - self._kept_files, self._pulse.bytes - self._kept_bytes
        return files >= self._limits.keep_files or read_bytes >= self._limits.keep_bytes

    def _keep_so_far(self) -> None:
        """Have it kept what has been seen. Where that fails, what was read may be lost, and is never kept again."""
        keep, self._keep = self._keep, _keep_nothing
        if keep is _keep_nothing:
            return
        if self._run is not None:
            self._take_jobs(self._run.settle())
        keep(self._stack.so_far(self._waiting))
        self._keep = keep
        self._kept_files, self._kept_bytes = self._pulse.files, self._pulse.bytes

    @staticmethod
    def _place(parent: Frame, frame: Frame, node: DirNode) -> None:
        """Hang a finished directory below its parent; an ignored one only if it holds something tracked."""
        if frame.is_store:
            return
        if frame.only_tracked and not node.entries and not node.children:
            parent.ignored.add(frame.name + b"/")
            return
        if frame.only_tracked and not parent.only_tracked:
            parent.ignored.add(frame.name + b"/")
        parent.children[frame.name] = node

    def _list(self, frame: Frame) -> None:
        """Look at every name of a directory, or at some of them, and read the files that differ from the model."""
        self._pulse.beat()
        self.listed_count += 1
        frame.now_ns = self._clock_ns()
        frame.place = place_of(folder_sign(os.fstat(frame.fd)))
        if frame.look is not None and frame.old is not None and self._list_some(frame, frame.look, frame.old):
            if frame.jobs:
                self._submit(frame)
            return
        frame.look = None
        self.looked_at.add(frame.path)
        try:
            with os.scandir(frame.fd) as listing:
                items = {item.name.encode(_ENCODING, _ERRORS): item for item in listing}
        except OSError as error:
            if not frame.path:
                raise from_os_error(error, "list the worktree") from error
            refuse_shortage(error, frame.path)
            self._skip(frame.path, UNREADABLE, error.strerror)
            return
        if frame.path and is_store_folder(frame.fd, items):
            frame.is_store = True
            self.excluded.append(Exclusion(frame.path, STORE, "checkpoints of another worktree"))
            return
        self.entered.append(frame.path)
        frame.basis = self._basis_maker.enter(frame.basis, frame.path, frame.fd, items, frame.old)
        known = frame.old if frame.old is not None and frame.old.basis is frame.basis else None
        if frame.only_tracked:
            known = None
        expected = known.entries if known is not None and not self._rehash else {}
        largest = self._limits.max_file_bytes
        new_up_to, ignored = self._new_up_to(frame), frame.basis.chain.ignored
        for name, item in items.items():
            before = expected.get(name)
            # All names that are never saved begin with a dot.
            if before is None and name[0] == _DOT and self._is_never_saved(frame, name):
                continue
            try:
                found = item.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._skip(frame.path_of(name), UNREADABLE, error.strerror)
                continue
            if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
                self.linked.add(frame.path_of(name))
            # The short way of nearly every file of an idle scan; all else is decided step by step.
            if before is not None and is_settled(before, found) and found.st_size <= largest:
                frame.entries[name] = before
            # And that of nearly every file of a first one.
            elif (
                found.st_size <= new_up_to
                and stat.S_ISREG(found.st_mode)
                and found.st_dev == self.root_dev
                and not ignored(frame.path_of(name), False)
            ):
                self._leave_to_others(frame, name, found)
            else:
                self._sort_in(frame, name, found, known)
        if frame.jobs:
            self._submit(frame)

    def _new_up_to(self, frame: Frame) -> int:
        """Give up to how many bytes a new file is just left to others; -1 where more is to be decided here."""
        if self._run is None or frame.old is not None or frame.only_tracked or self.mounts:
            return -1
        return min(self._limits.max_file_bytes, STREAM_ABOVE_BYTES)

    def _list_some(self, frame: Frame, look: Look, old: DirNode) -> bool:
        """Look at some names; False where the directory has to be listed: what it is or what rules it may be other."""
        basis = old.basis
        if not isinstance(basis, Basis) or frame.only_tracked or not look.names.isdisjoint(TELLING):
            return False
        if basis is not frame.basis and basis.parent is not frame.basis:
            return False
        if may_be_store(old.entries, old.children, old.ignored):
            return False
        if look.itself and not self._look_everywhere(frame, look, old):
            return False
        frame.basis = basis
        frame.entries, frame.children, frame.ignored = dict(old.entries), dict(old.children), set(old.ignored)
        for name in (*look.names, *(name for name in look.below if name not in look.names)):
            self._look_at(frame, name, look, old)
        return True

    @staticmethod
    def _look_everywhere(frame: Frame, look: Look, old: DirNode) -> bool:
        """Have each name looked at; False where the directory has rules, or can't be listed any more."""
        try:
            names = {name.encode(_ENCODING, _ERRORS) for name in os.listdir(frame.fd)}
        except OSError:
            return False
        for name in names | old.entries.keys() | old.children.keys():
            if name in old.children:
                look.child(name)
            else:
                look.names.add(name)
        return TELLING.isdisjoint(names)

    def _look_at(self, frame: Frame, name: bytes, look: Look, old: DirNode) -> None:
        """Decide anew about a name, or go into a directory that is known to be what it was."""
        only_below = name not in look.names
        known = name in old.children
        if only_below and not known and name + b"/" in old.ignored:
            return
        found = self._stat(frame, name)
        frame.children.pop(name, None)
        if only_below and known and found is not None and stat.S_ISDIR(found.st_mode):
            frame.pending.append((name, found, name + b"/" in old.ignored))
            return
        self.looked_at.add(frame.path_of(name))
        frame.entries.pop(name, None)
        frame.ignored -= {name, name + b"/"}
        if found is None or self._is_never_saved(frame, name):
            return
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            self.linked.add(frame.path_of(name))
        self._sort_in(frame, name, found, None)

    def _stat(self, frame: Frame, name: bytes) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=frame.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._skip(frame.path_of(name), UNREADABLE, error.strerror)
            return None

    def _is_never_saved(self, frame: Frame, name: bytes) -> bool:
        """Tell whether a name is left out by what it is, and say so where a person might wonder."""
        if not is_git_dir(name):
            return is_temporary(name)
        if name == b".git":
            # Never said to be left out, but a directory that holds it cannot be deleted.
            frame.ignored.add(name)
        else:
            self.excluded.append(Exclusion(frame.path_of(name), NAME))
        return True

    def _sort_in(self, frame: Frame, name: bytes, found: os.stat_result, known: DirNode | None) -> None:
        """Decide what a name is: ignored, left out, a directory to walk, or a file to keep or read."""
        is_dir = stat.S_ISDIR(found.st_mode)
        if is_dir and (found.st_dev, found.st_ino) in self._limits.guard:
            return
        if known is not None and name in (known.children if is_dir else known.entries):
            ignored = is_dir and name + b"/" in known.ignored
        else:
            ignored = self._is_ignored(frame, name, is_dir, known)
        if is_dir:
            if ignored and not frame.basis.tracked.has_below(frame.path_of(name)):
                frame.ignored.add(name + b"/")
            elif self._is_other_mount(frame, name, found):
                self.excluded.append(Exclusion(frame.path_of(name), OTHER_MOUNT))
            else:
                frame.pending.append((name, found, ignored))
            return
        if ignored:
            frame.ignored.add(name)
            return
        self._take_file(frame, name, found)

    def _is_other_mount(self, frame: Frame, name: bytes, found: os.stat_result) -> bool:
        if not self._limits.one_file_system:
            return False
        return found.st_dev != self.root_dev or (bool(self.mounts) and frame.path_of(name) in self.mounts)

    def _is_ignored(self, frame: Frame, name: bytes, is_dir: bool, known: DirNode | None) -> bool:
        path = frame.path_of(name)
        if frame.only_tracked:
            return is_dir or not frame.basis.tracked.has_file(path)
        if known is not None and (name + b"/" if is_dir else name) in known.ignored:
            return True
        if not frame.basis.chain.ignored(path, is_dir):
            return False
        return is_dir or not frame.basis.tracked.has_file(path)

    def _take_file(self, frame: Frame, name: bytes, found: os.stat_result) -> None:
        kind = stat.S_IFMT(found.st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFLNK):
            self.excluded.append(Exclusion(frame.path_of(name), SPECIAL))
        elif self._is_other_mount(frame, name, found):
            self.excluded.append(Exclusion(frame.path_of(name), OTHER_MOUNT))
        elif found.st_size > self._limits.max_file_bytes and kind == stat.S_IFREG:
            self.excluded.append(Exclusion(frame.path_of(name), LARGE, f"{found.st_size} bytes"))
        else:
            before = frame.old.entries.get(name) if frame.old is not None else None
            if (
                before is not None
                and before[SIGNATURE] == signature(found)
                and not is_racy(before)
                and not self._rehash
            ):
                frame.entries[name] = before
            else:
                self._read(frame, name, found)

    def _read(self, frame: Frame, name: bytes, found: os.stat_result) -> None:
        pulse = self._pulse
        if self._is_for_others(found):
            self._leave_to_others(frame, name, found)
            return
        if self._is_much():
            self._keep_so_far()
        if stat.S_ISLNK(found.st_mode):
            pulse.beat()
            result = read_link(frame.fd, name, found, self._sink)
        else:
            pulse.files += 1
            pulse.beat()
            result = read_file(frame.fd, name, self._sink, frame.now_ns - self.margin_ns, pulse.beat)
            if found.st_size <= STREAM_ABOVE_BYTES:
                pulse.bytes += found.st_size
        self._note(frame, name, result)

    def _note(self, frame: Frame, name: bytes, result: ReadResult) -> None:
        if result.problem is not None:
            if result.problem == SPECIAL:
                self.excluded.append(Exclusion(frame.path_of(name), SPECIAL))
                return
            self._skip(frame.path_of(name), result.problem, result.detail)
        if result.oid is not None:
            frame.entries[name] = pack_entry(result.oid, result.sign, racy=self._is_racy(frame, result))

    def _is_for_others(self, found: os.stat_result) -> bool:
        """Tell whether a file is one of very many; a large one is read here, where its pieces are heard of."""
        if self._pulse.files < self._alone_until or found.st_size > STREAM_ABOVE_BYTES:
            return False
        if self._run is None:
            self._run = self._helped(self._read_job)
            self._alone_until = self._alone_until if self._run is not None else sys.maxsize
        return self._run is not None and stat.S_ISREG(found.st_mode)

    def _leave_to_others(self, frame: Frame, name: bytes, found: os.stat_result) -> None:
        if not frame.jobs or not frame.jobs[-1].add(name, found.st_size):
            here = os.fstat(frame.fd)
            job = HashJob(frame, frame.path, (here.st_dev, here.st_ino), frame.now_ns, self.margin_ns)
            job.add(name, found.st_size)
            frame.jobs.append(job)

    def _submit(self, frame: Frame) -> None:
        assert self._run is not None  # it took the files that these jobs are of
        frame.waits = True
        frame.jobs[0].is_all = len(frame.jobs) == 1 and not (frame.entries or frame.pending or frame.children)
        for job in frame.jobs:
            self._run.submit(job)
        frame.jobs = []
        self._count(self._run.pump())
        if self._is_much():
            self._keep_so_far()

    def _count(self, jobs: list[HashJob]) -> None:
        for job in jobs:
            self._pulse.files += len(job.names)
            self._pulse.bytes += job.content_bytes

    def _take_jobs(self, jobs: list[HashJob]) -> None:
        for job in jobs:
            assert isinstance(job.owner, Frame)  # as _leave_to_others() made it
            entries = job.owner.entries
            for name, result in zip(job.names, job.results, strict=True):
                if isinstance(result, bytes):
                    entries[name] = result
                else:
                    self._note(job.owner, name, result)

    def _read_job(self, job: HashJob) -> None:
        """Do a job here after all: nobody is left who could."""
        frame = job.owner
        assert isinstance(frame, Frame)  # as _leave_to_others() made it
        fd = reopen(self._stack.root_fd, frame.path, job.identity)
        if fd < 0:
            moved = ReadResult(None, b"", problem=UNSTABLE, detail="its directory was moved while it was read")
            job.results = [moved] * len(job.names)
            return
        try:
            fresh_ns = job.now_ns - job.margin_ns
            job.results = [read_file(fd, name, self._sink, fresh_ns, self._pulse.beat) for name in job.names]
        finally:
            os.close(fd)

    def _is_racy(self, frame: Frame, result: ReadResult) -> bool:
        """Tell whether a change after this look could leave the same stat data behind."""
        if result.problem is not None:
            return True
        return is_young(result.ctime_ns, frame.now_ns, self.margin_ns)

    def _enter(self, parent: Frame, name: bytes, found: os.stat_result, ignored: bool) -> Frame | None:
        path = parent.path_of(name)
        perm = stat.S_IMODE(found.st_mode)
        old = parent.old.children.get(name) if parent.old is not None else None
        if parent.fd < 0:
            self._skip(path, UNSTABLE, "its directory was moved while it was read")
            return None
        try:
            fd = os.open(name, DIR_FLAGS, dir_fd=parent.fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                self.looked_at.add(path)
                self._skip(path, UNSTABLE, "changed its type while it was read")
                return None
            refuse_shortage(error, path)
            self.looked_at.add(path)
            self._skip(path, UNREADABLE, error.strerror)
            parent.children[name] = self._build({}, {}, frozenset(), perm, None, None)
            return None
        frame = Frame(fd, path, name, perm, old, parent.basis)
        frame.only_tracked = ignored or parent.only_tracked
        if parent.look is not None and name not in parent.look.names and old is not None:
            frame.look = parent.look.below.get(name)
        return frame

    def _finish(self, frame: Frame) -> DirNode:
        old = frame.old
        if (
            old is not None
            and old.tree
            and old.modes != b""
            and old.basis is frame.basis
            and old.perm == frame.perm
            and old.entries == frame.entries
            and old.ignored == frame.ignored
            and old.children.keys() == frame.children.keys()
            and all(old.children[name] is child for name, child in frame.children.items())
        ):
            if place_of(old.sign) != frame.place:
                old.sign = frame.place
            return old
        ignored = frozenset(frame.ignored)
        sign = frame.place
        if old is not None and place_of(old.sign) == sign and _same_names(old, frame):
            sign = old.sign
        return self._build(frame.entries, frame.children, ignored, frame.perm, old, frame.basis, sign)

    def _build(
        self,
        entries: dict[bytes, bytes],
        children: dict[bytes, DirNode],
        ignored: frozenset[bytes],
        perm: int,
        old: DirNode | None,
        basis: Basis | None,
        sign: bytes = b"",
    ) -> DirNode:
        tree = (
            old.tree if old is not None and _same_tree(old, entries, children) else self._write_tree(entries, children)
        )
        modes = self._write_modes(entries, children)
        return DirNode(entries, children, ignored, perm, tree, modes, basis, sign)

    def _write_tree(self, entries: dict[bytes, bytes], children: dict[bytes, DirNode]) -> bytes:
        content = [(name, KINDS[entry[KIND]].text, entry[OID]) for name, entry in entries.items()]
        below = [(name, child.tree) for name, child in children.items()]
        return self._sink.add(b"tree", join_tree(content, below))

    def _write_modes(self, entries: dict[bytes, bytes], children: dict[bytes, DirNode]) -> bytes | None:
        perms = {name: child.perm for name, child in children.items() if is_exception(DIRECTORY, child.perm)}
        for name, entry in entries.items():
            perm = KINDS[entry[KIND]].exception
            if perm is not None:
                perms[name] = perm
        below = {name: child.modes for name, child in children.items() if child.modes}
        if not perms and not below:
            return None
        blob = self._sink.add(b"blob", format_exceptions(perms)) if perms else None
        return self._sink.add(b"tree", format_tree(modes_tree(blob, below)))

    def _skip(self, path: bytes, reason: str, detail: str | None) -> None:
        self.skipped.append(Exclusion(path, reason, detail))


def _keep_nothing(_so_far: DirNode) -> None:
    return None


def _help_nothing(_read: Callable[[HashJob], None]) -> None:
    return None


def _same_names(old: DirNode, frame: Frame) -> bool:
    return (
        old.entries.keys() == frame.entries.keys()
        and old.children.keys() == frame.children.keys()
        and old.ignored == frame.ignored
    )


def _same_tree(old: DirNode, entries: dict[bytes, bytes], children: dict[bytes, DirNode]) -> bool:
    """Tell whether a directory's tree object is still the one that the model has."""
    if not old.tree or old.entries.keys() != entries.keys() or old.children.keys() != children.keys():
        return False
    return all(_same_blob(old.entries[name], entry) for name, entry in entries.items()) and all(
        old.children[name].tree == child.tree for name, child in children.items()
    )


def _same_blob(one: bytes, other: bytes) -> bool:
    return one is other or (one[:20] == other[:20] and mode_of(one) == mode_of(other))
