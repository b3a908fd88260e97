"""Short forms of a comparison: ``git diff --name-status`` and ``git diff --stat``."""

import stat
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ckptd.shadow.patch.hunks import Counts, count_lines
from ckptd.shadow.patch.pair import Pair, Side, is_huge, without_directories
from ckptd.shadow.patch.quote import quote
from ckptd.shadow.patch.similarity import percent
from ckptd.shadow.trees.tree import DIRECTORY

__all__ = ["WIDTH", "render_name_status", "render_stat"]

WIDTH: Final = 80
"""Columns of a stat."""


def render_name_status(pairs: Iterable[Pair]) -> Iterator[bytes]:
    """Give a line for each pair: ``A``, ``M``, ``D``, ``T`` or ``R<per cent>``, a tab, and the quoted path.

    An empty directory has a slash after its name, and a line of its own where it makes room for a file.
    """
    for pair in pairs:
        if pair.old and pair.old.mode == DIRECTORY and not _is_directory(pair.new):
            yield b"D\t%s\n" % quote(pair.path + b"/")
        plain = without_directories(pair)
        if plain.old or plain.new:
            yield _status_line(plain)
        if pair.new and pair.new.mode == DIRECTORY and not _is_directory(pair.old):
            yield b"A\t%s\n" % quote(pair.path + b"/")


def render_stat(pairs: Iterable[Pair]) -> Iterator[bytes]:
    """Give ``git diff --stat=80``: a line for each file and one for the sum; nothing where nothing differs.

    What a patch shows as binary because of its size is counted in bytes here too. Before the first line an empty piece
    comes for each file, whose counting takes nearly all of the time.
    Raises DomainError ``internal`` where libgit2 fails, and whatever loading a side raises.
    """
    plain = map(without_directories, pairs)
    rows: list[_Row] = []
    for pair in plain:
        if pair.old or pair.new:
            rows.append(_Row(_stat_name(pair), _count(pair)))
            yield b""
    if not rows:
        return
    layout = _Layout.of(rows)
    for row in rows:
        yield _stat_line(row, layout)
    yield _sum_line(rows)


def _is_directory(side: Side | None) -> bool:
    return side is not None and side.mode == DIRECTORY


def _load(side: Side | None) -> bytes:
    return side.content() if side else b""


def _size(side: Side | None) -> int:
    return side.size() if side else 0


def _status_line(pair: Pair) -> bytes:
    if pair.old_path is not None:
        return b"R%03d\t%s\t%s\n" % (_percent(pair), quote(pair.old_path), quote(pair.path))
    return b"%s\t%s\n" % (_letter(pair.old, pair.new), quote(pair.path))


def _letter(old: Side | None, new: Side | None) -> bytes:
    if old is None:
        return b"A"
    if new is None:
        return b"D"
    return b"M" if stat.S_IFMT(old.mode) == stat.S_IFMT(new.mode) else b"T"


def _percent(pair: Pair) -> int:
    same = pair.old and pair.new and pair.old.oid == pair.new.oid
    return 100 if same else percent(_load(pair.old), _load(pair.new))


def _count(pair: Pair) -> Counts:
    same = pair.old and pair.new and pair.old.oid == pair.new.oid
    if is_huge(pair.old) or is_huge(pair.new):
        return Counts(0, 0, True) if same else Counts(_size(pair.new), _size(pair.old), True)
    old = _load(pair.old)
    return count_lines(old, old if same else _load(pair.new))


class _Row(NamedTuple):
    name: bytes
    counts: Counts

    @property
    def changes(self) -> int:
        return 0 if self.counts.binary else self.counts.added + self.counts.deleted


class _Layout(NamedTuple):
    """Columns for names, for numbers, for the graph; and the change that fills the graph."""

    name: int
    number: int
    graph: int
    most: int

    @classmethod
    def of(cls, rows: list[_Row]) -> "_Layout":
        """Share the columns out as git does: names first, but three eighths of the width stay for numbers and graph."""
        most = max(row.changes for row in rows)
        binary = max((_binary_columns(row.counts) for row in rows if row.counts.binary), default=0)
        number = max(len(str(most)), 3 if binary else 0)
        name = max(len(row.name) for row in rows)
        graph = most if most + 4 > binary else binary - 4
        rest = WIDTH - number - 6
        if name + graph > rest:
            graph = min(graph, max(WIDTH * 3 // 8 - number - 6, 6))
            name = min(name, rest - graph)
            graph = rest - name
        return cls(name, number, graph, most)


def _binary_columns(counts: Counts) -> int:
    return len("Bin  ->  bytes") + len(str(counts.added)) + len(str(counts.deleted))


def _stat_line(row: _Row, layout: _Layout) -> bytes:
    name = _shortened(row.name, layout.name)
    start = b" %s | " % name.ljust(layout.name)
    added, deleted, binary = row.counts
    if binary:
        sizes = b" %d -> %d bytes" % (deleted, added) if added or deleted else b""
        return b"%s%s%s\n" % (start, b"Bin".rjust(layout.number), sizes)
    total = b"%d" % (added + deleted)
    return b"%s%s%s\n" % (start, total.rjust(layout.number), _graph(added, deleted, layout))


def _shortened(name: bytes, columns: int) -> bytes:
    if len(name) <= columns:
        return name
    tail = name[len(name) - columns + 3 :]
    slash = tail.find(b"/")
    return b"..." + (tail[slash:] if slash >= 0 else tail)


def _graph(added: int, deleted: int, layout: _Layout) -> bytes:
    if not added and not deleted:
        return b""
    if layout.graph <= layout.most:
        total = _scaled(added + deleted, layout)
        if total < 2 and added and deleted:
            total = 2
        less = _scaled(min(added, deleted), layout)
        added, deleted = (less, total - less) if added < deleted else (total - less, less)
    return b" " + b"+" * added + b"-" * deleted


def _scaled(changes: int, layout: _Layout) -> int:
    return 1 + changes * (layout.graph - 1) // layout.most if changes else 0


def _sum_line(rows: list[_Row]) -> bytes:
    added = sum(row.counts.added for row in rows if not row.counts.binary)
    deleted = sum(row.counts.deleted for row in rows if not row.counts.binary)
    parts = [_counted(len(rows), "file") + " changed"]
    if added or not deleted:
        parts.append(_counted(added, "insertion") + "(+)")
    if deleted or not added:
        parts.append(_counted(deleted, "deletion") + "(-)")
    return f" {', '.join(parts)}\n".encode()


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _stat_name(pair: Pair) -> bytes:
    if pair.old_path is None:
        return quote(pair.path)
    old, new = pair.old_path, pair.path
    if quote(old) != old or quote(new) != new:
        return b"%s => %s" % (quote(old), quote(new))
    return _braced(old, new)


def _braced(old: bytes, new: bytes) -> bytes:
    """Write a rename with the folders that both names share outside braces: ``a/{b => c}/d``."""
    head = _shared_folders(old, new)
    tail = _shared_tail(old, new, head)
    middle = b"%s => %s" % (old[head : max(len(old) - tail, head)], new[head : max(len(new) - tail, head)])
    if not head and not tail:
        return middle
    return b"%s{%s}%s" % (old[:head], middle, old[len(old) - tail :])


def _shared_folders(old: bytes, new: bytes) -> int:
    length = 0
    for at, (left, right) in enumerate(zip(old, new, strict=False)):
        if left != right:
            break
        if left == ord("/"):
            length = at + 1
    return length


def _shared_tail(old: bytes, new: bytes, head: int) -> int:
    # where folders are shared at the start, their last slash may serve as the first one of the tail, too
    longest = min(len(old), len(new)) - head + (1 if head else 0)
    length = 0
    for at in range(1, longest + 1):
        if old[-at] != new[-at]:
            break
        if old[-at] == ord("/"):
            length = at
    return length
