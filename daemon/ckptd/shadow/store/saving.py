"""The save: look, write what is new, commit, and answer when it is durable."""

import contextlib
from typing import Final

import msgspec

from ckpt_protocol.checkpoint import SaveParams, SaveResult
from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, spelled
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.pack import PackWriter
from ckptd.shadow.objects.pulse import Pulse
from ckptd.shadow.record.checkpoint import load_info
from ckptd.shadow.record.info import Info, write_info_tree
from ckptd.shadow.record.message import check_text
from ckptd.shadow.record.oplog import Intent, Outcome
from ckptd.shadow.scan.model import DirNode
from ckptd.shadow.scan.scanner import ScanResult
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.changes import to_left_out
from ckptd.shadow.store.conditions import Conditions, check_conditions
from ckptd.shadow.store.counters import count_work
from ckptd.shadow.store.repository import Repository
from ckptd.shadow.store.tagging import refuse_taken

__all__ = ["Saver"]

_MAX_META_BYTES: Final = 64 * 1024


class Saver:
    """Makes manual and automatic checkpoints of one worktree."""

    def __init__(self, repository: Repository) -> None:
        self._repo = repository
        self._rules_accepted = False

    def accept_rules(self) -> None:
        """Let the next autosave go on, however much the ignore rules leave out by now."""
        self._rules_accepted = True

    def autosave(self, params: SaveParams, asker: Asker) -> SaveResult:
        """Save without being asked to: nothing that looks like an accident, and nothing that a restore has left.

        Raises DomainError as save() does, and ``worktree_replaced``, ``rules_drop``.
        """
        if self._repo.is_replaced():
            raise self._replaced()
        result = self._make(params, asker, automatic=True)
        self._rules_accepted = False
        return result

    def save(self, params: SaveParams, asker: Asker) -> SaveResult:
        """Make a checkpoint, or give head where nothing has changed.

        Raises DomainError: ``bad_message``, ``bad_tag``, ``bad_option``, ``tag_exists``, ``worktree_missing``,
        ``worktree_empty``, ``precondition_failed``, ``cancelled``, and storage errors; then no checkpoint has come of
        it.
        """
        result = self._make(params, asker, automatic=False)
        with contextlib.suppress(DomainError):
            # Whoever saves here means this directory. The save is done, whether that can be noted or not.
            self._repo.accept_place()
        return result

    def _replaced(self) -> DomainError:
        worktree = self._repo.worktree
        return DomainError(
            "worktree_replaced",
            f"another directory is at {to_text(worktree)} by now",
            hint="if it is the same project, ckpt save or ckpt watch on goes on with it",
            paths=(worktree,),
        )

    def _make(self, params: SaveParams, asker: Asker, *, automatic: bool) -> SaveResult:
        text = check_text(params.message)
        _check_meta(params.meta)
        answered = self._repo.log.answered(params.token, "save")
        if answered is not None:
            return msgspec.json.decode(answered.result, type=SaveResult)
        if params.tag is not None:
            refuse_taken(self._repo, params.tag, self._repo.head)
        # Not called off in there: what has been hashed is to be kept.
        pack = self._repo.objects.writer(Pulse(progress=lambda _files, _bytes: asker.tell("write")).beat)
        try:
            return self._scan_and_save(params, text, pack, asker, automatic)
        finally:
            pack.abort()

    def _scan_and_save(
        self, params: SaveParams, text: str | None, pack: PackWriter, asker: Asker, automatic: bool
    ) -> SaveResult:
        scan = self._repo.scan(
            pack,
            rehash=params.rehash,
            full=params.full,
            cancelled=asker.is_cancelled,
            progress=asker.hashing(self._repo.tracked_files if params.rehash else 0),
            keep=lambda so_far: self._repo.keep(pack, so_far),
        )
        self._repo.watched.saved(scan)
        reach("scanned")
        if automatic and str(scan.place[1]) != self._repo.metadata.ino:
            # It came while the scan began.
            raise self._replaced()
        check_conditions(self._repo, Conditions.of(params), scan.root, asker)
        dropped = self._dropped_by_rules(scan.root)
        if automatic and dropped and not self._rules_accepted:
            raise DomainError("rules_drop", dropped[0], hint="if that is meant, ckpt save or ckpt watch on goes on")
        self._refuse_sudden_emptiness(scan, force=params.force or bool(dropped))
        info = self._repo.info_of(scan, scan.root.modes)
        info_tree = write_info_tree(pack, info)
        notes = [*([] if automatic else self._repo.take_notes()), *scan.problems, *dropped]
        head = self._repo.head
        unchanged = head is not None and self._is_unchanged(head, params, scan.root.tree, info)
        if head is not None and (unchanged or (automatic and self._repo.settled.is_own(scan.root))):
            self._repo.seal(pack)
            self._repo.adopt(scan.root)
            return self._unchanged(head, params, text, scan, pack, notes)
        if params.tag is not None:
            # A tag that head has already is one that this very request may have set; on a new checkpoint it is not.
            refuse_taken(self._repo, params.tag, None)
        return self._create(params, text, pack, info_tree, scan, notes, asker)

    def _create(
        self,
        params: SaveParams,
        text: str | None,
        pack: PackWriter,
        info_tree: bytes | None,
        scan: ScanResult,
        notes: list[str],
        asker: Asker,
    ) -> SaveResult:
        repo = self._repo
        asker.tell("write", scan.root.files_below, scan.root.files_below)
        draft = repo.draft(
            pack,
            scan.root.key,
            info_tree,
            text,
            kind=params.kind,
            complete=not scan.skipped,
            client=asker.client,
            meta=_meta(params, asker),
            watched=scan.partial,
        )
        intent = Intent(
            n=repo.log.next_number,
            verb="save",
            time=repo.now(),
            token=params.token,
            client=asker.client,
            session=asker.session,
            next_seq=draft.seq + 1,
            before=repo.head,
            after=draft.id,
            id=draft.id,
            tag=params.tag,
            files=scan.root.files_below,
        )
        record = repo.record(intent, draft, pack)
        try:
            repo.publish(record)
            result = _result(draft.id, draft.seq, True, scan, pack, notes)
            if params.tag is not None:
                repo.refs.write_tag(params.tag, draft.id.encode())
            # The ref is durable; an outcome that a crash loses is found out again from it.
            repo.log.write(Outcome(n=intent.n, result=msgspec.Raw(msgspec.json.encode(result))), durable=False)
        except DomainError:
            repo.withdraw(draft, intent.n, params.tag)
            raise
        repo.set_head(draft.id)
        repo.settled.forget()
        repo.adopt(scan.root)
        repo.cut_log()
        return result

    def _unchanged(
        self,
        head: str,
        params: SaveParams,
        text: str | None,
        scan: ScanResult,
        pack: PackWriter,
        notes: list[str],
    ) -> SaveResult:
        if params.tag is not None:
            self._repo.refs.write_tag(params.tag, head.encode())
        if text is not None and text != self._repo.lookup.load(head).text:
            notes = [*notes, f"nothing has changed since {head[:12]}, so the message was not used"]
        return _result(head, self._repo.lookup.load(head).facts.seq, False, scan, pack, notes)

    def _is_unchanged(self, head: str, params: SaveParams, tree: bytes, info: Info) -> bool:
        if not self._repo.lookup.is_readable(head):
            return False
        checkpoint = self._repo.lookup.load(head)
        if checkpoint.tree != tree or (params.kind == "manual" and checkpoint.facts.kind != "manual"):
            return False
        if params.meta and params.meta != checkpoint.facts.meta:
            return False
        before = load_info(self._repo.objects, checkpoint)
        return before is not None and _without_details(before) == _without_details(info)

    def _refuse_sudden_emptiness(self, scan: ScanResult, *, force: bool) -> None:
        """A worktree that had files and has none was more likely unmounted or wrecked than finished."""
        head = self._repo.head
        if force or scan.root.files_below or scan.root.children or scan.skipped or head is None:
            return
        if self._repo.lookup.is_readable(head) and self._repo.lookup.load(head).tree != EMPTY_TREE:
            raise DomainError(
                "worktree_empty",
                f"{to_text(self._repo.worktree)} is suddenly empty",
                hint="ckpt reset brings everything back; ckpt save --force saves it empty",
                paths=(self._repo.worktree,),
            )

    def _dropped_by_rules(self, root: DirNode) -> list[str]:
        """Say it if rules now leave out most of what the last scan saw."""
        old = self._repo.model
        if old is None or old is root:
            return []
        dropped = 0
        for path, count in _newly_ignored(old, root):
            dropped += count
            last = path
        if dropped * 2 <= old.files_below:
            return []
        return [f"ignore rules now leave out {dropped} of {old.files_below} files, such as {to_text(last)}"]


def _without_details(info: Info) -> Info:
    """Leave out what is there for people alone, such as the size of a log that grows and is too large anyway."""
    return info._replace(
        skipped=[item._replace(detail=None) for item in info.skipped],
        excluded=[item._replace(detail=None) for item in info.excluded],
    )


def _newly_ignored(old: DirNode, new: DirNode) -> list[tuple[bytes, int]]:
    """Give the paths that were saved and are ignored now, and how many files each stands for."""
    found: list[tuple[bytes, int]] = []
    stack = [(b"", old, new)]
    while stack:
        path, before, after = stack.pop()
        start = path + b"/" if path else b""
        for name in after.ignored:
            plain = name.rstrip(b"/")
            if plain in before.children and plain not in after.children:
                found.append((start + name, before.children[plain].files_below))
            elif plain in before.entries:
                found.append((start + name, 1))
        stack.extend(
            (start + name, before.children[name], child)
            for name, child in after.children.items()
            if name in before.children and before.children[name] is not child
        )
    return found


def _meta(params: SaveParams, asker: Asker) -> dict[str, str]:
    """Give the metadata, with a word about a scan that ended later than whoever asked could wait."""
    late = params.late_after_s is not None and asker.waited_s() > params.late_after_s
    return {**params.meta, "late": f"{asker.waited_s():.1f} s"} if late else params.meta


def _check_meta(meta: dict[str, str]) -> None:
    try:
        size = sum(len(key.encode()) + len(value.encode()) for key, value in meta.items())
    except UnicodeEncodeError as error:
        raise DomainError("bad_option", "metadata must be valid Unicode text") from error
    if size > _MAX_META_BYTES:
        raise DomainError("bad_option", f"metadata of more than {_MAX_META_BYTES} bytes")


def _result(
    checkpoint_id: str, seq: int, created: bool, scan: ScanResult, pack: PackWriter, notes: list[str]
) -> SaveResult:
    return SaveResult(
        id=checkpoint_id,
        seq=seq,
        created=created,
        complete=not scan.skipped,
        skipped=to_left_out(scan.skipped),
        excluded=to_left_out(scan.excluded),
        files=scan.root.files_below,
        notes=[spelled(note) for note in notes],
        stats=count_work(scan, pack),
    )
