"""A restore that was cut off: what stands at its paths now, and the request that goes on with it.

It is gone on with over exactly the paths that it was to change: nobody asked for anything else, and what was made since
at other paths stays. Its own safety checkpoint goes on telling what stood there before it.
"""

import os
from collections.abc import Iterator
from typing import Final, Literal, cast

from ckpt_protocol.structs import from_wire, to_wire
from ckpt_protocol.worktree import Interruption
from ckptd.errors import DomainError
from ckptd.shadow.objects.pack import HashOnly
from ckptd.shadow.record.oplog import Intent, Verb
from ckptd.shadow.restore.capture import Disk
from ckptd.shadow.scan.mounts import mounts_below
from ckptd.shadow.scan.scanner import ScanResult
from ckptd.shadow.store.answer import implied_directories
from ckptd.shadow.store.passes import passes_of, planned, state_before
from ckptd.shadow.store.place import open_root
from ckptd.shadow.store.preparing import RestoreRequest, Terms
from ckptd.shadow.store.repository import Repository
from ckptd.shadow.store.reversing import accepted_digest, reversal
from ckptd.shadow.trees.compare import same_state
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.view import find_state

__all__ = ["finishing", "nothing_to_resume", "taking_back", "tell_interruption"]

_MAX_NAMED: Final = 100
_Class = Literal["before", "after", "other"]


def nothing_to_resume() -> DomainError:
    """Give the error of a resume where nothing was cut off."""
    return DomainError(
        "nothing_to_resume",
        "no restore was interrupted, so there is none to finish or to undo",
        hint="ckpt undo takes back the last restore; ckpt status tells what differs from head",
    )


def taking_back(begun: Intent) -> Verb:
    """Give the verb that takes back what was cut off."""
    return "redo" if begun.verb == "undo" else "undo"


def finishing(repo: Repository, begun: Intent, terms: Terms) -> RestoreRequest:
    """Give the request that goes on with what was cut off; raises DomainError where a checkpoint of it is gone."""
    if begun.undoes is not None and begun.undoes in repo.log.intents:
        return reversal(repo, begun.verb, repo.log.intents[begun.undoes], terms, begun)
    parts = tuple((one.checkpoint, frozenset(map(from_wire, one.paths))) for one in begun.parts)
    return RestoreRequest(
        verb=begun.verb,
        target=repo.lookup.open(begun.target or ""),
        token=terms.token,
        dry_run=terms.dry_run,
        digest=accepted_digest(terms, begun),
        skip_conflicts=terms.skip_conflicts,
        head_after=begun.after if begun.verb == "reset" else repo.head,
        paths=tuple(sorted(planned(begun))),
        others=tuple((repo.lookup.open(one).root, paths) for one, paths in parts),
        parts=parts,
        exact=True,
        begun=begun,
    )


def tell_interruption(repo: Repository, begun: Intent, scan: ScanResult) -> Interruption:
    """Tell what was cut off and what stands at its paths; ``scan`` is of now."""
    told = Interruption(
        # Only restores are cut off with something to tell.
        verb=cast("Literal['reset', 'rollback', 'undo', 'redo']", begun.verb),
        time=begun.time,
        client=begun.client,
        session=begun.session,
        target=begun.target,
        safety=begun.safety or "",
        before=None,
        after=None,
        other=None,
        others=[],
    )
    try:
        classes = dict(_classes(repo, _steps(repo, begun), scan))
    except DomainError:
        # A checkpoint that cannot be read is no reason to show no status.
        return told
    others = sorted(path for path, one in classes.items() if one == "other")
    found = list(classes.values())
    return Interruption(
        verb=told.verb,
        time=told.time,
        client=told.client,
        session=told.session,
        target=told.target,
        safety=told.safety,
        before=found.count("before"),
        after=found.count("after"),
        other=len(others),
        others=[to_wire(path) for path in others[:_MAX_NAMED]],
    )


def _steps(repo: Repository, begun: Intent) -> list[Step]:
    """Give the steps of what was cut off, without the directories that come or go with what they hold."""
    wanted = finishing(repo, begun, Terms()).wanted
    passes = passes_of(begun, repo.lookup, answered=False)
    steps = [Step(path, state_before(passes, path), wanted(path)) for path in planned(begun)]
    implied = implied_directories(steps)
    return [step for step in steps if step.path not in implied]


def _classes(repo: Repository, steps: list[Step], scan: ScanResult) -> Iterator[tuple[bytes, _Class]]:
    root_fd = open_root(repo)
    try:
        disk = Disk(root_fd, HashOnly(), repo.guard, mounts_below(repo.worktree))
        for step in steps:
            yield step.path, _class_of(step, scan, disk)
    finally:
        os.close(root_fd)


def _class_of(step: Step, scan: ScanResult, disk: Disk) -> _Class:
    now = find_state(scan.root, step.path)
    if now is None:
        # Rules may hide from the scan what is there.
        found = disk.look(step.path)
        if found.problem not in (None, "beyond_symlink"):
            return "other"
        now = found.state
    if _stands(now, step.after):
        return "after"
    return "before" if _stands(now, step.before) else "other"


def _stands(now: State | None, then: State | None) -> bool:
    if now is not None and then is not None and now.is_dir and then.is_dir:
        # One that is worked in is open to its owner, whatever it is to be in the end.
        return True
    return same_state(now, then)
