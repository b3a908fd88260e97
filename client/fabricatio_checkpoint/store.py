"""One worktree's checkpoints, as a program sees them."""

import os
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from ckpt_protocol.wirepath import encode
from fabricatio_checkpoint import wire
from fabricatio_checkpoint.connection import Connection
from fabricatio_checkpoint.errors import StateError, error_of
from fabricatio_checkpoint.hooks import Guard
from fabricatio_checkpoint.progress import ProgressCallback, Watch, notice_of
from fabricatio_checkpoint.record import CheckpointRecord, Patch, RestoreResult, SaveResult, ShowResult, StatusResult
from fabricatio_checkpoint.search import SearchHit, SearchPage
from fabricatio_checkpoint.upkeep import DropResult, GcResult, StoreUsage, ThinResult, UsageResult, VerifyResult
from fabricatio_checkpoint.watching import WatchResult
from fabricatio_checkpoint.wire import AnyPath

__all__ = ["AnyPath", "CheckPointStore", "Expected", "blob_id"]

_T = TypeVar("_T")

Expected = Mapping[AnyPath, str | None]
"""What is expected at paths: the Git blob id of a file's content (of a link's target), None for nothing."""

_ABSENT = "absent"

_PAGE = 5000
_SEARCHED = 1000
_WORKTREE = "WORKTREE"
_READ_AGAIN = 3
_UNWATCHED = Watch()


class CheckPointStore:
    """The shadow repository of one worktree. Made by ``CheckpointService.get_store``; safe for threads.

    An id is a full id, a tag, a unique prefix, ``#SEQ``, ``HEAD``, ``HEAD~N`` or ``@{TIME}``. A relative file path
    is relative to the worktree, whatever the process's directory; an absolute one has to lie inside. Every method
    raises CheckpointError: InputError, StateError, StorageError or TransportError.

    ``progress`` is told how far a call is, in the thread that makes it; what it raises calls the request off. After
    ``deadline_s`` seconds a call that can still be given up ends with StateError ``deadline_exceeded``.
    """

    def __init__(self, worktree: bytes, checkpoint_dir: bytes, connection: Connection, given: bytes = b"") -> None:
        self._worktree = worktree
        self._checkpoint_dir = checkpoint_dir
        self._connection = connection
        self._roots = [worktree]
        self.known_as(given)

    @property
    def workspace(self) -> Path:
        """The worktree: its real, absolute path."""
        return Path(os.fsdecode(self._worktree))

    def known_as(self, path: bytes) -> None:
        """Take absolute file paths that begin with another spelling of the worktree's path, too."""
        if path and path not in self._roots:
            self._roots.append(path)

    def save(
        self,
        commit_msg: str | None = None,
        *,
        tag: str | None = None,
        meta: Mapping[str, str] | None = None,
        full: bool = False,
        rehash: bool = False,
        force: bool = False,
        kind: str = "manual",
        progress: ProgressCallback | None = None,
        deadline_s: float | None = None,
        expect_head: str | None = None,
        expect: Expected | None = None,
    ) -> str:
        """Checkpoint the worktree and return the id; with nothing changed, that of the last checkpoint.

        ``tag`` names it, ``meta`` goes with it; ``full`` scans everything, ``rehash`` reads every file, ``force``
        saves a worktree that is suddenly empty or a protected place; ``kind`` is manual or auto. What could not be
        read is logged as a warning; save_detailed() returns it. ``expect_head`` and ``expect`` are as for reset().
        """
        saved = self.save_detailed(
            commit_msg,
            tag=tag,
            meta=meta,
            full=full,
            rehash=rehash,
            force=force,
            kind=kind,
            progress=progress,
            deadline_s=deadline_s,
            expect_head=expect_head,
            expect=expect,
        )
        if not saved.complete or saved.notes:
            _tell(saved, self.workspace)
        return saved.id

    def save_detailed(
        self,
        commit_msg: str | None = None,
        *,
        tag: str | None = None,
        meta: Mapping[str, str] | None = None,
        full: bool = False,
        rehash: bool = False,
        force: bool = False,
        kind: str = "manual",
        progress: ProgressCallback | None = None,
        deadline_s: float | None = None,
        expect_head: str | None = None,
        expect: Expected | None = None,
    ) -> SaveResult:
        """Save as save() does, and return everything that is known about it."""
        return self._write(
            "checkpoint.save",
            SaveResult.from_wire,
            Watch(progress, deadline_s),
            message=commit_msg,
            tag=tag,
            meta=dict(meta or {}),
            full=full,
            rehash=rehash,
            force=force,
            kind=kind,
            **self._expected(expect_head, expect),
        )

    def head(self) -> str:
        """Give the id of the checkpoint that status and diff compare with; StateError where there is none yet."""
        return self._read("checkpoint.head", lambda result: str(result["id"]))

    def commits(self) -> list[str]:
        """Give the ids of all checkpoints of every kind, oldest first."""
        return [record.id for record in self._pages()][::-1]

    def checkpoints(
        self,
        *,
        limit: int | None = None,
        kind: str | None = None,
        meta: Mapping[str, str] | None = None,
        paths: Iterable[AnyPath] = (),
        follow: bool = False,
        before: int | None = None,
    ) -> list[CheckpointRecord]:
        """Give the checkpoints, newest first; only those of a kind, with metadata, or that changed given paths.

        With ``follow`` a path that a checkpoint renamed is followed further back under its former name, as
        ``ckpt ls PATH`` does; the records say so in ``renames``. ``before`` is a sequence number: only those that are
        older. With ``limit`` a long history is read in pages, each going on before the last ``seq`` of the one before.
        """
        filters = {"kind": kind, "meta": dict(meta or {}), "paths": self._wire_paths(paths)}
        return list(self._pages(limit, [] if follow else None, before, **filters))

    def search(
        self,
        text: str | bytes,
        *,
        ignore_case: bool = False,
        paths: Iterable[AnyPath] = (),
        kind: str | None = None,
        meta: Mapping[str, str] | None = None,
        limit: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> Iterator[SearchHit]:
        """Give the checkpoints that add or remove a text, newest first, as they are found.

        That is where the number of its occurrences in a file differs from the checkpoint before. ``paths`` are files
        and directories to look at, ``kind`` and ``meta`` choose checkpoints. What cannot be read is logged as a
        warning. InputError for an empty text.
        """
        wanted = {
            "text": wire.searched_text(text),
            "ignore_case": ignore_case,
            "paths": self._wire_paths(paths),
            "kind": kind,
            "meta": dict(meta or {}),
        }
        return (hit for page in self._search_pages(wanted, limit, Watch(progress)) for hit in page.hits)

    def show(self, commit_id: str) -> ShowResult:
        """Give one checkpoint and what it changed."""
        return self._read("checkpoint.show", ShowResult.from_wire, id=commit_id)

    def status(self, *, progress: ProgressCallback | None = None, deadline_s: float | None = None) -> StatusResult:
        """Compare the worktree with head."""
        return self._read("worktree.status", StatusResult.from_wire, Watch(progress, deadline_s))

    def get_status(self) -> list[str]:
        """Give the paths that were added, modified or deleted since head, sorted."""
        return sorted(change.path for change in self.status().changes)

    def diff(
        self,
        from_id: str | None = None,
        to_id: str | None = None,
        paths: Iterable[AnyPath] = (),
        *,
        progress: ProgressCallback | None = None,
        deadline_s: float | None = None,
    ) -> str:
        """Give the patch from one checkpoint (default: head) to another (default: the worktree as it is now).

        Bytes that are not UTF-8 come as lone surrogates (``surrogateescape``); diff_bytes() gives them as they are.
        """
        patch = self.diff_bytes(from_id, to_id, paths, progress=progress, deadline_s=deadline_s)
        return patch.decode("utf-8", "surrogateescape")

    def diff_bytes(
        self,
        from_id: str | None = None,
        to_id: str | None = None,
        paths: Iterable[AnyPath] = (),
        *,
        progress: ProgressCallback | None = None,
        deadline_s: float | None = None,
    ) -> bytes:
        """Give the patch of diff() as bytes; ``git apply`` takes it."""
        return self.diff_detailed(from_id, to_id, paths, progress=progress, deadline_s=deadline_s).data

    def diff_detailed(
        self,
        from_id: str | None = None,
        to_id: str | None = None,
        paths: Iterable[AnyPath] = (),
        *,
        max_bytes: int | None = None,
        progress: ProgressCallback | None = None,
        deadline_s: float | None = None,
    ) -> Patch:
        """Give the patch of diff() with what it has no words for; of a long one at most ``max_bytes``."""
        wanted = {"from_id": from_id, "to_id": to_id or _WORKTREE, "paths": self._wire_paths(paths)}
        for _ in range(_READ_AGAIN):
            try:
                return self._patch(wanted, Watch(progress, deadline_s), max_bytes)
            except StateError as error:
                # A daemon that was replaced in between does not know the cursor: begin again.
                if error.kind != "expired_cursor":
                    raise
                expired = error
        raise expired

    def get_file_diff(self, commit_id: str, file_path: AnyPath) -> str:
        """Give the patch of one file from a checkpoint to its current state; empty where they are equal."""
        return self.diff(commit_id, None, [file_path])

    def cat(self, commit_id: str, path: AnyPath, *, max_bytes: int | None = None) -> bytes:
        """Give the content of one file of a checkpoint, of a long one at most ``max_bytes``; of a link, its target."""
        wanted = {"id": commit_id, "path": self._wire_path(path)}
        pieces: list[bytes] = []
        while True:
            offset = sum(map(len, pieces))
            result = self._read("checkpoint.cat", _cat, offset=offset, **wanted)
            pieces.append(result.data)
            done = offset + len(result.data)
            if done >= result.total_bytes or (max_bytes is not None and done >= max_bytes):
                return b"".join(pieces)[:max_bytes]
            _check_progress(result, "checkpoint.cat")
            # The first answer settles which checkpoint a name such as HEAD meant.
            wanted["id"] = result.follow or commit_id

    def reset(
        self,
        commit_id: str | None = None,
        *,
        digest: str | None = None,
        skip_conflicts: bool = False,
        recreate: bool = False,
        progress: ProgressCallback | None = None,
        deadline_s: float | None = None,
        expect_head: str | None = None,
        expect: Expected | None = None,
    ) -> RestoreResult:
        """Restore the entire worktree to a checkpoint (default: head). undo() takes it back.

        Ignored files stay, and everything overwritten or deleted is in the result's ``safety`` checkpoint.
        ``digest`` refuses any plan but plan_reset()'s; ``skip_conflicts`` leaves out what cannot be kept safe,
        instead of doing nothing; ``recreate`` makes a worktree that is gone.

        Where somebody else may be at work here, StateError ``precondition_failed`` and nothing changed: with
        ``expect_head`` if a checkpoint is newer than that one and neither an autosave nor of this service's session;
        with ``expect`` if a path holds something else than the blob id given for it (None: nothing there); blob_id()
        makes one of content.
        """
        return self._restore(
            Watch(progress, deadline_s),
            id=commit_id,
            digest=digest,
            skip_conflicts=skip_conflicts,
            recreate=recreate,
            dry_run=False,
            **self._expected(expect_head, expect),
        )

    def plan_reset(
        self, commit_id: str | None = None, *, skip_conflicts: bool = False, recreate: bool = False
    ) -> RestoreResult:
        """Tell what reset() would do, and change nothing."""
        return self._restore(_UNWATCHED, id=commit_id, skip_conflicts=skip_conflicts, recreate=recreate, dry_run=True)

    def rollback(
        self,
        commit_id: str,
        file_path: AnyPath | Iterable[AnyPath],
        *,
        delete: bool = False,
        digest: str | None = None,
        skip_conflicts: bool = False,
        progress: ProgressCallback | None = None,
        deadline_s: float | None = None,
        expect_head: str | None = None,
        expect: Expected | None = None,
    ) -> RestoreResult:
        """Restore one file or directory, or several, from a checkpoint; nothing else is touched.

        ``delete`` deletes given paths that the checkpoint does not have, which is otherwise an InputError. The
        rest is as for reset().
        """
        paths = self._some_paths(file_path)
        return self._restore(
            Watch(progress, deadline_s),
            id=commit_id,
            paths=paths,
            delete=delete,
            digest=digest,
            skip_conflicts=skip_conflicts,
            dry_run=False,
            **self._expected(expect_head, expect),
        )

    def plan_rollback(
        self,
        commit_id: str,
        file_path: AnyPath | Iterable[AnyPath],
        *,
        delete: bool = False,
        skip_conflicts: bool = False,
    ) -> RestoreResult:
        """Tell what rollback() would do, and change nothing."""
        paths = self._some_paths(file_path)
        return self._restore(
            _UNWATCHED, id=commit_id, paths=paths, delete=delete, skip_conflicts=skip_conflicts, dry_run=True
        )

    def undo(
        self,
        *,
        dry_run: bool = False,
        digest: str | None = None,
        skip_conflicts: bool = False,
        progress: ProgressCallback | None = None,
        deadline_s: float | None = None,
        session: str | None = None,
        expect_head: str | None = None,
        expect: Expected | None = None,
    ) -> RestoreResult:
        """Take back the newest reset or rollback that is not undone, over exactly its paths.

        With ``session``: the newest of that session, whatever others did since; paths that were changed since are
        then conflicts instead of being overwritten. The rest is as for reset().
        """
        conditions = {"session": session, **self._expected(expect_head, expect)}
        return self._step("checkpoint.undo", Watch(progress, deadline_s), dry_run, digest, skip_conflicts, conditions)

    def undo_session(
        self,
        session: str,
        *,
        dry_run: bool = False,
        digest: str | None = None,
        skip_conflicts: bool = False,
        progress: ProgressCallback | None = None,
        deadline_s: float | None = None,
    ) -> RestoreResult:
        """Take back all that a session changed, as far as the saves around its tool calls tell; redo() reverses it.

        Those are saves with ``session`` in their metadata: what differs from one to the next checkpoint is the
        session's. With ``event`` as ``ckpt hook`` records it, a tool call lasts from PreToolUse to the session's next
        save, whoever saves meanwhile. Its restores count, too. A path that others have been at is in conflict
        (``edited``, ``other_session``), and so is one where the saves cannot tell (``unclear``): then nothing is
        changed, or with ``skip_conflicts`` the rest.
        """
        conditions = {"session": session, "whole_session": True}
        return self._step("checkpoint.undo", Watch(progress, deadline_s), dry_run, digest, skip_conflicts, conditions)

    def redo(
        self,
        *,
        dry_run: bool = False,
        digest: str | None = None,
        skip_conflicts: bool = False,
        progress: ProgressCallback | None = None,
        deadline_s: float | None = None,
        session: str | None = None,
        expect_head: str | None = None,
        expect: Expected | None = None,
    ) -> RestoreResult:
        """Do again what the last undo took back; the arguments are as for undo()."""
        conditions = {"session": session, **self._expected(expect_head, expect)}
        return self._step("checkpoint.redo", Watch(progress, deadline_s), dry_run, digest, skip_conflicts, conditions)

    def resume(
        self, action: str, *, dry_run: bool = False, digest: str | None = None, skip_conflicts: bool = False
    ) -> RestoreResult:
        """End the restore that was cut off (see status()): ``finish`` goes on with it, ``undo`` takes it back.

        It is about exactly the paths of that restore. What was changed there since is in the result's ``edited``, and
        in a checkpoint. StateError where none was cut off.
        """
        return self._write(
            "worktree.resume",
            RestoreResult.from_wire,
            action=action,
            dry_run=dry_run,
            digest=digest,
            skip_conflicts=skip_conflicts,
        )

    def tag(self, commit_id: str, name: str, *, move: bool = False) -> str:
        """Name a checkpoint, and give its id; one with a tag is never thinned, and the tag works wherever an id does.

        StateError where the name is another checkpoint's, unless ``move``.
        """
        return self._write("checkpoint.tag", lambda result: str(result["id"]), id=commit_id, name=name, move=move)

    def untag(self, name: str) -> str:
        """Remove a tag, and give the id of the checkpoint, which stays; InputError for one that is not there."""
        return self._write("checkpoint.untag", lambda result: str(result["before"]), name=name)

    def watch(self, on: bool, *, force: bool = False) -> WatchResult:
        """Turn autosave on or off, for good: the daemon remembers it. Turned on, it tries again what has stopped it.

        ``force`` allows a protected place that has no store yet.
        """
        return self._write("worktree.watch", WatchResult.from_wire, action="on" if on else "off", force=force)

    def watch_status(self) -> WatchResult:
        """Tell how autosave is, and whether it goes on by itself after a reboot."""
        return self._write("worktree.watch", WatchResult.from_wire, action="status")

    def drop(self, *ids: str, dry_run: bool = False, force: bool = False) -> DropResult:
        """Remove checkpoints for good, with their tags; head may be one of them.

        StateError for one that is tagged, or that an undo, redo or resume needs, unless ``force``. Their content leaves
        the store with gc(), if no other checkpoint holds it; the result's ``held`` lists those that do.
        """
        return self._write("checkpoint.drop", DropResult.from_wire, ids=list(ids), dry_run=dry_run, force=force)

    def usage(self) -> StoreUsage:
        """Tell what the store holds and takes on the disk."""
        return self._read("store.usage", UsageResult.from_wire).stores[0]

    def thin(self, *, dry_run: bool = False) -> ThinResult:
        """Remove the checkpoints that go by the options ``keep_*`` and ``max_store_bytes``; never what is tagged.

        The options are the daemon's. gc() then frees the space.
        """
        return self._write("store.thin", ThinResult.from_wire, dry_run=dry_run)

    def gc(self, *, dry_run: bool = False) -> GcResult:
        """Remove from the store what no checkpoint needs, and make it smaller; others may go on meanwhile."""
        return self._write("store.gc", GcResult.from_wire, dry_run=dry_run)

    def export(self, commit_id: str, destination: AnyPath, paths: Iterable[AnyPath] = ()) -> int:
        """Write a checkpoint, or some paths of it, elsewhere, and give the number of files and links.

        ``destination`` is a directory that is not there or is empty, or the name of a ``.tar`` file that is not there;
        it appears when everything is in it. StateError where something is there already.
        """
        return self._read(
            "checkpoint.export",
            lambda result: int(result["files"]),
            id=commit_id,
            destination=wire.destination(destination),
            paths=self._wire_paths(paths),
        )

    def verify(self, *, read_data: bool = False) -> VerifyResult:
        """Look for damage in the store: what is lost, and which checkpoints need it. Nothing is changed.

        ``read_data`` also reads and hashes all content.
        """
        return self._read("store.verify", VerifyResult.from_wire, read_data=read_data)

    def guard(self, msg: str | None = None, *, restore: bool = False, kind: str = "auto") -> Guard:
        """Checkpoint before a block (``with``, ``async with``) or each call of a function (as a decorator).

        ``restore`` resets the worktree where the block ends with an exception; see Guard.
        """
        return Guard(lambda: self, msg, restore=restore, kind=kind)

    def __repr__(self) -> str:
        return f"CheckPointStore({os.fsdecode(self._worktree)!r})"

    # A role may be copied or sent to another process: a store is a name for something outside of both.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., object], tuple[bytes, bytes]]:
        return _reopen, (self._checkpoint_dir, self._worktree)

    def _params(self) -> dict[str, Any]:
        return {
            "checkpoint_dir": wire.directory(self._checkpoint_dir),
            "worktree": wire.worktree(self._worktree),
        }

    def _read(
        self, method: str, convert: Callable[[dict[str, Any]], _T], watch: Watch = _UNWATCHED, /, **params: object
    ) -> _T:
        wanted = {**self._params(), **params}
        if watch.deadline_s is not None:
            wanted["deadline_s"] = watch.deadline_s
        return call(self._connection, method, wanted, convert, notice_of(watch.progress))

    def _write(
        self, method: str, convert: Callable[[dict[str, Any]], _T], watch: Watch = _UNWATCHED, /, **params: object
    ) -> _T:
        return self._read(method, convert, watch, token=wire.new_token(), **params)

    def _restore(self, watch: Watch, /, **params: object) -> RestoreResult:
        return self._write("checkpoint.restore", RestoreResult.from_wire, watch, **params)

    def _step(
        self,
        method: str,
        watch: Watch,
        dry_run: bool,
        digest: str | None,
        skip_conflicts: bool,
        conditions: Mapping[str, object],
    ) -> RestoreResult:
        given = {name: value for name, value in conditions.items() if value is not None}
        return self._write(
            method,
            RestoreResult.from_wire,
            watch,
            dry_run=dry_run,
            digest=digest,
            skip_conflicts=skip_conflicts,
            **given,
        )

    def _expected(self, head: str | None, paths: Expected | None) -> dict[str, Any]:
        """Give the conditions that were made; none are sent otherwise, so that an older daemon understands."""
        wanted = [
            {"path": self._wire_path(path), "oid": _ABSENT if oid is None else oid}
            for path, oid in (paths or {}).items()
        ]
        given: dict[str, Any] = {} if head is None else {"expect_head": head}
        return {**given, "expect": wanted} if wanted else given

    def _pages(
        self,
        limit: int | None = None,
        follow: list[wire.Json] | None = None,
        before: int | None = None,
        **filters: object,
    ) -> Iterator[CheckpointRecord]:
        left = limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(left, _PAGE)
            # Not sent where it is not wanted, so that an older daemon understands.
            following = {} if follow is None else {"follow": follow}
            result = self._read("checkpoint.list", _Page, limit=size, before_seq=before, **filters, **following)
            yield from result.records
            if not result.more or not result.records:
                return
            before = result.records[-1].seq
            left = None if left is None else left - len(result.records)
            follow = None if follow is None else result.followed

    def _search_pages(self, wanted: dict[str, Any], limit: int | None, watch: Watch) -> Iterator[SearchPage]:
        left, missed = limit, 0
        before: int | None = None
        while left is None or left > 0:
            size = _SEARCHED if left is None else min(left, _SEARCHED)
            page = self._read("checkpoint.search", SearchPage.from_wire, watch, limit=size, before_seq=before, **wanted)
            yield page
            missed += page.missed
            before = page.next_seq
            left = None if left is None else left - len(page.hits)
            if before is None:
                break
        if missed:
            _warn(f"{missed} checkpoints or paths of {self.workspace} cannot be read and were not searched")

    def _patch(self, wanted: dict[str, Any], watch: Watch, max_bytes: int | None) -> Patch:
        pieces: list[bytes] = []
        cursor: str | None = None
        notes: tuple[str, ...] = ()
        offset = 0
        while True:
            result = self._read("checkpoint.diff", _diff, watch, cursor=cursor, offset=offset, **wanted)
            pieces.append(result.data)
            notes = notes or result.notes
            offset += len(result.data)
            if result.follow is None or (max_bytes is not None and offset >= max_bytes):
                return Patch(b"".join(pieces)[:max_bytes], result.total_bytes, notes)
            _check_progress(result, "checkpoint.diff")
            cursor = result.follow

    def _some_paths(self, given: AnyPath | Iterable[AnyPath]) -> list[wire.Json]:
        paths = self._wire_paths([given] if isinstance(given, str | bytes | os.PathLike) else given)
        if not paths:
            raise error_of("bad_path", "no path to roll back", hint="name one, or use reset for the whole worktree")
        return paths

    def _wire_paths(self, paths: Iterable[AnyPath]) -> list[wire.Json]:
        if isinstance(paths, str | bytes | os.PathLike):
            paths = [paths]
        return [self._wire_path(path) for path in paths]

    def _wire_path(self, path: AnyPath) -> wire.Json:
        return encode(wire.relative_path(path, self._roots))


def blob_id(content: bytes) -> str:
    """Give the Git blob id of a file's content, or of a link's target: what ``expect`` compares."""
    import hashlib

    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class _Piece:
    """Bytes of a longer content, its whole length, and what the next question has to name."""

    def __init__(self, result: dict[str, Any], follow: str) -> None:
        self.data = a2b_base64(result["data"]["b64"])
        self.total_bytes = int(result["total_bytes"])
        self.follow: str | None = result[follow]
        self.notes: tuple[str, ...] = tuple(result.get("notes", ()))


def call(
    connection: Connection,
    method: str,
    params: dict[str, Any],
    convert: Callable[[dict[str, Any]], _T],
    on_notice: Callable[[dict[str, Any]], None] | None = None,
) -> _T:
    """Ask the daemon and convert the result; raises InternalError for a result that is not as agreed."""
    result = connection.call(method, params, on_notice=on_notice)
    try:
        return convert(result)
    except (KeyError, TypeError, ValueError) as error:
        raise error_of("internal", f"the daemon's answer to {method} is not as agreed", method=method) from error


def _cat(result: dict[str, Any]) -> _Piece:
    return _Piece(result, "id")


def _diff(result: dict[str, Any]) -> _Piece:
    return _Piece(result, "cursor")


class _Page:
    """One page of a list, and what the next question has to name."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.records = [CheckpointRecord.from_wire(each) for each in result["checkpoints"]]
        self.more = bool(result["more"])
        self.followed: list[wire.Json] = list(result.get("followed", ()))


def _check_progress(piece: _Piece, method: str) -> None:
    if not piece.data:
        raise error_of("internal", f"the daemon's answer to {method} is empty before its end", method=method)


def _tell(saved: SaveResult, workspace: Path) -> None:
    """Log what a bare id cannot say: failures as a warning; notes on a save that made nothing, as information."""
    import logging

    logger = logging.getLogger("fabricatio_checkpoint")
    if not saved.complete:
        paths = ", ".join(f"{left.path} ({left.reason})" for left in saved.skipped[:3])
        logger.warning("checkpoint of %s lacks %d paths: %s", workspace, len(saved.skipped), ascii(paths))
    for note in saved.notes:
        logger.log(logging.WARNING if saved.created else logging.INFO, "checkpoint of %s: %s", workspace, note)


def _warn(text: str) -> None:
    import logging

    logging.getLogger("fabricatio_checkpoint").warning("%s", text)


def _reopen(checkpoint_dir: bytes, worktree: bytes) -> CheckPointStore:
    from fabricatio_checkpoint.inited_service import service_for

    return service_for(checkpoint_dir).get_store(os.fsdecode(worktree))
