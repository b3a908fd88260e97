"""One worktree's store, open: its objects, refs, log and model, and how a checkpoint is made durable."""

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection, Generator, Iterator
from functools import partial
from itertools import takewhile
from typing import Final, NamedTuple

import msgspec

from ckpt_protocol.wirepath import to_text
from ckptd.autosave import Autosave, AutosaveWishes
from ckptd.errors import DomainError, from_os_error
from ckptd.regular import read_regular
from ckptd.shadow.ignore.chain import IgnoreChain
from ckptd.shadow.objects.durable import read_derived, replacing_derived
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.pack import ObjectSink, PackWriter
from ckptd.shadow.objects.refs import Refs, StagedCheckpoint
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.objects.syncing import sync_folders, sync_together
from ckptd.shadow.record.checkpoint import format_checkpoint, format_commit, rfc3339
from ckptd.shadow.record.coverage import outside_rules
from ckptd.shadow.record.history import History, read_history
from ckptd.shadow.record.info import Info
from ckptd.shadow.record.legacy import LegacyCheckpoints
from ckptd.shadow.record.legacyfolder import legacy_folders
from ckptd.shadow.record.living import known_checkpoints
from ckptd.shadow.record.logtrim import split_log
from ckptd.shadow.record.lookup import CheckpointIds, Lookup
from ckptd.shadow.record.message import Facts
from ckptd.shadow.record.oplog import Intent, OperationLog, Outcome
from ckptd.shadow.restore.space import free_bytes
from ckptd.shadow.scan.basis import BasisMaker
from ckptd.shadow.scan.boot import Written, boot_id
from ckptd.shadow.scan.helpers import HashJob, HelperRun, HelpTerms
from ckptd.shadow.scan.model import DirNode, without_lost
from ckptd.shadow.scan.modelfile import load_model, pack_model
from ckptd.shadow.scan.scanner import ScanLimits, Scanner, ScanResult
from ckptd.shadow.store.cap import Cap
from ckptd.shadow.store.lostrefs import bring_back, is_any_lost
from ckptd.shadow.store.mark import mark_of
from ckptd.shadow.store.metadata import Metadata, write_metadata
from ckptd.shadow.store.recovery import clear_up, incomplete, interrupted, newest_restore, recover, sweep
from ckptd.shadow.store.settings import Overrides, Settings
from ckptd.shadow.store.settled import Settled
from ckptd.shadow.store.watchedscan import WatchedScan
from ckptd.shadow.trees.view import Key

__all__ = ["Draft", "Record", "Repository", "legacy_checkpoints"]

_logger = logging.getLogger(__name__)

# A model is written at once where there was none. Else it waits until nothing else is asked for, and then for half a
# minute since the last time: should the daemon be killed before, the next one reads again what was saved since.
_MODEL_EVERY_S: Final = 30.0
_LARGE_FILES: Final = 5_000
_MAX_EXCLUDES_BYTES: Final = 16 * 1024 * 1024

# A save of gigabytes does not take the last of a disk that others work on.
_LAST_ROOM_BYTES: Final = 64 * 1024 * 1024


class Draft(NamedTuple):
    """A checkpoint whose objects are in a pack, and that no ref names yet."""

    id: str
    seq: int
    info: bytes | None


class Record(NamedTuple):
    """What a checkpoint is made of, on disk and without names; ``pack`` None: its objects have theirs already."""

    staged: StagedCheckpoint
    pack: PackWriter | None


class Repository:
    """The state that the operations of one worktree share. Used by one thread at a time."""

    def __init__(
        self, folder: bytes, metadata: Metadata, settings: Settings, clock: Callable[[], float] = time.time
    ) -> None:
        self.folder: Final = folder
        self.worktree: Final = metadata.path
        self.metadata = metadata
        self.tell_once: list[str] = []
        """What the next save that was asked for has to say."""
        self.settings: Final = settings
        self.clock: Final = clock
        self._head: str | None = None
        reach("opened")
        sweep(folder)
        reach("swept")
        self.legacy: Final = legacy_checkpoints(folder, metadata)
        self.objects: Final = ObjectStore(folder, others=self.legacy.objects if self.legacy is not None else None)
        self.cap: Final = Cap(self.objects, settings.keep.max_bytes)
        self.refs: Final = Refs(folder)
        self.ids: Final = CheckpointIds(self.refs)
        self.lookup: Final = Lookup(self.objects, self.ids, self.legacy)
        self.log: Final = OperationLog(os.path.join(folder, b"ckpt", b"log"))
        self._model_path = os.path.join(folder, b"ckpt", b"model")
        self.guard: Final = _guard(folder)
        self.settled: Final = Settled(folder)
        self._outside: tuple[tuple[bytes, ...], bytes | None] = ((), None)
        self._basis_maker: BasisMaker | None = None
        self.model: DirNode | None = None
        self._fingerprint = b""
        self.gone = 0
        """How many checkpoints have been removed since the last collection, as far as this process knows."""
        self.pressure = 0.0
        """Above 0 where it has grown so far above its cap that housekeeping must not wait for a rest; as Cap has it."""
        self.collecting = False
        """Whether a collection is under way: it alone replaces packs then."""
        self.weighing = False
        """Whether somebody has asked for thinning: nothing that is weighed is to go meanwhile by itself."""
        self._written_s = 0.0
        self._unwritten = False
        self.is_strewn = False
        """Whether what has been done needed much memory for a moment, so that some could be given back."""
        self._uncut_bytes = 0
        self.watched: Final = WatchedScan(folder, self.worktree, self.guard, settings)
        try:
            self._load_model()
            self.bring_back()
            recover(self.log, self.lookup, self.refs)
            reach("recovered")
            self.clear_up()
            self._settle_head()
            reach("settled")
            self.cut_log()
        except BaseException:
            self._let_go()
            raise

    def bring_back(self) -> bool:
        """Give checkpoints that nobody has dropped and no ref names their refs again; False: the disk refuses that."""
        try:
            if is_any_lost(self.log, self.refs, self.objects):
                bring_back(self.folder, self.log, self.refs, self.objects)
        except DomainError as error:
            if error.kind == "too_many_files":
                raise
            _logger.warning("%s", error)
            return False
        return True

    def clear_up(self) -> None:
        """Clear what a restore left under temporary names, as it was cut off or the disk refused even that."""
        last = interrupted(self.log) or incomplete(self.log)
        if last is not None:
            clear_up(last, self.worktree, self.lookup)

    @property
    def history(self) -> History:
        """What can be undone and redone, and head, as the log has them."""
        return read_history(self.log.intents.values(), self.log.outcomes, self.log.mark)

    @property
    def interrupted(self) -> str | None:
        """The safety checkpoint of a restore that was cut off, None where there is none."""
        cut_off = interrupted(self.log)
        return cut_off.safety if cut_off is not None else None

    @property
    def head(self) -> str | None:
        """The base of comparison, None while there is no checkpoint."""
        return self._head if self._head in self.lookup.ids() else None

    @property
    def tracked_files(self) -> int:
        """How many files and links the last scan knew of; 0 before the first one."""
        return self.model.files_below if self.model is not None else 0

    def scan(
        self,
        sink: ObjectSink,
        *,
        rehash: bool = False,
        full: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda _files, _bytes: None,
        keep: Callable[[DirNode], None] = lambda _so_far: None,
    ) -> ScanResult:
        """Look at the worktree; nothing of the store changes, and the model stays as it is until adopt().

        Where somebody has watched it since the last scan, only what may have changed is looked at, unless ``full``.
        ``keep`` is given what has been seen, now and then and where the scan is called off or fails: see keep().
        """
        self._check_model()
        own = self.settings.overrides_of(self.worktree)
        size = self.settings.max_file_bytes if own.max_file_bytes is None else own.max_file_bytes
        settings = self.settings
        limits = ScanLimits(size, settings.one_file_system, self.guard, *settings.keep_after, settings.help_after)
        scanner = Scanner(self.worktree, self._rules(own), limits, clock_ns=lambda: int(self.clock() * 1_000_000_000))
        whole = rehash or full
        found = self.watched.rescan(scanner, self.model, sink, whole=whole, cancelled=cancelled, progress=progress)
        helped = partial(self._help, sink)
        base = self.watched.base_of(scanner, self.model) if found is None and not rehash else None
        if base is not None:
            found = scanner.review(base, sink, cancelled=cancelled, progress=progress, keep=keep, helped=helped)
        if found is None:
            found = scanner.scan(
                self.model,
                sink,
                rehash=rehash,
                cancelled=cancelled,
                progress=progress,
                keep=keep,
                helped=helped,
            )
        self.watched.scanned(scanner, found)
        return found._replace(problems=[*own.notes, *self.watched.take_notes(), *found.problems])

    def _help(self, sink: ObjectSink, read: Callable[[HashJob], None]) -> HelperRun | None:
        """Get help for a scan, if what it reads is to be stored at all."""
        if self.settings.helpers is None or not isinstance(sink, PackWriter):
            return None
        objects = self.objects
        return self.settings.helpers.start(
            HelpTerms(self.worktree, sink, objects.pack_dir, objects.index_paths, frozenset(objects.suspects), read)
        )

    def _rules(self, own: Overrides) -> BasisMaker:
        """Give the maker of ignore rules; the same one while the rules from outside the worktree are the same."""
        outside = (self.settings.exclude if own.exclude is None else own.exclude, _read_excludes(self.settings))
        if self._basis_maker is None or outside != self._outside:
            chain = IgnoreChain.root(options=outside[0], global_excludes=outside[1])
            self._basis_maker = BasisMaker(self.worktree, chain, self.objects)
            self._outside = outside
        return self._basis_maker

    def autosave(self) -> Autosave:
        """Give the options of autosave: the store's own word, else the worktree's files, else the daemon's."""
        own = self.settings.overrides_of(self.worktree).autosave
        return AutosaveWishes(self.metadata.autosave).over(own.over(self.settings.autosave))

    def set_autosave(self, on: bool) -> None:
        """Remember durably whether the worktree is to be saved by itself."""
        metadata = msgspec.structs.replace(self.metadata, autosave=on)
        write_metadata(self.folder, metadata)
        self.metadata = metadata

    def take_notes(self) -> list[str]:
        """Give what was to be told once, and what is to be told whenever somebody saves."""
        notes, self.tell_once = self.tell_once, []
        return notes + self.standing_notes()

    def standing_notes(self) -> list[str]:
        """Give what only a person can put right."""
        note = self.cap.note()
        notes = [] if note is None else [note]
        with contextlib.suppress(DomainError):
            if self.is_replaced():
                notes.append(
                    f"another directory is at {to_text(self.worktree)} than the one that was saved before: ckpt save "
                    "goes on with that one's history, ckpt forget begins a new one"
                )
        return notes

    def is_replaced(self) -> bool:
        """Tell whether another directory is at the worktree's path than the one that was saved last by request.

        An inode's number is given again at once to the next directory, which was born later.
        """
        try:
            mark = mark_of(self.worktree)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise from_os_error(error, "look at the worktree", self.worktree) from error
        births = (mark.birth, self.metadata.birth)
        return mark.ino != self.metadata.ino or (None not in births and births[0] != births[1])

    def accept_place(self) -> None:
        """Take the directory that is at the worktree's path for the worktree, whatever was there before."""
        try:
            metadata = self.metadata.marked(mark_of(self.worktree))
        except FileNotFoundError:
            return
        except OSError as error:
            raise from_os_error(error, "look at the worktree", self.worktree) from error
        # Another device number alone is no change. Stores of earlier versions have no birth time: they get it here.
        if (metadata.ino, metadata.birth) != (self.metadata.ino, self.metadata.birth):
            write_metadata(self.folder, metadata)
            self.metadata = metadata

    def global_excludes(self) -> bytes | None:
        """Give the user's own ignore rules, as far as they are used and can be read."""
        return _read_excludes(self.settings)

    def info_of(self, scan: ScanResult, modes: bytes | None) -> Info:
        """Gather what has to be told beside a tree that came from a scan."""
        rules = outside_rules(scan.root, *self._outside)
        return Info(scan.skipped, scan.excluded, rules, modes)

    def draft(
        self,
        pack: PackWriter,
        key: Key,
        info_tree: bytes | None,
        text: str | None,
        *,
        kind: str,
        complete: bool,
        client: str,
        meta: dict[str, str],
        watched: bool = False,
    ) -> Draft:
        """Write a checkpoint's commits into the pack, which is not durable by that.

        Raises DomainError where the disk refuses; then nothing has come of it.
        """
        seq = self.next_seq
        now = int(self.clock())
        info = None
        if info_tree is not None:
            message = f"info of checkpoint {seq}\n".encode()
            info = pack.add(b"commit", format_commit(info_tree, now, message))
        facts = Facts(
            seq=seq,
            kind=kind,
            base=self.head,
            scan="watched" if watched else "full",
            complete=complete,
            info=info.hex() if info is not None else None,
            client=client,
            meta=meta,
        )
        commit = pack.add(b"commit", format_checkpoint(key[0], now, text, facts))
        return Draft(commit.hex(), seq, info)

    def seal(self, pack: PackWriter) -> None:
        """Make a pack durable and count its objects as there."""
        oids = pack.oids
        if pack.finish() is not None:
            self.objects.trust(oids)
        self._fingerprint = self.objects.fingerprint()

    def record(self, intent: Intent, draft: Draft, pack: PackWriter | None = None) -> "Record":
        """Make it durable what is about to be done, with what a checkpoint is made of; publish() is to follow.

        Objects that are still in ``pack``, the intent and the content of the refs need not come one after the other:
        none of them has a name by which anything could be found. Raises DomainError where the disk refuses; then
        nothing has come of any of it.
        """
        info = draft.info.hex().encode() if draft.info is not None else None
        packed = pack.write_out() if pack is not None else []
        staged = self.refs.stage_checkpoint(draft.seq, draft.id.encode(), info)
        try:
            with self.log.writing(intent) as line:
                sync_together([*packed, line, *staged.unsynced])
                if packed:
                    reach("pack-synced")
                    reach("index-synced")
        except DomainError:
            staged.drop()
            raise
        return Record(staged, pack if packed else None)

    def publish(self, record: "Record") -> None:
        """Give objects their names and a draft its refs, durably: from here on it is a checkpoint.

        Raises DomainError where the disk refuses; withdraw() then takes back what there is of it.
        """
        with record.staged as staged:
            folders = [record.pack.give_name()] if record.pack is not None else []
            # Before the checkpoint has its ref: so none is ever without its objects, or the info that it names.
            sync_folders([*folders, *self.refs.name_info(staged)])
            if record.pack is not None:
                reach("pack-durable")
                self.objects.trust(record.pack.oids)
                self._fingerprint = self.objects.fingerprint()
                if self.pressure or self.cap.is_weighing_due():
                    self.pressure = self.cap.pressure()
            if len(staged.files) > 1:
                reach("info-durable")
            self.refs.name_checkpoint(staged)

    def withdraw(self, draft: Draft, number: int, tag: str | None = None) -> None:
        """Undo what publish() did of a draft and give up its operation, as far as the disk lets us.

        What it does not let us do now, opening the store does.
        """
        try:
            self.refs.withdraw_checkpoint(draft.seq)
            if tag is not None:
                self.refs.withdraw_tag(tag, draft.id.encode())
            self.log.write(Outcome(n=number, done=False), durable=False)
        except DomainError:
            return

    def set_head(self, checkpoint_id: str | None) -> None:
        """Take what the log says is head, and point HEAD to it.

        HEAD can be derived from the log: a disk that refuses it takes nothing from what has been done.
        """
        self._head = checkpoint_id
        self.lookup.take_head(checkpoint_id)
        try:
            self.refs.write_head(checkpoint_id.encode() if checkpoint_id is not None else None)
        except DomainError as error:
            _logger.warning("%s", error)

    def now(self) -> str:
        """The time, as the log has it."""
        return rfc3339(int(self.clock()))

    def adopt(self, root: DirNode) -> None:
        """Take a scan's result, whose objects are durable, as the model; write it to disk if there was none."""
        before, self.model = self.model, root
        self.watched.adopted(root)
        if root is before:
            return
        self._unwritten = True
        if before is None:
            self.write_model()

    def keep(self, pack: PackWriter, so_far: DirNode) -> None:
        """Keep what a save has hashed so far: should it come to nothing, the next one does not read it again.

        Raises DomainError where the disk refuses (what the pack held may then be lost), or has so little room left that
        somebody else would soon have none.
        """
        oids = pack.oids
        pack.settle()
        self.objects.trust(oids)
        self._fingerprint = self.objects.fingerprint()
        self.model = so_far
        self.write_model()
        self._refuse_last_room()

    def _refuse_last_room(self) -> None:
        fd = os.open(self.objects.pack_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            free = free_bytes(fd)
        finally:
            os.close(fd)
        if free is not None and free < _LAST_ROOM_BYTES:
            raise DomainError(
                "no_space",
                f"only {free >> 20} MiB are left where the checkpoints are kept; no checkpoint was made",
                hint="free some space, or exclude what need not be saved; what was read so far is not read again",
                paths=(self.folder,),
            )

    def forget_lost(self) -> None:
        """Let what is no longer in the store leave the model, whatever took it away."""
        self._fingerprint = self.objects.fingerprint()
        if self.model is not None:
            self.model = without_lost(self.model, self.objects.known())
            self._unwritten = True

    def make_room(self) -> None:
        """Let go of files that can be made again, or are there for people alone, where the disk has no room at all."""
        for path in (self._model_path, os.path.join(self.folder, b"ckpt", b"log.old")):
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._unwritten = True

    @contextlib.contextmanager
    def forgetting(self) -> Iterator[None]:
        """Let what is removed in here leave the model, also where it comes to a bad end."""
        try:
            yield
        finally:
            self.forget_lost()

    @contextlib.contextmanager
    def repacking(self) -> Iterator[None]:
        """Let what is done to packs in here, which takes no object away, leave the model on firm ground.

        Of a model on disk that is not known at once, but each of its objects is looked for then.
        """
        firm = self.objects.fingerprint() == self._fingerprint
        yield
        if firm:
            self._fingerprint = self.objects.fingerprint()
            self._unwritten = True

    def cut_log(self) -> None:
        """Cut a log that has grown; what the disk refuses is tried again."""
        log, bounds = self.log, self.settings.log_bounds
        is_small = len(log.intents) <= bounds.most and log.size_bytes <= bounds.most_bytes
        if is_small or log.size_bytes <= self._uncut_bytes * 2:
            return
        # What could not be halved is not looked at again at every save.
        self._uncut_bytes = log.size_bytes
        wanted = {*(log.intents.keys() - log.outcomes.keys()), *self._telling_of_gone()}
        last = newest_restore(log)
        if last is not None:
            wanted.add(last.n)
        split = split_log(log.intents, log.sizes(), wanted, self.history, bounds)
        if split is None:
            return
        before = [log.intents[number] for number in takewhile(split.newest[0].__ne__, log.intents)]
        try:
            log.cut(split.old, split.newest, read_history(before, log.outcomes, log.mark).head)
        except DomainError as error:
            _logger.warning("%s", error)
            return
        self._uncut_bytes = 0

    def _telling_of_gone(self) -> Iterator[int]:
        """Give the operations without which a checkpoint that is meant to be gone would be taken for a lost one."""
        for number, intent in self.log.intents.items():
            gone = known_checkpoints([intent], self.log.outcomes).gone
            if any(bytes.fromhex(one) in self.objects for one in gone):
                yield number

    def write_model(self) -> None:
        """Write the model to disk. It can be derived, so a disk that refuses is no reason to fail."""
        for _ in self.writing_model():
            pass

    def is_model_due(self) -> bool:
        """Tell whether the model on disk is old enough to be written anew when nothing else is to be done."""
        return self._unwritten and self.clock() - self._written_s > _MODEL_EVERY_S

    def writing_model(self) -> Generator[None, None, None]:
        """Write the model as it is now, a little at each step; as write_model()."""
        if self.model is None:
            return
        # Should it change meanwhile, what is written is still what it was.
        root, fingerprint = self.model, self._fingerprint
        written = Written(boot_id(), int(self.clock() * 1_000_000_000))
        # Also where the disk refuses it: another time.
        self._written_s = self.clock()
        try:
            yield from replacing_derived(self._model_path, pack_model(root, fingerprint, written))
        except DomainError:
            return
        reach("model-written")
        self._note_size()
        self._unwritten = self.model is not root or self._fingerprint != fingerprint

    def _note_size(self) -> None:
        """Note that a model was made or written; of a small one nothing is left over that would count."""
        self.is_strewn = self.is_strewn or self.tracked_files > _LARGE_FILES

    def close(self) -> None:
        """Write what is worth keeping and let go of all files."""
        self.write_model()
        self.log.catch_up()
        self._let_go()

    def _let_go(self) -> None:
        self.watched.close()
        self.objects.close()
        if self.legacy is not None:
            self.legacy.close()
        self.log.close()

    @property
    def next_seq(self) -> int:
        """A number that no checkpoint of this store has ever had."""
        return max(self.log.next_seq, self.refs.newest_name() + 1)

    def _load_model(self) -> None:
        self._fingerprint = self.objects.fingerprint()
        data = read_derived(self._model_path)
        loaded = load_model(data, boot_id()) if data is not None else None
        if loaded is not None:
            root, fingerprint = loaded
            self.model = root if fingerprint == self._fingerprint else without_lost(root, self.objects.known())
            self._note_size()

    def _check_model(self) -> None:
        """Drop from the model what rests on objects that are gone: packs removed by hand, objects found bad."""
        fingerprint = self.objects.fingerprint()
        if self.model is not None and (fingerprint != self._fingerprint or self.objects.suspects):
            self.model = without_lost(self.model, self.objects.known())
        self._fingerprint = fingerprint

    def _settle_head(self) -> None:
        """Set HEAD from the log; where that says nothing usable, to the newest manual or automatic checkpoint.

        A HEAD that is a checkpoint later than all that the log knows of is right: the log has lost its end.
        """
        by_seq = self.lookup.by_seq()
        seqs = {one: seq for seq, one in by_seq.items()}
        here, wanted = self.lookup.head(), self.history.head
        if here in seqs and (wanted not in seqs or seqs[here] >= self.log.next_seq):
            wanted = here
        elif wanted not in seqs:
            wanted = self.newest_but(())
        if wanted != here:
            self.set_head(wanted)
        else:
            self._head = wanted
            self.lookup.take_head(wanted)

    def newest_but(self, without: Collection[str]) -> str | None:
        """Give the newest manual or automatic checkpoint that can be read, and is none of these."""
        for one in reversed(list(self.lookup.by_seq().values())):
            if one not in without and self.lookup.is_readable(one) and self.lookup.load(one).facts.kind != "safety":
                return one
        return None


def legacy_checkpoints(folder: bytes, metadata: Metadata) -> LegacyCheckpoints | None:
    """Give what 0.3.6 has beside a store for the same worktree, wherever it was; None where there is nothing."""
    folders = [old for path in metadata.paths for old in legacy_folders(os.path.dirname(folder), path)]
    return LegacyCheckpoints(folders) if folders else None


def _guard(folder: bytes) -> frozenset[tuple[int, int]]:
    """Tell stores by device and inode: a worktree may hold the checkpoint directory, under any name."""
    found = os.stat(os.path.dirname(folder))
    return frozenset({(found.st_dev, found.st_ino)})


def _read_excludes(settings: Settings) -> bytes | None:
    if settings.git_excludes_path is None:
        return None
    try:
        return read_regular(settings.git_excludes_path, _MAX_EXCLUDES_BYTES)
    except OSError:
        return None
