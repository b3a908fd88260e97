"""What a caller makes a condition of: that nobody else has made a checkpoint since, and what stands at some paths."""

import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ckpt_protocol.checkpoint import Expected, RestoreParams, SaveParams, StepParams
from ckpt_protocol.structs import from_wire
from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.pack import HashOnly
from ckptd.shadow.restore.capture import Disk
from ckptd.shadow.scan.mounts import mounts_below
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.repository import Repository
from ckptd.shadow.trees.view import DirectoryView, find_state

__all__ = ["NO_CONDITIONS", "Conditions", "check_conditions"]

_ABSENT: Final = "absent"
_SHOWN: Final = 3


class Conditions(NamedTuple):
    """``head`` names a checkpoint in any form; ``paths`` say what the caller last saw there."""

    head: str | None = None
    paths: tuple[Expected, ...] = ()

    @classmethod
    def of(cls, params: SaveParams | RestoreParams | StepParams) -> "Conditions":
        """Take them from a request."""
        return cls(params.expect_head, tuple(params.expect))


NO_CONDITIONS: Final = Conditions()


def check_conditions(repo: Repository, conditions: Conditions, root: DirectoryView, asker: Asker) -> None:
    """Refuse what was asked for in other circumstances; ``root`` is the worktree as it was scanned just now.

    Raises DomainError ``precondition_failed`` with the paths that are not as expected, and what looking up the
    checkpoint raises.
    """
    if conditions.head is not None:
        _check_head(repo, repo.lookup.resolve(conditions.head), asker)
    if conditions.paths:
        _check_paths(repo, conditions.paths, root)


def _check_head(repo: Repository, expected: str, asker: Asker) -> None:
    newer = next(_newer_of_others(repo, repo.lookup.load(expected).facts.seq, asker), None)
    if newer is not None:
        who = repo.lookup.load(newer).facts.client or "somebody"
        raise DomainError(
            "precondition_failed",
            f"{who} has made checkpoint {newer[:12]} since {expected[:12]}; nothing was changed",
            hint=f"see what it changed (ckpt show {newer[:12]}), then expect that one",
        )


def _newer_of_others(repo: Repository, seq: int, asker: Asker) -> Iterator[str]:
    """Give the checkpoints after ``seq`` that are neither autosaves nor of the caller's own session, newest first.

    One that cannot be read, or of which the log knows no session, is somebody else's: in doubt a caller is told.
    """
    by_seq, own = repo.lookup.by_seq(), _made_in(repo, asker.session)
    for number in sorted((one for one in by_seq if one > seq), reverse=True):
        found = by_seq[number]
        is_auto = repo.lookup.is_readable(found) and repo.lookup.load(found).facts.kind == "auto"
        if not is_auto and found not in own:
            yield found


def _made_in(repo: Repository, session: str | None) -> set[str]:
    """Give the checkpoints that a session's saves and restores have made."""
    if session is None:
        return set()
    found: set[str] = set()
    for intent in repo.log.intents.values():
        if intent.session == session:
            ids = (intent.id, intent.safety, *(later.safety for later in intent.resumed))
            found.update(one for one in ids if one is not None)
    return found


def _check_paths(repo: Repository, expected: Sequence[Expected], root: DirectoryView) -> None:
    changed = sorted(_changed(repo, expected, root))
    if changed:
        shown = ", ".join(to_text(path) for path in changed[:_SHOWN])
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        raise DomainError(
            "precondition_failed",
            f"not as expected: {shown}{more}; nothing was changed",
            hint="somebody has written to them: look at them again, then expect what is there",
            paths=changed,
        )


def _changed(repo: Repository, expected: Sequence[Expected], root: DirectoryView) -> list[bytes]:
    try:
        root_fd = os.open(repo.worktree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        # A worktree that is to be made again holds nothing.
        return [from_wire(one.path) for one in expected if one.oid != _ABSENT]
    except OSError as error:
        raise from_os_error(error, "open the worktree", repo.worktree) from error
    try:
        disk = Disk(root_fd, HashOnly(), repo.guard, mounts_below(repo.worktree))
        return [
            path for path, oid in ((from_wire(one.path), one.oid) for one in expected) if not _is(path, oid, root, disk)
        ]
    finally:
        os.close(root_fd)


def _is(path: bytes, oid: str, root: DirectoryView, disk: Disk) -> bool:
    state = find_state(root, path)
    if state is None:
        # Rules may hide from the scan what is there.
        found = disk.look(path)
        if found.problem not in (None, "beyond_symlink"):
            return False
        state = found.state
    if state is None or state.is_dir:
        return state is None and oid == _ABSENT
    return state.oid.hex() == oid
