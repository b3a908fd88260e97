"""A disk that refuses any one call of an operation, or from there on all of a kind: nothing is lost, nothing is left.

Each call of each kind fails once, in a forked process. The error says what and where; the same process then does the
operation as if nothing had been; and a store that is opened afterwards is as good as ever.
"""

import os
import pickle
import traceback
from collections.abc import Callable
from typing import NamedTuple

import pytest

from ckpt_protocol.checkpoint import DropParams, RestoreResult
from ckpt_protocol.store import GcParams
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.objects.pieces import drained
from support import effort
from support.failing import CODES, KINDS, Failing
from support.plainworld import World, look
from support.powercut import Disk, write
from support.worktrees import Desk, in_child, verify

pytestmark = [
    pytest.mark.core,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="sees in /proc which file a call is for"),
]

ALLOWED = {
    "no_space",
    "io_error",
    "read_only",
    "permission_denied",
    "too_many_files",
    "store_damaged",
    "conflicts",
    "io",
    "changed",
}
LEFT_OVER = (b".tmp-", b"tmp_", b".new-", b".old-", b".ckpt-")


class Told(NamedTuple):
    """What became of it in the process whose disk failed; ``failed`` is an error's kind and text, None for none."""

    count: dict[str, int]
    failed: tuple[str, str] | None
    conflicts: list[tuple[str, str]]
    between: World


class Case(NamedTuple):
    """An operation: ``known`` are ids that are there before it; ``after`` is the worktree when it is done."""

    known: list[str]
    work: Callable[[Desk], object]
    after: World


def begin(desk: Desk) -> str:
    for name in (b"private", b"folder/file", b"folder/deleted later", b"gone/inner"):
        desk.write(name, b"one\n" * 9, 0o600 if name == b"private" else None)
    return desk.save("first").id


def edit(desk: Desk) -> None:
    desk.write(b"folder/file", b"two\n")
    desk.write(b"folder/new", b"two\n" * 40)
    desk.write(b"new/inner", b"two\n")
    desk.remove(b"folder/deleted later")
    desk.remove(b"gone")


def a_save(desk: Desk) -> Case:
    known = [begin(desk)]
    edit(desk)
    return Case(known, lambda desk: desk.save("second", tag="v1"), look(desk.root))


def a_reset(desk: Desk) -> Case:
    first = begin(desk)
    wanted = look(desk.root)
    edit(desk)
    known = [first, desk.save("second").id]
    desk.write(b"folder/file", b"mine\n")
    return Case(known, lambda desk: desk.reset(first), wanted)


def an_undo(desk: Desk) -> Case:
    case = a_reset(desk)
    wreck = look(desk.root)
    case.work(desk)
    return Case(case.known, lambda desk: desk.undo(), wreck)


def drop(desk: Desk, one: str, token: str) -> None:
    desk.writer.drop(DropParams(**desk.common(), token=token, ids=[one]), Caller("test"))


def a_drop(desk: Desk) -> Case:
    known = [begin(desk)]
    edit(desk)
    victim, token = desk.save("second").id, desk.token()
    assert drained(desk.repo.refs.pack(1))
    return Case(known, lambda desk: drop(desk, victim, token), look(desk.root))


def a_collection(desk: Desk) -> Case:
    case = a_drop(desk)
    case.work(desk)
    desk.write(b"folder/new", b"four\n")
    known = [*case.known, desk.save("third").id]

    def collect(desk: Desk) -> None:
        run = desk.writer.gc(GcParams(**desk.common(), token=desk.token()), Caller("test"))
        while run.step() is None:
            pass

    return Case(known, collect, look(desk.root))


def an_opening(desk: Desk) -> Case:
    """Of a store in which a reset was cut off in the middle of two files."""
    first = begin(desk)
    edit(desk)
    desk.save("second")
    desk.close()

    def dying() -> None:
        listen(lambda name, path: os._exit(9) if (name, path) == ("worktree-exchanged", b"folder/file") else None)
        desk.reset(first)

    assert in_child(dying) != 0
    return Case([first], Desk.reopen, without_temporaries(look(desk.root)))


def without_temporaries(world: World) -> World:
    return {path: node for path, node in world.items() if not path.rpartition(b"/")[2].startswith(b".ckpt-")}


def do(desk: Desk, case: Case, kind: str, nth: int, code: int, *, lasting: bool) -> Told:
    """Let it fail and then do it as it should, in a process of its own."""
    told = os.path.join(desk.base, b"told")

    def work() -> None:
        if case.work is not Desk.reopen:
            desk.open(create=False)
        disk = Failing([desk.root, desk.checkpoint_dir])
        disk.arm(kind, nth, code, lasting=lasting)
        failed, conflicts, kept = None, [], False
        try:
            result = case.work(desk)
            conflicts = conflicts_of(result)
            # What could not even be read is left alone.
            kept = isinstance(result, RestoreResult) and bool(result.kept)
        except DomainError as error:
            failed = (error.kind, f"{error.message} {error.paths}")
        count = dict(disk.count)
        disk.disarm()
        between = without_temporaries(look(desk.root)) if case.work is Desk.reopen else look(desk.root)
        if failed is not None or conflicts or kept:
            assert conflicts_of(case.work(desk)) == []
        desk.close()
        with open(told, "wb") as file:
            pickle.dump((count, failed, conflicts, between), file)

    def whole() -> None:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            raise

    assert in_child(whole) == 0, f"{kind} {nth} {os.strerror(code)}"
    with open(told, "rb") as file:
        return Told(*pickle.load(file))


def conflicts_of(result: object) -> list[tuple[str, str]]:
    return [(str(one.path), one.reason) for one in result.conflicts] if isinstance(result, RestoreResult) else []


def check(desk: Desk, case: Case, before: World, told: Told, what: str) -> None:
    if told.failed is not None:
        assert told.failed[0] in ALLOWED, (what, told.failed)
        assert any(word in told.failed[1] for word in ("/", "object ")), (what, "names no path", told.failed)
    assert {reason for _, reason in told.conflicts} <= ALLOWED, (what, told.conflicts)
    for path, node in told.between.items():
        # What could not even be removed any more has a name that people see.
        if node.kind == "f" and b"ckpt-rescued-" not in path:
            assert not path.rpartition(b"/")[2].startswith(LEFT_OVER), (what, path)
            states = [world[path].data for world in (before, case.after) if path in world]
            assert node.data in states, (what, path, "is half written")
    desk.open(create=False)
    assert plain(look(desk.root)) == plain(case.after), what
    assert set(case.known) <= {one.id for one in desk.list().checkpoints}, (what, "lost")
    assert desk.list().damaged == 0, what
    for folder, folders, names in os.walk(desk.checkpoint_dir):
        assert [name for name in folders + names if name.startswith(LEFT_OVER)] == [], (what, folder)
    verify(desk.folder)
    desk.write(b"folder/file", b"three\n")
    assert desk.save("third").created, what
    desk.close()


def plain(world: World) -> dict[bytes, tuple[str, bytes]]:
    return {path: (node.kind, node.data) for path, node in world.items() if b"ckpt-rescued-" not in path}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [a_save, a_reset, an_undo, a_drop, a_collection, an_opening])
def test_each_call_fails_once(desk: Desk, make: Callable[[Desk], Case], kind: str):
    case = make(desk)
    desk.close()
    roots = [desk.root, desk.checkpoint_dir]
    start, before = Disk(roots).now(), look(desk.root)
    nth, reached, failures = 1, True, 0
    while reached:
        codes = CODES[kind] if effort.LONG else [CODES[kind][nth % len(CODES[kind])]]
        for code in codes:
            for lasting in (False, True) if effort.LONG else [nth % 2 == 0]:
                told = do(desk, case, kind, nth, code, lasting=lasting)
                what = f"{make.__name__}: {kind} {nth}{' and later' * lasting}: {os.strerror(code)}"
                check(desk, case, before, told, what)
                reached = told.count.get(kind, 0) >= nth
                failures += reached
                write(start, roots)
        # Files are opened so often that every third time stands for the others.
        nth += 3 if kind == "open" and not effort.LONG else 1
    print(f"{make.__name__}, {kind}: {failures} failures")
