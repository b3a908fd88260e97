"""Writing a checkpoint to a place outside of the worktree, in small steps beside everything else.

What is read comes from the store, in the thread of its reader; where it goes may be slow or not answer at all, so a
thread of its own writes there.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Final

from ckpt_protocol.checkpoint import ExportParams, ExportResult
from ckpt_protocol.structs import from_wire, to_wire
from ckpt_protocol.wirepath import to_text
from ckptd.errors import from_os_error
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.lookup import Lookup
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.destination import Destination, destination
from ckptd.shadow.store.relay import Relay
from ckptd.shadow.store.stepping import go_on
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import EXECUTABLE, LINK
from ckptd.shadow.trees.view import DirectoryView, find_state, find_view, not_in_checkpoint

__all__ = ["Exporting"]

_BITS: Final = 0o777
"""An exported program must not run as somebody else because it once did: no setuid, setgid or sticky bits."""

_PATIENCE_S: Final = 1.0
"""So long an export that comes to nothing waits for what it has written to be gone again."""


class Exporting:
    """One export under way; step() goes on with it. Used by one thread at a time."""

    def __init__(
        self,
        lookup: Lookup,
        objects: ObjectStore,
        params: ExportParams,
        asker: Asker,
        make: Callable[[bytes, int], Destination] = destination,
    ) -> None:
        self._objects = objects
        self._asker = asker
        self._path = from_wire(params.destination)
        loaded = lookup.open(lookup.resolve(params.id))
        self._id = loaded.checkpoint.id
        self._root = loaded.root
        self._paths = [from_wire(path) for path in params.paths]
        self._place = make(self._path, int(loaded.checkpoint.time_s))
        self._relay = Relay(f"ckptd-export {to_text(self._path)}")
        self._files = 0
        self._bytes = 0
        self._total = 0
        self.is_waiting = False
        """Whether there is nothing to do by now but wait for the destination."""
        self._run: Final = self._write()

    def step(self) -> ExportResult | None:
        """Go on for a moment; give the result once everything is at its place, on disk.

        Raises DomainError ``destination_exists``, ``path_not_in_checkpoint``, ``beyond_symlink``, ``cancelled``,
        for content that is lost, and where the disk refuses; then nothing is left at the destination.
        """
        try:
            is_done = go_on(self._run, self._asker, "export")
            self._asker.tell("export", self._files, self._total, self._bytes)
        except OSError as error:
            self.close()
            raise from_os_error(error, "export to", self._path) from error
        except BaseException:
            self.close()
            raise
        if not is_done:
            return None
        return ExportResult(id=self._id, destination=to_wire(self._path), files=self._files, bytes=self._bytes)

    def close(self) -> None:
        """Have what is not finished taken away, and wait for that if it takes a moment."""
        self._run.close()
        self._relay.end(self._place.discard)
        self._relay.join(_PATIENCE_S)

    def _write(self) -> Generator[bool, None, None]:
        chosen: list[tuple[bytes, State]] = []
        for item in _chosen(self._root, self._paths, self._id):
            chosen.append(item)
            self._total += not item[1].is_dir
            yield False
        place, relay = self._place, self._relay
        relay.put(place.begin)
        # Who cannot write there need not read anything.
        yield from self._waiting(relay.settled())
        for path, state in chosen:
            yield from self._waiting(relay.room())
            if state.is_dir:
                relay.put(partial(place.add_folder, path, _perm(state)))
            elif state.mode == LINK:
                relay.put(partial(place.add_link, path, b"".join(self._objects.chunks(state.oid))))
            else:
                yield from self._send(path, state)
            self._files += not state.is_dir
            yield False
        relay.put(place.sync)
        yield from self._waiting(relay.settled())
        relay.put(place.take_name)
        yield from self._waiting(relay.settled())
        relay.end()

    def _send(self, path: bytes, state: State) -> Iterator[bool]:
        place, relay = self._place, self._relay
        relay.put(partial(place.begin_file, path, _perm(state), self._objects.size(state.oid)))
        for piece in self._objects.chunks(state.oid):
            yield from self._waiting(relay.room())
            relay.put(partial(place.write, piece), len(piece))
            self._bytes += len(piece)
            yield False
        relay.put(place.end_file)

    def _waiting(self, pieces: Iterable[bool]) -> Iterator[bool]:
        for piece in pieces:
            self.is_waiting = True
            yield piece
        self.is_waiting = False


def _chosen(root: DirectoryView, paths: list[bytes], checkpoint_id: str) -> Iterator[tuple[bytes, State]]:
    """Give what is to be written, directories before what is in them; without ``paths`` everything."""
    if not paths:
        yield from _below(root, b"")
        return
    seen: set[bytes] = set()
    for path in sorted(set(paths)):
        state = find_state(root, path)
        if state is None:
            raise not_in_checkpoint(root, path, checkpoint_id[:12])
        wanted = [*_above(root, path), (path, state)]
        view = find_view(root, path) if state.is_dir else None
        for item in (*wanted, *(_below(view, path + b"/") if view is not None else ())):
            if item[0] not in seen:
                seen.add(item[0])
                yield item


def _above(root: DirectoryView, path: bytes) -> Iterator[tuple[bytes, State]]:
    parts = path.split(b"/")[:-1]
    for number in range(1, len(parts) + 1):
        above = b"/".join(parts[:number])
        state = find_state(root, above)
        if state is not None:
            yield above, state


def _below(view: DirectoryView, start: bytes) -> Iterator[tuple[bytes, State]]:
    stack = [(start, view)]
    while stack:
        start, view = stack.pop()
        for name, state in sorted(view.files().items()):
            yield start + name, state
        for name, below in sorted(view.dirs().items()):
            yield start + name, below.state()
            stack.append((start + name + b"/", below))


def _perm(state: State) -> int:
    """Give the permission bits to write; those of a plain file or directory where none are recorded."""
    if state.perm is not None:
        return state.perm & _BITS
    return 0o755 if state.is_dir or state.mode == EXECUTABLE else 0o644
