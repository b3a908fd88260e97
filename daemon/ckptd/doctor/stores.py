"""The checkpoint directory: its owner, and each store's metadata, format and leftovers."""

import os
import re
import shutil
import stat
from collections.abc import Iterator
from functools import partial
from typing import Final

from ckpt_protocol.wirepath import to_text
from ckptd.doctor.daemon import SilentDaemonError, ask
from ckptd.doctor.finding import CannotFixError, Case, Finding
from ckptd.errors import DomainError
from ckptd.lock import LOCK_NAME, DataLocks, HeldLock, LockedElsewhereError, Owner, this_process
from ckptd.shadow.objects.users import user_of
from ckptd.shadow.store.metadata import read_metadata

__all__ = ["check"]

_FOLDER: Final = re.compile(rb"\.new-[0-9a-f]{16}|\.old-[0-9a-f]{16}-.*", re.DOTALL)
_TEMPORARY: Final = re.compile(rb"\.tmp-[0-9a-f]{16}(\.pack|\.idx)?|tmp_(pack|idx|rev|obj|mtimes)_.+|.+\.lock|gc\.pid")
_STORE: Final = re.compile(rb".*_[0-9a-f]{16}", re.DOTALL)
_FAN_OUT: Final = re.compile(rb"[0-9a-f]{2}")


def check(case: Case) -> Iterator[Finding]:
    """Look at all stores; leftovers only where nobody owns the directory, whose work in progress they may be."""
    if not os.path.isdir(case.checkpoint_dir):
        return
    try:
        names = sorted(os.listdir(case.checkpoint_dir))
        owner = _owner(case.checkpoint_dir)
    except OSError as error:
        yield Finding("stores", case.checkpoint_dir, f"cannot be looked at: {error.strerror}", "check who made it")
        return
    if owner is not None:
        yield from _unanswered(case, owner)
    for name in names:
        path = os.path.join(case.checkpoint_dir, name)
        if _FOLDER.fullmatch(name):
            if owner is None:
                problem = f"{to_text(path)} was left half-made or half-deleted"
                yield Finding("leftover", path, problem, "delete it", partial(_delete, case.checkpoint_dir, path))
        elif os.path.isdir(os.path.join(path, b"ckpt")) or _is_rest(path):
            yield from _store(path)
            if owner is None:
                yield from _leftovers(case.checkpoint_dir, path)


def _unanswered(case: Case, owner: Owner) -> Iterator[Finding]:
    """An owner is fine if it is the daemon that was asked, or another one that can be asked."""
    if owner.address == case.socket and case.answer is not None:
        return
    try:
        if owner.address and ask(owner.address, "daemon.status") is not None:
            return
    except (OSError, SilentDaemonError):
        pass
    what = f"pid {owner.pid} on {owner.host} owns {to_text(case.checkpoint_dir)} and cannot be asked at"
    action = "it ends by itself once it is idle or sees that its socket is gone; else end that process"
    yield Finding("lock", case.checkpoint_dir, f"{what} {owner.address or 'any address'}", action)


def _store(folder: bytes) -> Iterator[Finding]:
    try:
        read_metadata(folder)
    except DomainError as error:
        action = error.hint or "restore it from a backup, or move it away"
        yield Finding("store", folder, error.message, action)
        return
    for part in (b"HEAD", b"config", b"objects", b"refs"):
        if not os.path.lexists(os.path.join(folder, part)):
            problem = f"the store {to_text(folder)} has no {part.decode()}"
            yield Finding("store", folder, problem, "restore it from a backup, or move it away")


def _is_rest(path: bytes) -> bool:
    """Tell whether a folder was a store of ours, and has lost what makes it one."""
    return _STORE.fullmatch(path) is not None and os.path.isdir(os.path.join(path, b"objects"))


def _leftovers(checkpoint_dir: bytes, folder: bytes) -> Iterator[Finding]:
    for place, folders, files in os.walk(folder):
        # Loose objects are many, and nothing of ours is ever left among them.
        folders[:] = [name for name in folders if not (_FAN_OUT.fullmatch(name) and place.endswith(b"/objects"))]
        for name in sorted(files):
            if _TEMPORARY.fullmatch(name):
                path = os.path.join(place, name)
                fix = partial(_delete, checkpoint_dir, path)
                yield Finding("leftover", path, f"{to_text(path)} was left by a process that died", "delete it", fix)


def _delete(checkpoint_dir: bytes, path: bytes) -> None:
    """Delete a leftover, as the owner of the directory for that moment: then no daemon lives there."""
    locks = DataLocks(this_process(""))
    try:
        locks.claim(checkpoint_dir, False)
        if (user := user_of(os.path.dirname(path))) is not None:
            raise CannotFixError(f"process {user} has it, or the store, open")
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except DomainError as error:
        raise CannotFixError(error.message) from error
    except FileNotFoundError:
        return
    finally:
        locks.close()


def _owner(checkpoint_dir: bytes) -> Owner | None:
    """Give who holds the data lock, None where nobody does; raises OSError."""
    path = os.path.join(checkpoint_dir, LOCK_NAME)
    if not os.path.lexists(path):
        return None
    try:
        HeldLock.probe(path)
    except LockedElsewhereError as error:
        return error.owner or Owner(0, "", "this host", "", "")
    return None
