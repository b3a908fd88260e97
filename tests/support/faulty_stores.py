"""Stores in memory that fulfil the ports of the core, each faulty one named for its fault."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from ckpt_protocol import checkpoint, store, worktree
from ckpt_protocol.structs import Worktree, from_wire, to_wire
from ckptd.autosave import Autosave
from ckptd.core.ports import Caller, OpenedStore, WatchPlan
from ckptd.errors import DomainError
from support.opened import Opened
from support.wire_samples import SAMPLES

__all__ = [
    "SHORT",
    "BadCloseStore",
    "BrokenCatalog",
    "CrashingStore",
    "FailsOnceCatalog",
    "FailsOnceStore",
    "Gate",
    "HangingOpenCatalog",
    "MemoryCatalog",
    "MemoryPlan",
    "MemoryStore",
    "NamesOnDeadMounts",
    "SlowDeleteCatalog",
    "SlowStore",
    "place",
]

PATIENCE_S = 60.0
SHORT = Autosave(quiet_s=0.02, max_wait_s=0.1)


def place(path: bytes, ino: int | None = 1) -> Worktree:
    """Name a worktree as a client does; the fakes know every directory under inode 1."""
    number = None if ino is None else str(ino)
    return Worktree(path=to_wire(path), dev=None if ino is None else "1", ino=number)


class NamesOnDeadMounts:
    """Resolves names of checkpoint directories: ``leads`` says where those lead that are links.

    Each name of ``dead`` waits at its gate, as for a network mount that does not answer.
    """

    def __init__(self, *dead: bytes) -> None:
        self.dead = {name: Gate() for name in dead}
        self.leads: dict[bytes, bytes] = {}
        self.asked: list[tuple[bytes, str]] = []
        """Names, and the threads in which they were looked at."""

    def __call__(self, checkpoint_dir: bytes) -> bytes:
        self.asked.append((checkpoint_dir, threading.current_thread().name))
        if checkpoint_dir in self.dead:
            self.dead[checkpoint_dir].wait()
        return self.leads.get(checkpoint_dir, checkpoint_dir)

    def revive(self) -> None:
        """Let all mounts answer again."""
        for gate in self.dead.values():
            gate.open()


class Gate:
    """Holds up a thread until the test opens it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def wait(self) -> None:
        self.reached.set()
        assert self._open.wait(PATIENCE_S), "the test never opened the gate"


class MemoryPlan(NamedTuple):
    """What is worth watching, as a test says."""

    directories: list[bytes] = [b""]
    left_out: frozenset[bytes] = frozenset()

    def leaves_out(self, path: bytes) -> bool:
        return path in self.left_out

    def is_directory(self, path: bytes) -> bool:
        return path in self.directories


@dataclass
class MemoryStore:
    """Writer and reader at once. It notices when two threads are in it, and when it is used after its end."""

    saves: list[checkpoint.SaveParams] = field(default_factory=list)
    writer_threads: set[str] = field(default_factory=set)
    reader_threads: set[str] = field(default_factory=set)
    closes: int = 0
    tends: int = 0
    tends_left: int = 0
    moments: list[float] = field(default_factory=list)
    let_gos: int = 0
    pressure: float = 0.0
    faults: list[str] = field(default_factory=list)
    options: Autosave = SHORT
    plan: WatchPlan = field(default_factory=MemoryPlan)
    _writing: threading.Lock = field(default_factory=threading.Lock)
    closed_in: set[str] = field(default_factory=set)

    def check_place(self, place: Worktree) -> None:
        self._enter("check_place")
        if place.ino not in (None, "1"):
            raise DomainError("identity_mismatch", "another directory")

    def save(self, params: checkpoint.SaveParams, caller: Caller) -> checkpoint.SaveResult:
        self._enter("save")
        if not self._writing.acquire(blocking=False):
            self.faults.append("two operations at once")
        try:
            self.make(params)
        finally:
            self._writing.release()
        return checkpoint.SaveResult(
            id=f"{len(self.saves):040x}",
            seq=len(self.saves),
            created=True,
            complete=True,
            skipped=[],
            excluded=[],
            files=1,
        )

    def autosave(self, params: checkpoint.SaveParams, caller: Caller) -> checkpoint.SaveResult:
        return self.save(params, caller)

    def set_autosave(self, on: bool) -> Autosave:
        self._enter("set_autosave")
        self.options = self.options._replace(on=on)
        return self.options

    def scans(self) -> worktree.Scans:
        self._enter("scans")
        return worktree.Scans(watching=False, watched=0, full=len(self.saves), missed=0, fall_backs=[])

    def watch_plan(self) -> WatchPlan:
        self._enter("watch_plan")
        return self.plan

    def make(self, params: checkpoint.SaveParams) -> None:
        self.saves.append(params)

    def status(self, params: worktree.StatusParams, caller: Caller) -> worktree.StatusResult:
        self._enter("status")
        return msgspec.structs.replace(SAMPLES["worktree.status"].result, state="?", halted="?")

    def head(self, params: checkpoint.HeadParams) -> checkpoint.HeadResult:
        self.reader_threads.add(threading.current_thread().name)
        if not self.saves:
            raise DomainError("no_checkpoint", "no checkpoint yet")
        return checkpoint.HeadResult(id=f"{len(self.saves):040x}")

    def tend(self, is_wanted, at_most_s) -> bool:
        """Housekeeping: as often as ``tends_left`` says there is more to do."""
        self._enter("tend")
        self.moments.append(at_most_s)
        self.tends += 1
        self.tends_left -= 1
        return self.tends_left > 0

    def let_go(self) -> None:
        self.let_gos += 1

    def close(self) -> None:
        self.closes += 1
        self.closed_in.add(threading.current_thread().name)

    def _enter(self, what: str) -> None:
        self.writer_threads.add(threading.current_thread().name)
        # As a reader it may be closed while its writer still does something.
        if threading.current_thread().name in self.closed_in:
            self.faults.append(f"{what} after close")


@dataclass
class SlowStore(MemoryStore):
    """Its saves wait at a gate."""

    gate: Gate = field(default_factory=Gate)

    def make(self, params: checkpoint.SaveParams) -> None:
        self.gate.wait()
        super().make(params)


@dataclass
class FailsOnceStore(MemoryStore):
    """So many saves fail with an error of this kind."""

    kind: str = "no_space"
    times: int = 1

    def make(self, params: checkpoint.SaveParams) -> None:
        if self.times:
            self.times -= 1
            raise DomainError(self.kind, "as the test wants it")
        super().make(params)


class CrashingStore(MemoryStore):
    """A save wants to end the whole program."""

    def make(self, params: checkpoint.SaveParams) -> None:
        raise SystemExit(3)


class BadCloseStore(MemoryStore):
    """It does not close cleanly."""

    def close(self) -> None:
        super().close()
        raise OSError(5, "Input/output error")


class Measuring:
    """A look at all stores that goes on in steps until ``enough`` is set."""

    is_waiting = False

    def __init__(self) -> None:
        self.steps = 0
        self.closes = 0
        self.enough = threading.Event()

    def step(self) -> store.UsageResult | None:
        self.steps += 1
        if self.enough.wait(0.001):
            return store.UsageResult(stores=[], bytes=0, max_store_bytes=0, damaged=[])
        return None

    def close(self) -> None:
        self.closes += 1


class MemoryCatalog:
    """Checkpoint directories in memory: ``kept`` are the stores there are, ``gone`` the worktrees that are not.

    ``moved`` gives the paths where worktrees were until they were moved, by those where they are.
    """

    def __init__(self, make: Callable[[], MemoryStore] = MemoryStore) -> None:
        self._make = make
        self.kept: dict[tuple[bytes, bytes], MemoryStore] = {}
        self.gone: set[bytes] = set()
        self.moved: dict[bytes, bytes] = {}
        self.opened: list[tuple[bytes, bool, bool]] = []
        self.deleted: list[bytes] = []
        self.faults: list[str] = []
        self.measures_long = False
        self.measuring: list[Measuring] = []
        self._open_folders: dict[bytes, MemoryStore] = {}

    def keep(self, checkpoint_dir: bytes, path: bytes) -> MemoryStore:
        """Have a store before the test begins."""
        return self.kept.setdefault((checkpoint_dir, path), self._make())

    def adopt(
        self, checkpoint_dir: bytes, place: Worktree, old: bytes, *, force: bool, dry_run: bool
    ) -> worktree.AdoptResult:
        path = from_wire(place.path)
        # Another request was faster.
        done = (checkpoint_dir, path) in self.kept
        of = (before for directory, before in self.kept if directory == checkpoint_dir)
        before = path if done else next(each for each in of if old in (each, self.folder(checkpoint_dir, each)))
        kept, folder = self.kept[(checkpoint_dir, before)], self.folder(checkpoint_dir, before)
        if not (dry_run or done):
            if folder in self._open_folders and not self._open_folders[folder].closes >= 2:
                self.faults.append("adopted while open")
            self.kept[(checkpoint_dir, path)] = self.kept.pop((checkpoint_dir, before))
            self.moved.pop(path, None)
        return worktree.AdoptResult(
            path=to_wire(path),
            old=to_wire(before),
            store=to_wire(folder),
            checkpoints=len(kept.saves),
            sure=True,
            dry_run=dry_run,
        )

    def open(self, checkpoint_dir: bytes, place: Worktree, *, create: bool, force: bool) -> OpenedStore:
        path = from_wire(place.path)
        self.opened.append((path, create, force))
        if place.ino not in (None, "1"):
            raise DomainError("identity_mismatch", "another directory")
        key = (checkpoint_dir, path)
        created = key not in self.kept
        if created and path in self.moved:
            raise DomainError("worktree_moved", "it has come from elsewhere", paths=(path, self.moved[path]))
        if created and not create:
            raise DomainError("not_tracked", "no checkpoints")
        if created and path.startswith(b"/protected") and not force:
            raise DomainError("protected_place", "not without force")
        kept = self.keep(*key)
        folder = self.folder(*key)
        if folder in self._open_folders and not self._open_folders[folder].closes >= 2:
            self.faults.append("opened twice")
        kept.closes = 0
        kept.closed_in.clear()
        self._open_folders[folder] = kept
        return Opened(folder, created, kept, kept, kept.options)

    def folder(self, checkpoint_dir: bytes, path: bytes) -> bytes:
        return checkpoint_dir + path.replace(b"/", b"_")

    def watched(self, checkpoint_dir: bytes) -> Sequence[bytes]:
        return sorted(
            path for (directory, path), kept in self.kept.items() if kept.options.on and directory == checkpoint_dir
        )

    def list(self, checkpoint_dir: bytes) -> worktree.ListResult:
        found = [
            worktree.Workspace(
                path=to_wire(path),
                store=to_wire(self.folder(directory, path)),
                state="missing" if path in self.gone else "ok",
                checkpoints=len(kept.saves),
                bytes=0,
            )
            for (directory, path), kept in sorted(self.kept.items())
            if directory == checkpoint_dir
        ]
        return worktree.ListResult(workspaces=found, damaged=[])

    def usage(self, checkpoint_dir: bytes, worktree_path: bytes | None) -> Measuring:
        run = Measuring()
        self.measuring.append(run)
        if not self.measures_long:
            run.enough.set()
        return run

    def dead(self, checkpoint_dir: bytes) -> store.PruneResult:
        found = [
            store.PrunedStore(path=entry.path, store=entry.store, checkpoints=entry.checkpoints, bytes=0)
            for entry in self.list(checkpoint_dir).workspaces
            if entry.state == "missing"
        ]
        return store.PruneResult(pruned=found, unreachable=[], dry_run=True)

    def delete(self, checkpoint_dir: bytes, folder: bytes) -> None:
        if folder in self._open_folders and self._open_folders[folder].closes < 2:
            self.faults.append("deleted while open")
        self.kept = {key: kept for key, kept in self.kept.items() if self.folder(*key) != folder}
        self._open_folders.pop(folder, None)
        self.deleted.append(folder)

    def find(self, checkpoint_dir: bytes, worktree_path: bytes) -> tuple[bytes, int] | None:
        kept = self.kept.get((checkpoint_dir, worktree_path))
        return kept and (self.folder(checkpoint_dir, worktree_path), len(kept.saves))

    def check(self) -> None:
        """Fail where a store was misused, or is still open."""
        still = [folder for folder, kept in self._open_folders.items() if kept.closes != 2]
        faults = self.faults + [fault for kept in self.kept.values() for fault in kept.faults]
        assert (faults, still) == ([], []), "misused or still open"


class HangingOpenCatalog(MemoryCatalog):
    """Opening waits at a gate, as on a dead network mount."""

    def __init__(self, make: Callable[[], MemoryStore] = MemoryStore) -> None:
        super().__init__(make)
        self.gate = Gate()

    def open(self, checkpoint_dir: bytes, place: Worktree, *, create: bool, force: bool) -> OpenedStore:
        self.gate.wait()
        return super().open(checkpoint_dir, place, create=create, force=force)


class FailsOnceCatalog(MemoryCatalog):
    """The first opening fails."""

    def open(self, checkpoint_dir: bytes, place: Worktree, *, create: bool, force: bool) -> OpenedStore:
        if not self.opened:
            self.opened.append((from_wire(place.path), create, force))
            raise DomainError("too_many_files", "as the test wants it")
        return super().open(checkpoint_dir, place, create=create, force=force)


class BrokenCatalog(MemoryCatalog):
    """Opening has a bug."""

    def open(self, checkpoint_dir: bytes, place: Worktree, *, create: bool, force: bool) -> OpenedStore:
        raise ZeroDivisionError("a bug")


class SlowDeleteCatalog(MemoryCatalog):
    """Deleting a store waits at a gate."""

    def __init__(self, make: Callable[[], MemoryStore] = MemoryStore) -> None:
        super().__init__(make)
        self.gate = Gate()

    def delete(self, checkpoint_dir: bytes, folder: bytes) -> None:
        self.gate.wait()
        super().delete(checkpoint_dir, folder)
