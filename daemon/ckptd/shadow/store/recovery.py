"""Opening a store after whatever happened to the last daemon."""

import contextlib
import logging
import os
from typing import Final

import msgspec

from ckpt_protocol.checkpoint import SaveResult
from ckptd.errors import DomainError, from_os_error, spelled
from ckptd.shadow.objects.deltas import clear_deltas
from ckptd.shadow.objects.durable import TEMP_PREFIX as TEMP_FILE
from ckptd.shadow.objects.pack import TEMP_PREFIX as TEMP_PACK
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.record.info import Info
from ckptd.shadow.record.lookup import Lookup
from ckptd.shadow.record.oplog import Intent, OperationLog, Outcome, Verb
from ckptd.shadow.restore.tidy import tidy
from ckptd.shadow.store.changes import to_left_out
from ckptd.shadow.store.passes import planned
from ckptd.shadow.trees.view import find_state

__all__ = [
    "RESTORES",
    "clear_up",
    "finish_drop",
    "incomplete",
    "interrupted",
    "newest_restore",
    "recover",
    "sweep",
    "unfinished",
]

_logger = logging.getLogger(__name__)

RESTORES: Final[tuple[Verb, ...]] = ("reset", "rollback", "undo", "redo")


def sweep(folder: bytes) -> None:
    """Remove what a killed process left half-written, and make the folder that packs need.

    The data lock is held, so no living process can own any of it.

    A disk that refuses is no reason to keep a store shut: what is left takes space and nothing else.
    """
    try:
        # A tool that copies files alone takes no empty folder along.
        os.makedirs(os.path.join(folder, b"objects", b"pack"), 0o700, exist_ok=True)
        clear_deltas(folder)
        for path in (b"", b"ckpt", b"objects/pack", b"refs"):
            _sweep_tree(os.path.join(folder, path), deep=path == b"refs")
    except OSError as error:
        _logger.warning("%s", from_os_error(error, "clean up", folder))


def _sweep_tree(top: bytes, *, deep: bool) -> None:
    for path, folders, files in os.walk(top):
        for name in files:
            if name.startswith((TEMP_PACK, TEMP_FILE)) or name.endswith(b".lock"):
                os.unlink(os.path.join(path, name))
        if not deep:
            folders.clear()


def recover(log: OperationLog, lookup: Lookup, refs: Refs) -> None:
    """Close the operations that were cut off before they could touch anything, and the saves that were done.

    A save is done when its ref is; a drop is done to its end. A restore whose safety checkpoint has no ref had not
    begun to write; one that has stays open: its paths may be half written, and undoing it brings back all of them. One
    without a safety checkpoint had nothing to write.
    """
    open_ones = [intent for intent in log.intents.values() if intent.n not in log.outcomes]
    for intent in open_ones:
        if intent.verb in ("drop", "thin"):
            _finish_dropping(intent, log, refs)
    by_seq = lookup.by_seq()
    ids = frozenset(by_seq.values())
    # A ref that is there and cannot be read now may well be read the next time.
    unknown = refs.checkpoint_names() - by_seq.keys()
    for intent in open_ones:
        if intent.n in log.outcomes or intent.verb in ("drop", "thin") or intent.next_seq - 1 in unknown:
            continue
        if intent.verb == "save" and intent.id in ids:
            _set_tag(intent, refs, ids)
            log.conclude(_saved(intent, lookup))
        elif intent.verb == "save" or (intent.safety not in ids and not intent.resumed):
            _clear_info(intent, refs)
            log.conclude(Outcome(n=intent.n, done=False))


def _finish_dropping(intent: Intent, log: OperationLog, refs: Refs) -> None:
    """A disk that refuses to let go of refs keeps no store shut: the next opening tries again."""
    try:
        finish_drop(intent, log, refs)
    except DomainError as error:
        _logger.warning("%s", error)


def finish_drop(intent: Intent, log: OperationLog, refs: Refs) -> None:
    """Do what the intent of a drop says, as far as it is not done yet; raises DomainError where the disk refuses."""
    refs.delete([one.seq for one in intent.dropped], intent.untagged, intent.uncopied)
    for number in intent.given_up:
        log.conclude(Outcome(n=number, done=False))
    log.conclude(Outcome(n=intent.n, result=intent.answer))


def _clear_info(intent: Intent, refs: Refs) -> None:
    """Take away the info of a checkpoint that never got its ref: what it names need not have come to the disk."""
    try:
        refs.withdraw_info(intent.next_seq - 1)
    except DomainError as error:
        _logger.warning("%s", error)


def _set_tag(intent: Intent, refs: Refs, ids: frozenset[str]) -> None:
    """Set the tag of a save that was cut off before it came to that."""
    if intent.tag is None or intent.id is None or intent.id not in ids or intent.tag in refs.tags():
        return
    try:
        refs.write_tag(intent.tag, intent.id.encode())
    except DomainError as error:
        _logger.warning("%s", error)


def interrupted(log: OperationLog) -> Intent | None:
    """Give the restore that was cut off, if no other restore came after it."""
    intent = unfinished(log)
    return intent if intent is not None and intent.n not in log.outcomes else None


def unfinished(log: OperationLog) -> Intent | None:
    """Give the newest restore if it was cut off or cancelled."""
    intent = newest_restore(log)
    outcome = log.outcomes.get(intent.n) if intent is not None else None
    return intent if outcome is None or outcome.head_stays else None


def incomplete(log: OperationLog) -> Intent | None:
    """Give the newest restore if it could not change all of its paths."""
    intent = newest_restore(log)
    outcome = log.outcomes.get(intent.n) if intent is not None else None
    return intent if outcome is not None and outcome.incomplete else None


def newest_restore(log: OperationLog) -> Intent | None:
    """Give the newest restore, whatever it changed: nobody goes on with those before it. What was given up is none."""
    for intent in reversed(log.intents.values()):
        outcome = log.outcomes.get(intent.n)
        if intent.verb in RESTORES and (outcome is None or outcome.done):
            return intent
    return None


def clear_up(intent: Intent, worktree: bytes, lookup: Lookup) -> list[bytes]:
    """Clear the temporary files of a restore that was cut off; give the paths of what was kept under a visible name.

    A temporary may be what somebody wrote at a path in the last moment, and that no checkpoint holds: only what the
    safety checkpoint or the target holds goes. A worktree that cannot be looked at is left for the next time.
    """
    try:
        held = _held(intent, lookup)
        root_fd = os.open(worktree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (DomainError, OSError):
        return []
    try:
        folders = sorted({path.rpartition(b"/")[0] for path in planned(intent)})
        return tidy(root_fd, os.fstat(root_fd).st_dev, folders, lambda state: state.oid in held)
    except DomainError as error:
        _logger.warning("%s", error)
        return []
    finally:
        os.close(root_fd)


def _held(intent: Intent, lookup: Lookup) -> set[bytes]:
    """Give the ids of everything that a restore was about to overwrite, delete or write: checkpoints hold it."""
    held = _held_by(intent.safety or "", intent, lookup)
    parts = (part.checkpoint for part in intent.parts)
    for one in (intent.target or "", *parts, *(later.safety for later in intent.resumed)):
        with contextlib.suppress(DomainError):
            held |= _held_by(one, intent, lookup)
    return held


def _held_by(checkpoint_id: str, intent: Intent, lookup: Lookup) -> set[bytes]:
    root = lookup.open(checkpoint_id).root
    states = (find_state(root, path) for path in planned(intent))
    return {state.oid for state in states if state is not None}


def _saved(intent: Intent, lookup: Lookup) -> Outcome:
    """Make the answer of a save anew from what it stored."""
    notes = ["the daemon was stopped before it could answer; the checkpoint was made"]
    info: Info | None = None
    complete = False
    try:
        loaded = lookup.open(intent.id or "")
        info, complete = loaded.info, loaded.checkpoint.facts.complete
    except DomainError as error:
        notes.append(error.message)
    result = SaveResult(
        id=intent.id or "",
        seq=intent.next_seq - 1,
        created=True,
        complete=complete,
        skipped=to_left_out(info.skipped if info is not None else []),
        excluded=to_left_out(info.excluded if info is not None else []),
        files=intent.files,
        notes=[spelled(note) for note in notes],
    )
    return Outcome(n=intent.n, result=msgspec.Raw(msgspec.json.encode(result)))
