"""Permission bits that git's modes do not hold, as a tree beside the content's: one blob a directory.

Only exceptions are written: bits other than 0644 and 0755 of files and 0755 of directories. In the parallel tree a
directory's exceptions are the blob ``=``, and the tree of its child ``x`` is ``+x``; no name of a user's can meet
another there.
"""

import re
from typing import Final

from ckptd.errors import DomainError
from ckptd.shadow.trees.tree import DIRECTORY, EXECUTABLE, LINK, REGULAR, TreeEntry

__all__ = ["DEFAULTS", "OWN_NAME", "child_name", "format_exceptions", "is_exception", "modes_tree", "parse_exceptions"]

DEFAULTS: Final = {REGULAR: 0o644, EXECUTABLE: 0o755, DIRECTORY: 0o755}

OWN_NAME: Final = b"="

_RECORD: Final = re.compile(rb"([0-7]{1,4}) ([^/]+)", re.DOTALL)


def child_name(name: bytes) -> bytes:
    """Give the name under which a child directory's exceptions stand."""
    return b"+" + name


def is_exception(mode: int, perm: int) -> bool:
    """Tell whether permission bits have to be recorded."""
    return mode != LINK and DEFAULTS[mode] != perm


def format_exceptions(perms: dict[bytes, int]) -> bytes:
    """Give the blob of one directory's exceptions: octal bits, a space, the name, NUL; sorted by name."""
    return b"".join([b"%o %s\0" % (perm, name) for name, perm in sorted(perms.items())])


def parse_exceptions(data: bytes) -> dict[bytes, int]:
    """Read such a blob; raises DomainError ``store_damaged`` for anything else."""
    *records, rest = data.split(b"\0")
    perms = {}
    for record in records:
        match = _RECORD.fullmatch(record)
        if match is None:
            raise _malformed()
        perms[match[2]] = int(match[1], 8)
    if rest:
        raise _malformed()
    return perms


def modes_tree(blob: bytes | None, children: dict[bytes, bytes]) -> dict[bytes, TreeEntry]:
    """Give the entries of one directory's tree of exceptions: its own blob, and its children's trees."""
    entries = {child_name(name): TreeEntry(DIRECTORY, oid) for name, oid in children.items()}
    if blob is not None:
        entries[OWN_NAME] = TreeEntry(REGULAR, blob)
    return entries


def _malformed() -> DomainError:
    return DomainError("store_damaged", "the permission record of a checkpoint is malformed")
