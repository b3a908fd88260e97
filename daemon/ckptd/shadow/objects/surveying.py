"""What packs a store has, and in which groups they are rewritten: a look at the disk, and a pure decision."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.packfile import PackFile

__all__ = ["SMALL_BYTES", "PackFacts", "Slices", "left_overs", "slices", "survey"]

SMALL_BYTES: Final = 64 * 1024 * 1024
"""Packs above this size are rewritten only if something in them can go."""

_SLICE_BYTES: Final = 512 * 1024 * 1024
_MARGIN_BYTES: Final = 16 * 1024 * 1024


class PackFacts(NamedTuple):
    """A pack by its path without an end: bytes that are needed and that are not, and how many objects are not.

    ``why_left`` tells why it must be left as it is, None where it need not.
    """

    stem: bytes
    size: int
    live_bytes: int
    dead: int
    dead_bytes: int
    why_left: str | None = None


class Slices(NamedTuple):
    """Groups of packs to rewrite together, one after the other; ``too_large`` find no room on the disk."""

    groups: list[list[bytes]]
    too_large: list[bytes]


def survey(pack_dir: bytes, is_needed: Callable[[bytes], bool]) -> list[PackFacts]:
    """Look at all packs that have an index; raises DomainError where they cannot be listed."""
    try:
        names = set(os.listdir(pack_dir))
    except OSError as error:
        raise from_os_error(error, "list the packs in", pack_dir) from error
    stems = [name[:-4] for name in sorted(names) if name.startswith(b"pack-") and name.endswith(b".idx")]
    return [
        _facts(os.path.join(pack_dir, stem), stem + b".keep" in names, is_needed)
        for stem in stems
        if stem + b".pack" in names
    ]


def _facts(stem: bytes, kept: bool, is_needed: Callable[[bytes], bool]) -> PackFacts:
    try:
        pack = PackFile(stem + b".idx")
    except DomainError as error:
        if error.kind == "too_many_files":
            raise
        return PackFacts(stem, 0, 0, 0, 0, error.message)
    try:
        live = dead = dead_bytes = 0
        for entry in pack.entries():
            if is_needed(entry.oid):
                live += entry.end - entry.start
            else:
                dead, dead_bytes = dead + 1, dead_bytes + entry.end - entry.start
        return PackFacts(stem, pack.size, live, dead, dead_bytes, "somebody keeps it (.keep)" if kept else None)
    except DomainError as error:
        return PackFacts(stem, pack.size, 0, 0, 0, error.message)
    finally:
        pack.close()


def slices(packs: Iterable[PackFacts], free_bytes: int) -> Slices:
    """Decide what is rewritten together: the packs with something to drop, and the small ones if there are several.

    The new packs stand beside the old ones for a while, so each group has to fit into what is free by then: what a
    group frees is counted only from the next one on.
    """
    ready = [one for one in packs if one.why_left is None]
    small = [one for one in ready if one.size <= SMALL_BYTES]
    chosen = {one.stem: one for one in ready if one.dead} | {one.stem: one for one in small if len(small) > 1}
    groups: list[list[bytes]] = []
    too_large: list[bytes] = []
    room, total = free_bytes - _MARGIN_BYTES, 0
    group: list[PackFacts] = []
    for one in sorted(chosen.values(), key=lambda pack: (pack.live_bytes, pack.stem)):
        if group and total + one.live_bytes > min(room, _SLICE_BYTES):
            groups.append([each.stem for each in group])
            room += sum(each.size for each in group) - total
            group, total = [], 0
        if one.live_bytes and one.live_bytes > room:
            too_large.append(one.stem)
            continue
        group.append(one)
        total += one.live_bytes
    if group:
        groups.append([each.stem for each in group])
    return Slices(groups, too_large)


def left_overs(pack_dir: bytes, living: Sequence[bytes]) -> list[bytes]:
    """Give the paths of files that killed processes have left; ``living`` are names of what is in the making.

    A pack without its index, or an index without its pack, is one: nothing is ever read through it. So is what
    belongs to a pack that is gone.
    """
    names = set(os.listdir(pack_dir))
    found = []
    for name in sorted(names):
        stem, end = os.path.splitext(name)
        begun = name.startswith((b"tmp_", b".tmp-")) and name not in living
        partner = {b".pack": b".idx", b".idx": b".pack"}.get(end)
        alone = partner is not None and stem + partner not in names and stem + b".keep" not in names
        widowed = end in (b".rev", b".bitmap", b".mtimes", b".promisor") and stem + b".pack" not in names
        if begun or (name.startswith(b"pack-") and (alone or widowed)):
            found.append(os.path.join(pack_dir, name))
    return found
