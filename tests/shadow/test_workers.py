"""First saves that worker processes help with: the same trees, whatever becomes of the workers."""

import gc
import os
import random
import signal
import subprocess
import sys

import pytest

from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from ckptd.shadow.objects.failpoint import listen
from ckptd.shadow.scan.frames import Frame
from ckptd.shadow.scan.helpers import HashJob
from ckptd.workers.pool import ProcessPool, spawn, worker_count
from support.poll import until
from support.worktrees import Desk, git_tree, in_child, opened_files, run_git

pytestmark = pytest.mark.core

FILES = 120
ALONE = 20
"""So many files are read before the workers are asked."""


def environment() -> dict[str, str]:
    """As here; but what the test runner can import, a process of its own has to be told."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


class Workers:
    """Starts real workers, and keeps them to be looked at; ``at_start`` is called with each."""

    def __init__(self, at_start=lambda _process: None) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self._at_start = at_start

    def start(self) -> "subprocess.Popen[bytes]":
        process = spawn(environment())
        self.processes.append(process)
        self._at_start(process)
        return process


@pytest.fixture
def many(desk: Desk) -> Desk:
    """Files of all kinds and sizes, and a few things beside them."""
    chance = random.Random(7)
    for number in range(FILES):
        data = chance.randbytes(chance.choice((0, 1, 100, 5000)))
        desk.write(b"%d/caf\xe9 %d/f%03d" % (number % 4, number % 9, number), data, 0o755 if number % 7 == 0 else 0o644)
    desk.write(b"2/same", b"the same")
    desk.write(b"3/same", b"the same")
    desk.link(b"1/link", b"../0")
    desk.mkdir(b"empty")
    desk.write(b".gitignore", b"*.o\n")
    desk.write(b"3/x.o", b"ignored")
    desk.settle()
    return desk


def helped(desk: Desk, workers: Workers, count: int = 2, **settings) -> None:
    desk.configure(helpers=ProcessPool(count, workers.start), help_after=ALONE, **settings)


def check(desk: Desk, saved) -> None:
    """The tree is what git makes of the disk, all workers are gone, and nothing has to be read again."""
    assert desk.tree_of(saved.id) == git_tree(desk.root, lambda path: path.endswith(b".o"))
    assert saved.files == FILES + 4
    assert saved.complete
    with opened_files() as opened:
        assert not desk.save("again").created
    assert [path for path in opened if os.path.basename(path).startswith(b"f")] == []
    assert left_over(desk) == []


def left_over(desk: Desk) -> list[bytes]:
    return [name for name in os.listdir(os.path.join(desk.folder, b"objects", b"pack")) if name.startswith(b"tmp")]


def test_the_same_tree_with_help(many: Desk):
    workers = Workers()
    helped(many, workers)
    with opened_files() as opened:
        saved = many.save("first")
    assert len(workers.processes) == 2
    assert all(process.returncode == 0 for process in workers.processes)
    here = [path for path in opened if os.path.basename(path) == path and not path.startswith(b".")]
    # The ignore file is looked at by the rules, and once more as what it holds.
    assert len(here) == ALONE - 1
    assert saved.stats.files_opened == FILES + 3
    check(many, saved)


def test_what_is_left_out_is_left_out_with_help(many: Desk):
    for number in range(4):
        many.write(b"%d/y.o" % number, b"ignored")
        many.write(b"%d/caf\xe9 %d/large" % (number, number), b"x" * 5001)
        os.mkfifo(many.path(b"%d/fifo" % number))
    run_git("init", "-q", many.path(b"2"))
    run_git("-C", many.path(b"2"), "add", "-f", "y.o")
    helped(many, Workers(), max_file_bytes=5000)
    saved = many.save("first")
    kept = b"2/y.o"
    left_out = git_tree(many.root, lambda path: path != kept and path.endswith((b".o", b"/large")))
    assert many.tree_of(saved.id) == left_out
    assert saved.files == FILES + 5
    assert sorted(one.reason for one in saved.excluded) == ["large"] * 4 + ["special"] * 4


def test_what_a_save_with_help_has_needed_goes_with_it(many: Desk):
    """Nobody looks for cycles while others wait: what is in one would stay, and make holes in the memory."""
    helped(many, Workers())
    gc.collect()
    gc.disable()
    try:
        many.save()
        assert [type(one) for one in gc.get_objects() if isinstance(one, Frame | HashJob)] == []
    finally:
        gc.enable()


def test_a_small_save_asks_for_no_help(many: Desk):
    workers = Workers()
    helped(many, workers)
    many.configure(help_after=FILES + 10)
    check(many, many.save("first"))
    many.status()
    assert workers.processes == []


def test_looking_stores_nothing_and_asks_for_no_help(many: Desk):
    workers = Workers()
    helped(many, workers)
    many.open()
    assert many.status().files == FILES + 4
    assert workers.processes == []


def test_what_the_store_has_is_not_written_again(many: Desk):
    many.save("first")
    workers = Workers()
    helped(many, workers)
    stats = many.save("again", rehash=True).stats
    assert workers.processes
    assert stats.files_opened == FILES + 3
    assert stats.objects_written == 0


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("when", ["start", "later"])
def test_workers_that_die_leave_no_gap(many: Desk, count: int, when: str):
    workers = Workers(lambda process: process.kill() if when == "start" else None)
    helped(many, workers, count, keep_after=(40, 1 << 30))
    stop = listen(lambda step, _path: [one.kill() for one in workers.processes] if step == "pack-durable" else None)
    try:
        saved = many.save("first")
    finally:
        stop()
    assert any(process.returncode for process in workers.processes)
    check(many, saved)


def test_one_of_two_workers_dies_in_the_middle(many: Desk):
    workers = Workers()
    helped(many, workers)
    caller = Caller("test")
    # Called between the walk's steps: some jobs are done by then, and none is settled.
    caller.progress = lambda *_progress: [one.kill() for one in workers.processes[:1]]
    check(many, many.save("first", caller=caller))


def test_workers_that_cannot_be_started_are_no_loss(many: Desk):
    def start() -> "subprocess.Popen[bytes]":
        raise OSError(11, "Resource temporarily unavailable")

    many.configure(helpers=ProcessPool(2, start), help_after=ALONE)
    check(many, many.save("first"))


def test_a_worker_of_another_build_is_not_listened_to(many: Desk):
    def start() -> "subprocess.Popen[bytes]":
        text = "import ckptd.workers.child as child, sys; child.BUILD = '0'; sys.exit(child.main())"
        return subprocess.Popen(
            [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment()
        )

    many.configure(helpers=ProcessPool(2, start), help_after=ALONE)
    check(many, many.save("first"))


class CalledOff(Caller):
    """Calls off once the workers have done something."""

    def __init__(self, workers: Workers, after: int) -> None:
        super().__init__("test")
        self.cancelled = self
        self._workers = workers
        self._left = after

    def is_set(self) -> bool:
        self._left -= bool(self._workers.processes)
        return self._left < 0


@pytest.mark.parametrize("after", [1, 5, 15])
def test_what_workers_have_done_is_kept_when_a_save_is_called_off(many: Desk, after: int):
    workers = Workers()
    helped(many, workers)
    with pytest.raises(DomainError, match="cancelled"):
        many.save("first", caller=CalledOff(workers, after))
    assert all(process.returncode is not None for process in workers.processes)
    assert left_over(many) == []
    many.configure(helpers=None)
    saved = many.save("second")
    assert saved.stats.files_opened < FILES + 3
    check(many, saved)


def test_a_file_that_cannot_be_read_is_told_once(many: Desk):
    workers = Workers()
    helped(many, workers)
    with open(many.path(b"3/gone"), "wb"):
        pass
    many.link(b"3/socket", b"x")
    saved = many.save("first")
    assert saved.complete
    assert saved.files == FILES + 6


def test_directories_that_move_meanwhile_are_said_to_be_unstable(many: Desk):
    def move(_process: "subprocess.Popen[bytes]") -> None:
        for name in (b"0", b"1", b"2", b"3"):
            if not os.path.islink(many.path(name)):
                os.rename(many.path(name), many.path(b"moved " + name))
                os.symlink(b"moved " + name, many.path(name))

    helped(many, Workers(move))
    saved = many.save("first")
    assert {item.reason for item in saved.skipped} == {"unstable"}
    again = many.save("second")
    assert again.complete
    assert again.files == FILES + 4 + 4


def test_a_daemon_that_is_killed_takes_its_workers_along(many: Desk):
    told, tell = os.pipe()

    def killed() -> None:
        def at_start(process) -> None:
            os.write(tell, b"%d\n" % process.pid)

        workers = Workers(at_start)
        helped(many, workers, keep_after=(40, 1 << 30))
        listen(lambda step, _path: os.kill(os.getpid(), signal.SIGKILL) if step == "pack-durable" else None)
        many.save("first")

    many.open()
    many.close()
    assert in_child(killed) == signal.SIGKILL
    pids = [int(line) for line in os.read(told, 100).split()]
    assert len(pids) == 2
    until(lambda: not any(is_worker(pid) for pid in pids))
    os.close(told)
    os.close(tell)
    many.reopen()
    check(many, many.save("first"))


def is_worker(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"ckptd.workers" in file.read()
    except OSError:
        return False


def test_there_are_never_more_workers_than_cores_or_than_four():
    assert 0 <= worker_count() <= 4
