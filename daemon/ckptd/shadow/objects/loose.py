"""Loose objects, as git writes them: what is needed goes into a pack, the rest goes."""

import os
from collections.abc import Callable

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.pack import PackWriter
from ckptd.shadow.objects.packcheck import loose_objects
from ckptd.shadow.objects.store import ObjectStore

__all__ = ["pack_loose"]


def pack_loose(objects: ObjectStore, git_dir: bytes, is_needed: Callable[[bytes], bool]) -> int:
    """Pack the loose objects that are needed, remove them all, and return how many were not needed.

    One that is damaged and needed stays where it is. Raises DomainError where the disk refuses.
    """
    found = list(loose_objects(git_dir))
    if not found:
        return 0
    objects.refresh()
    writer = PackWriter(objects.pack_dir, objects.is_packed)
    try:
        kept = {path for oid, path in found if is_needed(oid) and not _take(objects, writer, oid)}
        writer.finish()
    finally:
        writer.abort()
    try:
        for _, path in found:
            if path not in kept:
                os.unlink(path)
        for folder in {os.path.dirname(path) for _, path in found}:
            _remove_empty(folder)
    except OSError as error:
        raise from_os_error(error, "remove loose objects from", git_dir) from error
    return sum(1 for oid, _ in found if not is_needed(oid))


def _take(objects: ObjectStore, writer: PackWriter, oid: bytes) -> bool:
    if objects.is_packed(oid):
        return True
    try:
        if objects.is_large(oid):
            return writer.add_stream(objects.size(oid), objects.chunks(oid)) == oid
        writer.add(*objects.read_any(oid))
    except DomainError as error:
        if error.kind not in ("store_damaged", "object_missing"):
            raise
        return False
    return True


def _remove_empty(folder: bytes) -> None:
    try:
        os.rmdir(folder)
    except OSError:
        # Something is still in it.
        return
