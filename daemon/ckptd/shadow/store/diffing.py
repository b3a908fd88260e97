"""Patches and summaries between checkpoints, or a checkpoint and the worktree, given in pieces."""

import base64
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from ckpt_protocol.checkpoint import WORKTREE, DiffParams, DiffResult
from ckpt_protocol.structs import Chunk, from_wire
from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, spelled
from ckptd.shadow.objects.spool import Spool, SpoolSink
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.patch.hunks import LARGE_BYTES
from ckptd.shadow.patch.pair import HUGE_BYTES
from ckptd.shadow.patch.rename import find_renames
from ckptd.shadow.patch.render import Pair, Side, render_name_status, render_patch, render_stat
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.repository import Repository
from ckptd.shadow.trees.compare import Delta, compare, visible
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import DIRECTORY
from ckptd.shadow.trees.view import DirectoryView

__all__ = ["Differ"]

_CHUNK_BYTES: Final = 1 << 20
_MAX_CURSORS: Final = 4
_MAX_NOTES: Final = 20


class Differ:
    """Makes patches of one worktree; keeps the last few, so that a caller can read one piece by piece."""

    def __init__(self, repository: Repository) -> None:
        self._repo = repository
        self._open: dict[str, Spool] = {}

    def diff(self, params: DiffParams, asker: Asker) -> DiffResult:
        """Give a piece of a patch; raises DomainError ``expired_cursor`` for one that is no longer kept."""
        if params.cursor is None:
            cursor, (spool, notes) = os.urandom(8).hex(), self._make(params, asker)
            while len(self._open) >= _MAX_CURSORS:
                self._open.pop(next(iter(self._open))).close()
            self._open[cursor] = spool
        else:
            cursor, notes = params.cursor, []
            if cursor not in self._open:
                raise DomainError("expired_cursor", "this diff is no longer kept", hint="ask for it again")
            spool = self._open[cursor]
        piece = spool.read(params.offset, _CHUNK_BYTES)
        result = DiffResult(
            data=Chunk(b64=base64.b64encode(piece).decode("ascii")),
            offset=params.offset,
            total_bytes=spool.size,
            cursor=cursor if params.offset + len(piece) < spool.size else None,
            notes=[spelled(note) for note in notes],
        )
        if result.cursor is None:
            self._open.pop(cursor).close()
        return result

    def close(self) -> None:
        """Let go of every patch."""
        for spool in self._open.values():
            spool.close()
        self._open.clear()

    def _make(self, params: DiffParams, asker: Asker) -> tuple[Spool, list[str]]:
        repo = self._repo
        start = repo.lookup.open(repo.lookup.resolve("HEAD" if params.from_id is None else params.from_id)).root
        end = None if params.to_id == WORKTREE else repo.lookup.open(repo.lookup.resolve(params.to_id)).root
        fresh = SpoolSink(os.path.join(repo.folder, b"ckpt"))
        spool = Spool(os.path.join(repo.folder, b"ckpt"))
        try:
            other = end if end is not None else self._worktree(fresh, asker)
            paths = [from_wire(path) for path in params.paths]
            differing = list(asker.heeding(compare(start, other), "diff"))
            deltas = [delta for delta in visible(differing) if _wanted(delta, paths)]
            del differing
            notes = list(islice(_unshown(deltas, params.format), _MAX_NOTES))
            pairs = self._pairs(deltas, fresh)
            del deltas
            if params.format == "patch":
                notes += islice(_notes(pairs), _MAX_NOTES - len(notes))
            for piece in self._render(params, pairs):
                if asker.is_cancelled():
                    raise DomainError("cancelled", "the diff was cancelled")
                spool.append(piece)
                asker.tell("render", 0, 0, spool.size)
        except BaseException:
            spool.close()
            raise
        finally:
            fresh.close()
        return spool, notes

    def _worktree(self, fresh: SpoolSink, asker: Asker) -> DirectoryView:
        return self._repo.scan(fresh, cancelled=asker.is_cancelled, progress=asker.hashing()).root

    @staticmethod
    def _render(params: DiffParams, pairs: list[Pair]) -> Iterator[bytes]:
        if params.format == "stat":
            return render_stat(pairs)
        if params.format == "name-status":
            return render_name_status(pairs)
        return render_patch(pairs, params.context_lines)

    def _pairs(self, deltas: list[Delta], fresh: SpoolSink) -> list[Pair]:
        content = _Content(self._repo.objects, fresh)
        pairs = [Pair(delta.path, content.side(delta.old), content.side(delta.new)) for delta in deltas]
        return find_renames([pair for pair in pairs if _differs(pair)])


class _Content:
    """What is compared: in the store, or read of the worktree just now."""

    def __init__(self, objects: ObjectStore, fresh: SpoolSink) -> None:
        self._objects = objects
        self._fresh = fresh
        # Made once: each time it is named, a method is an object of its own.
        self._ways: Final = (self._load, self._measure)

    def side(self, state: State | None) -> Side | None:
        return None if state is None else Side(state.mode, state.oid, *self._ways)

    def _load(self, oid: bytes) -> bytes:
        return self._fresh.load(oid) if oid in self._fresh else self._objects.read_blob(oid)

    def _measure(self, oid: bytes) -> int:
        return self._fresh.size(oid) if oid in self._fresh else self._objects.size(oid)


def _differs(pair: Pair) -> bool:
    """Tell whether a patch has something to say: permission bits beyond git's are no part of one."""
    if pair.old is None or pair.new is None:
        return True
    return (pair.old.mode, pair.old.oid) != (pair.new.mode, pair.new.oid)


def _notes(pairs: Iterable[Pair]) -> Iterator[str]:
    """Say of which files a patch does not show lines because they are large."""
    for pair in pairs:
        sides = [side for side in (pair.old, pair.new) if side is not None and side.mode != DIRECTORY]
        if pair.old is not None and pair.new is not None and pair.old.oid == pair.new.oid:
            continue
        largest = max((side.size() for side in sides), default=0)
        if largest > HUGE_BYTES:
            yield f"{_over(pair, HUGE_BYTES)}: the patch says that it differs, and not how"
        elif largest > LARGE_BYTES:
            yield f"{_over(pair, LARGE_BYTES)}: the patch holds it whole, in binary form"


def _unshown(deltas: Iterable[Delta], form: str) -> Iterator[str]:
    """Say what differs and has no word in a patch (or summary), so that an empty one is not taken for equality."""
    for path, old, new in deltas:
        if old is not None and new is not None and (old.mode, old.oid) == (new.mode, new.oid):
            yield f"{to_text(path)} differs in its permissions: {_bits(old)} became {_bits(new)}"
        elif form != "name-status" and all(side is None or side.is_dir for side in (old, new)):
            yield f"{to_text(path)}, an empty directory, was {'added' if old is None else 'deleted'}"


def _bits(state: State) -> str:
    return "unknown" if state.perm is None else f"{state.perm:04o}"


def _over(pair: Pair, limit_bytes: int) -> str:
    return f"{to_text(pair.path)} is larger than {limit_bytes >> 20} MiB"


def _wanted(delta: Delta, paths: list[bytes]) -> bool:
    return not paths or any(delta.path == path or delta.path.startswith(path + b"/") for path in paths)
