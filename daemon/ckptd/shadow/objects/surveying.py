"""What packs a store has, and in which groups they are rewritten: a look at the disk, and a pure decision."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Final, NamedTuple

from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.packfile import PackFile
from ckptd.shadow.objects.packindex import PackIndex
from ckptd.shadow.objects.pieces import Pieces

__all__ = [
    "MANY_ALIKE",
    "SMALL_BYTES",
    "PackFacts",
    "Slices",
    "alike",
    "left_overs",
    "pack_sizes",
    "slices",
    "small_beside_others",
    "survey",
    "twins",
]

SMALL_BYTES: Final = 64 * 1024 * 1024
"""Packs above this size, or half of what is copied at once, are rewritten only if something in them can go."""

MANY_ALIKE: Final = 16
"""So many packs of about the same size are merged by the saves that come next, and twice as many at most."""

_ALIKE_UP_TO_BYTES: Final = (16 * 1024, 256 * 1024)
_TIMES_LARGER: Final = 2

_MARGIN_BYTES: Final = 16 * 1024 * 1024
_WORTH_SHARE: Final = 4
"""A pack of which at least this part can go is worth copying the rest, whether or not there is a need."""


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


def survey(pack_dir: bytes, is_needed: Callable[[bytes], bool]) -> Pieces[list[PackFacts]]:
    """Look at all packs that have an index; raises DomainError where they cannot be listed."""
    found = []
    for stem, _, kept in _listed(pack_dir):
        found.append((yield from _facts(stem, kept, is_needed)))
    return found


def pack_sizes(pack_dir: bytes) -> dict[bytes, int]:
    """Give the bytes of all packs that may be rewritten, by path without an end, and open none; errors as survey()."""
    return {stem: size for stem, size, kept in _listed(pack_dir) if not kept}


def _listed(pack_dir: bytes) -> Iterator[tuple[bytes, int, bool]]:
    """Give the path without an end of each pack that has an index, its bytes, and whether somebody keeps it."""
    try:
        names = set(os.listdir(pack_dir))
    except OSError as error:
        raise from_os_error(error, "list the packs in", pack_dir) from error
    for name in sorted(names):
        path = os.path.join(pack_dir, name[:-4])
        if name.startswith(b"pack-") and name.endswith(b".idx") and name[:-4] + b".pack" in names:
            try:
                size = os.path.getsize(path + b".pack")
            except OSError:
                # Gone meanwhile.
                continue
            yield path, size, name[:-4] + b".keep" in names


def _facts(stem: bytes, kept: bool, is_needed: Callable[[bytes], bool]) -> Pieces[PackFacts]:
    try:
        pack = PackFile(stem + b".idx")
    except DomainError as error:
        if error.kind == "too_many_files":
            raise
        return PackFacts(stem, 0, 0, 0, 0, error.message)
    try:
        live = dead = dead_bytes = 0
        for part in pack.parts():
            for entry in part:
                if is_needed(entry.oid):
                    live += entry.end - entry.start
                else:
                    dead, dead_bytes = dead + 1, dead_bytes + entry.end - entry.start
            yield False
        return PackFacts(stem, pack.size, live, dead, dead_bytes, "somebody keeps it (.keep)" if kept else None)
    except DomainError as error:
        return PackFacts(stem, pack.size, 0, 0, 0, error.message)
    finally:
        pack.close()


def alike(sizes: Mapping[bytes, int]) -> list[bytes]:
    """Choose packs that saves merge by the way: those of about one size of which there are most, if they are many.

    Sizes are taken for the same within a factor of sixteen, so that hardly a byte is copied twice. What is large is
    left to a time when nobody waits.
    """
    groups: list[list[tuple[int, bytes]]] = []
    lower = -1
    for upper in _ALIKE_UP_TO_BYTES:
        groups.append([(size, stem) for stem, size in sizes.items() if lower < size <= upper])
        lower = upper
    most = max(groups, key=len)
    return [stem for _, stem in sorted(most)[: 2 * MANY_ALIKE]] if len(most) >= MANY_ALIKE else []


def small_beside_others(sizes: Mapping[bytes, int], slice_bytes: int) -> list[bytes]:
    """Choose the packs to merge when there is time: after it each is at least twice as large as all smaller ones.

    So a byte is copied no more often than the logarithm of what there is, however many saves come. No more than
    ``slice_bytes`` are: they stand there twice for a while.
    """
    most = min(SMALL_BYTES, slice_bytes // 2)
    ordered = sorted((size, stem) for stem, size in sizes.items() if size <= most)
    chosen = below = 0
    for number, (size, _) in enumerate(ordered):
        if below + size > slice_bytes:
            break
        if size < _TIMES_LARGER * below:
            chosen = number + 1
        below += size
    return [stem for _, stem in ordered[:chosen]]


def slices(packs: Iterable[PackFacts], free_bytes: int, slice_bytes: int, spare_bytes: int | None = None) -> Slices:
    """Decide what is rewritten together: the packs with something to drop, and the small ones if there are several.

    The new packs stand beside the old ones for a while. So a group copies up to ``slice_bytes`` (only a pack that has
    more than that to copy goes alone), and has to fit into what is free by then: what a group frees is counted only
    from the next one on. What needs no copy goes first, then what frees the most for what is copied.

    With ``spare_bytes`` it is only done as far as it is worth it, or as that many bytes have to go.
    """
    ready = [one for one in packs if one.why_left is None]
    small = [one for one in ready if _is_small(one, slice_bytes)]
    dead = sorted((one for one in ready if one.dead), key=_cost)
    chosen = {one.stem: one for one in (dead if spare_bytes is None else _worth(dead, spare_bytes))}
    chosen |= {one.stem: one for one in small if len(small) > 1}
    groups = [[one.stem for one in chosen.values() if not one.live_bytes]]
    room = free_bytes - _MARGIN_BYTES + sum(one.size for one in chosen.values() if not one.live_bytes)
    left = sorted((one for one in chosen.values() if one.live_bytes), key=_cost)
    while group := _next_group(left, room, slice_bytes):
        room += sum(one.size - one.live_bytes for one in group)
        left = [one for one in left if one not in group]
        # One alone that has nothing to lose would be what it is.
        if len(group) > 1 or group[0].dead:
            groups.append([one.stem for one in group])
    return Slices([group for group in groups if group], [one.stem for one in left])


def twins(
    packs: Iterable[PackFacts], is_needed: Callable[[bytes], bool], slice_bytes: int, room: int, spare_bytes: int | None
) -> Pieces[list[list[bytes]]]:
    """Find packs of which others have all that is needed, as a process leaves them that is killed before they go.

    Give groups to be rewritten together, so that one copy of each object is left, which is proved to be whole. Small
    packs are rewritten together anyway. ``room`` bytes are free, ``spare_bytes`` as slices() has it. Raises
    DomainError where an index cannot be read.
    """
    ready = {
        one.stem: one for one in packs if one.why_left is None and one.live_bytes and not _is_small(one, slice_bytes)
    }
    by_size = sorted(ready, key=lambda stem: (ready[stem].size, stem))
    with ExitStack() as opened:
        indexes = {stem: opened.enter_context(closing(PackIndex(stem + b".idx"))) for stem in by_size}
        groups: list[set[bytes]] = []
        going: set[bytes] = set()
        for stem in by_size:
            yield False
            others = [indexes[other] for other in reversed(by_size) if other != stem and other not in going]
            holders = yield from _holders(indexes[stem], others, is_needed)
            copied = sum(ready[holder].live_bytes for holder in holders)
            worth = spare_bytes is None or spare_bytes > 0 or ready[stem].live_bytes * _WORTH_SHARE >= copied
            if holders and worth and copied + _MARGIN_BYTES < room:
                going.add(stem)
                group = {stem, *holders}
                for other in [one for one in groups if one & group]:
                    groups.remove(other)
                    group |= other
                groups.append(group)
    return [sorted(group) for group in groups]


def _holders(
    index: PackIndex, others: Sequence[PackIndex], is_needed: Callable[[bytes], bool]
) -> Pieces[frozenset[bytes]]:
    """Give the packs that have what is needed of one; none where something is in no other."""
    holders: set[bytes] = set()
    for part in index.parts():
        for oid, _, _ in part:
            if is_needed(oid):
                holder = next((other for other in others if other.find(oid) is not None), None)
                if holder is None:
                    return frozenset()
                holders.add(holder.path[: -len(b".idx")])
        yield False
    return frozenset(holders)


def _is_small(pack: PackFacts, slice_bytes: int) -> bool:
    return pack.size <= min(SMALL_BYTES, slice_bytes // 2)


def _cost(pack: PackFacts) -> tuple[float, int, bytes]:
    """Say what has to be copied for each byte that goes."""
    return pack.live_bytes / pack.dead_bytes if pack.dead_bytes else float("inf"), pack.live_bytes, pack.stem


def _worth(cheapest_first: Iterable[PackFacts], spare_bytes: int) -> Iterator[PackFacts]:
    for one in cheapest_first:
        if one.dead_bytes * _WORTH_SHARE >= one.size or spare_bytes > 0:
            spare_bytes -= one.dead_bytes
            yield one


def _next_group(packs: Iterable[PackFacts], room: int, slice_bytes: int) -> list[PackFacts]:
    group: list[PackFacts] = []
    total = 0
    for one in packs:
        if one.live_bytes > room - total:
            continue
        if group and total + one.live_bytes > slice_bytes:
            break
        group.append(one)
        total += one.live_bytes
    return group


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
