"""Info commits: what a checkpoint's tree cannot say of itself.

A tree of up to four entries: ``skipped`` and ``excluded`` (one JSON line a path), ``rules`` (the ignore rules that
are no file of the tree) and ``modes`` (permission exceptions, see ``modes``; a file where nobody recorded any).
"""

from typing import Final, NamedTuple

import msgspec

from ckpt_protocol.structs import LeftOut, from_wire
from ckpt_protocol.wirepath import PathError
from ckptd.errors import DomainError
from ckptd.shadow.objects.pack import ObjectSink
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.scan.exclusion import Exclusion
from ckptd.shadow.trees.tree import DIRECTORY, REGULAR, TreeEntry, format_tree, parse_tree
from ckptd.shadow.trees.view import UNRECORDED

__all__ = ["NO_INFO", "Info", "OutsideRules", "read_info", "read_modes", "write_info_tree"]

_SKIPPED: Final = b"skipped"
_EXCLUDED: Final = b"excluded"
_RULES: Final = b"rules"
_MODES: Final = b"modes"


class OutsideRules(msgspec.Struct, frozen=True, kw_only=True):
    """Ignore rules that are no file of the tree.

    The option ``exclude``, the global excludes, and by directory the exclude files of repositories and the ignore
    files that ignore themselves.
    """

    options: list[bytes] = []
    global_excludes: bytes | None = None
    git_excludes: list[tuple[bytes, bytes]] = []
    gitignores: list[tuple[bytes, bytes]] = []
    ckptignores: list[tuple[bytes, bytes]] = []

    def __bool__(self) -> bool:
        return self != OutsideRules()


class Info(NamedTuple):
    """What an info commit holds; ``modes`` is a tree id, None for no exceptions, UNRECORDED where nobody knows."""

    skipped: list[Exclusion]
    excluded: list[Exclusion]
    rules: OutsideRules
    modes: bytes | None


NO_INFO: Final = Info([], [], OutsideRules(), None)


def write_info_tree(sink: ObjectSink, info: Info) -> bytes | None:
    """Write the tree of an info commit; None where there is nothing to tell."""
    entries: dict[bytes, TreeEntry] = {}
    for name, left_out in ((_SKIPPED, info.skipped), (_EXCLUDED, info.excluded)):
        if left_out:
            entries[name] = TreeEntry(REGULAR, sink.add(b"blob", _format(left_out)))
    if info.rules:
        entries[_RULES] = TreeEntry(REGULAR, sink.add(b"blob", msgspec.json.encode(info.rules) + b"\n"))
    if info.modes == UNRECORDED:
        entries[_MODES] = TreeEntry(REGULAR, sink.add(b"blob", b"not recorded\n"))
    elif info.modes is not None:
        entries[_MODES] = TreeEntry(DIRECTORY, info.modes)
    return sink.add(b"tree", format_tree(entries)) if entries else None


def read_info(objects: ObjectStore, tree: bytes) -> Info:
    """Read the tree of an info commit; raises DomainError where any of it is missing or malformed."""
    entries = parse_tree(objects.read(tree, b"tree"))

    def blob(name: bytes) -> bytes:
        return objects.read(entries[name].oid, b"blob") if name in entries else b""

    try:
        rules = blob(_RULES)
        return Info(
            _parse(blob(_SKIPPED)),
            _parse(blob(_EXCLUDED)),
            msgspec.json.decode(rules, type=OutsideRules) if rules else OutsideRules(),
            _parse_modes(entries.get(_MODES)),
        )
    except (msgspec.MsgspecError, PathError) as error:
        raise DomainError("store_damaged", "the info of a checkpoint is malformed") from error


def read_modes(objects: ObjectStore, tree: bytes) -> bytes | None:
    """Read of an info's tree what Info has as ``modes``, and nothing else; raises DomainError."""
    return _parse_modes(parse_tree(objects.read(tree, b"tree")).get(_MODES))


def _parse_modes(entry: TreeEntry | None) -> bytes | None:
    if entry is None:
        return None
    return entry.oid if entry.mode == DIRECTORY else UNRECORDED


def _format(left_out: list[Exclusion]) -> bytes:
    encoder = msgspec.json.Encoder()
    return b"".join([encoder.encode(item.left_out()) + b"\n" for item in left_out])


def _parse(data: bytes) -> list[Exclusion]:
    decoder = msgspec.json.Decoder(LeftOut)
    found = [decoder.decode(line) for line in data.splitlines()]
    return [Exclusion(from_wire(item.path), item.reason, item.detail) for item in found]
