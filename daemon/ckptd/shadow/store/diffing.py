"""Patches and summaries between checkpoints, or a checkpoint and the worktree, made in steps and given in pieces."""

import base64
import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from ckpt_protocol.checkpoint import DiffParams, DiffResult
from ckpt_protocol.structs import Chunk, from_wire
from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, spelled
from ckptd.shadow.objects.pieces import Pieces
from ckptd.shadow.objects.spool import Spool, SpoolSink
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.patch.hunks import LARGE_BYTES
from ckptd.shadow.patch.pair import HUGE_BYTES
from ckptd.shadow.patch.rename import finding_renames
from ckptd.shadow.patch.render import Pair, Side, render_name_status, render_patch, render_stat
from ckptd.shadow.record.lookup import Lookup
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.repository import Repository
from ckptd.shadow.store.stepping import go_on
from ckptd.shadow.trees.compare import Delta, compare, picking_visible
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import DIRECTORY
from ckptd.shadow.trees.view import DirectoryView

__all__ = ["Diffing", "Patches", "Snapshot"]

_CHUNK_BYTES: Final = 1 << 20
_MAX_CURSORS: Final = 4
_MAX_NOTES: Final = 20
_AT_ONCE: Final = 1_000


class Snapshot:
    """The worktree as a scan saw it, and the checkpoint that it is to be compared with. Used by one thread at a time.

    What the store does not hold is kept beside it, so that it can be compared while others save.
    """

    def __init__(self, repository: Repository, params: DiffParams, asker: Asker) -> None:
        lookup = repository.lookup
        self.from_id: Final = lookup.resolve(_from(params))
        # What cannot be read is told before anything is looked at.
        lookup.open(self.from_id)
        self.is_open = True
        self.fresh: Final = SpoolSink(os.path.join(repository.folder, b"ckpt"))
        try:
            scan = repository.scan(self.fresh, cancelled=asker.is_cancelled, progress=asker.hashing())
        except BaseException:
            self.close()
            raise
        self.root: Final[DirectoryView] = scan.root

    def close(self) -> None:
        """Let go of what is kept; may be called again."""
        self.fresh.close()
        self.is_open = False


class Patches:
    """The last few patches of one worktree, so that a caller can read one piece by piece."""

    def __init__(self) -> None:
        self._open: dict[str, Spool] = {}

    def keep(self, spool: Spool) -> str:
        """Keep a patch that is complete; give its cursor."""
        cursor = os.urandom(8).hex()
        while len(self._open) >= _MAX_CURSORS:
            self._open.pop(next(iter(self._open))).close()
        self._open[cursor] = spool
        return cursor

    def piece(self, cursor: str, offset: int, notes: list[str]) -> DiffResult:
        """Give a piece of a patch; raises DomainError ``expired_cursor`` for one that is no longer kept."""
        if cursor not in self._open:
            raise DomainError("expired_cursor", "this diff is no longer kept", hint="ask for it again")
        spool = self._open[cursor]
        piece = spool.read(offset, _CHUNK_BYTES)
        result = DiffResult(
            data=Chunk(b64=base64.b64encode(piece).decode("ascii")),
            offset=offset,
            total_bytes=spool.size,
            cursor=cursor if offset + len(piece) < spool.size else None,
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


class Diffing:
    """One patch that is made, or read on; step() goes on with it. Used by one thread at a time.

    Without a ``snapshot`` it is one between two checkpoints. The snapshot is closed with it.
    """

    is_waiting: Final = False

    def __init__(
        self,
        lookup: Lookup,
        objects: ObjectStore,
        patches: Patches,
        params: DiffParams,
        asker: Asker,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._lookup = lookup
        self._patches = patches
        self._params = params
        self._asker = asker
        self._snapshot = snapshot
        self._content: Final = _Content(objects, snapshot.fresh if snapshot is not None else None)
        self._folder: Final = os.path.join(objects.git_dir, b"ckpt")
        self._cursor = params.cursor or ""
        self._notes: list[str] = []
        self._run: Final = self._make() if params.cursor is None else _nothing()

    def step(self) -> DiffResult | None:
        """Go on for a moment; give a piece of the patch once that is complete.

        Raises DomainError ``cancelled``, ``expired_cursor``, and what naming and reading the checkpoints raise.
        """
        try:
            if not go_on(self._run, self._asker, "diff"):
                return None
        except BaseException:
            self.close()
            raise
        self.close()
        return self._patches.piece(self._cursor, self._params.offset, self._notes)

    def close(self) -> None:
        """Let go of the snapshot, and of a patch that is not complete."""
        self._run.close()
        if self._snapshot is not None:
            self._snapshot.close()

    def _make(self) -> Pieces[None]:
        spool = Spool(self._folder)
        try:
            pairs = yield from self._pairs()
            for piece in _render(self._params, pairs):
                spool.append(piece)
                self._asker.tell("render", 0, 0, spool.size)
                yield False
            while pairs:
                # To let go of all at once would hold everybody up.
                del pairs[-_AT_ONCE:]
                yield False
        except BaseException:
            spool.close()
            raise
        self._cursor = self._patches.keep(spool)

    def _pairs(self) -> Pieces[list[Pair]]:
        """Give what a patch shows, and note what it does not."""
        form = self._params.format
        deltas = yield from self._differing()
        self._notes += islice(_unshown(deltas, form), _MAX_NOTES)
        pairs = yield from finding_renames((yield from self._sided(deltas)))
        if form == "patch":
            yield from self._noting(pairs)
        return pairs

    def _noting(self, pairs: list[Pair]) -> Pieces[None]:
        for pair in pairs:
            if len(self._notes) >= _MAX_NOTES:
                return
            self._notes += _note_of(pair)
            yield False

    def _differing(self) -> Pieces[list[Delta]]:
        """Give what a patch may have to say something about, sorted by path."""
        old, new = self._sides()
        paths = [from_wire(path) for path in self._params.paths]
        found: list[Delta] = []
        for delta in compare(old, new):
            found.append(delta)
            yield False
        shown = yield from picking_visible(found)
        return [delta for delta in shown if _wanted(delta, paths)]

    def _sides(self) -> tuple[DirectoryView, DirectoryView]:
        lookup = self._lookup
        if self._snapshot is not None:
            return lookup.open(self._snapshot.from_id).root, self._snapshot.root
        one, other = lookup.resolve(_from(self._params)), lookup.resolve(self._params.to_id)
        return lookup.open(one).root, lookup.open(other).root

    def _sided(self, deltas: list[Delta]) -> Pieces[list[Pair]]:
        content, pairs = self._content, list[Pair]()
        while deltas:
            # From the end, so that each goes as soon as its pair is there.
            delta = deltas.pop()
            pair = Pair(delta.path, content.side(delta.old), content.side(delta.new))
            if _differs(pair):
                pairs.append(pair)
            yield False
        pairs.reverse()
        return pairs


def _nothing() -> Pieces[None]:
    yield from ()


def _from(params: DiffParams) -> str:
    return "HEAD" if params.from_id is None else params.from_id


def _render(params: DiffParams, pairs: list[Pair]) -> Iterator[bytes]:
    if params.format == "stat":
        return render_stat(pairs)
    if params.format == "name-status":
        return render_name_status(pairs)
    return render_patch(pairs, params.context_lines)


class _Content:
    """What is compared: in the store, or read of the worktree just now."""

    def __init__(self, objects: ObjectStore, fresh: SpoolSink | None) -> None:
        # Made once for all sides, and without a way back to here: what was read goes with the last of them.
        self._ways: Final = (partial(_load, objects, fresh), partial(_measure, objects, fresh))

    def side(self, state: State | None) -> Side | None:
        return None if state is None else Side(state.mode, state.oid, *self._ways)


def _load(objects: ObjectStore, fresh: SpoolSink | None, oid: bytes) -> bytes:
    return fresh.load(oid) if fresh is not None and oid in fresh else objects.read_blob(oid)


def _measure(objects: ObjectStore, fresh: SpoolSink | None, oid: bytes) -> int:
    return fresh.size(oid) if fresh is not None and oid in fresh else objects.size(oid)


def _differs(pair: Pair) -> bool:
    """Tell whether a patch has something to say: permission bits beyond git's are no part of one."""
    if pair.old is None or pair.new is None:
        return True
    return (pair.old.mode, pair.old.oid) != (pair.new.mode, pair.new.oid)


def _note_of(pair: Pair) -> Iterator[str]:
    """Say of a file that a patch does not show its lines because it is large."""
    if pair.old is not None and pair.new is not None and pair.old.oid == pair.new.oid:
        return
    sides = [side for side in (pair.old, pair.new) if side is not None and side.mode != DIRECTORY]
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
