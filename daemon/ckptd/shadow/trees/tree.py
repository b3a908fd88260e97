"""Git tree objects: names that may stand in one, and the bytes of one."""

import functools
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from ckptd.errors import DomainError

__all__ = [
    "DIRECTORY",
    "EXECUTABLE",
    "LINK",
    "REGULAR",
    "TreeEntry",
    "find_entry",
    "format_tree",
    "is_git_dir",
    "join_tree",
    "mode_text",
    "parse_tree",
    "storable",
]

REGULAR: Final = 0o100644
EXECUTABLE: Final = 0o100755
LINK: Final = 0o120000
DIRECTORY: Final = 0o040000

_DOT: Final = ord(".")

_MODES: Final = {b"100644": REGULAR, b"100755": EXECUTABLE, b"120000": LINK, b"40000": DIRECTORY}
_RECORD: Final = re.compile(rb"(100644|100755|120000|40000) ([^/\0]+)\0(.{20})", re.DOTALL)
_ANY: Final = rb"(?:100644|100755|120000|40000) [^/\0]+\0.{20}"
_WHOLE: Final = re.compile(rb"(?>%s)*" % _ANY, re.DOTALL)
_RECORD_BYTES: Final = len(b" \0") + 20
_TEXTS: Final = {mode: text for text, mode in _MODES.items()}


class TreeEntry(NamedTuple):
    """What a name stands for: a mode of git's and the 20-byte id of a blob or tree."""

    mode: int
    oid: bytes


def is_git_dir(name: bytes) -> bool:
    """Tell whether a name is ``.git`` in any ASCII case."""
    return len(name) == 4 and name.lower() == b".git"


def storable(name: bytes) -> bool:
    """Tell whether a name may stand in a tree: the one rule for saving and for restoring."""
    return bool(name) and name not in (b".", b"..") and b"/" not in name and b"\0" not in name and not is_git_dir(name)


def mode_text(mode: int) -> bytes:
    """Give a mode as a tree object spells it."""
    return _TEXTS[mode]


def join_tree(files: Iterable[tuple[bytes, bytes, bytes]], folders: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Give the bytes of a tree object: of files by name, mode_text() and id, and of directories by name and id."""
    lines = [(name, b"%s %s\0%s" % (text, name, oid)) for name, text, oid in files]
    lines += [(name + b"/", b"40000 %s\0%s" % (name, oid)) for name, oid in folders]
    lines.sort()
    return b"".join([line for _, line in lines])


def format_tree(entries: dict[bytes, TreeEntry]) -> bytes:
    """Give the bytes of a tree object, in git's order: as if each directory's name ended with a slash."""
    return join_tree(
        ((name, _TEXTS[entry.mode], entry.oid) for name, entry in entries.items() if entry.mode != DIRECTORY),
        ((name, entry.oid) for name, entry in entries.items() if entry.mode == DIRECTORY),
    )


def parse_tree(data: bytes) -> dict[bytes, TreeEntry]:
    """Read the bytes of a tree object.

    Raises DomainError ``store_damaged`` for what no save of ours writes: a name that is not storable, a name
    twice, a mode that is not one of the four, a cut end. Such a tree is refused as a whole.
    """
    records = _RECORD.findall(data)
    entries = {name: TreeEntry(_MODES[mode], oid) for mode, name, oid in records}
    length = sum([len(mode) + len(name) for mode, name, _ in records]) + len(records) * _RECORD_BYTES
    # Nothing lies between the records, no name comes twice: it is what saves write. Else it is told what is wrong.
    if length == len(data) and len(entries) == len(records) and all(map(_is_allowed, entries)):
        return entries
    return _parse_strictly(data)


def find_entry(data: bytes, name: bytes) -> TreeEntry | None:
    """Read one name of the bytes of a tree object, None where it is not there; it takes a fraction of parse_tree().

    Raises DomainError ``store_damaged`` where it is not there because the form of the tree is not git's; the other
    names are not judged.
    """
    found = _finder(name).match(data)
    if found is not None:
        return TreeEntry(_MODES[found[1]], found[2])
    return None if _WHOLE.fullmatch(data) is not None else _parse_strictly(data).get(name)


@functools.lru_cache(maxsize=256)
def _finder(name: bytes) -> re.Pattern[bytes]:
    # An id may hold anything: only whole records are passed over.
    return re.compile(rb"(?>%s)*?(100644|100755|120000|40000) %s\0(.{20})" % (_ANY, re.escape(name)), re.DOTALL)


def _is_allowed(name: bytes) -> bool:
    # Only a name with a dot in front can be one of the others that storable() refuses.
    return name[0] != _DOT or storable(name)


def _parse_strictly(data: bytes) -> dict[bytes, TreeEntry]:
    entries: dict[bytes, TreeEntry] = {}
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + 8)
        zero = data.find(b"\0", space)
        mode = _MODES.get(data[at:space]) if space > 0 else None
        if mode is None or zero < 0 or zero + 21 > len(data):
            raise DomainError("store_damaged", "a tree object of the store is malformed")
        name = data[space + 1 : zero]
        if not storable(name) or name in entries:
            raise DomainError(
                "store_damaged", f"a tree object of the store holds the name {name!r}, which must not be restored"
            )
        entries[name] = TreeEntry(mode, data[zero + 1 : zero + 21])
        at = zero + 21
    return entries
