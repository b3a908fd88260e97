"""What taking back a session's changes is to write: for each path what stood there before, or why it is left alone."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ckptd.errors import DomainError
from ckptd.shadow.record.authorship import Entry, Ledger, Save, Share, Why, share_of, workers
from ckptd.shadow.record.coverage import Coverage
from ckptd.shadow.record.lookup import Loaded, Recent
from ckptd.shadow.record.oplog import Intent
from ckptd.shadow.restore.capture import Disk
from ckptd.shadow.scan.exclusion import Exclusion
from ckptd.shadow.scan.scanner import ScanResult
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.store.passes import planned
from ckptd.shadow.store.preparing import RestoreRequest, Terms
from ckptd.shadow.store.recovery import RESTORES
from ckptd.shadow.store.repository import Repository
from ckptd.shadow.store.resuming import finishing
from ckptd.shadow.trees.compare import Delta, compare, same_state
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.view import DirectoryView, find_state, find_view

__all__ = ["SessionUndo"]

_CALL: Final = "PreToolUse"
"""The event of an agent's hook before a tool call, as ``ckpt hook`` records it; its other events end one."""


class _Point(NamedTuple):
    """A checkpoint of the time line; ``restore`` is the one that it is the safety checkpoint of."""

    seq: int
    id: str
    save: Save
    restore: Intent | None

    @property
    def name(self) -> str:
        return f"#{self.seq}"


class _Restored(NamedTuple):
    """What a restore left at the paths that it changed, and the checkpoint that has each."""

    states: Mapping[bytes, State | None]
    sources: Mapping[bytes, str]


_NOTHING: Final = _Restored({}, {})

_Former = dict[bytes, tuple[Entry | None, State | None]]
"""What the ledger had of a restore's paths before it, and what stood there."""


class SessionUndo:
    """Takes back what one session changed; settle() is asked when the worktree has been scanned."""

    def __init__(self, repo: Repository, session: str, asker: Asker) -> None:
        self._repo = repo
        self._session = session
        self._asker = asker
        self._points = list(_points(repo))
        self._workers = workers([point.save for point in self._points])
        self._ledger = Ledger()
        self._former: dict[int, _Former] = {}
        self._coverages: dict[str, Coverage] = {}
        self._recent: Final = Recent(repo.lookup)

    def settle(self, request: RestoreRequest, scan: ScanResult, disk: Disk) -> RestoreRequest:
        """Give the request with its paths; raises DomainError ``nothing_to_undo`` where the session left nothing."""
        # A second attempt, after content turned out lost, begins anew.
        self._ledger, self._former = Ledger(), {}
        self._walk(scan.root, disk)
        sources: dict[bytes, str] = {}
        blocked: list[Exclusion] = []
        for path, entry in sorted(self._ledger.entries.items()):
            now = find_state(scan.root, path)
            if same_state(now, entry.origin):
                continue
            if entry.why is None and not self._would_take_more(path, now, entry.origin, scan.root):
                sources[path] = entry.source
            else:
                blocked.append(Exclusion(path, *(entry.why or Why("unclear", "what others made is below it"))))
        if not sources and not blocked:
            raise DomainError(
                "nothing_to_undo",
                f"session {self._session} has changed nothing that still stands, as far as the saves around its tool "
                "calls tell",
            )
        return _with_sources(self._repo, request, sources)._replace(blocked=tuple(blocked))

    def _walk(self, now: DirectoryView, disk: Disk) -> None:
        """Go through the time line, from where the session comes into it."""
        has_begun = False
        for number, point in enumerate(self._points):
            restore = point.restore
            is_own = restore is not None and restore.session == self._session
            share = share_of(self._session, self._workers[number], point.save)
            has_begun = has_begun or is_own or share != "other"
            if not has_begun:
                continue
            self._asker.check("undo")
            self._asker.tell("plan", number, len(self._points))
            start = self._open(number).root
            left = None if restore is None else self._restored(restore)
            if restore is not None and left is not None:
                self._take_restore(start, left, restore, point, own=is_own)
            # One that may have stopped anywhere: what it was to change is whose it was, or anybody's.
            doubtful = planned(restore) if restore is not None and left is None and is_own else ()
            left = left or _NOTHING
            end = self._open(number + 1).root if number + 1 < len(self._points) else now
            for delta in _changes(start, left, end):
                one: Share = "unclear" if delta.path in doubtful else share
                self._take(number, one, delta, left.sources.get(delta.path, point.id), disk)

    def _take(self, number: int, share: Share, delta: Delta, source: str, disk: Disk) -> None:
        path, before, after = delta
        if share == "other":
            self._ledger.other(path, after, self._by_others(number))
            return
        why = self._doubt(number, share, path, before, after, disk)
        if why is None:
            self._ledger.own(path, before, after, source)
        else:
            self._ledger.unclear(path, before, after, source, why)

    def _doubt(
        self, number: int, share: Share, path: bytes, before: State | None, after: State | None, disk: Disk
    ) -> Why | None:
        """Tell why a change of the session's time may not be one of its own."""
        between = self._between(number)
        if share == "unclear":
            others = sorted(self._workers[number] - {self._session})
            if others:
                return Why("unclear", f"session {', '.join(others)} was at work as well {between}")
            return Why("unclear", f"what was saved or restored {between} is not known any more")
        if before is None and after is not None and not self._says_absent(number, path, after.is_dir):
            return Why("unclear", f"rules or limits had left it out of {self._points[number].name}")
        if after is None and before is not None and not self._is_gone(number + 1, path, before.is_dir, disk):
            return Why("unclear", f"it is there, and rules or limits leave it out {between}")
        return None

    def _is_gone(self, number: int, path: bytes, is_dir: bool, disk: Disk) -> bool:
        if number < len(self._points):
            return self._says_absent(number, path, is_dir)
        found = disk.look(path)
        return found.state is None and found.problem is None

    def _says_absent(self, number: int, path: bytes, is_dir: bool) -> bool:
        loaded = self._open(number)
        one = loaded.checkpoint.id
        if one not in self._coverages:
            self._coverages[one] = Coverage(self._repo.objects, loaded.root, loaded.info)
        return self._coverages[one].says_absent(path, is_dir=is_dir)

    def _take_restore(
        self, start: DirectoryView, restored: _Restored, restore: Intent, point: _Point, *, own: bool
    ) -> None:
        reversed_one = self._former.get(restore.undoes or 0, {})
        former: _Former = {}
        for path, after in restored.states.items():
            before = find_state(start, path)
            former[path] = (self._ledger.entries.get(path), before)
            entry, stood = reversed_one.get(path, (None, None))
            if path in reversed_one and same_state(after, stood):
                self._ledger.put_back(path, entry)
            elif same_state(before, after):
                continue
            elif own:
                self._ledger.own(path, before, after, point.id)
            else:
                self._ledger.other(path, after, _by_restore(restore, point))
        self._former[restore.n] = former

    def _by_others(self, number: int) -> Why:
        others = sorted(self._workers[number] - {self._session})
        if others:
            return Why("other_session", f"session {', '.join(others)} changed it {self._between(number)}")
        return Why("edited", f"it was changed {self._between(number)}, by no session that saved")

    def _between(self, number: int) -> str:
        if number + 1 < len(self._points):
            return f"between {self._points[number].name} and {self._points[number + 1].name}"
        return f"after {self._points[number].name}"

    def _restored(self, restore: Intent) -> _Restored | None:
        """Give what a restore left; None where that cannot be known for certain."""
        outcome = self._repo.log.outcomes.get(restore.n)
        if outcome is None or outcome.incomplete or outcome.head_stays or restore.resumed:
            return None
        try:
            request = finishing(self._repo, restore, Terms())
            if request.others and not request.parts:
                return None
            main = request.target.checkpoint.id
            sources = {path: one for one, paths in request.parts for path in paths}
            states = {path: request.wanted(path) for path in planned(restore)}
        except DomainError:
            return None
        return _Restored(states, {path: sources.get(path, main) for path in states})

    def _would_take_more(self, path: bytes, now: State | None, origin: State | None, root: DirectoryView) -> bool:
        """Tell whether a directory would have to make room for a file, with something in it that is to stay."""
        if now is None or not now.is_dir or origin is None or origin.is_dir:
            return False
        below = compare(find_view(root, path), None, path)
        return any(not self._is_to_go(delta.path) for delta in below)

    def _is_to_go(self, path: bytes) -> bool:
        entry = self._ledger.entries.get(path)
        return entry is not None and entry.why is None and entry.origin is None

    def _open(self, number: int) -> Loaded:
        return self._recent.open(self._points[number].id)


def _points(repo: Repository) -> Iterator[_Point]:
    """Give the time line: the checkpoints that there are and can be read, with what is known of the others."""
    restores = {one: intent for intent in _restores(repo) for one in (intent.safety, *_later(intent)) if one}
    sessions = {intent.id: intent.session for intent in repo.log.intents.values() if intent.verb == "save"}
    lost = {intent.next_seq - 1: intent.session for intent in repo.log.intents.values() if intent.verb == "save"}
    by_seq = {seq: one for seq, one in repo.lookup.by_seq().items() if repo.lookup.is_readable(one)}
    seqs = sorted(by_seq)
    for seq, following in zip(seqs, [*seqs[1:], repo.next_seq], strict=True):
        missing = range(seq + 1, following)
        gone = frozenset(session for number in missing if (session := lost.get(number)) is not None)
        facts = repo.lookup.load(by_seq[seq]).facts
        event, named = facts.meta.get("event"), facts.meta.get("session")
        save = Save(
            session=named or sessions.get(by_seq[seq]),
            # A save without metadata makes no checkpoint where nothing has changed: it says nothing of what comes.
            begins=named is not None and event in (None, _CALL),
            is_call=event == _CALL,
            late="late" in facts.meta,
            gap=bool(missing),
            lost=gone,
        )
        yield _Point(seq, by_seq[seq], save, restores.get(by_seq[seq]))


def _restores(repo: Repository) -> Iterator[Intent]:
    for intent in repo.log.intents.values():
        outcome = repo.log.outcomes.get(intent.n)
        if intent.verb in RESTORES and (outcome is None or outcome.done):
            yield intent


def _later(intent: Intent) -> list[str]:
    return [one.safety for one in intent.resumed]


def _by_restore(restore: Intent, point: _Point) -> Why:
    if restore.session is not None:
        return Why("other_session", f"a {restore.verb} of session {restore.session} changed it after {point.name}")
    return Why("edited", f"a {restore.verb} changed it after {point.name}")


def _changes(old: DirectoryView, left: _Restored, new: DirectoryView) -> list[Delta]:
    """Give what differs between two trees, of which the first has been overwritten in part by a restore."""
    found = {delta.path: delta for delta in compare(old, new)}
    for path, state in left.states.items():
        found[path] = Delta(path, state, find_state(new, path))
    return [delta for delta in found.values() if not same_state(delta.old, delta.new)]


def _with_sources(repo: Repository, request: RestoreRequest, sources: Mapping[bytes, str]) -> RestoreRequest:
    """Let each path come from its checkpoint; the one that most come from is the target."""
    if not sources:
        return request._replace(paths=())
    by_source: dict[str, set[bytes]] = {}
    for path, one in sources.items():
        by_source.setdefault(one, set()).add(path)
    main = max(by_source, key=lambda one: (len(by_source[one]), one))
    parts = tuple((one, frozenset(paths)) for one, paths in sorted(by_source.items()) if one != main)
    return request._replace(
        target=repo.lookup.open(main),
        paths=tuple(sorted(sources)),
        parts=parts,
        others=tuple((repo.lookup.open(one).root, paths) for one, paths in parts),
    )
