"""The stores of checkpoint directories: finding, making, listing and deleting them."""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from ckpt_protocol.store import PrunedStore, PruneResult, StoreUsage, UsageResult
from ckpt_protocol.structs import Worktree, from_wire, to_wire
from ckpt_protocol.wirepath import to_text
from ckpt_protocol.worktree import AdoptResult, ListResult, Workspace
from ckptd.autosave import Autosave, AutosaveWishes
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.isolation import isolate
from ckptd.shadow.objects.pieces import Pieces
from ckptd.shadow.objects.refs import Refs
from ckptd.shadow.objects.windows import bound_windows
from ckptd.shadow.record.checkpoint import rfc3339
from ckptd.shadow.record.legacy import LegacyCheckpoints
from ckptd.shadow.record.legacyfolder import legacy_folders
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.claims import Claim, claims_on
from ckptd.shadow.store.identity import check_identity, check_real
from ckptd.shadow.store.layout import (
    create_folder,
    delete_folder,
    folder_bytes,
    folder_name,
    is_left_over,
    sweep_folders,
)
from ckptd.shadow.store.metadata import Metadata, describe, owner_of, read_metadata, write_metadata
from ckptd.shadow.store.moving import (
    answer_adopted,
    choose,
    is_adopted,
    refuse_proved,
    refuse_second,
    told,
)
from ckptd.shadow.store.operations import StoreWriter
from ckptd.shadow.store.places import why_protected
from ckptd.shadow.store.reader import StoreReader
from ckptd.shadow.store.repository import Repository, legacy_checkpoints
from ckptd.shadow.store.settings import Settings
from ckptd.shadow.store.stepping import Steps
from ckptd.shadow.store.usage import usage_of

__all__ = ["OpenedFolder", "ShadowCatalog"]

State = Literal["ok", "missing", "unreachable"]


class OpenedFolder(NamedTuple):
    """A store that is open: ``folder`` is its absolute path, ``created`` tells whether it is new."""

    folder: bytes
    created: bool
    writer: StoreWriter
    reader: StoreReader
    autosave: Autosave
    interrupted: str | None


class ShadowCatalog:
    """Fulfils the core's Catalog."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        isolate()
        bound_windows()
        self._settings = settings
        self._clock = clock
        self._swept: set[bytes] = set()
        # Two first requests for two worktrees of one base name must not settle on one folder.
        self._making = threading.Lock()

    def open(self, checkpoint_dir: bytes, place: Worktree, *, create: bool, force: bool) -> OpenedFolder:
        """Open the store of a worktree; errors as the core's port has them."""
        path = from_wire(place.path)
        check_identity(path, place)
        self._sweep(checkpoint_dir)
        with self._making:
            found = self._find(checkpoint_dir, path)
            claims = [] if found is not None else claims_on(path, _stores(checkpoint_dir))
            refuse_proved(path, claims)
            if found is None and not create:
                raise _not_tracked(checkpoint_dir, path, claims)
            folder, metadata = found or self._create(checkpoint_dir, path, force=force)
        created = found is None
        repository = Repository(folder, metadata, self._settings, self._clock)
        repository.tell_once = [told(path, claims)] if claims else []
        # It runs on another thread, so it reads the old folders by itself, too.
        reader = StoreReader(folder, repository.objects.suspects, legacy_checkpoints(folder, metadata), repository.ids)
        return OpenedFolder(
            folder, created, StoreWriter(repository), reader, repository.autosave(), repository.interrupted
        )

    def adopt(self, checkpoint_dir: bytes, place: Worktree, old: bytes, *, force: bool, dry_run: bool) -> AdoptResult:
        """Give a directory the history of a worktree that was there before; errors as the core's port has them."""
        path = from_wire(place.path)
        check_identity(path, place)
        self._sweep(checkpoint_dir)
        with self._making:
            forced = self._check_worthy(checkpoint_dir, path, force=force)
            own = self._find(checkpoint_dir, path)
            if own is not None and is_adopted(own, old):
                return answer_adopted(own, from_wire(own[1].former[-1]), path, sure=True, dry_run=dry_run)
            claim = choose(path, old, _stores(checkpoint_dir))
            refuse_second(path, claim, own)
            if not dry_run:
                if own is not None:
                    delete_folder(own[0])
                now = _described(path, claim.metadata.created, forced=forced)
                write_metadata(claim.folder, claim.metadata.moved(now))
        found = (claim.folder, claim.metadata)
        return answer_adopted(found, claim.metadata.path, path, sure=claim.proved, dry_run=dry_run)

    def watched(self, checkpoint_dir: bytes) -> list[bytes]:
        """Give the worktrees that are to be saved by themselves, sorted."""
        found = [metadata for _, metadata in _stores(checkpoint_dir) if isinstance(metadata, Metadata)]
        return sorted(metadata.path for metadata in found if self._autosave_of(metadata).on)

    def list(self, checkpoint_dir: bytes) -> ListResult:
        """List the tracked worktrees, sorted by path."""
        workspaces, damaged = [], []
        for folder, metadata in _stores(checkpoint_dir):
            try:
                workspaces.append(_workspace(folder, metadata))
            except DomainError as error:
                if error.kind == "too_many_files":
                    raise
                damaged.append(to_wire(folder))
        return ListResult(workspaces=sorted(workspaces, key=lambda one: from_wire(one.path)), damaged=damaged)

    def usage(self, checkpoint_dir: bytes, worktree_path: bytes | None) -> Steps[UsageResult]:
        """Begin to tell what the stores hold, or that of one worktree; it raises ``not_tracked`` where it has none."""
        return Steps(self._usage(checkpoint_dir, worktree_path), Asker.of_the_daemon(), "look at the stores")

    def _usage(self, checkpoint_dir: bytes, worktree_path: bytes | None) -> Pieces[UsageResult]:
        found: list[StoreUsage] = []
        damaged = []
        for folder, metadata in _stores(checkpoint_dir):
            yield False
            if isinstance(metadata, DomainError):
                damaged.append(to_wire(folder))
            elif worktree_path in (None, metadata.path):
                keep, now_s = self._settings.keep, self._clock()
                one = yield from usage_of(folder, metadata, _state_of(metadata), keep, now_s)
                if one is not None:
                    found.append(one)
        if worktree_path is not None and not found:
            raise _not_tracked(checkpoint_dir, worktree_path)
        return UsageResult(
            stores=sorted(found, key=lambda one: (-one.bytes, from_wire(one.path))),
            bytes=sum(one.bytes for one in found),
            max_store_bytes=self._settings.keep.max_bytes,
            damaged=damaged,
        )

    def dead(self, checkpoint_dir: bytes) -> PruneResult:
        """Tell which stores belong to worktrees that are proved gone."""
        listed = self.list(checkpoint_dir).workspaces
        return PruneResult(
            pruned=[
                PrunedStore(path=one.path, store=one.store, checkpoints=one.checkpoints, bytes=one.bytes)
                for one in listed
                if one.state == "missing"
            ],
            unreachable=[one.path for one in listed if one.state == "unreachable"],
            dry_run=True,
        )

    def delete(self, checkpoint_dir: bytes, folder: bytes) -> None:
        """Delete one store folder; raises DomainError ``bad_path`` for a folder that is not a store of this place."""
        if os.path.dirname(folder) != checkpoint_dir or os.path.islink(folder):
            raise DomainError("bad_path", f"{to_text(folder)} is not a store of {to_text(checkpoint_dir)}")
        self._sweep(checkpoint_dir)
        read_metadata(folder)
        delete_folder(folder)

    def _autosave_of(self, metadata: Metadata) -> Autosave:
        own = self._settings.overrides_of(metadata.path).autosave
        return AutosaveWishes(metadata.autosave).over(own.over(self._settings.autosave))

    def find(self, checkpoint_dir: bytes, worktree_path: bytes) -> tuple[bytes, int] | None:
        """Give the folder and the number of checkpoints of a worktree's store, or None."""
        found = self._find(checkpoint_dir, worktree_path)
        return None if found is None else (found[0], len(Refs(found[0]).checkpoint_names()))

    def _sweep(self, checkpoint_dir: bytes) -> None:
        """Clean up after the last daemon: once, before anything of ours can be in the making there."""
        with self._making:
            if checkpoint_dir not in self._swept:
                self._swept.add(checkpoint_dir)
                sweep_folders(checkpoint_dir)

    def _find(self, checkpoint_dir: bytes, path: bytes) -> tuple[bytes, Metadata] | None:
        hinted = os.path.join(checkpoint_dir, folder_name(path))
        if os.path.isdir(hinted):
            # Its own damage or unknown format is the caller's business: no second store is made beside it.
            metadata = read_metadata(hinted)
            if metadata.path == path:
                return hinted, metadata
        refused: DomainError | None = None
        for folder, found in _stores(checkpoint_dir):
            if isinstance(found, Metadata):
                if found.path == path:
                    return folder, found
            elif found.kind == "too_many_files":
                raise found
            elif _is_of(folder, path):
                refused = refused or found
        # A later version's, or half readable: this worktree's history all the same.
        if refused is not None:
            raise refused
        return None

    def _create(self, checkpoint_dir: bytes, path: bytes, *, force: bool) -> tuple[bytes, Metadata]:
        forced = self._check_worthy(checkpoint_dir, path, force=force)
        metadata = _described(path, rfc3339(int(self._clock())), forced=forced)
        return create_folder(checkpoint_dir, self._free_name(checkpoint_dir, path), metadata), metadata

    def _check_worthy(self, checkpoint_dir: bytes, path: bytes, *, force: bool) -> bool:
        """Refuse what cannot be a worktree; tell whether it is one by force."""
        self._check_directory(path)
        check_real(path)
        _refuse_own(checkpoint_dir, path)
        reason = why_protected(path, self._settings)
        if reason is not None and not force:
            raise DomainError(
                "protected_place",
                f"{to_text(path)} is protected: {reason}",
                hint="name a directory below it, or insist with --force",
                paths=(path,),
            )
        return reason is not None

    @staticmethod
    def _free_name(checkpoint_dir: bytes, path: bytes) -> bytes:
        attempt = 0
        while os.path.lexists(os.path.join(checkpoint_dir, folder_name(path, attempt))):
            attempt += 1
        return folder_name(path, attempt)

    @staticmethod
    def _check_directory(path: bytes) -> None:
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError as error:
            raise DomainError("worktree_missing", f"{to_text(path)} does not exist", paths=(path,)) from error
        except OSError as error:
            raise from_os_error(error, "look at the worktree", path) from error
        if not stat.S_ISDIR(mode):
            raise DomainError("not_a_directory", f"{to_text(path)} is not a directory", paths=(path,))


def _described(path: bytes, created: str, *, forced: bool) -> Metadata:
    try:
        return describe(path, created, forced=forced)
    except OSError as error:
        raise from_os_error(error, "look at the worktree", path) from error


def _not_tracked(checkpoint_dir: bytes, path: bytes, claims: Sequence[Claim] = ()) -> DomainError:
    """Say how to begin, what will then be there already, and which worktree it may have been."""
    old = LegacyCheckpoints(legacy_folders(checkpoint_dir, path))
    count = len(old.seqs())
    old.close()
    message = f"{to_text(path)} is not tracked"
    if count:
        message += f" yet; {count} checkpoints of 0.3.6 will be listed once it is"
    if claims:
        message += f"; {told(path, claims)}"
    return DomainError("not_tracked", message, hint=f"begin with: ckpt -w {to_text(path)} save", paths=(path,))


def _refuse_own(checkpoint_dir: bytes, path: bytes) -> None:
    """A store that saved itself would grow with each save."""
    home = os.path.realpath(checkpoint_dir)
    if path == home or path.startswith(home + b"/"):
        raise DomainError(
            "bad_path",
            f"{to_text(path)} holds checkpoints: it cannot be a worktree itself",
            hint="keep checkpoints outside (or below) what they are of",
            paths=(path,),
        )


def _stores(checkpoint_dir: bytes) -> Iterator[tuple[bytes, Metadata | DomainError]]:
    """Give each store folder with its metadata, or what is wrong with it; other folders are passed over."""
    try:
        names = sorted(os.listdir(checkpoint_dir))
    except FileNotFoundError:
        return
    except OSError as error:
        raise from_os_error(error, "list the stores in", checkpoint_dir) from error
    for name in names:
        folder = os.path.join(checkpoint_dir, name)
        # A folder without ours in it belongs to somebody else.
        if is_left_over(name) or not os.path.isdir(os.path.join(folder, b"ckpt")):
            continue
        try:
            yield folder, read_metadata(folder)
        except DomainError as error:
            yield folder, error


def _is_of(folder: bytes, path: bytes) -> bool:
    """Whether a store that cannot be used says that it is a worktree's."""
    try:
        return owner_of(folder) == path
    except DomainError:
        return False


def _workspace(folder: bytes, metadata: Metadata | DomainError) -> Workspace:
    if isinstance(metadata, DomainError):
        raise metadata
    return Workspace(
        path=metadata.worktree,
        store=to_wire(folder),
        state=_state_of(metadata),
        checkpoints=len(Refs(folder).checkpoint_names()),
        bytes=folder_bytes(folder),
    )


def _state_of(metadata: Metadata) -> State:
    """Tell whether a worktree is there, proved gone, or perhaps only not mounted.

    Gone is proved by its parent: it is there, on the file system where it was, and does not hold the name.
    """
    path = metadata.path
    try:
        return "ok" if stat.S_ISDIR(os.lstat(path).st_mode) else "unreachable"
    except FileNotFoundError:
        pass
    except OSError:
        return "unreachable"
    parent = os.path.dirname(path)
    try:
        same = str(os.lstat(parent).st_dev) == metadata.parent_dev
        same = same or str(os.statvfs(parent).f_fsid) == metadata.parent_fsid != "0"
    except OSError:
        return "unreachable"
    return "missing" if same else "unreachable"
