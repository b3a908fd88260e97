"""What the engine is told by the daemon's configuration."""

from collections.abc import Callable
from typing import NamedTuple

from ckptd.autosave import Autosave, AutosaveWishes
from ckptd.shadow.objects.failpoint import reach_in_worktree
from ckptd.shadow.record.logtrim import DEFAULT_BOUNDS, Bounds
from ckptd.shadow.record.thinning import Keep
from ckptd.shadow.scan.helpers import Helpers
from ckptd.shadow.scan.witness import WitnessMaker

__all__ = ["Overrides", "Settings"]


class Overrides(NamedTuple):
    """What a worktree's own files set, None where they say nothing; ``notes`` are sentences for people."""

    exclude: tuple[bytes, ...] | None = None
    max_file_bytes: int | None = None
    notes: tuple[str, ...] = ()
    autosave: AutosaveWishes = AutosaveWishes()


def _no_overrides(_worktree: bytes) -> Overrides:
    return Overrides()


class Settings(NamedTuple):
    """``home`` is the user's home directory, ``git_excludes_path`` their global excludes file where one counts.

    ``exclude`` holds patterns in the syntax of ignore files, anchored at the worktree. ``overrides_of`` is asked at
    each scan for what a worktree sets for itself. A save that reads so much keeps it although it may still come to
    nothing: ``keep_after`` are files and bytes. One that reads more than ``help_after`` files is helped by ``helpers``.
    ``hooks`` is told each named point that a restore passes. ``log_bounds`` say when the operation log is cut.
    Where a scan takes more than ``scan_budget_ms``, the worktree is watched by what ``witness_maker`` makes, if any.
    """

    home: bytes
    temporary: bytes = b"/tmp"
    max_file_bytes: int = 100 * 1024 * 1024
    one_file_system: bool = True
    exclude: tuple[bytes, ...] = ()
    git_excludes_path: bytes | None = None
    autosave: Autosave = Autosave()
    overrides_of: Callable[[bytes], Overrides] = _no_overrides
    keep_after: tuple[int, int] = (50_000, 256 * 1024 * 1024)
    helpers: Helpers | None = None
    help_after: int = 3_000
    hooks: Callable[[str, bytes], None] = reach_in_worktree
    log_bounds: Bounds = DEFAULT_BOUNDS
    scan_budget_ms: int = 100
    witness_maker: WitnessMaker | None = None
    keep: Keep = Keep()
