"""Carrying out the steps of a restore in the worktree.

The order: directories that must become writable, deletions (deepest first), new directories (topmost first), files
and links, and at last the permissions of directories (deepest first). Each is done a directory at a time: it is walked
to from the root, the changes are made so that they can be taken back, and they are made final only if a second walk
leads to the same directory. A step that can't be done leaves its path as it is; the others go on. A crew may work in
several directories at a time; what needs something else to be final waits for that.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from ckptd.errors import DomainError
from ckptd.shadow.restore.batch import Batch, Tools
from ckptd.shadow.restore.change import Change, undone
from ckptd.shadow.restore.crew import Crew
from ckptd.shadow.restore.exchange import Renamer
from ckptd.shadow.restore.handle import Blocked, Directory, parts_of, walk
from ckptd.shadow.restore.look import Refused, told
from ckptd.shadow.restore.stage import Source
from ckptd.shadow.restore.sync import sync
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.tree import storable

__all__ = ["BATCH_STEPS", "Failed", "Outcome", "RestoreWriter", "Source", "sync"]

_AWAY: Final = ("moved", "the worktree itself was moved away or replaced meanwhile")
BATCH_STEPS: Final = 256
"""As many files have a temporary beside them at a time for each that works: so much room is needed."""


class Failed(NamedTuple):
    """A step that was not done, and why.

    ``reason`` is ``changed``, ``special``, ``unreadable``, ``not_empty``, ``beyond_symlink``, ``other_mount``,
    ``moved``, ``bad_name``, ``bad_link``, ``case_fold``, ``cancelled``, ``io``, or a kind of DomainError (``no_space``,
    ``permission_denied``, ``read_only``, ``too_many_files``, ``object_missing``, ``store_damaged``).
    """

    path: bytes
    reason: str
    detail: str | None


class Outcome(NamedTuple):
    """What became of each step, in the order of the steps; every path is in exactly one list.

    ``kept`` are directories that were to go but are not empty. ``weak``: the file system has no exchange, so that a
    write in the last instant before a rename could have been lost.
    """

    written: list[bytes]
    deleted: list[bytes]
    failed: list[Failed]
    kept: list[bytes]
    weak: bool


class _Job(NamedTuple):
    """One piece of a step. An ``optional`` one belongs to no step's result, and may fail.

    One that ``removes`` has done so where there is nothing; after one that ``goes`` nothing is to be in its place.
    One that ``follows`` finds what it needs only when all of its phase is final in the directories before its own.
    """

    number: int
    parent: bytes
    do: Callable[[Batch], object]
    removes: bool = False
    optional: bool = False
    follows: bool = False
    goes: bool = False


class _Jobs:
    """The pieces of all steps by phase."""

    def __init__(self) -> None:
        self.unlocks: Final[list[_Job]] = []
        self.removals: Final[list[_Job]] = []
        self.directories: Final[list[_Job]] = []
        self.writes: Final[list[_Job]] = []
        self.settles: Final[list[_Job]] = []

    def gather(self) -> None:
        """Leave to the last what only goes from a directory that is written to: one way there serves for both.

        It stays the first of what is done there, for the names that come may fold together with it.
        """
        counts = Counter(job.parent for job in (*self.removals, *self.writes))
        writing = {job.parent for job in self.writes} - {job.parent for job in self.directories}
        gathered = {parent for parent in writing if counts[parent] <= BATCH_STEPS}
        late = [job for job in self.removals if job.goes and job.parent in gathered]
        self.removals[:] = [job for job in self.removals if not (job.goes and job.parent in gathered)]
        self.writes[:0] = late


def _is_dir(state: State | None) -> bool:
    return state is not None and state.is_dir


def _locked(state: State | None) -> bool:
    return state is not None and state.is_dir and state.perm is not None and state.perm & 0o700 != 0o700


class RestoreWriter:
    """Writes one restore into the worktree whose directory is ``root_fd`` (borrowed) on device ``root_dev``.

    ``umask`` is the client's. ``cancelled`` is asked before each step, ``progress`` told how many are done (and 0).
    ``hooks`` is called with a point's name and a path: ``opened``, ``staged``, ``before-create``, ``created``,
    ``before-exchange``, ``before-rename``, ``exchanged``, ``before-aside``, ``aside``, ``before-mkdir``, ``mkdir``,
    ``before-chmod``, ``before-verify``, ``verified``, ``before-unlink``, ``unlinked``, ``before-undo``; what it raises
    leaves ``run`` after everything not yet final has been undone. ``at_home`` tells whether the worktree's own
    directory is still in its place; nothing more is written where it is not. Unless there is so much room that it is
    ``roomy`` everything that only goes does so before anything comes. Where ``crew`` has helpers all of these,
    and ``source``, are called by several threads at once, but for ``progress``.
    """

    def __init__(
        self,
        root_fd: int,
        source: Source,
        *,
        umask: int,
        root_dev: int,
        cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda _done, _bytes: None,
        hooks: Callable[[str, bytes], None] = lambda _name, _path: None,
        renamer: Renamer | None = None,
        at_home: Callable[[], bool] = lambda: True,
        roomy: bool = False,
        crew: Crew | None = None,
    ) -> None:
        self._root_fd: Final = root_fd
        self._at_home: Final = at_home
        self._roomy: Final = roomy
        self._crew: Final = crew or Crew(0)
        self._counting: Final = threading.Lock()
        self._leaving = False
        self._root_dev: Final = root_dev
        self._cancelled: Final = cancelled
        self._progress: Final = progress
        self._hook: Final = hooks
        self._new_tools: Final = partial(Tools, source, umask, renamer or Renamer(), hooks, self._crew.note)
        self._tools: Tools = self._new_tools()
        self._steps: Sequence[Step] = ()
        self._failed: dict[int, Failed] = {}
        self._kept: set[int] = set()
        self._begun: set[int] = set()
        self._unlocked: dict[int, int] = {}
        self._finished = False

    def _is_at_home(self) -> bool:
        # Permissions that were opened up are set back wherever the directory is now.
        return self._leaving or self._at_home()

    def run(self, steps: Sequence[Step]) -> Outcome:
        """Do the steps. Nothing is raised for what happens to one of them; the outcome tells it."""
        self._steps, self._failed, self._kept, self._unlocked = steps, {}, set(), {}
        self._tools, self._begun, self._finished, self._leaving = self._new_tools(), set(), False, False
        jobs = self._plan()
        if self._roomy:
            jobs.gather()
        try:
            self._phase(jobs.unlocks)
            self._phase(jobs.removals, deepest_first=True)
            self._phase(jobs.directories)
            self._phase(jobs.writes)
            self._phase(jobs.settles, deepest_first=True)
            self._finished = True
        finally:
            self._leaving = True
            self._phase(self._relocks(), deepest_first=True)
        return self._outcome()

    @property
    def half_done(self) -> list[bytes]:
        """The paths that failed after a part of the step was done: what stood there is gone, or a directory made."""
        return [self._steps[index].path for index in sorted(self._begun & self._failed.keys())]

    def _plan(self) -> _Jobs:
        jobs = _Jobs()
        passable = {b"": True}
        for index, step in enumerate(self._steps):
            parent, _, name = step.path.rpartition(b"/")
            if parent not in passable:
                passable[parent] = all(map(storable, parent.split(b"/")))
            # An empty parent is the worktree only where the path does not begin with a slash.
            if passable[parent] and storable(name) and step.path[:1] != b"/":
                self._plan_step(jobs, index, step, parent, name)
            else:
                self._failed[index] = Failed(step.path, "bad_name", None)
        return jobs

    def _plan_step(self, jobs: _Jobs, index: int, step: Step, parent: bytes, name: bytes) -> None:
        before, after = step.before, step.after
        turns = _is_dir(before) != _is_dir(after)
        if before is not None and (after is None or turns):
            do = (
                partial(Batch.remove_directory, name=name)
                if before.is_dir
                else partial(Batch.delete, name=name, before=before)
            )
            goes = after is None and not before.is_dir
            jobs.removals.append(_Job(index, parent, do, removes=True, follows=before.is_dir, goes=goes))
        if _locked(before) and not (after is not None and after.is_dir and after.perm is None):
            unlock = partial(self._unlock, index=index, name=name)
            jobs.unlocks.append(_Job(index, parent, unlock, optional=True, follows=True))
        if after is None:
            return
        if not after.is_dir:
            expected = None if turns else before
            jobs.writes.append(_Job(index, parent, partial(Batch.write, name=name, before=expected, after=after)))
            return
        bits = None if after.perm is None else after.perm & 0o7777
        if turns:
            make = partial(Batch.make_directory, name=name, bits=bits)
            jobs.directories.append(_Job(index, parent, make, follows=True))
        if bits is not None:
            settle = partial(Batch.directory_bits, name=name, bits=bits)
            jobs.settles.append(_Job(index, parent, settle, follows=True))

    def _unlock(self, batch: Batch, *, index: int, name: bytes) -> None:
        self._unlocked[index] = batch.directory_bits(name, 0o700, keep=0o7777)

    def _relocks(self) -> list[_Job]:
        """Directories that were made writable to be emptied, or to be given other bits, and were not."""
        jobs = []
        for index, bits in self._unlocked.items():
            if not self._finished or index in self._failed or index in self._kept:
                parent, _, name = self._steps[index].path.rpartition(b"/")
                do = partial(Batch.directory_bits, name=name, bits=bits)
                jobs.append(_Job(-1, parent, do, optional=True, follows=True))
        return jobs

    def _phase(self, jobs: list[_Job], *, deepest_first: bool = False) -> None:
        together: list[Callable[[], None]] = []
        for level in _levels(jobs, deepest_first):
            if any(job.follows for _, batch in level for job in batch):
                self._crew.do(together)
                together = []
            together += [partial(self._run_batch, parent, batch) for parent, batch in level]
        self._crew.do(together)

    def _run_batch(self, parent: bytes, batch: list[_Job]) -> None:
        jobs = [job for job in batch if job.number not in self._failed and job.number not in self._kept]
        if not jobs:
            return
        if not self._is_at_home():
            for job in jobs:
                self._fail(job, *_AWAY)
            return
        try:
            here = walk(self._root_fd, parts_of(parent), self._root_dev)
        except Blocked as error:
            for job in jobs:
                self._fail_blocked(job, error)
            return
        except OSError as error:
            for job in jobs:
                self._fail(job, *told(error))
            return
        try:
            self._hook("opened", parent)
            pending = self._work(here, parent, jobs)
        except BaseException:
            here.close()
            raise
        self._finish(here, pending)

    def _work(self, here: Directory, parent: bytes, jobs: list[_Job]) -> deque[tuple[_Job, Change]]:
        """Make the changes; give those that are verified, and are to be made final."""
        batch = Batch(self._tools, here.fd, here.dev, parent)
        pending: deque[tuple[_Job, Change]] = deque()
        try:
            for job in jobs:
                self._attempt(batch, job)
                pending.extend((job, change) for change in batch.take())
            self._hook("before-verify", parent)
            problem = self._misplaced(here, parent)
            if problem is None:
                self._hook("verified", parent)
            else:
                self._undo(pending, jobs, problem)
        except BaseException:
            _undo_silently([change for _, change in pending] + batch.take())
            raise
        return pending

    def _finish(self, here: Directory, pending: deque[tuple[_Job, Change]]) -> None:
        with here:
            try:
                self._commit(pending)
            except BaseException:
                _undo_silently([change for _, change in pending])
                raise

    def _attempt(self, batch: Batch, job: _Job) -> None:
        if not job.optional and self._cancelled():
            self._fail(job, "cancelled", None)
            return
        try:
            job.do(batch)
        except (Refused, OSError) as error:
            self._fail(job, *told(error))
        except DomainError as error:
            self._fail(job, error.kind, error.message)

    def _misplaced(self, here: Directory, parent: bytes) -> tuple[str, str | None] | None:
        if not self._is_at_home():
            return _AWAY
        try:
            with walk(self._root_fd, parts_of(parent), self._root_dev) as again:
                return None if again.is_same(here) else ("moved", "its directory was replaced by another meanwhile")
        except Blocked:
            return "moved", "its directory was moved away or replaced meanwhile"
        except OSError as error:
            return told(error)

    def _commit(self, pending: deque[tuple[_Job, Change]]) -> None:
        while pending:
            job, change = pending[0]
            path = self._path(job)
            self._hook("before-unlink", path)
            begun_s = time.perf_counter()
            try:
                change.commit()
            except (Refused, OSError) as error:
                reason, detail = told(error)
                self._fail(job, reason, _joined(detail, undone(change)))
            else:
                if change.temporary is not None:
                    self._crew.note("unlink", time.perf_counter() - begun_s)
                if not job.optional:
                    with self._counting:
                        self._begun.add(job.number)
                        self._progress(len(self._begun), 0)
            pending.popleft()
            self._hook("unlinked", path)

    def _undo(self, pending: deque[tuple[_Job, Change]], jobs: list[_Job], problem: tuple[str, str | None]) -> None:
        reason, detail = problem
        while pending:
            job, change = pending[-1]
            self._hook("before-undo", self._path(job))
            self._fail(job, reason, _joined(detail, undone(change)))
            pending.pop()
        for job in jobs:
            self._fail(job, reason, detail)

    def _path(self, job: _Job) -> bytes:
        return self._steps[job.number].path if job.number >= 0 else job.parent

    def _fail_blocked(self, job: _Job, error: Blocked) -> None:
        if error.reason != "gone":
            self._fail(job, error.reason, None)
        elif not job.removes:
            self._fail(job, "changed", "its directory is not there")

    def _fail(self, job: _Job, reason: str, detail: str | None) -> None:
        if job.optional or job.number in self._failed:
            return
        step = self._steps[job.number]
        if reason == "not_empty" and step.after is None:
            self._kept.add(job.number)
        else:
            self._failed[job.number] = Failed(step.path, reason, detail)

    def _outcome(self) -> Outcome:
        written: list[bytes] = []
        deleted: list[bytes] = []
        for index, step in enumerate(self._steps):
            if index not in self._failed and index not in self._kept:
                (deleted if step.after is None else written).append(step.path)
        failed = [self._told(index) for index in sorted(self._failed)]
        kept = [self._steps[index].path for index in sorted(self._kept)]
        return Outcome(written, deleted, failed, kept, self._tools.weak)

    def _told(self, index: int) -> Failed:
        failed = self._failed[index]
        if index not in self._begun:
            return failed
        gone = self._steps[index].before is not None
        what = "what stood there was removed; undo brings it back" if gone else "it was made; undo removes it"
        return failed._replace(detail=_joined(failed.detail, what))


def _joined(*texts: str | None) -> str | None:
    return "; ".join(filter(None, texts)) or None


def _undo_silently(changes: list[Change]) -> None:
    for change in reversed(changes):
        undone(change)


def _levels(jobs: list[_Job], deepest_first: bool) -> Iterator[list[tuple[bytes, list[_Job]]]]:
    """Give the batches, those of directories that lie equally deep together."""
    by_parent: dict[bytes, list[_Job]] = {}
    for job in jobs:
        by_parent.setdefault(job.parent, []).append(job)
    by_depth: dict[int, list[tuple[bytes, list[_Job]]]] = {}
    for parent, together in by_parent.items():
        batches = [(parent, together[start : start + BATCH_STEPS]) for start in range(0, len(together), BATCH_STEPS)]
        by_depth.setdefault(len(parts_of(parent)), []).extend(batches)
    for depth in sorted(by_depth, reverse=deepest_first):
        yield by_depth[depth]
