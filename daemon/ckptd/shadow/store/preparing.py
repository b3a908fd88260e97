"""Looking at a restore before it is done: what the worktree holds now, and the plan."""

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from ckpt_protocol.checkpoint import StepParams
from ckpt_protocol.wirepath import to_text
from ckpt_protocol.worktree import ResumeParams
from ckptd.errors import DomainError
from ckptd.shadow.objects.blob import EMPTY_TREE
from ckptd.shadow.objects.failpoint import reach
from ckptd.shadow.objects.pack import ObjectSink
from ckptd.shadow.record.coverage import Coverage
from ckptd.shadow.record.lookup import Loaded
from ckptd.shadow.record.oplog import Intent, Verb
from ckptd.shadow.restore.capture import Disk, Nowhere
from ckptd.shadow.restore.plan import Plan, make_plan
from ckptd.shadow.restore.selection import select_exactly, select_paths
from ckptd.shadow.scan.exclusion import Exclusion
from ckptd.shadow.scan.model import DirNode, iter_nodes
from ckptd.shadow.scan.mounts import mounts_below
from ckptd.shadow.scan.scanner import ScanResult
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.conditions import NO_CONDITIONS, Conditions, check_conditions
from ckptd.shadow.store.passes import Before, passes_of, planned, state_before, was_edited
from ckptd.shadow.store.place import Place, is_missing, open_root, place_of, require_place
from ckptd.shadow.store.proving import HELD_BYTES, Proved, unwritable
from ckptd.shadow.store.repository import Repository
from ckptd.shadow.trees.compare import Delta, compare, same_state
from ckptd.shadow.trees.step import State, Step
from ckptd.shadow.trees.view import DirectoryView, find_state

__all__ = [
    "Prepared",
    "RestoreRequest",
    "Terms",
    "edited_meanwhile",
    "prepare",
]


class Terms(NamedTuple):
    """On what terms a restore is asked for, whatever its verb; as it stands, it is one that only looks."""

    token: str = ""
    dry_run: bool = True
    digest: str | None = None
    skip_conflicts: bool = False
    conditions: Conditions = NO_CONDITIONS
    own_only: bool = False

    @classmethod
    def of(cls, params: StepParams | ResumeParams) -> "Terms":
        """Take them from a request."""
        plain = cls(params.token, params.dry_run, params.digest, params.skip_conflicts)
        if isinstance(params, ResumeParams):
            return plain
        return plain._replace(conditions=Conditions.of(params), own_only=params.session is not None)


class RestoreRequest(NamedTuple):
    """One restore, whatever verb asked for it.

    ``paths`` None: the whole tree. ``exact``: those very paths and nothing below them, whether the target speaks
    about them or not (undo and redo). ``head_after`` is head afterwards; ``left_by`` the checkpoint whose content
    these paths had after the operation that is undone, where that can be known. ``others`` are those of the exact
    paths that come from elsewhere than the target. ``begun`` is the intent of the same restore, if it was cut off.
    ``own_only``: a path that is no longer as the operation that is undone left it is in conflict. ``recreate``: a
    worktree that is missing is one that is empty. ``parts`` are the ``others`` by the checkpoint that they come from.
    ``settle`` gives the request its paths once the worktree has been scanned, and those that are ``blocked``: in
    conflict from the beginning.
    """

    verb: Verb
    target: Loaded
    token: str
    dry_run: bool
    digest: str | None
    skip_conflicts: bool
    head_after: str | None
    paths: tuple[bytes, ...] | None = None
    others: tuple[tuple[DirectoryView, frozenset[bytes]], ...] = ()
    exact: bool = False
    delete: bool = False
    undoes: int | None = None
    left_by: Loaded | None = None
    notes: tuple[str, ...] = ()
    begun: Intent | None = None
    conditions: Conditions = NO_CONDITIONS
    own_only: bool = False
    recreate: bool = False
    parts: tuple[tuple[str, frozenset[bytes]], ...] = ()
    settle: Callable[["RestoreRequest", ScanResult, Disk], "RestoreRequest"] | None = None
    blocked: tuple[Exclusion, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether this very request was accepted before it was cut off."""
        return self.begun is not None and self.begun.token == self.token

    def wanted(self, path: bytes) -> State | None:
        """Give what is to stand at a path."""
        own = (root for root, paths in self.others if path in paths)
        return find_state(next(own, self.target.root), path)


class Prepared(NamedTuple):
    """A request, looked at; ``place`` is the directory that was looked at, None for one that is missing.

    ``content`` is what the steps write, as far as it could be proved. ``edited`` are paths that an undo or redo, or one
    that goes on with what was cut off, overwrites although they have changed since.
    """

    request: RestoreRequest
    scan: ScanResult
    plan: Plan
    edited: list[bytes]
    content: Proved
    head_before: str | None
    place: Place | None = None

    def earlier(self, passes: Sequence[Before]) -> list[Step]:
        """Give the steps that were planned before the restore was cut off."""
        begun, wanted = self.request.begun, self.request.wanted
        paths = sorted(planned(begun)) if begun is not None else []
        return [Step(path, state_before(passes, path), wanted(path)) for path in paths]


def prepare(repo: Repository, request: RestoreRequest, sink: ObjectSink, asker: Asker) -> Prepared:
    """Scan and plan; what the safety checkpoint will need goes to ``sink``.

    Raises DomainError where the worktree or the target cannot be known well enough to plan.
    """
    if request.recreate and is_missing(repo):
        return _prepare_missing(repo, request, asker)
    place = place_of(repo)
    scan = repo.scan(sink, cancelled=asker.is_cancelled, progress=asker.progress_of("plan"))
    reach("scanned")
    if not request.passed:
        check_conditions(repo, request.conditions, scan.root, asker)
    if scan.unknown_rules:
        raise DomainError(
            "permission_denied",
            f"cannot read {to_text(scan.unknown_rules[0])}, so what is ignored is not known; nothing was changed",
            hint="make it readable, then try again",
            paths=scan.unknown_rules,
        )
    require_place(repo, place)
    root_fd = open_root(repo)
    try:
        disk = Disk(root_fd, sink, repo.guard, mounts_below(repo.worktree))
        if request.settle is not None:
            request = request.settle(request, scan, disk)
        plan = _plan(repo, request, scan, disk)
    finally:
        os.close(root_fd)
    if request.paths is not None:
        plan = plan._replace(kept=[path for path in plan.kept if _is_at_or_below(path, request.paths)])
    content = _content_of(repo, request)
    plan = _without(plan, unwritable(plan.steps, content, asker))
    plan = plan._replace(conflicts=sorted([*plan.conflicts, *request.blocked]))
    edited = sorted({*_edited(request, plan), *edited_meanwhile(repo, request, plan.steps)})
    if request.own_only and edited:
        told = [Exclusion(path, "edited", "it was changed since") for path in edited]
        plan, edited = _without(plan, told), []
    return Prepared(request, scan, plan, edited, content, repo.head, place)


def _prepare_missing(repo: Repository, request: RestoreRequest, asker: Asker) -> Prepared:
    """Plan as for an empty worktree."""
    root = DirNode({}, {}, frozenset(), 0o755, EMPTY_TREE, None, None)
    if not request.passed:
        check_conditions(repo, request.conditions, root, asker)
    coverage = Coverage(repo.objects, request.target.root, request.target.info)
    deltas, staying = _select(request, root, Nowhere(), coverage)
    plan = make_plan(deltas, Nowhere(), lambda _path, _is_dir: True, staying)
    content = _content_of(repo, request)
    plan = _without(plan, unwritable(plan.steps, content, asker))
    return Prepared(request, ScanResult(root, [], [], [], [], 0, 0, 0), plan, [], content, repo.head)


def _content_of(repo: Repository, request: RestoreRequest) -> Proved:
    return Proved(repo.objects, 0 if request.dry_run else HELD_BYTES)


def _plan(repo: Repository, request: RestoreRequest, scan: ScanResult, disk: Disk) -> Plan:
    coverage = Coverage(repo.objects, request.target.root, request.target.info)
    deltas, staying = _select(request, scan.root, disk, coverage)
    forced = _forced(request)

    def says_absent(path: bytes, is_dir: bool) -> bool:
        if request.exact or (forced and _is_at_or_below(path, forced)):
            return True
        return coverage.says_absent(path, is_dir=is_dir)

    return make_plan(deltas, disk, says_absent, [*_left_alone(scan), *staying])


def _select(
    request: RestoreRequest, current: DirectoryView, disk: Disk | Nowhere, coverage: Coverage
) -> tuple[list[Delta], list[bytes]]:
    """Give what differs in the requested paths, and what must stay although a directory above it should go."""
    target = request.target
    if request.paths is None:
        return list(compare(current, target.root)), []
    if request.exact:
        return _select_exactly(request, request.paths, current, disk)
    chosen = select_paths(
        request.paths,
        current,
        target.root,
        target.checkpoint.id[:12],
        delete=request.delete,
        standing=disk.kind,
        says_absent=lambda path, is_dir: coverage.says_absent(path, is_dir=is_dir),
    )
    return chosen, []


def _select_exactly(
    request: RestoreRequest, paths: Sequence[bytes], current: DirectoryView, disk: Disk | Nowhere
) -> tuple[list[Delta], list[bytes]]:
    exact = set(paths)
    own = exact.difference(*(some for _, some in request.others))
    found: dict[bytes, Delta] = {}
    staying: list[bytes] = []
    # The target comes last: where two need the same directory, it decides.
    for root, some in (*reversed(request.others), (request.target.root, own)):
        deltas, stay = select_exactly(sorted(some), current, root, disk.kind)
        found.update({delta.path: delta for delta in deltas})
        staying += [path for path in stay if path not in exact]
    return list(found.values()), staying


def _forced(request: RestoreRequest) -> tuple[bytes, ...]:
    """Give the paths that are deleted because the caller named them, whether the target speaks about them or not."""
    if not request.delete or request.paths is None:
        return ()
    return tuple(path for path in request.paths if find_state(request.target.root, path) is None)


def _left_alone(scan: ScanResult) -> list[bytes]:
    """Give every path on disk that the scan left out; directories that rules leave out end with a slash."""
    found = [item.path for item in (*scan.skipped, *scan.excluded)]
    for path, node in iter_nodes(scan.root):
        start = path + b"/" if path else b""
        found += [start + name for name in node.ignored]
    return found


def _is_at_or_below(path: bytes, tops: Iterable[bytes]) -> bool:
    plain = path.rstrip(b"/")
    return any(plain == one or plain.startswith(one + b"/") for one in tops)


def _without(plan: Plan, told: list[Exclusion]) -> Plan:
    """Turn steps into conflicts. What is below them stays too, for it may have been to make room for them."""
    if not told:
        return plan
    gone = {problem.path for problem in told}
    steps = [step for step in plan.steps if step.path not in gone and not _is_below(step.path, gone)]
    return plan._replace(steps=steps, conflicts=sorted([*plan.conflicts, *told]))


def _is_below(path: bytes, tops: Collection[bytes]) -> bool:
    folder = path.rpartition(b"/")[0]
    while folder:
        if folder in tops:
            return True
        folder = folder.rpartition(b"/")[0]
    return False


def _edited(request: RestoreRequest, plan: Plan) -> list[bytes]:
    """Give the paths that are no longer as the operation that is undone left them."""
    if request.left_by is None:
        return []
    exact = set(request.paths or ())
    told = [step for step in plan.steps if step.path in exact or step.before is not None]
    try:
        left = {step.path: find_state(request.left_by.root, step.path) for step in told}
    except DomainError:
        # No reason not to undo: what it left is only asked for to tell people of it.
        return []
    return [step.path for step in told if not same_state(step.before, left[step.path])]


def edited_meanwhile(repo: Repository, request: RestoreRequest, steps: Iterable[Step]) -> list[bytes]:
    """Give the paths that somebody wrote to after the restore that is gone on with had been cut off."""
    begun = request.begun
    if begun is None:
        return []
    try:
        passes = passes_of(begun, repo.lookup, answered=False)
        paths = planned(begun)
        return [
            step.path
            for step in steps
            if step.path in paths
            and was_edited(step.before, state_before(passes, step.path), request.wanted(step.path))
        ]
    except DomainError:
        # As above: it only serves to tell people.
        return []
