"""Carrying out one restore: plan, safety checkpoint, record, write, sync, record.

The safety checkpoint and the intent are durable before the first write; the intent names the safety checkpoint and all
paths, so that a restore that is cut off can be finished or undone.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, NoReturn

import msgspec

from ckpt_protocol.checkpoint import RestoreResult
from ckpt_protocol.structs import to_wire
from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.pack import HashOnly, PackWriter
from ckptd.shadow.record.info import write_info_tree
from ckptd.shadow.record.oplog import Intent, Outcome
from ckptd.shadow.restore.crew import Crew
from ckptd.shadow.restore.space import free_bytes, free_files, has_plenty, missing_bytes, used_bytes
from ckptd.shadow.restore.writer import BATCH_STEPS, RestoreWriter, sync
from ckptd.shadow.restore.writer import Outcome as Written
from ckptd.shadow.scan.exclusion import Exclusion
from ckptd.shadow.store.answer import answer_done, answer_planned
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.counters import count_work
from ckptd.shadow.store.intents import intent_of
from ckptd.shadow.store.passes import passes_of, planned
from ckptd.shadow.store.place import is_missing, open_root, require_place, stays_at
from ckptd.shadow.store.preparing import Prepared, RestoreRequest, prepare
from ckptd.shadow.store.proving import DAMAGE, Proved
from ckptd.shadow.store.readback import NotHeldError, read_back
from ckptd.shadow.store.repository import Draft, Repository
from ckptd.shadow.trees.graft import graft
from ckptd.shadow.trees.step import Step

__all__ = ["Carrier"]

# Permission bits are recorded with each checkpoint; this is for one whose record is lost.
_UMASK: Final = 0o022
_PLAIN_BYTES: Final = 16 * 1024 * 1024
_MUCH_ROOM_BYTES: Final = 1024 * 1024 * 1024
new_crew: Final = partial(Crew, 2)
"""Makes those who write a restore, where there is room for what each of them has begun."""


def _in_conflict(conflicts: list[Exclusion], blocked: Collection[Exclusion]) -> DomainError:
    shown = ", ".join(f"{to_text(item.path)} ({item.reason})" for item in conflicts[:3])
    paths = [item.path for item in conflicts]
    damage = [item.reason for item in conflicts if item.reason in DAMAGE]
    if damage:
        return DomainError(
            damage[0],
            f"the store has lost content, or it is damaged: {shown}; nothing was changed",
            hint="ckpt verify --read-data tells what else is hurt; --skip-conflicts restores the rest",
            paths=paths,
        )
    count = "1 path" if len(paths) == 1 else f"{len(paths)} paths"
    if blocked:
        shown = "; ".join(f"{to_text(item.path)}: {item.detail or item.reason}" for item in conflicts[:3])
        return DomainError(
            "conflicts",
            f"{count} not taken back, for others have been there: {shown}; nothing was changed",
            hint="--dry-run --skip-conflicts tells of each; --skip-conflicts takes back the rest",
            paths=paths,
        )
    return DomainError(
        "conflicts",
        f"{count} cannot be restored without loss: {shown}; nothing was changed",
        hint="move them away, or restore the rest with --skip-conflicts",
        paths=paths,
    )


def _size_in(content: Proved, oid: bytes) -> int:
    try:
        return content.size(oid)
    except DomainError:
        # Damage has its own answer, at its own path.
        return 0


class Carrier:
    """Carries out the restores of one worktree, whatever asked for them.

    ``take_back`` is given one that was called off in the middle, with the number of paths that it has changed.
    """

    def __init__(self, repository: Repository, take_back: Callable[[Intent, int, Asker], NoReturn]) -> None:
        self._repo = repository
        self._take_back = take_back

    def run(self, request: RestoreRequest, asker: Asker) -> RestoreResult:
        """Do it, or with ``dry_run`` tell what would be done; errors come before the first write."""
        if request.dry_run:
            return answer_planned(prepare(self._repo, request, HashOnly(), asker))
        self._repo.clear_up()
        if request.recreate and is_missing(self._repo):
            # Nothing is made for a request that is going to be refused.
            self._refuse(prepare(self._repo, request, HashOnly(), asker))
            self._recreate()
        with self._repo.watched.beginning_after():
            try:
                return self._attempt(request, asker)
            except NotHeldError:
                # What could not be read back counts as missing now, so that another scan stores it anew.
                return self._attempt(request, asker)

    def _attempt(self, request: RestoreRequest, asker: Asker) -> RestoreResult:
        pack = self._repo.objects.writer(plain_bytes=self._plain_bytes())
        try:
            prepared = prepare(self._repo, request, pack, asker)
            self._refuse(prepared)
            if not prepared.plan.steps:
                return self._do_nothing(prepared, asker)
            return self._write(prepared, pack, asker)
        finally:
            pack.abort()

    def _plain_bytes(self) -> int:
        """Tell how much of what is small may go into the safety checkpoint as it is, to be deflated at leisure.

        Nothing where that would bring the store above its cap: history would go for it.
        """
        if self._repo.cap.is_over(_PLAIN_BYTES):
            return 0
        try:
            folder = os.open(self._repo.objects.pack_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return 0
        try:
            free = free_bytes(folder)
        finally:
            os.close(folder)
        return _PLAIN_BYTES if free is not None and free > _MUCH_ROOM_BYTES else 0

    def _refuse(self, prepared: Prepared) -> None:
        """Stop before anything is written: another plan than the caller's, or conflicts."""
        request, plan = prepared.request, prepared.plan
        if request.digest is not None and request.digest != plan.digest:
            raise DomainError(
                "plan_changed",
                "the worktree has changed since the plan was made; nothing was changed",
                hint="look at the new plan (--dry-run), then try again",
            )
        if plan.conflicts and not request.skip_conflicts:
            raise _in_conflict(plan.conflicts, request.blocked)

    def _do_nothing(self, prepared: Prepared, asker: Asker) -> RestoreResult:
        """Record a restore that has no file to change: it makes no safety checkpoint, but a reset moves head."""
        request, begun, earlier = prepared.request, prepared.request.begun, self._earlier(prepared)
        is_step = request.undoes is not None or request.settle is not None
        if is_step and begun is None and (prepared.plan.conflicts or request.undoes is None):
            # All of it was left out: it is still there to be undone.
            nothing = Written([], [], [], [], False)
            return msgspec.structs.replace(answer_done(prepared, None, nothing), head=prepared.head_before)
        intent = intent_of(self._repo, request, asker)
        self._repo.log.write(intent)
        if begun is None:
            result = msgspec.structs.replace(answer_planned(prepared), stats=count_work(prepared.scan, None))
        else:
            nothing = Written([], [], [], [], False)
            result = answer_done(prepared, begun.safety, nothing, earlier)
        self.conclude(intent, result, planned(intent))
        return result

    def _write(self, prepared: Prepared, pack: PackWriter, asker: Asker) -> RestoreResult:
        request, steps = prepared.request, prepared.plan.steps
        fresh = pack.oids
        reach("planned")
        roomy = self._refuse_full(steps, prepared.content)
        asker.tell("safety", 0, len(steps))
        draft = self._make_safety(prepared, pack, asker)
        reach("safe")
        self._read_back(draft.id, prepared, fresh)
        earlier = self._earlier(prepared)
        asker.check(request.verb)
        require_place(self._repo, prepared.place)
        intent = intent_of(self._repo, request, asker, draft, steps)
        root_fd = open_root(self._repo)
        try:
            self._begin(intent, draft, request.begun)
            reach("begun")
            written, half_done = self._carry_out(root_fd, prepared, asker, roomy)
            cancelled = any(one.reason == "cancelled" for one in written.failed)
            answers: list[RestoreResult] = []

            def answer() -> None:
                done = answer_done(
                    prepared, intent.safety, written, earlier, overwritten_in=draft.id, cancelled=cancelled
                )
                stats = count_work(prepared.scan, pack, steps, written.written)
                answers.append(msgspec.structs.replace(done, stats=stats))

            # While the disk is waited for.
            Crew(1, 0).do([partial(sync, root_fd), answer])
            reach("synced")
        finally:
            os.close(root_fd)
        if not written.failed and not half_done:
            self._repo.settled.expect(prepared.scan.root, steps)
        (result,) = answers
        changed = {*written.written, *written.deleted, *half_done}
        if request.begun is not None:
            changed |= planned(request.begun)
        self.conclude(intent, result, changed, head_stays=cancelled, incomplete=bool(written.failed))
        if cancelled:
            self._take_back(intent, len(changed), asker.undisturbed())
        return result

    def _refuse_full(self, steps: Sequence[Step], content: Proved) -> bool:
        """Stop before anything is written where the worktree's file system has no room for it.

        Tell whether there is so much that nothing needs to go before something else can come.
        """
        repo = self._repo
        root_fd = open_root(repo)
        try:
            free, files = free_bytes(root_fd), free_files(root_fd)
        finally:
            os.close(root_fd)
        if free is None:
            return False
        size_of = partial(_size_in, content)
        if has_plenty(steps, free, files, size_of):
            return True
        missing = missing_bytes(
            steps, free, lambda path: used_bytes(os.path.join(repo.worktree, path)), size_of, BATCH_STEPS
        )
        if missing > 0:
            raise DomainError(
                "no_space",
                f"the restore needs {missing:,} bytes more than there are free at {to_text(repo.worktree)}; "
                "nothing was changed",
                hint="free some space, then try again",
                paths=(repo.worktree,),
            )
        return False

    def _earlier(self, prepared: Prepared) -> list[Step]:
        """Give the steps of what was cut off; they only serve to tell of them, so a checkpoint may be damaged."""
        begun = prepared.request.begun
        if begun is None:
            return []
        try:
            return prepared.earlier(passes_of(begun, self._repo.lookup, answered=False))
        except DomainError:
            return []

    def _make_safety(self, prepared: Prepared, pack: PackWriter, asker: Asker) -> Draft:
        repo, request, scan = self._repo, prepared.request, prepared.scan
        key = graft(scan.root, prepared.plan.captured, pack)
        draft = repo.draft(
            pack,
            key,
            write_info_tree(pack, repo.info_of(scan, key[1])),
            f"before {request.verb} to {request.target.checkpoint.id[:12]}",
            kind="safety",
            complete=not scan.skipped,
            client=asker.client,
            meta={},
            watched=scan.partial,
        )
        # The files that are going to be overwritten are compared with it before anything else is written.
        repo.seal(pack)
        repo.adopt(scan.root)
        return draft

    def _read_back(self, safety: str, prepared: Prepared, fresh: set[bytes]) -> None:
        try:
            root = self._repo.lookup.open(safety).root
        except DomainError as error:
            raise NotHeldError(error.message) from error
        read_back(self._repo.objects, root, prepared.scan.root, fresh, prepared.plan.steps)

    def _begin(self, intent: Intent, draft: Draft, begun: Intent | None) -> None:
        """Make it durable what is about to be written, and the safety checkpoint; else nothing of either holds."""
        repo = self._repo
        record = repo.record(intent, draft)
        try:
            repo.publish(record)
        except DomainError:
            if begun is None:
                repo.withdraw(draft, intent.n)
                # Whatever the disk let us take back: no file has been touched, so there is nothing to undo.
                repo.log.conclude(Outcome(n=intent.n, done=False))
            else:
                # What was begun stays so; a pass whose safety checkpoint does not exist is passed over.
                with contextlib.suppress(DomainError):
                    repo.refs.withdraw_checkpoint(draft.seq)
            raise

    def _carry_out(self, root_fd: int, prepared: Prepared, asker: Asker, roomy: bool) -> tuple[Written, list[bytes]]:
        """Write; give what came of it, and the paths that failed when a part of them was done."""
        steps = prepared.plan.steps
        writer = RestoreWriter(
            root_fd,
            prepared.content,
            umask=_UMASK,
            root_dev=os.fstat(root_fd).st_dev,
            cancelled=asker.is_cancelled,
            progress=asker.progress_of("write", len(steps)),
            hooks=self._repo.settings.hooks,
            at_home=stays_at(self._repo, prepared.place, root_fd),
            roomy=roomy,
            crew=new_crew() if roomy else None,
        )
        written = writer.run(steps)
        reach("restored")
        return written, writer.half_done

    def _recreate(self) -> None:
        try:
            os.makedirs(self._repo.worktree, exist_ok=True)
        except OSError as error:
            raise from_os_error(error, "make the worktree", self._repo.worktree) from error

    def conclude(
        self,
        intent: Intent,
        result: RestoreResult,
        paths: Iterable[bytes] | None,
        *,
        head_stays: bool = False,
        incomplete: bool = False,
    ) -> None:
        """Record what came of an operation, and the paths that it changed; head moves unless it was stopped."""
        changed = None if paths is None else tuple(map(to_wire, sorted(paths)))
        raw = msgspec.Raw(msgspec.json.encode(result))
        self._repo.log.conclude(
            Outcome(n=intent.n, result=raw, paths=changed, head_stays=head_stays, incomplete=incomplete)
        )
        reach("concluded")
        if not head_stays:
            self._repo.set_head(intent.after)
