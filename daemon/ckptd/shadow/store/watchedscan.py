"""Scans of a worktree that is watched: which of them may look at what has changed and nothing else."""

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import Final

from ckpt_protocol.wirepath import to_text
from ckpt_protocol.worktree import FallBack, Scans
from ckptd.doubt import Doubt
from ckptd.shadow.objects.pack import ObjectSink
from ckptd.shadow.scan.basis import Basis
from ckptd.shadow.scan.look import look_at
from ckptd.shadow.scan.model import DirNode, iter_nodes
from ckptd.shadow.scan.mounts import is_local
from ckptd.shadow.scan.scanner import ScanLimits, Scanner, ScanResult
from ckptd.shadow.scan.witness import Witness
from ckptd.shadow.store.settings import Settings
from ckptd.shadow.store.watchcheck import differing, is_told

__all__ = ["WatchedScan"]

_CHECK_EVERY_S: Final = 600.0
_PAUSE_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 3600.0

_logger = logging.getLogger(__name__)


class WatchedScan:
    """Keeps a witness where scans take longer than they should, and what its word builds on.

    That is a scan whose result is the model now, with the same limits: anything else means a scan of everything.
    """

    def __init__(self, folder: bytes, worktree: bytes, guard: frozenset[tuple[int, int]], settings: Settings) -> None:
        self._folder: Final = folder + b"/ckpt/cookies"
        self._worktree: Final = worktree
        self._guard: Final = guard
        self._settings: Final = settings
        self._witness: Witness | None = None
        self._is_held = False
        self._wanted: ScanResult | None = None
        self._last: tuple[ScanResult, ScanLimits] | None = None
        self._counts: tuple[ScanResult, ScanLimits] | None = None
        self._mounts: frozenset[bytes] = frozenset()
        self._pause_s = 0.0
        self._not_before_s = 0.0
        self._begun_s = 0.0
        self._taken = 0
        self._checked_s = time.monotonic()
        self._notes: list[str] = []
        self._missed = 0
        self._saves: Final[Counter[bool]] = Counter()
        self._fall_backs: Final[dict[str, FallBack]] = {}

    def rescan(
        self,
        scanner: Scanner,
        model: DirNode | None,
        sink: ObjectSink,
        *,
        whole: bool,
        cancelled: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> ScanResult | None:
        """Scan what the witness names; None where everything has to be looked at, which begins now."""
        self._begun_s = time.monotonic()
        witness = self._witness
        if witness is None:
            return None
        names = witness.look()
        if whole:
            return None
        if names is None:
            self._fall_back(witness.lost_for)
            return None
        before = self._basis(witness, scanner, model)
        if isinstance(before, Doubt):
            self._fall_back(before)
            return None
        found = scanner.rescan(before, look_at(names), sink, cancelled=cancelled, progress=progress)
        if found is None:
            self._fall_back(Doubt("rules", "rules, mounts or files of several names are not what they were"))
        else:
            self._taken += 1
        return found

    def _basis(self, witness: Witness, scanner: Scanner, model: DirNode | None) -> ScanResult | Doubt:
        """Give the scan that the witness's word adds to, or why there is none."""
        if self._counts is None or self._counts[0].root is not model:
            return Doubt("unsaved", "the last scan was not the last save's")
        before, limits = self._counts
        if limits != scanner.limits:
            return Doubt("options", "the last scan was by other options")
        if before.place != witness.place:
            return Doubt("replaced", "the last scan was of another directory")
        return before

    def _fall_back(self, reason: Doubt) -> None:
        """Have everything scanned although somebody watches."""
        before = self._fall_backs.get(reason.kind)
        count = 1 if before is None else before.count + 1
        self._fall_backs[reason.kind] = FallBack(kind=reason.kind, count=count, reason=reason.text)
        _logger.info("everything in %s is scanned: %s", to_text(self._worktree), reason.text)

    def saved(self, scan: ScanResult) -> None:
        """Count a save by how it found what had changed."""
        self._saves[scan.partial] += 1

    def tell(self) -> Scans:
        """Tell what has been counted."""
        return Scans(
            watching=self._is_watching(),
            watched=self._saves[True],
            full=self._saves[False],
            missed=self._missed,
            fall_backs=sorted(self._fall_backs.values(), key=lambda one: (-one.count, one.kind)),
        )

    def base_of(self, scanner: Scanner, model: DirNode | None) -> ScanResult | None:
        """Give the scan whose result is the model now, if what has not changed since would be seen the same way."""
        if self._counts is None or self._counts[0].root is not model or self._counts[1] != scanner.limits:
            return None
        return self._counts[0]

    def scanned(self, scanner: Scanner, found: ScanResult) -> None:
        """Take note of a scan; one that took too long is a reason to have the worktree watched from now on."""
        self._last = (found, scanner.limits)
        witness = self._witness
        reason = self._ended(witness, found) if witness is not None else None
        if reason is not None:
            _logger.info("the worktree is not watched any more: %s", reason)
            self.close()
        maker = self._settings.witness_maker
        if self._witness is None and maker is not None and self._took_too_long(found, scanner.limits):
            self._wanted = found
            self._begin()

    @contextlib.contextmanager
    def beginning_after(self) -> Iterator[None]:
        """Let nobody begin to watch in here: for what is still to be done the directories would be walked beside it,
        and each change be told of."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self._begin()

    def _begin(self) -> None:
        found, maker = self._wanted, self._settings.witness_maker
        if self._is_held or found is None or maker is None:
            return
        self._wanted = None
        self._mounts = found.mounts
        self._witness = maker(self._worktree, self._folder, self._guard, self._is_ignored)
        self._witness.start(_folders(found.root))

    def _ended(self, witness: Witness, found: ScanResult) -> str | None:
        """Tell why a witness is of no use any more; one that fails again and again waits longer each time."""
        if witness.broken is not None:
            self._not_before_s = time.monotonic() + self._pause_s
            self._pause_s = min(max(_PAUSE_S, self._pause_s * 2), _LONGEST_PAUSE_S)
            return witness.broken.text
        if found.place != witness.place != (0, 0):
            return "it was replaced"
        # A watch is on what a path led to by then.
        return "something else is mounted in it" if found.mounts != self._mounts else None

    def _took_too_long(self, found: ScanResult, limits: ScanLimits) -> bool:
        """Tell whether looking took longer than it should; reading what is new says nothing about the next scan."""
        budget_ms = self._settings.scan_budget_ms
        if time.monotonic() < self._not_before_s:
            return False
        if found.mounts and not limits.one_file_system:
            # What is mounted there may be another machine's.
            return False
        if not is_local(found.place[0]):
            # What another machine writes has no event here.
            return False
        if budget_ms == 0:
            return True
        mostly_known = found.read_count * 10 <= found.root.files_below
        return mostly_known and not found.partial and (time.monotonic() - self._begun_s) * 1000 > budget_ms

    def adopted(self, root: DirNode) -> None:
        """The scan with this root is the model now; with another one nothing of the witness's counts for it."""
        if self._last is None or self._last[0].root is not root:
            self._counts = None
            return
        self._counts = self._last
        if self._witness is not None:
            found = self._counts[0]
            folders = (lambda: found.entered) if found.partial else (lambda: _folders(root))
            self._witness.adopted(folders, whole=not found.partial)

    def is_check_due(self) -> bool:
        """Tell whether the witness's word has been taken for long enough to be held against the disk again."""
        return self._taken > 0 and self._is_watching() and time.monotonic() - self._checked_s > _CHECK_EVERY_S

    def check(self) -> Generator[None, None, None]:
        """Hold the witness's word against the disk; what it has not told means that everything is scanned again."""
        witness, counts = self._witness, self._counts
        if witness is None or counts is None:
            return
        self._checked_s, self._taken = time.monotonic(), 0
        result = counts[0]
        left_out = {item.path for item in (*result.skipped, *result.excluded)}
        found = yield from differing(self._worktree, result.root, left_out)
        if not found or counts is not self._counts:
            return
        names = witness.look()
        missed = [] if names is None else [path for path in found if not is_told(names, path)]
        if missed:
            self._missed += len(missed)
            shown = to_text(missed[0])
            _logger.error("the watcher has missed %d paths, such as %s", len(missed), shown)
            self._notes.append(
                f"the watcher had missed {len(missed)} paths, such as {shown}; they were looked at again"
            )
            witness.doubt(Doubt("missed", "it has missed changes"))

    def take_notes(self) -> list[str]:
        """Give what people should know of the watching since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def _is_watching(self) -> bool:
        return self._witness is not None and self._witness.broken is None

    def close(self) -> None:
        """End the watching."""
        self._wanted = None
        if self._witness is not None:
            self._witness.close()
        self._witness = None

    def _is_ignored(self, path: bytes) -> bool:
        """Tell of a new directory whether rules leave it out; asked by the witness's thread, about the model."""
        counts = self._counts
        if counts is None:
            return False
        node = counts[0].root
        for part in path.split(b"/")[:-1]:
            below = node.children.get(part)
            if below is None:
                break
            node = below
        basis = node.basis
        if not isinstance(basis, Basis):
            return False
        return basis.chain.ignored(path, True) and not basis.tracked.has_below(path)


def _folders(root: DirNode) -> Iterator[bytes]:
    return (path for path, _ in iter_nodes(root) if path)
