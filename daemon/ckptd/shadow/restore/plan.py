"""What a restore is going to do: decided in full before anything is written."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from ckpt_protocol.wirepath import to_text
from ckptd.shadow.restore.capture import Found
from ckptd.shadow.scan.exclusion import OTHER_MOUNT, Exclusion
from ckptd.shadow.trees.compare import Delta, same_state
from ckptd.shadow.trees.step import State, Step

__all__ = ["DiskView", "Plan", "digest_of", "make_plan"]


class DiskView(Protocol):
    """What the plan asks of the disk, where the model has no answer."""

    def look(self, path: bytes) -> Found:
        """Tell what stands at a path."""
        ...

    def below(self, path: bytes) -> Iterator[tuple[bytes, Found]]:
        """Give everything below a directory, each directory before what it holds."""
        ...

    def names(self, path: bytes) -> list[bytes]:
        """Give the names in a directory, none where it cannot be listed."""
        ...


class Plan(NamedTuple):
    """``steps`` in order of their paths; ``captured`` is what the safety checkpoint has to hold besides the model.

    ``conflicts`` are paths where the target has something that cannot be put there without loss.
    """

    steps: list[Step]
    kept: list[bytes]
    conflicts: list[Exclusion]
    captured: dict[bytes, State]

    @property
    def digest(self) -> str:
        """The plan's digest."""
        return digest_of(self.steps)


def digest_of(steps: Iterable[Step]) -> str:
    """Hash the sorted (path, before, after) of a plan; 64 hex digits."""
    digest = hashlib.sha256()
    for step in sorted(steps):
        digest.update(b"%d:%s" % (len(step.path), step.path))
        for state in (step.before, step.after):
            digest.update(_text(state))
    return digest.hexdigest()


def make_plan(
    deltas: Iterable[Delta],
    disk: DiskView,
    says_absent: Callable[[bytes, bool], bool],
    left_alone: Sequence[bytes],
) -> Plan:
    """Turn differences (worktree to target) into steps.

    ``says_absent`` tells whether a path that the target lacks was really absent when it was made (else it is
    kept); ``left_alone`` are paths on disk that the scan left out, directories with a slash at the end. A difference
    with nothing on either side stands for a path that may hold what the scan left out, and that is to go.
    """
    planner = _Planner(disk, says_absent, left_alone)
    for delta in sorted(deltas):
        planner.take(delta)
    return planner.finish()


class _Planner:
    def __init__(self, disk: DiskView, says_absent: Callable[[bytes, bool], bool], left_alone: Sequence[bytes]) -> None:
        self._disk = disk
        self._says_absent = says_absent
        self._left_alone = left_alone
        self._steps: dict[bytes, Step] = {}
        self._kept: set[bytes] = set()
        self._conflicts: dict[bytes, Exclusion] = {}
        self._captured: dict[bytes, State] = {}
        # The directories around what is captured: a safety checkpoint must not give them other permissions.
        self._around: dict[bytes, State] = {}
        # Directories that come into being where something else stood: nothing can be below them yet.
        self._fresh: set[bytes] = set()
        # Directories that the scan does not see and that are to go if nothing is left in them.
        self._leftovers: list[bytes] = []
        self._wanted: set[bytes] = set()

    def take(self, delta: Delta) -> None:
        """Decide one path; paths come sorted, so that a directory comes before what it holds."""
        path, old, new = delta
        if self._blocked(path):
            return
        if new is None and old is None:
            self._take_leftover(path)
        elif new is None:
            self._take_deletion(path, old)
        elif old is None:
            self._take_creation(path, new)
        elif old.is_dir and not new.is_dir:
            self._clear_directory(path, old, new)
        else:
            self._add(path, old, new)

    def finish(self) -> Plan:
        """Drop the deletion of directories that have to stay, and say what was left alone."""
        self._spare_leftovers()
        for path in self._holding():
            step = self._steps.get(path)
            if step is not None and step.after is None:
                del self._steps[path]
        kept = self._kept | {path for path in self._left_alone if self._is_kept(path)}
        conflicts = [self._conflicts[path] for path in sorted(self._conflicts)]
        steps = [self._steps[path] for path in sorted(self._steps)]
        return Plan(steps, sorted(kept), conflicts, self._around | self._captured)

    def _take_deletion(self, path: bytes, old: State | None) -> None:
        if old is None or any(parent + b"/" in self._kept for parent in _parents(path)):
            return
        if self._says_absent(path, old.is_dir):
            self._steps[path] = Step(path, old, None)
        elif not old.is_dir:
            self._kept.add(path)
        else:
            self._kept.add(path + b"/")

    def _take_leftover(self, path: bytes) -> None:
        """The scan does not see the path, and nothing is to be there."""
        found = self._disk.look(path)
        if found.state is not None:
            self._capture(path, found.state)
            self._steps[path] = Step(path, found.state, None)
            if found.state.is_dir:
                self._leftovers.append(path)
        elif found.problem not in (None, "beyond_symlink"):
            self._kept.add(path)

    def _spare_leftovers(self) -> None:
        """Leave the directories that hold anything else; the deepest are decided first."""
        for path in sorted(self._leftovers, reverse=True):
            inside = [self._steps.get(path + b"/" + name) for name in self._disk.names(path)]
            if not all(step is not None and step.after is None for step in inside):
                del self._steps[path]
                self._around[path] = self._captured.pop(path)
                self._kept.add(path + b"/")

    def _take_creation(self, path: bytes, new: State) -> None:
        if not new.is_dir:
            self._wanted.add(path)
        if self._is_fresh(path):
            self._add(path, None, new)
            return
        found = self._disk.look(path)
        if found.problem is not None:
            # A mount point is a directory already; what the target has below it is looked at by itself.
            if found.problem != OTHER_MOUNT or not new.is_dir:
                self._conflict(path, found)
        elif found.state is None:
            self._add(path, None, new)
        elif found.state.is_dir and not new.is_dir:
            self._clear_directory(path, found.state, new)
        elif not same_state(found.state, new):
            self._capture(path, found.state)
            self._add(path, found.state, new)

    def _clear_directory(self, path: bytes, old: State, new: State) -> None:
        """A file or link is to stand where a directory is: everything in it has to be captured and go."""
        inside: dict[bytes, State] = {}
        for below, found in self._disk.below(path):
            if found.problem is not None:
                self._conflict(path, Found(problem=found.problem, detail=_inside(below, found)))
                return
            if found.state is not None:
                inside[below] = found.state
        self._capture(path, old)
        for below, state in inside.items():
            self._capture(below, state)
            self._steps[below] = Step(below, state, None)
        self._steps[path] = Step(path, old, new)

    def _capture(self, path: bytes, state: State) -> None:
        self._captured[path] = state
        for parent in _parents(path):
            if parent in self._around or parent in self._captured:
                break
            found = self._disk.look(parent)
            if found.state is not None and found.state.is_dir:
                self._around[parent] = found.state

    def _add(self, path: bytes, old: State | None, new: State) -> None:
        if new.is_dir and (old is None or not old.is_dir):
            self._fresh.add(path)
        self._steps[path] = Step(path, old, new)

    def _conflict(self, path: bytes, found: Found) -> None:
        self._conflicts[path] = Exclusion(path, found.problem or "changed", found.detail)

    def _blocked(self, path: bytes) -> bool:
        """Tell whether a directory above is in conflict, or the path is decided already."""
        if path in self._steps:
            return True
        return bool(self._conflicts) and any(parent in self._conflicts for parent in _parents(path))

    def _is_fresh(self, path: bytes) -> bool:
        return bool(self._fresh) and any(parent in self._fresh for parent in _parents(path))

    def _is_kept(self, path: bytes) -> bool:
        """Tell whether something left alone is worth saying: not where it is a Git directory or has been captured."""
        plain = path.rstrip(b"/")
        if plain.rpartition(b"/")[2] == b".git" or plain in self._wanted:
            return False
        return plain not in self._steps and plain not in self._conflicts

    def _holding(self) -> set[bytes]:
        """Give all directories that hold something that stays."""
        holding: set[bytes] = set()
        staying = [path.rstrip(b"/") for path in (*self._left_alone, *self._kept)]
        for path in staying:
            if path in self._captured:
                continue
            holding.add(path)
            holding.update(_parents(path))
        return holding


def _parents(path: bytes) -> Iterator[bytes]:
    folder = path.rpartition(b"/")[0]
    while folder:
        yield folder
        folder = folder.rpartition(b"/")[0]


def _inside(path: bytes, found: Found) -> str:
    what = found.detail or found.problem or ""
    return f"{to_text(path)} in it: {what}"


def _text(state: State | None) -> bytes:
    if state is None:
        return b"-;"
    bits = b"-" if state.perm is None else b"%o" % state.perm
    return b"%o %s %s;" % (state.mode, state.oid.hex().encode(), bits)
