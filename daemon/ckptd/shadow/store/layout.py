"""The folder of a store: its name, its making, its size, its end."""

import hashlib
import os
import re
import shutil
import stat
from typing import Final

from ckptd.errors import from_os_error
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.syncing import fsync_dir
from ckptd.shadow.store.metadata import Metadata, write_metadata

__all__ = ["create_folder", "delete_folder", "folder_bytes", "folder_name", "is_left_over", "sweep_folders"]

_NEW_PREFIX: Final = b".new-"
_OLD_PREFIX: Final = b".old-"
_LEFT_OVER: Final = re.compile(rb"\.new-[0-9a-f]{16}|\.old-[0-9a-f]{16}-.*", re.DOTALL)
_NAME_BYTES: Final = 60

# multiPackIndex off: libgit2 would trust an index over packs that we merge and unlink. bigFileThreshold: what is large
# stays whole when somebody repacks a store, for a delta could not be read piece by piece.
_CONFIG: Final = b"""[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\tmultiPackIndex = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
"""


def folder_name(worktree: bytes, attempt: int = 0) -> bytes:
    """Give the name of a worktree's store folder: its base name, and a hash of its path.

    The hash is a hint that makes finding fast; the metadata decides. ``attempt`` above 0 gives further names
    where another worktree's store has the first.
    """
    text = worktree if attempt == 0 else worktree + b"\0%d" % attempt
    base = os.path.basename(worktree)[:_NAME_BYTES] or b"root"
    if base.startswith((_NEW_PREFIX, _OLD_PREFIX)):
        # It would be taken for the rest of a store.
        base = b"_" + base[1:]
    return base + b"_" + hashlib.sha256(text).hexdigest()[:16].encode()


def is_left_over(name: bytes) -> bool:
    """Tell whether a folder's name is that of a store in the making, or of one that is being deleted."""
    return _LEFT_OVER.fullmatch(name) is not None


def create_folder(checkpoint_dir: bytes, name: bytes, metadata: Metadata) -> bytes:
    """Make an empty bare repository with our metadata; it appears whole or not at all.

    Raises DomainError where the disk refuses.
    """
    temp = os.path.join(checkpoint_dir, _NEW_PREFIX + os.urandom(8).hex().encode())
    folder = os.path.join(checkpoint_dir, name)
    try:
        os.mkdir(temp, 0o700)
        for part in (b"objects/info", b"objects/pack", b"refs/checkpoints", b"refs/ckpt-info", b"refs/tags", b"ckpt"):
            os.makedirs(os.path.join(temp, part), 0o700)
        for file, text in ((b"config", _CONFIG), (b"HEAD", b"ref: refs/heads/unborn\n")):
            with open(os.path.join(temp, file), "xb") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
        write_metadata(temp, metadata)
        for part in (b"objects", b"refs", b""):
            fsync_dir(os.path.join(temp, part))
        reach("store-written")
        os.rename(temp, folder)
        reach("store-named")
        fsync_dir(checkpoint_dir)
    except OSError as error:
        shutil.rmtree(temp, ignore_errors=True)
        raise from_os_error(error, "make the store", folder) from error
    return folder


def delete_folder(folder: bytes) -> None:
    """Delete a store; it is gone from all lists at once, also if the daemon dies in the middle.

    Raises DomainError where the disk refuses.
    """
    checkpoint_dir, name = os.path.split(folder)
    temp = os.path.join(checkpoint_dir, _OLD_PREFIX + os.urandom(8).hex().encode() + b"-" + name[:_NAME_BYTES])
    try:
        os.rename(folder, temp)
        fsync_dir(checkpoint_dir)
        reach("store-aside")
        _remove(temp)
    except OSError as error:
        raise from_os_error(error, "delete the store", folder) from error


def sweep_folders(checkpoint_dir: bytes) -> None:
    """Remove stores that a killed process left half-made or half-deleted; what cannot be removed stays."""
    try:
        names = os.listdir(checkpoint_dir)
    except OSError:
        return
    for name in names:
        if is_left_over(name):
            try:
                _remove(os.path.join(checkpoint_dir, name))
            except OSError:
                continue


def _remove(folder: bytes) -> None:
    """Remove a folder with all that is in it, also where somebody has made parts of it read-only; raises OSError."""
    _open_up(folder)
    for path, names, _ in os.walk(folder):
        for name in names:
            _open_up(os.path.join(path, name))
    shutil.rmtree(folder)


def _open_up(path: bytes) -> None:
    mode = os.lstat(path).st_mode
    if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
        os.chmod(path, 0o700)


def folder_bytes(folder: bytes) -> int:
    """Give the space that a folder takes on disk; what vanishes meanwhile counts for nothing."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in (b"", *files):
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except OSError:
                continue
    return total
