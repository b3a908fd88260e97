"""Random operations on random worktrees, against a plain model of what a restore may and must do.

After each restore: what the target holds is there exactly; everything that the design says is kept is untouched;
whatever was overwritten or deleted can be read back from the safety checkpoint. Undo and redo are held to the same.
"""

import os
import random
import sys
import time
from dataclasses import dataclass, field

import pytest

from ckpt_protocol.checkpoint import DropParams
from ckpt_protocol.store import GcParams, ThinParams
from ckpt_protocol.structs import from_wire
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.record.thinning import Keep
from ckptd.shadow.trees.tree import EXECUTABLE, LINK
from ckptd.shadow.trees.view import find_state
from support.effort import examples
from support.plainworld import Kept, Node, World, look, parents
from support.worktrees import in_child, to_the_end

pytestmark = pytest.mark.core

_MAX_FILE_BYTES = 64
_STEPS = 40
_FOLDERS = [b"a", b"b", b"build", b"sub"]
_FILES = [b"x", b"y.log", b"z.tmp", b"keep.log", b"a", b"build", b"\xff\n", b"sub"]
_PATTERNS = [b"*.log", b"*.tmp", b"build/", b"/a", b"sub", b"*", b"!keep.log", b"!x", b"x"]
_REFUSALS = {"conflicts", "path_not_in_checkpoint", "beyond_symlink", "bad_path", "nothing_to_undo", "nothing_to_redo"}
_REFUSALS |= {"worktree_empty", "no_checkpoint"}


@dataclass
class Done:
    """A restore that can be reversed: the worktree before it, and the paths that it changed."""

    before: World
    changed: set[bytes]


@dataclass
class Player:
    """Plays random operations on a desk and checks each."""

    desk: object
    dice: random.Random
    kept: dict[str, Kept] = field(default_factory=dict)
    undoable: list[Done] = field(default_factory=list)
    redoable: list[Done] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    restores: int = 0
    crashes: int = 0

    # -- what users do

    def path(self) -> bytes:
        folders = self.dice.choices(_FOLDERS, k=self.dice.choice([0, 0, 1, 1, 2, 3]))
        return b"/".join([*folders, self.dice.choice(_FILES + _FOLDERS)])

    def clear(self, path: bytes) -> bytes:
        """Make room for a path; what is in its way goes."""
        full = self.desk.path(path)
        for part in [*reversed(list(parents(path))), path]:
            here = self.desk.path(part)
            if os.path.lexists(here) and (part == path or os.path.islink(here) or not os.path.isdir(here)):
                self.desk.remove(part)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        return full

    def edit(self) -> None:
        path = self.path()
        size = self.dice.choice([0, 3, 3, 20, 100])
        data = self.dice.randbytes(size)
        self.clear(path)
        self.desk.write(path, data, self.dice.choice([0o644, 0o644, 0o755, 0o600, 0o444, 0o4755]))
        self.trace.append(f"write {path!r} {size}")

    def append(self) -> None:
        path = self.any_path("f")
        if path is not None and b".git" not in path.split(b"/"):
            with open(self.desk.path(path), "ab") as file:
                file.write(b"+")
            self.trace.append(f"append {path!r}")

    def delete(self) -> None:
        path = self.any_path("fdl")
        if path is not None:
            self.desk.remove(path)
            self.trace.append(f"delete {path!r}")

    def chmod(self) -> None:
        path = self.any_path("fd")
        if path is not None:
            os.chmod(self.desk.path(path), self.dice.choice([0o700, 0o755, 0o750, 0o640, 0o1777]))
            self.trace.append(f"chmod {path!r}")

    def link(self) -> None:
        path = self.path()
        os.symlink(self.dice.choice([b"x", b"/nowhere", b"../a", b"b"]), self.clear(path))
        self.trace.append(f"link {path!r}")

    def mkdir(self) -> None:
        path = self.path()
        os.mkdir(self.clear(path), self.dice.choice([0o755, 0o700]))
        self.trace.append(f"mkdir {path!r}")

    def move(self) -> None:
        source, target = self.any_path("fdl"), self.path()
        if source is None or target == source or target.startswith(source + b"/"):
            return
        if source in parents(target) or target in parents(source):
            return
        full = self.clear(target)
        if os.path.lexists(self.desk.path(source)):
            os.rename(self.desk.path(source), full)
            self.trace.append(f"move {source!r} {target!r}")

    def fifo(self) -> None:
        path = self.path()
        os.mkfifo(self.clear(path))
        self.trace.append(f"fifo {path!r}")

    def nested(self) -> None:
        path = self.path()
        full = self.desk.path(path)
        if os.path.isdir(full) and not os.path.islink(full) and not os.path.lexists(full + b"/.git"):
            exclude = b"\n".join(self.dice.choices(_PATTERNS, k=self.dice.choice([0, 1])))
            self.desk.write(path + b"/.git/HEAD", b"ref: refs/heads/main\n")
            self.desk.write(path + b"/.git/info/exclude", exclude)
            self.trace.append(f"nested {path!r} {exclude!r}")

    def rules(self) -> None:
        folders = self.dice.choices(_FOLDERS, k=self.dice.choice([0, 0, 1]))
        path = b"/".join([*folders, self.dice.choice([b".gitignore", b".gitignore", b".ckptignore"])])
        text = b"\n".join(self.dice.choices(_PATTERNS, k=self.dice.choice([0, 1, 1, 2])))
        self.clear(path)
        self.desk.write(path, text)
        self.trace.append(f"rules {path!r} {text!r}")

    def any_path(self, kinds: str) -> bytes | None:
        here = look(self.desk.root)
        found = sorted(path for path, node in here.items() if node.kind in kinds)
        return self.dice.choice(found) if found else None

    # -- what the engine does

    def save(self) -> None:
        result = self.desk.save(force=True, kind=self.dice.choice(["manual", "auto"]))
        self.kept[result.id] = Kept(look(self.desk.root), _MAX_FILE_BYTES)
        self.trace.append(f"save {result.id[:8]}")

    def target(self) -> str:
        return self.dice.choice(list(self.kept))

    def reset(self) -> None:
        target = self.target()
        before, result = self.run("reset", lambda **f: self.desk.reset(target, **f))
        if result is None:
            return
        after = look(self.desk.root)
        expected = self.expected_reset(before, target)
        self.compare(after, expected)
        self.finish(before, after, result, counts=True)

    def rollback(self) -> None:
        target = self.target()
        choices = [*sorted(self.kept[target].tree), self.path()]
        paths = self.dice.sample(choices, k=min(len(choices), self.dice.choice([1, 1, 2, 3])))
        delete = self.dice.random() < 0.5
        before, result = self.run(
            f"rollback {paths!r}", lambda **f: self.desk.rollback(target, *paths, delete=delete, **f)
        )
        if result is None:
            return
        after = look(self.desk.root)
        self.check_rollback(before, after, target, paths)
        self.finish(before, after, result, counts=True)

    def undo(self) -> None:
        self.reverse("undo", self.desk.undo, self.undoable, self.redoable)

    def redo(self) -> None:
        self.reverse("redo", self.desk.redo, self.redoable, self.undoable)

    def reverse(self, verb, call, stack, other) -> None:
        before, result = self.run(verb, call)
        assert bool(stack) or result is None, "there was nothing to reverse"
        if result is None:
            return
        done = stack.pop()
        after = look(self.desk.root)
        self.check_reversed(before, after, done)
        other.append(self.finish(before, after, result, counts=False))

    def crash(self) -> None:
        """Reset in a process that dies on the way, and undo what it did."""
        target, stop = self.target(), self.dice.randrange(1, 40)
        before, passed = look(self.desk.root), 0
        self.trace.append(f"crash {stop}")

        def hook(_point, _path):
            nonlocal passed
            passed += 1
            if passed == stop:
                os._exit(9)

        self.desk.configure(hooks=hook)
        code = os.waitstatus_to_exitcode(in_child(lambda: self.desk.reset(target)))
        self.desk.configure(hooks=lambda _point, _path: None)
        self.desk.open(create=False)
        halfway = look(self.desk.root)
        if code == 0:
            self.compare(halfway, self.expected_reset(before, target))
            self.note(before, halfway, self.current_head())
            # What it captured is not known here, so nobody goes back to it.
            return
        if code != 9:
            assert halfway == before
            return
        assert self.desk.status().interrupted is not None
        self.crashes += 1
        way = self.dice.choice(["undo", "resume undo", "finish"])
        self.trace.append(way)
        if way == "finish":
            finished = self.desk.resume("finish")
            halfway = look(self.desk.root)
            self.compare(halfway, self.expected_reset(before, target))
            assert (finished.conflicts, finished.edited) == ([], [])
        result = self.desk.resume("undo") if way == "resume undo" else self.desk.undo()
        after = look(self.desk.root)
        self.compare(after, before)
        self.redoable[:] = [self.finish(halfway, after, result, counts=False)]

    def drop(self) -> None:
        """Drop a checkpoint; one that an undo needs is refused, and everything else goes on as if nothing had been."""
        if len(self.kept) < 2:
            return
        target = self.target()
        before = self.stats()
        params = DropParams(**self.desk.common(), token=self.desk.token(), ids=[target])
        refused = None
        try:
            self.desk.writer.drop(params, Caller("test"))
        except DomainError as error:
            refused = error.kind
        assert refused in (None, "checkpoint_needed")
        if refused is None:
            del self.kept[target]
        self.trace.append(f"drop {target[:8]} {refused}")
        assert self.stats() == before

    def thin(self) -> None:
        """Thin as hard as can be: what goes is automatic or a safety checkpoint, and never head or the newest."""
        before, head = self.stats(), self.current_head()
        kinds = {one.id: one.kind for one in self.desk.list().checkpoints}
        newest = self.desk.list().checkpoints[0].id
        self.desk.configure(keep=Keep(0, 0, 0, 0))
        result = to_the_end(
            self.desk.writer.thin(ThinParams(**self.desk.common(), token=self.desk.token()), Caller("test"))
        )
        for one in result.dropped:
            assert kinds[one.id] in ("auto", "safety")
            assert one.id not in (head, newest)
            self.kept.pop(one.id, None)
        self.trace.append(f"thin {[one.id[:8] for one in result.dropped]}")
        assert self.current_head() == head
        assert self.stats() == before

    def collect(self) -> None:
        """Remove what nothing needs: every checkpoint that is left is still whole, which verify() tells at the end."""
        before = self.stats()
        run = self.desk.writer.gc(GcParams(**self.desk.common(), token=self.desk.token()), Caller("test"))
        while run.step() is None:
            if run.is_waiting:
                time.sleep(0.01)
        run.close()
        self.trace.append("gc")
        assert self.stats() == before

    def restart(self) -> None:
        self.desk.reopen()
        self.trace.append("restart")

    def attempt(self, call, **fields):
        """Give what an operation answers, or the error of those that are expected."""
        try:
            return call(**fields), None
        except DomainError as error:
            refusal = error
        assert refusal.kind in _REFUSALS, (refusal.kind, refusal.message)
        return None, refusal

    def run(self, name: str, call):
        before, stats, store = look(self.desk.root), self.stats(), self.store()
        # An undo or redo that leaves something out is gone on with by another one: that has tests of its own.
        skip = self.dice.random() < 0.2 and name not in ("undo", "redo")
        self.trace.append(name)
        planned, _ = self.attempt(call, dry_run=True)
        assert look(self.desk.root) == before
        assert self.stats() == stats
        assert self.store() == store, "a dry run wrote to the store"
        digest = planned.digest if planned is not None else None
        result, error = self.attempt(call, skip_conflicts=skip, digest=digest)
        if error is not None:
            assert planned is None or (planned.conflicts and error.kind == "conflicts")
            assert self.stats() == stats, "a refused restore changed something"
            if error.kind == "conflicts":
                self.check_conflicts(before, error.paths)
            return before, None
        self.restores += 1
        assert planned is not None
        outcome = (result.written, result.deleted, result.edited)
        assert outcome == (planned.written, planned.deleted, planned.edited), (result, planned)
        if planned.conflicts:
            assert skip
            # What is left out of a restore is checked elsewhere; here the promise alone counts.
            after = look(self.desk.root)
            self.finish(before, after, result, counts=True)
            return before, None
        assert result.conflicts == []
        return before, result

    # -- what has to be true

    def check_conflicts(self, before: World, paths) -> None:
        """Only what no checkpoint can hold, or a link or file on the way, is reason to refuse."""
        for path in paths:
            inside = [one for one in before if one == path or one.startswith(path + b"/")]
            special = any(before[one].kind == "s" or b".git" in one.split(b"/") for one in inside)
            above = any(before[one].kind in "lfs" for one in parents(path) if one in before)
            assert special or above, path

    def expected_reset(self, before: World, target: str) -> World:
        kept, now = self.kept[target], Kept(before, _MAX_FILE_BYTES)
        expected = dict(kept.tree)
        staying: set[bytes] = set()
        for path, node in before.items():
            blocked = any(one in expected and expected[one].kind != "d" for one in (path, *parents(path)))
            stays = not now.covers(path, node) or not kept.says_absent(path, node)
            if path not in kept.tree and not blocked and stays:
                staying.add(path)
        for path in staying:
            expected[path] = before[path]
            for one in parents(path):
                expected.setdefault(one, before[one])
        return expected

    def check_rollback(self, before: World, after: World, target: str, paths) -> None:
        kept, now = self.kept[target], Kept(before, _MAX_FILE_BYTES)
        whole = self.expected_reset(before, target)

        def selected(path: bytes) -> bool:
            return any(path == one or path.startswith(one + b"/") for one in paths)

        forced = [one for one in paths if one not in kept.tree]
        for path in before.keys() | after.keys():
            if selected(path):
                lifted = any(path == one or path.startswith(one + b"/") for one in forced)
                wanted = before.get(path) if lifted and path in before and not now.covers(path, before[path]) else None
                if lifted and path in after and after[path].kind == "d":
                    # It may hold something that stays.
                    wanted = before[path]
                assert after.get(path) == (wanted if lifted else whole.get(path)), path
            elif path in after and path not in before:
                assert after[path] == kept.tree[path], path
                assert after[path].kind == "d", path
                assert any(one.startswith(path + b"/") for one in paths), path
            else:
                assert after.get(path) == before.get(path), path

    def check_reversed(self, before: World, after: World, done: Done) -> None:
        for path in before.keys() | after.keys() | done.changed:
            wanted = done.before.get(path)
            if path in done.changed:
                if wanted is None and path in after:
                    # A directory that holds what is not part of this, or something no checkpoint can hold.
                    assert after[path] == before[path], path
                    assert after[path].kind in "ds", path
                    continue
                if after.get(path) != wanted:
                    # It cannot be there below something that was put there.
                    assert any(
                        one in done.changed and done.before.get(one, Node("d")).kind != "d" for one in parents(path)
                    )
                    continue
            elif path in after and path not in before:
                assert after[path] == done.before[path], path
                assert after[path].kind == "d", path
            elif path not in after:
                assert any(
                    one in done.changed and done.before.get(one, Node("d")).kind != "d" for one in parents(path)
                ), path
            else:
                assert after[path] == before[path], path

    def compare(self, after: World, expected: World) -> None:
        for path in sorted(after.keys() | expected.keys()):
            assert after.get(path) == expected.get(path), (path, after.get(path), expected.get(path))

    def finish(self, before: World, after: World, result, *, counts: bool) -> Done:
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        self.check_safety(before, changed, result)
        told = {from_wire(path) for path in (*result.written, *result.deleted)}
        files = {
            path for path in changed if "d" not in (before.get(path, Node("f")).kind, after.get(path, Node("f")).kind)
        }
        assert told <= changed, told - changed
        assert files <= told, files - told
        return self.note(before, after, result.head) if counts else Done(before, changed)

    def note(self, before: World, after: World, head: str) -> Done:
        """Remember a restore, if it changed anything."""
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        done = Done(before, changed)
        if changed or self.head != head:
            self.undoable.append(done)
            self.redoable.clear()
        return done

    def check_safety(self, before: World, changed: set[bytes], result) -> None:
        lost = {path for path in changed if path in before}
        if result.safety is None:
            assert not changed
            return
        root = self.desk.repo.lookup.open(result.safety).root
        for path in lost:
            node, state = before[path], find_state(root, path)
            assert state is not None, path
            if node.kind == "d":
                assert state.is_dir, path
                assert state.perm == node.perm, path
                continue
            assert self.desk.repo.objects.read(state.oid, b"blob") == node.data, path
            assert (state.mode == LINK) == (node.kind == "l"), path
            if node.kind == "f":
                assert state.perm == node.perm, path
                assert (state.mode == EXECUTABLE) == bool(node.perm & 0o100), path
        self.kept[result.safety] = self.kept_safety(before, root)

    def kept_safety(self, before: World, root) -> Kept:
        """A safety checkpoint is one of the worktree before, with what was captured besides."""
        kept = Kept(before, _MAX_FILE_BYTES)
        for path, node in before.items():
            state = find_state(root, path)
            if state is not None:
                assert state.perm in (None, node.perm), path
                kept.tree[path] = node
        return kept

    # -- looking

    def current_head(self) -> str | None:
        """Head; None where only safety checkpoints are left."""
        try:
            return self.desk.head()
        except DomainError as error:
            refusal = error.kind
        assert refusal == "no_checkpoint"
        return None

    def stats(self):
        found = {}
        for path in look(self.desk.root):
            there = os.lstat(self.desk.path(path))
            found[path] = (there.st_ino, there.st_mode, there.st_mtime_ns, there.st_ctime_ns, there.st_size)
        return found

    def store(self) -> World:
        return look(self.desk.folder)

    def play(self, steps: int) -> None:
        self.edit()
        self.save()
        acts = [self.edit] * 6 + [self.delete, self.chmod, self.link, self.mkdir, self.move, self.rules] * 2
        acts += [self.append, self.fifo, self.nested]
        verbs = [self.save, self.reset, self.rollback, self.undo] * 4 + [self.reset, self.undo, self.redo, self.redo]
        verbs += [self.crash, self.crash, self.drop, self.drop, self.thin, self.restart]
        for _ in range(steps):
            for act in self.dice.choices(acts, k=self.dice.choice([0, 1, 2, 4])):
                act()
            self.head = self.current_head()
            self.dice.choice(verbs)()
            if self.dice.random() < 0.02:
                self.collect()
            if not self.kept:
                self.save()
            assert not [path for path in look(self.desk.root) if path.rpartition(b"/")[2].startswith(b".ckpt-")]


def exact_watcher():
    """What makes an exact watcher, None on a system that has no inotify."""
    if not sys.platform.startswith("linux"):
        return None
    from ckptd.exact.watcher import ExactWatcher

    return ExactWatcher


@pytest.mark.parametrize("seed", range(examples(8, 600)))
def test_restores_do_what_the_model_says(desk, seed):
    # Every other one on a worktree that is watched: scans look at what has changed, and must see the same.
    maker = exact_watcher() if seed % 2 else None
    desk.configure(max_file_bytes=_MAX_FILE_BYTES, witness_maker=maker, scan_budget_ms=0)
    player = Player(desk, random.Random(seed))
    try:
        player.play(_STEPS)
    except BaseException:
        print("\n".join(player.trace))
        raise
    assert player.restores > 0
