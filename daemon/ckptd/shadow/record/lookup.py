"""Finding checkpoints: by id, by name, with what is told beside them."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ckptd.errors import DomainError
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.checkpoint import Checkpoint, load_checkpoint, load_info, root_key, root_of
from ckptd.shadow.record.info import NO_INFO, Info
from ckptd.shadow.record.legacy import LegacyCheckpoints
from ckptd.shadow.record.resolve import Names, resolve
from ckptd.shadow.trees.view import UNRECORDED, Key, StoredTree

__all__ = ["CheckpointIds", "Loaded", "Lookup", "Recent"]

_CACHE_SIZE: Final = 20_000


class Loaded(NamedTuple):
    """A checkpoint with its root directory; ``info`` None: what was told beside it is lost."""

    checkpoint: Checkpoint
    info: Info | None
    root: StoredTree


class _Listed(NamedTuple):
    """Ids as they were made of ``refs``, an answer of Refs.checkpoints()."""

    refs: Mapping[int, bytes] | None
    by_seq: Mapping[int, str]
    ids: frozenset[str]


class _Both(NamedTuple):
    """All checkpoints of a list: what it was made of, ids by sequence number in order, and the numbers."""

    own: Mapping[int, str] | None
    old: Mapping[str, int] | None
    by_seq: Mapping[int, str]
    seqs: Sequence[int]


class CheckpointIds:
    """The ids of a store's own checkpoints as text; several threads may ask, as of ``refs``.

    ``loaded`` are those that have been read, whoever did it; ``taken_head`` is what the owner of the store knows to be
    head, once it knows.
    """

    def __init__(self, refs: Refs) -> None:
        self.refs: Final = refs
        self.loaded: Final[dict[str, Checkpoint]] = {}
        self.taken_head: tuple[str | None] | None = None
        self._listed = _Listed(None, {}, frozenset())

    def now(self) -> _Listed:
        """Give all of them; the very same object comes again while nothing has changed."""
        refs, listed = self.refs.checkpoints(), self._listed
        if refs is listed.refs:
            return listed
        added = self.refs.added_to(listed.refs, refs)
        if added is not None:
            # As after each save: a long history is not gone through for one checkpoint more.
            seq, one = added[0], added[1].decode("ascii")
            listed = _Listed(refs, {**listed.by_seq, seq: one}, listed.ids | {one})
        else:
            by_seq = {seq: oid.decode("ascii") for seq, oid in refs.items()}
            listed = _Listed(refs, by_seq, frozenset(by_seq.values()))
        self._listed = listed
        return listed


class Lookup:
    """Reads the checkpoints of one store. A checkpoint never changes, so each is read once.

    With ``legacy``, those of 0.3.6 are found and read, too; ``objects`` must be able to read what they name.
    """

    def __init__(self, objects: ObjectStore, ids: CheckpointIds, legacy: LegacyCheckpoints | None = None) -> None:
        self._objects = objects
        self._own = ids
        self._refs = ids.refs
        self._legacy = legacy
        self._cache = ids.loaded
        self._both = _Both(None, None, {}, ())

    def load(self, checkpoint_id: str) -> Checkpoint:
        """Read a checkpoint by its full id; raises DomainError where its commit is missing or damaged."""
        found = self._cache.get(checkpoint_id)
        if found is not None and bytes.fromhex(checkpoint_id) in self._objects.suspects:
            # It was found damaged after it had been read: what is remembered must not vouch for it.
            self._cache.pop(checkpoint_id, None)
            found = None
        if found is None and self._legacy is not None and checkpoint_id in self._legacy.seqs():
            return self._legacy.load(checkpoint_id)
        if found is None:
            found = load_checkpoint(self._objects, bytes.fromhex(checkpoint_id))
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            self._cache[checkpoint_id] = found
        return found

    def open(self, checkpoint_id: str) -> Loaded:
        """Read a checkpoint with its info and root."""
        checkpoint = self.load(checkpoint_id)
        if checkpoint.legacy:
            return Loaded(checkpoint, NO_INFO, StoredTree(self._objects, checkpoint.tree, UNRECORDED))
        info = load_info(self._objects, checkpoint)
        return Loaded(checkpoint, info, root_of(self._objects, checkpoint, info))

    def key(self, checkpoint_id: str, modes: dict[bytes, bytes | None]) -> Key:
        """Give the key of a checkpoint's root directory; ``modes`` as root_key() has it. Raises as load() does."""
        checkpoint = self.load(checkpoint_id)
        if checkpoint.legacy:
            return checkpoint.tree, UNRECORDED
        return root_key(self._objects, checkpoint, modes)

    def by_seq(self) -> Mapping[int, str]:
        """Give the ids of the store's own checkpoints by sequence number, in order."""
        return self._own.now().by_seq

    def listed(self) -> Mapping[int, str]:
        """Give what a list shows, in order: the checkpoints of 0.3.6, with numbers up to 0, then the store's own."""
        own, old = self.by_seq(), {} if self._legacy is None else self._legacy.seqs()
        if own is not self._both.own or old is not self._both.old:
            # Asked for each checkpoint of a walk: a long history is put together once.
            by_seq = {**{seq: one for one, seq in old.items()}, **own} if old else own
            self._both = _Both(own, old, by_seq, tuple(by_seq))
        return self._both.by_seq

    def ids(self) -> frozenset[str]:
        """Give the ids of the store's own checkpoints."""
        return self._own.now().ids

    def tags_by_id(self) -> dict[str, list[str]]:
        """Give the sorted tags of each tagged checkpoint."""
        found: dict[str, list[str]] = {}
        for name, oid in sorted(self._refs.tags().items()):
            found.setdefault(oid.decode("ascii"), []).append(name)
        return found

    def head(self) -> str | None:
        """Give the id that HEAD holds, if its checkpoint exists."""
        taken = self._own.taken_head
        if taken is not None:
            return taken[0]
        head = self._refs.head()
        return head.decode("ascii") if head is not None else None

    def known_head(self) -> str | None:
        """Give head, if its checkpoint is there."""
        head = self.head()
        return head if head in self.ids() else None

    def take_head(self, checkpoint_id: str | None) -> None:
        """Take what the owner of the store knows to be head; HEAD may lag behind where the disk is full."""
        self._own.taken_head = (checkpoint_id,)

    def names(self) -> Names:
        """Give what resolve() needs of the store itself, as it is now."""
        listed = self._own.now()
        tags = {name: oid.decode("ascii") for name, oid in self._refs.tags().items()}
        head = self.head()
        return Names(listed.by_seq, listed.ids, tags, head if head in listed.ids else None, self.load)

    def resolve(self, text: str) -> str:
        """Give the full id of what a caller wrote; raises DomainError as resolve() does.

        The id of a checkpoint of 0.3.6 stands for its copy once there is one, also when the old folder is gone.
        """
        names = self.names()
        copies = {old: oid.decode("ascii") for old, oid in self._refs.copies().items()}
        copies = {old: copy for old, copy in copies.items() if copy in names.ids}
        if not copies and self._legacy is None:
            return resolve(text, names)
        listed = self.listed()
        found = resolve(text, names._replace(by_seq=listed, ids=names.ids.union(listed.values(), copies)))
        return copies.get(found, found)

    def before(self, checkpoint: Checkpoint) -> str | None:
        """Give what a checkpoint is compared with: its base, else the one before it that can be read, else nothing."""
        base = checkpoint.facts.base
        if base is not None and self.is_listed(base) and self.is_readable(base):
            return base
        by_seq = self.listed()
        seqs = self._both.seqs
        earlier = (by_seq[seqs[at]] for at in range(bisect_left(seqs, checkpoint.facts.seq) - 1, -1, -1))
        return next((one for one in earlier if self.is_readable(one)), None)

    def is_readable(self, checkpoint_id: str) -> bool:
        """Tell whether a checkpoint's commit can be read."""
        try:
            self.load(checkpoint_id)
        except DomainError:
            return False
        return True

    def is_listed(self, checkpoint_id: str) -> bool:
        """Tell whether there is such a checkpoint, by its full id, readable or not."""
        return checkpoint_id in self.ids() or (self._legacy is not None and checkpoint_id in self._legacy.seqs())


class Recent:
    """Opens checkpoints one after the other: what one is compared with is most often the next that is asked for.

    So its trees are read once; it is made for one walk, and forgets them with that.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._last: tuple[str, Loaded] | None = None

    def open(self, checkpoint_id: str) -> Loaded:
        """Read a checkpoint with its info and root, as Lookup.open() does."""
        if self._last is None or self._last[0] != checkpoint_id:
            self._last = (checkpoint_id, self._lookup.open(checkpoint_id))
        return self._last[1]
