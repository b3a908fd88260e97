"""A power cut after each call of an operation: the store opens, and what was acknowledged is there.

The calls of an operation are recorded, and played up to each of them. What no sync had made safe by then is left out,
there, cut or zeroed, names and contents each by themselves; then the daemon's engine opens what is left.
"""

import os
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from ckpt_protocol.checkpoint import DropParams
from ckpt_protocol.store import GcParams
from ckptd.core.ports import Caller
from ckptd.shadow.objects import surveying
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.objects.pieces import drained
from ckptd.shadow.record.logtrim import Bounds
from ckptd.shadow.restore.crew import Crew
from ckptd.shadow.store import carrying, housekeeping
from support import effort
from support.merged import merge_packs
from support.plainworld import look, parents
from support.powercut import DATA, NAMES, Disk, State, chances, write
from support.stored import Contents, contents, held
from support.tape import Call, record
from support.worktrees import Desk, in_child, verify

pytestmark = [
    pytest.mark.core,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="sees in /proc which file a call is for"),
]

ANSWER = "answer"

EVERY_KIND = [(names, data) for names in NAMES for data in DATA]
SOME_KINDS = [("no name", "old"), ("every name", "empty"), ("every name", "zeroed"), ("the last name", "cut")]
"""What is left of names and contents that are not safe; and as chance has it."""


class Scene(NamedTuple):
    """An operation that is cut off. ``known`` are checkpoints acknowledged before it, ``before`` the worktree then."""

    desk: Desk
    known: dict[str, Contents]
    before: Contents
    calls: list[Call]
    disk: Callable[[], Disk]


class Counts:
    """How many cuts were played, and how many different disks came of them."""

    def __init__(self) -> None:
        self.cuts = 0
        self.disks = 0

    def tell(self, calls: int) -> None:
        print(f"{calls} calls, {self.cuts} cuts, {self.disks} different disks, lost 0")


def worktree(desk: Desk) -> Contents:
    return contents(look(desk.root))


def begin(desk: Desk) -> None:
    desk.write(b"private", b"one\n", 0o600)
    desk.write(b"folder/file", b"one\n" * 30)
    desk.write(b"folder/deleted later", b"one\n")
    desk.write(b"gone/inner", b"one\n")
    desk.link(b"link", b"private")


def edit(desk: Desk) -> None:
    desk.write(b"private", b"two\n" * 9)
    desk.write(b"folder/file", b"two\n")
    desk.write(b"folder/new", b"two\n" * 40)
    desk.write(b"new/inner", b"two\n")
    desk.remove(b"folder/deleted later")
    desk.remove(b"gone")
    desk.remove(b"link")
    desk.link(b"link", b"folder")


def staged(desk: Desk, work: Callable[[Desk], object], known: dict[str, Contents]) -> Scene:
    """Record an operation; the disk is then as it was before."""
    desk.close()
    roots = [desk.root, desk.checkpoint_dir]
    origin = Disk(roots)
    start = origin.now()
    before = worktree(desk)

    def whole(mark: Callable[[str], None]) -> None:
        if known:
            desk.open(create=False)
        work(desk)
        mark(ANSWER)

    calls = record(roots, whole, os.path.join(desk.base, b"tape"))
    for call in calls:
        origin.apply(call)
    # Nothing was overlooked: played to its end, the record gives the very files that are there.
    assert origin.now() == Disk(roots).now()
    write(start, roots)
    return Scene(desk, known, before, calls, lambda: _fresh(start, roots))


def _fresh(start: State, roots: list[bytes]) -> Disk:
    write(start, roots)
    return Disk(roots)


def cuts(scene: Scene, counts: Counts, samples: int) -> Iterator[tuple[int, bool]]:
    """Leave the disk as each cut leaves it; give the number of the calls before it and whether it was answered."""
    roots = [scene.desk.root, scene.desk.checkpoint_dir]
    disk, answered = scene.disk(), False
    seen: set[int] = set()
    for number, call in enumerate([Call("mark", b"begin"), *scene.calls]):
        disk.apply(call)
        answered = answered or (call.what, call.path) == ("mark", ANSWER.encode())
        kinds = [(NAMES[names], DATA[data]) for names, data in (EVERY_KIND if effort.LONG else SOME_KINDS)]
        if effort.LONG or number % 3 == 0:
            kinds += [chances(number * 100 + sample) for sample in range(samples)]
        if call.what == "data" and not effort.LONG:
            # The call that wrote it follows: a sync or a name.
            continue
        for names, data in kinds:
            counts.cuts += 1
            state = disk.state(names, data)
            key = hash((answered, tuple(sorted(state.items()))))
            if key in seen:
                continue
            seen.add(key)
            counts.disks += 1
            write(state, roots)
            yield number, answered


def check_store(scene: Scene, known: dict[str, Contents], number: int) -> None:
    """Everything acknowledged is in the store and can be read; whatever else is listed can be read too."""
    desk = scene.desk
    listed = desk.list()
    assert listed.damaged == 0
    assert known.keys() <= {one.id for one in listed.checkpoints}, "lost"
    for one in listed.checkpoints:
        there = held(desk, desk.repo.lookup.open(one.id))
        assert one.id not in known or there == known[one.id]
    if known:
        assert desk.head() in {one.id for one in listed.checkpoints}
    if number % 11 == 0:
        verify(desk.folder)


def check_next_save(desk: Desk) -> None:
    desk.write(b"written after the power came back", os.urandom(8))
    before = max((one.seq for one in desk.list().checkpoints), default=0)
    saved = desk.save("after")
    assert saved.created
    assert saved.seq > before
    assert held(desk, desk.repo.lookup.open(saved.id)) == worktree(desk)
    desk.close()


def play_save(desk: Desk, work: Callable[[Desk], object], known: dict[str, Contents], answer: Contents) -> Counts:
    counts = Counts()
    scene = staged(desk, work, known)
    for number, answered in cuts(scene, counts, effort.examples(1, 4)):
        # Without anything acknowledged there need not be a store.
        desk.open(create=not known and not answered)
        check_store(scene, known, number)
        if answered:
            assert answer in [held(desk, desk.repo.lookup.open(one.id)) for one in desk.list().checkpoints]
        check_next_save(desk)
    counts.tell(len(scene.calls))
    return counts


def test_the_first_save(desk: Desk):
    begin(desk)
    counts = play_save(desk, lambda desk: desk.save("first"), {}, worktree(desk))
    assert counts.disks > 20


@pytest.mark.parametrize("tag", [None, "v1"])
def test_a_save(desk: Desk, tag: str | None):
    begin(desk)
    known = {desk.save("first").id: worktree(desk)}
    edit(desk)
    counts = play_save(desk, lambda desk: desk.save("second", tag=tag), known, worktree(desk))
    assert counts.disks > 20


def test_a_large_save(desk: Desk):
    begin(desk)
    known = {desk.save("first").id: worktree(desk)}
    for number in range(12):
        desk.write(b"many/%d/f" % number, random.Random(number).randbytes(2000))
    desk.write(b"big", random.Random(1).randbytes(3 << 20))
    counts = play_save(desk, lambda desk: desk.save("second"), known, worktree(desk))
    assert counts.disks > 20


def history(desk: Desk) -> dict[str, Contents]:
    begin(desk)
    known = {desk.save("first").id: worktree(desk)}
    edit(desk)
    known[desk.save("second").id] = worktree(desk)
    desk.write(b"folder/file", b"mine\n")
    desk.write(b"new/mine", b"mine\n")
    return known


def play_restore(
    desk: Desk,
    ask: Callable[[Desk, str], object],
    known: dict[str, Contents],
    after: Contents,
    saved: Contents | None = None,
) -> Counts:
    """Cut a restore off; then ask again, or undo what there is of it: one of the two worktrees is there, whole.

    ``saved`` is what the first safety checkpoint holds, where the restore was begun before.
    """
    counts = Counts()
    token = desk.token()
    scene = staged(desk, lambda desk: ask(desk, token), known)
    for number, answered in cuts(scene, counts, effort.examples(1, 4)):
        desk.open(create=False)
        check_store(scene, known, number)
        if answered:
            assert worktree(desk) == after
        safety = desk.status().interrupted
        first = saved or scene.before
        if safety is None:
            assert worktree(desk) in (scene.before, after), "changed, and nothing tells of it"
        else:
            assert held(desk, desk.repo.lookup.open(safety)) in (first, scene.before)
        if counts.disks % 2 and safety is not None and saved is None:
            desk.undo()
            wanted = after if ask is undo else scene.before
        else:
            ask(desk, token)
            wanted = after
        assert without_rescued(worktree(desk), wanted) == wanted
        check_store(scene, known, number)
        check_next_save(desk)
    counts.tell(len(scene.calls))
    return counts


def without_rescued(found: Contents, wanted: Contents) -> Contents:
    """Leave out what was kept under a name that people see: half a new file is nobody's, but who should know."""
    rescued = [path for path in found if b"ckpt-rescued-" in path]
    folders = {one for path in rescued for one in parents(path) if one not in wanted}
    return {path: data for path, data in found.items() if path not in folders and path not in rescued}


def undo(desk: Desk, token: str) -> object:
    return desk.undo(token=token)


@pytest.mark.parametrize("threads", [False, True])
def test_a_reset(desk: Desk, monkeypatch, threads: bool):
    if threads:
        monkeypatch.setattr(carrying, "new_crew", lambda: Crew(2, 0))
    known = history(desk)
    first = next(iter(known))
    counts = play_restore(desk, lambda desk, token: desk.reset(first, token=token), known, known[first])
    assert counts.disks > 50


def test_an_undo(desk: Desk):
    known = history(desk)
    wreck = worktree(desk)
    desk.reset(next(iter(known)))
    counts = play_restore(desk, undo, known, wreck)
    assert counts.disks > 50


@pytest.mark.parametrize("action", ["finish", "undo"])
def test_what_was_cut_off_is_gone_on_with(desk: Desk, action: str):
    known = history(desk)
    mine, first = worktree(desk), next(iter(known))
    desk.close()
    assert in_child(lambda: dying(desk, first)) != 0
    after = known[first] if action == "finish" else mine
    counts = play_restore(desk, lambda desk, token: desk.resume(action, token=token), known, after, mine)
    assert counts.disks > 20


def dying(desk: Desk, first: str) -> None:
    listen(lambda name, path: os._exit(9) if (name, path) == ("worktree-unlinked", b"folder/file") else None)
    desk.reset(first)


def test_a_log_that_is_cut(desk: Desk):
    known = history(desk)
    for number in range(6):
        desk.write(b"folder/file", b"%d" % number)
        known[desk.save().id] = worktree(desk)
    desk.configure(log_bounds=Bounds(5, 1 << 20, 2, 1 << 20))
    desk.write(b"folder/file", b"more")
    counts = play_save(desk, lambda desk: desk.save(), known, worktree(desk))
    assert counts.disks > 10


def drop(desk: Desk, one: str, token: str) -> None:
    desk.writer.drop(DropParams(**desk.common(), token=token, ids=[one]), Caller("test"))


@pytest.mark.parametrize("packed", [False, True])
def test_a_drop(desk: Desk, packed: bool):
    """The dropped one is there, whole, or it is gone; all others are there. What had begun is done to its end."""
    known = history(desk)
    victim = desk.save("third").id
    if packed:
        assert drained(desk.repo.refs.pack(1))
    token, counts = desk.token(), Counts()
    scene = staged(desk, lambda desk: drop(desk, victim, token), known)
    for number, answered in cuts(scene, counts, effort.examples(1, 4)):
        desk.open(create=False)
        check_store(scene, known, number)
        if answered:
            assert victim not in {one.id for one in desk.list().checkpoints}
        elif victim in {one.id for one in desk.list().checkpoints}:
            drop(desk, victim, token)
        check_store(scene, known, number)
        check_next_save(desk)
    counts.tell(len(scene.calls))
    assert counts.disks > 10


def collect(desk: Desk) -> None:
    run = desk.writer.gc(GcParams(**desk.common(), token=desk.token()), Caller("test"))
    while run.step() is None:
        pass


def test_a_collection(desk: Desk):
    known = history(desk)
    victim = desk.save("third").id
    drop(desk, victim, desk.token())
    counts = play_save(desk, collect, known, known[list(known)[-1]])
    assert counts.disks > 20


def test_a_merge_of_packs(desk: Desk):
    known = history(desk)
    for number in range(3):
        desk.write(b"folder/file", b"%d" % number)
        known[desk.save().id] = worktree(desk)
    here = worktree(desk)
    counts = play_save(desk, lambda desk: merge_packs(desk.repo.objects.pack_dir), known, here)
    assert counts.disks > 10


def test_saves_that_merge_packs_by_the_way(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(surveying, "MANY_ALIKE", 3)
    monkeypatch.setattr(housekeeping, "_SAVES_A_MERGE", 1)
    known = history(desk)
    here = worktree(desk)

    def save(desk: Desk) -> None:
        # As soon as the disk lets them: it is waited for beside the saves.
        for number in range(60):
            desk.save(meta={"number": str(number)})
            if number > 2 and desk.repo.objects.pack_count < number + 2:
                break
        else:
            raise AssertionError("nothing was merged")
        # What is still done beside them would be done by nobody knows when.
        desk.writer._housekeeper.stop()

    counts = play_save(desk, save, known, here)
    assert counts.disks > 20
