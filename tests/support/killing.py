"""Kills a real daemon at named steps and at random times, and checks that nobody has lost anything by it.

``Driver(mortal, seed)``: ``kill_at(verb, step, nth)`` lets the daemon die at a step of an operation,
``kill_while_busy`` at a random time while several clients save. Both then start it again and check: every acknowledged
checkpoint is there with the very tree that the worktree had; git finds no fault; no temporary file is left; each path
of the worktree is old or new in full; what somebody edited while no daemon ran is as they left it; sequence numbers are
not used again; a restore that was cut off is reported with its own safety checkpoint, which holds all that was there;
and the same request, sent again, is done once. ``tally`` counts.
"""

import os
import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from support.busyclient import BusyClient
from support.ledger import Ledger
from support.mortal import Died, Mortal, Refused, token
from support.plainworld import Node, World, look
from support.worlds import plain, tree_id, without, without_temporaries

__all__ = ["Driver"]

_RESTORES = ("reset", "rollback", "undo", "redo", "finish", "take back")
_OF_RESTORES = ("checkpoint.restore", "checkpoint.undo", "checkpoint.redo", "worktree.resume")
_MOST_SAVES = 300

_FOLDERS = ("", "d1", "d1/e", "d2")


class Operation(NamedTuple):
    """A request that may be cut off. ``after`` is the worktree when it is done."""

    method: str
    params: dict[str, Any]
    after: World


class Driver:
    """See the module."""

    def __init__(self, mortal: Mortal, seed: int) -> None:
        self._mortal = mortal
        self._chance = random.Random(seed)
        self._ledger = Ledger(mortal)
        self._edits = 0
        self._open_before: str | None = None
        self.stage = "start"
        self.kills: Counter[str] = Counter()
        mortal.start()
        self._begin()

    @property
    def tally(self) -> Counter[str]:
        """The counts, by what was done or found."""
        return self._ledger.tally

    # -- what is done

    def kill_at(self, verb: str, step: str, nth: int = 1, *, then: str | None = None) -> bool:
        """Let one operation be cut off; tell whether it came to that. ``then``: retry, undo or leave."""
        self.stage = f"{verb} killed at {step} ({nth})"
        operation = self._prepare(verb)
        before = look(bytes(self._mortal.ws))
        self._open_before = self._interrupted() if verb in _RESTORES else None
        self._mortal.arm(step, nth)
        is_cut_off = self._is_cut_off(verb, operation, before, then)
        self._mortal.disarm()
        if is_cut_off:
            self.kills[f"{verb}: {step}"] += 1
        else:
            self.tally["not reached"] += 1
        return is_cut_off

    def _is_cut_off(self, verb: str, operation: Operation, before: World, then: str | None) -> bool:
        """Ask for it, and go on where it ends the daemon; tell whether it does."""
        try:
            answer = self._send(operation)
        except Died:
            self._mortal.disarm()
            self._mortal.kill()
            self._after_death(verb, operation, before, then)
            return True
        self._done(operation, answer)
        return False

    def kill_while_opening(self, step: str) -> None:
        """Let the next daemon die while it opens the store that a killed one has left."""
        self.stage = f"killed while opening at {step}"
        self._mortal.kill()
        self._mortal.start()
        self._mortal.arm(step)
        try:
            self._mortal.call("checkpoint.list")
        except Died:
            self.kills[f"open: {step}"] += 1
        self._mortal.disarm()
        self._restart()
        self._ledger.check()

    def kill_while_busy(self, clients: int = 3) -> None:
        """Kill it at a random time, while so many clients write files and save."""
        self.stage = "killed at a random time"
        busy = [BusyClient(self._mortal, number, self._chance.random()) for number in range(clients)]
        for client in busy:
            client.start()
        time.sleep(self._chance.uniform(0.0, 0.25))
        self._mortal.kill()
        for client in busy:
            client.join()
        self.kills["random"] += 1
        crashed = look(bytes(self._mortal.ws))
        self._restart()
        assert look(bytes(self._mortal.ws)) == crashed, "opening a store changed the worktree"
        self._ledger.check()
        for client in busy:
            for one, seq, content in client.saved:
                self._ledger.note_seq(seq, one)
                held = self._content_of(one, client.name)
                assert held == content, "an acknowledged checkpoint does not hold what its client had written"
                self._ledger.tally["acknowledged"] += 1
            client.retry(self._content_of)
        self._ledger.check()

    def check_restores(self, count: int = 1) -> None:
        """Bring back some of all acknowledged checkpoints, each exactly."""
        self.stage = "restoring what was acknowledged"
        for one in self._chance.sample(sorted(self._ledger.known), min(count, len(self._ledger.known))):
            self._mortal.call("checkpoint.restore", token=token(), id=one)
            assert plain(look(bytes(self._mortal.ws))) == plain(self._ledger.known[one].world)
            self._ledger.tally["restored exactly"] += 1

    def kill_when_due(self, step: str) -> None:
        """Save until the daemon dies at a step that only some saves lead to, be it a moment after one."""
        self.stage = f"saves killed at {step}"
        self._mortal.arm(step)
        for _ in range(_MOST_SAVES):
            operation = self._prepare("save")
            if self._is_cut_off("save", operation, look(bytes(self._mortal.ws)), "retry"):
                self.kills[f"save: {step}"] += 1
                return
        raise AssertionError(f"{step} was never reached")

    def end(self) -> None:
        """End the daemon."""
        self._mortal.kill()

    def delete_killed(self, verb: str, step: str) -> None:
        """Let a daemon die while it deletes a store: of a worktree that is gone, or that is to be forgotten."""
        self.stage = f"{verb} killed at {step}"
        doomed = self._mortal.ws.with_name("doomed")
        doomed.mkdir()
        (doomed / "file").write_text("of one who goes")
        self._mortal.call("checkpoint.save", ws=doomed, token=token())
        if verb == "prune":
            shutil.rmtree(doomed)
        self._mortal.arm(step)
        try:
            self._delete(verb, doomed)
        except Died:
            self.kills[f"{verb}: {step}"] += 1
        self._mortal.disarm()
        self._restart()
        try:
            self._delete(verb, doomed)
        except Refused as error:
            if error.kind != "not_tracked":
                raise
        listed = self._mortal.call("worktree.list")["workspaces"]
        assert [one["path"] for one in listed] == [str(self._mortal.ws)]
        self._ledger.check()
        shutil.rmtree(doomed, ignore_errors=True)

    def _delete(self, verb: str, doomed: Path) -> None:
        if verb == "prune":
            self._mortal.call("store.prune", token=token())
        else:
            self._mortal.call("worktree.forget", ws=doomed, token=token())

    # -- preparing

    def _begin(self) -> None:
        for folder in _FOLDERS[1:]:
            os.makedirs(self._mortal.ws / folder, exist_ok=True)
        for number in range(12):
            (self._mortal.ws / _FOLDERS[number % 4] / f"f{number}").write_text(f"first {number}\n" * 20)
        # Bits that git does not know, so that each checkpoint has an info.
        (self._mortal.ws / "private").write_text("private\n")
        (self._mortal.ws / "private").chmod(0o600)
        self._save()

    def _prepare(self, verb: str) -> Operation:
        if verb == "first save":
            self._start_anew()
            return Operation("checkpoint.save", {"token": token(), "message": verb}, look(bytes(self._mortal.ws)))
        if verb in ("save", "tagged save"):
            self._edit()
            fields = {"token": token(), "message": verb, **({"tag": f"t{self._ledger.used}"} if "tag" in verb else {})}
            return Operation("checkpoint.save", fields, look(bytes(self._mortal.ws)))
        if verb == "thin":
            return self._too_many()
        if verb in ("drop", "gc"):
            return self._upkeep(verb)
        if verb in ("finish", "take back"):
            return self._cut_off(verb)
        target = self._save()
        wanted = self._ledger.known[target].world
        self._wreck()
        wreck = look(bytes(self._mortal.ws))
        if verb == "reset":
            return Operation("checkpoint.restore", {"token": token(), "id": target}, wanted)
        if verb == "rollback":
            return self._rollback(target, wanted, wreck)
        self._mortal.call("checkpoint.restore", token=token(), id=target)
        if verb == "undo":
            return Operation("checkpoint.undo", {"token": token()}, wreck)
        self._mortal.call("checkpoint.undo", token=token())
        assert plain(look(bytes(self._mortal.ws))) == plain(wreck)
        return Operation("checkpoint.redo", {"token": token()}, wanted)

    def _upkeep(self, verb: str) -> Operation:
        """Have a checkpoint too many, which is head, to be dropped; or have it dropped, so that its content can go."""
        self._edit()
        victim = self._save()
        del self._ledger.known[victim]
        drop = {"token": token(), "ids": [victim], "force": True}
        world = look(bytes(self._mortal.ws))
        if verb == "drop":
            return Operation("checkpoint.drop", drop, world)
        self._mortal.call("checkpoint.drop", **drop)
        return Operation("store.gc", {"token": token()}, world)

    def _too_many(self) -> Operation:
        """Have more automatic checkpoints than are kept."""
        for _ in range(4):
            self._edit()
            answer = self._mortal.call("checkpoint.save", token=token(), kind="auto")
            self._ledger.note_seq(answer["seq"], answer["id"])
        self._save()
        return Operation("store.thin", {"token": token()}, look(bytes(self._mortal.ws)))

    def _cut_off(self, verb: str) -> Operation:
        """Have a reset that was cut off, to be gone on with or taken back."""
        reset = self._prepare("reset")
        before = look(bytes(self._mortal.ws))
        self._mortal.arm("worktree-unlinked", self._chance.randint(1, 4))
        try:
            self._send(reset)
        except Died:
            self.kills["reset: to be resumed"] += 1
        self._mortal.disarm()
        self._restart()
        assert self._interrupted() is not None
        action, after = ("finish", reset.after) if verb == "finish" else ("undo", before)
        return Operation("worktree.resume", {"token": token(), "action": action}, after)

    def _rollback(self, target: str, wanted: World, wreck: World) -> Operation:
        paths = [path for path in wreck.keys() | wanted.keys() if path.rpartition(b"/")[0] == b""]
        some = [path for path in sorted(paths) if path in wanted and path not in (b"turns",)]
        after = {path: node for path, node in wreck.items() if path.partition(b"/")[0] not in some}
        after |= {path: node for path, node in wanted.items() if path.partition(b"/")[0] in some}
        fields = {"token": token(), "id": target, "paths": [os.fsdecode(path) for path in some]}
        return Operation("checkpoint.restore", fields, after)

    def _start_anew(self) -> None:
        """Have a daemon that knows of no store: the next save makes one."""
        self._mortal.kill()
        shutil.rmtree(self._mortal.checkpoint_dir)
        self._ledger.forget()
        self._mortal.start()

    def _save(self) -> str:
        world = look(bytes(self._mortal.ws))
        answer = self._mortal.call("checkpoint.save", token=token(), message="a save in between")
        self._ledger.acknowledge(answer, world)
        return str(answer["id"])

    def _edit(self) -> None:
        self._edits += 1
        for _ in range(self._chance.randint(1, 3)):
            folder = self._mortal.ws / self._chance.choice(_FOLDERS)
            folder.mkdir(parents=True, exist_ok=True)
            size = self._chance.choice((0, 10, 3000))
            path = folder / f"f{self._chance.randrange(20)}"
            path.write_bytes(b"edit %d\n" % self._edits + self._chance.randbytes(size))

    def _wreck(self) -> None:
        """Change the worktree in each way that a restore has to take back."""
        self._edit()
        ws = self._mortal.ws
        files = [path for path in sorted(ws.rglob("f*")) if path.is_file()]
        for path in self._chance.sample(files, min(3, len(files))):
            path.unlink()
        for path in [path for path in files if path.exists()][:2]:
            path.chmod(path.stat().st_mode ^ 0o100)
        for name in ("more", "more/deep"):
            (ws / name).mkdir(exist_ok=True)
            (ws / name / f"new{self._edits}").write_bytes(b"new")
        shutil.rmtree(ws / "d1" / "e", ignore_errors=True)
        turns = ws / "turns"
        if turns.is_dir():
            shutil.rmtree(turns)
            turns.write_bytes(b"a file now %d" % self._edits)
        else:
            turns.unlink(missing_ok=True)
            turns.mkdir()
            (turns / "inner").write_bytes(b"inner %d" % self._edits)

    # -- checking

    def _send(self, operation: Operation) -> dict[str, Any]:
        return self._mortal.call(operation.method, **operation.params)

    def _done(self, operation: Operation, answer: dict[str, Any]) -> None:
        assert plain(look(bytes(self._mortal.ws))) == plain(operation.after), "it was not done as it should"
        if operation.method == "checkpoint.save":
            self._ledger.acknowledge(answer, operation.after)

    def _after_death(self, verb: str, operation: Operation, before: World, then: str | None) -> None:
        crashed = look(bytes(self._mortal.ws))
        self._check_whole(before, operation.after, crashed)
        edited = self._edit_by_hand(before) if self._chance.random() < 0.5 else {}
        listed = self._restart(verb == "first save")
        self._check_whole(before, operation.after, look(bytes(self._mortal.ws)), edited)
        self._ledger.check()
        cut_off = self._check_interrupted(operation, before, listed)
        then = then or self._chance.choice(("retry", "retry", "retry", "undo" if cut_off else "leave", "leave"))
        self._ledger.tally[f"then {then}"] += 1
        if then == "retry":
            self._retry(operation, edited, listed)
        elif then == "undo":
            self._mortal.call("checkpoint.undo", token=token())
            # An undo that was cut off is gone on with.
            wanted = operation.after if verb in ("undo", "take back") else before
            now = plain(without(look(bytes(self._mortal.ws)), edited))
            assert now == plain(without(wanted, edited)), "undo did not bring back what was there before the crash"
        self._ledger.check()

    def _check_whole(self, before: World, after: World, now: World, edited: World | None = None) -> None:
        """Each path is as it was, as it is to be, or - only where it goes, comes or turns - not there."""
        told = edited or {}
        for path, node in plain(without_temporaries(now)).items():
            if path in told:
                assert node.data == told[path].data, f"{path!r} was edited by hand, and is not as it was left"
            elif not any(path.startswith(one + b"/") or one.startswith(path + b"/") for one in told):
                allowed = [plain(world)[path] for world in (before, after) if path in world]
                seen = [one._replace(perm=0) for one in allowed]
                assert node._replace(perm=0) in seen, f"{path!r} is neither old nor new: {node}"
        for path in before.keys() & after.keys():
            same_kind = before[path].kind == after[path].kind
            if same_kind and path not in told and path not in now:
                raise AssertionError(f"{path!r} is gone")

    def _edit_by_hand(self, before: World) -> World:
        """Do what somebody may do while no daemon runs; give the files that were written."""
        files = [path for path, node in before.items() if node.kind == "f" and not path.startswith(b"turns")]
        edited: World = {}
        for path in [*self._chance.sample(sorted(files), 2), b"by hand"]:
            full = os.path.join(bytes(self._mortal.ws), path)
            if os.path.isdir(os.path.dirname(full)):
                data = b"by hand %d" % self._chance.randrange(1 << 30)
                with open(full, "wb") as file:
                    file.write(data)
                edited[path] = Node("f", data)
        self._ledger.tally["edited by hand"] += 1
        return edited

    def _restart(self, may_be_none: bool = False) -> list[dict[str, Any]]:
        self._mortal.kill()
        self._mortal.start()
        try:
            return list(self._mortal.call("checkpoint.list")["checkpoints"])
        except Refused as error:
            if not may_be_none or error.kind not in ("not_tracked", "no_checkpoint"):
                raise
            return []

    def _check_interrupted(self, operation: Operation, before: World, listed: list[dict[str, Any]]) -> bool:
        """A restore that had begun is reported with its own safety checkpoint, which holds what was there."""
        if operation.method not in _OF_RESTORES:
            return False
        safety = self._interrupted()
        if safety is None or safety == self._open_before:
            return False
        record = next(one for one in listed if one["id"] == safety)
        assert record["kind"] == "safety"
        tree = self._ledger.git("rev-parse", f"{safety}^{{tree}}").decode().strip()
        assert tree == tree_id(before), "the safety checkpoint is not what was there before the restore"
        self._ledger.tally["interrupted"] += 1
        return True

    def _content_of(self, one: str, name: str) -> bytes:
        return self._ledger.git("cat-file", "blob", f"{one}:{name}")

    def _interrupted(self) -> str | None:
        safety = self._mortal.call("worktree.status")["interrupted"]
        return None if safety is None else str(safety)

    def _retry(self, operation: Operation, edited: World, listed: list[dict[str, Any]]) -> None:
        if operation.method == "store.gc":
            self._send(operation)
            assert self._mortal.call("store.verify", read_data=True)["clean"]
            return
        now = look(bytes(self._mortal.ws))
        answer = self._send(operation)
        if operation.method == "checkpoint.save":
            was_there = any(one["id"] == answer["id"] for one in listed)
            self._ledger.acknowledge(answer, operation.after if was_there else now)
            again = self._send(operation)
            assert again["id"] == answer["id"], "a request that was sent again was done twice"
            return
        if operation.method in ("checkpoint.drop", "store.thin"):
            gone = {one["id"] for one in answer["dropped"]}
            assert gone.isdisjoint(one["id"] for one in self._mortal.call("checkpoint.list")["checkpoints"])
            assert self._send(operation) == answer, "a request that was sent again was answered otherwise"
            return
        after = look(bytes(self._mortal.ws))
        assert plain(without(after, edited)) == plain(without(operation.after, edited)), "it did not go on to its end"
        for path in edited:
            held = after.get(path) == now.get(path) or self._ledger.holds(now[path])
            assert held, f"{path!r}, edited by hand, was overwritten and is in no checkpoint"
        assert self._send(operation) == answer, "a request that was sent again was answered otherwise"
        assert look(bytes(self._mortal.ws)) == after, "a request that was sent again was done twice"
