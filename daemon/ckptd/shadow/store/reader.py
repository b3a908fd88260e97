"""The read-only operations of a store. All that they share with the writer, beside the disk, is what it knows of refs
and of objects that have gone bad."""

import base64
from typing import Protocol, TypeVar, cast
from weakref import WeakSet

from ckpt_protocol import checkpoint as wire
from ckpt_protocol.store import VerifyParams
from ckpt_protocol.structs import Chunk, from_wire
from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.objects.store import ObjectStore, Suspects
from ckptd.shadow.record.legacy import LegacyCheckpoints
from ckptd.shadow.record.lookup import CheckpointIds, Lookup
from ckptd.shadow.store.asker import Asker, AskerLike
from ckptd.shadow.store.catting import FileStream
from ckptd.shadow.store.diffing import Diffing, Patches, Snapshot
from ckptd.shadow.store.exporting import Exporting
from ckptd.shadow.store.listing import Listing
from ckptd.shadow.store.searching import Counts, Searching, needle_of
from ckptd.shadow.store.showing import Showing
from ckptd.shadow.store.verifying import Verification
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import EXECUTABLE, LINK
from ckptd.shadow.trees.view import find_state, not_in_checkpoint

__all__ = ["StoreReader"]


class _Closing(Protocol):
    def close(self) -> None: ...


_R = TypeVar("_R", bound=_Closing)


class StoreReader:
    """Fulfils the core's Reader for one store folder, and what 0.3.6 has of the same worktree."""

    def __init__(
        self,
        folder: bytes,
        suspects: Suspects | None = None,
        legacy: LegacyCheckpoints | None = None,
        ids: CheckpointIds | None = None,
    ) -> None:
        self._legacy = legacy
        self._objects = ObjectStore(folder, suspects, legacy.objects if legacy is not None else None)
        self._lookup = Lookup(self._objects, CheckpointIds(Refs(folder)) if ids is None else ids, legacy)
        self._folder = folder
        self._cat: FileStream | None = None
        self._counts: Counts | None = None
        self._patches = Patches()
        self._runs: WeakSet[_Closing] = WeakSet()

    def head(self, params: wire.HeadParams) -> wire.HeadResult:
        """Give head; raises DomainError ``no_checkpoint`` where there is none yet."""
        head = self._lookup.known_head()
        if head is None:
            raise DomainError("no_checkpoint", "there is no checkpoint yet", hint="make one with: ckpt save")
        return wire.HeadResult(id=head)

    def list(self, params: wire.ListParams, caller: AskerLike) -> Listing:
        """Begin to list newest first."""
        return self._note(Listing(self._lookup, self._objects, params, Asker(caller)))

    def show(self, params: wire.ShowParams, caller: AskerLike) -> Showing:
        """Begin to find out what a checkpoint changed."""
        return self._note(Showing(self._lookup, params, Asker(caller)))

    def diff(self, params: wire.DiffParams, caller: AskerLike, snapshot: object = None) -> Diffing:
        """Begin to make a patch, or to read on in one; without a ``snapshot`` it leads to a checkpoint."""
        # Who hands it on from the writer cannot know what it is.
        seen = cast("Snapshot | None", snapshot)
        return self._note(Diffing(self._lookup, self._objects, self._patches, params, Asker(caller), seen))

    def cat(self, params: wire.CatParams) -> wire.CatResult:
        """Give a piece of a file; raises DomainError where the checkpoint has no file there."""
        checkpoint_id = self._lookup.resolve(params.id)
        path = from_wire(params.path)
        state = self._file_state(checkpoint_id, path)
        # Taken for the time of the request: after an error it begins anew.
        stream, self._cat = self._cat, None
        if stream is None or stream.oid != state.oid:
            stream = FileStream(self._objects, state.oid)
        piece = stream.read(params.offset, params.length)
        if params.offset + len(piece) < stream.total_bytes:
            self._cat = stream
        return wire.CatResult(
            data=Chunk(b64=base64.b64encode(piece).decode("ascii")),
            offset=params.offset,
            total_bytes=stream.total_bytes,
            mode="120000" if state.mode == LINK else "100755" if state.mode == EXECUTABLE else "100644",
            id=checkpoint_id,
        )

    def search(self, params: wire.SearchParams, caller: AskerLike) -> Searching:
        """Begin to look for a text in what checkpoints changed; raises DomainError ``bad_option`` for a bad text."""
        needle = needle_of(params)
        if self._counts is None or self._counts.needle.key != needle.key:
            self._counts = Counts(needle)
        return self._note(Searching(self._lookup, self._objects, params, self._counts, Asker(caller)))

    def export(self, params: wire.ExportParams, caller: AskerLike) -> Exporting:
        """Begin to write a checkpoint to a place outside of the worktree; errors as Exporting has them."""
        return self._note(Exporting(self._lookup, self._objects, params, Asker(caller)))

    def verify(self, params: VerifyParams, caller: AskerLike) -> Verification:
        """Begin to look for damage in the store."""
        return self._note(Verification(self._folder, self._objects.suspects, params, Asker(caller)))

    def let_go(self) -> None:
        """Close the files that the next read opens again: the writer may have taken some of them away."""
        self._objects.let_go()

    def close(self) -> None:
        """Let go of all files, also those of what has been begun and is not finished."""
        for run in [*self._runs]:
            run.close()
        self._patches.close()
        self._objects.close()
        if self._legacy is not None:
            self._legacy.close()

    def _note(self, run: _R) -> _R:
        self._runs.add(run)
        return run

    def _file_state(self, checkpoint_id: str, path: bytes) -> State:
        root = self._lookup.open(checkpoint_id).root
        state = find_state(root, path)
        if state is None:
            raise not_in_checkpoint(root, path, checkpoint_id[:12])
        if state.is_dir:
            raise DomainError("not_a_file", f"{to_text(path)} is a directory", paths=(path,))
        return state
