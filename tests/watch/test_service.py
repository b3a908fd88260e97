"""The daemon's side: whatever the watching process does, there is an answer, and it is true."""

import os
import signal
import sys

import anyio
import pytest

from support.cli_run import ROOT
from support.poll import eventually
from support.watching import SOURCES, posted

FAULTY = ("env", f"PYTHONPATH={SOURCES}:{ROOT / 'tests'}", sys.executable, "-P", "-m", "support.faulty_watchers")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("silent", "did not say a word"),
        ("other_build", "is of build 0.0.1"),
        ("hanging", "did not answer"),
        ("babbling", "ended before its first word"),
        ("ending", "has ended"),
        ("deaf", "was not told"),
        ("no_instances", "os error 24"),
        ("no_watches", "watch limit reached"),
    ],
)
async def test_what_does_not_work_is_no_native_watching_and_says_why(tmp_path, fault, reason):
    async with posted(tmp_path, command=(*FAULTY, fault), patience_s=2.0) as post:
        covered = await post.cover(try_out=True)
        assert (covered.native, covered.watched) == (False, 0)
        assert reason in covered.reason
        assert os.listdir(tmp_path) == []


async def test_a_program_that_is_not_there_is_said(tmp_path):
    async with posted(tmp_path, command=("/no/such/program",)) as post:
        assert "cannot be started" in (await post.cover()).reason
        # It is not tried again at once.
        assert "cannot be started" in (await post.cover()).reason


async def test_its_end_is_told_and_it_is_started_again(tmp_path):
    async with posted(tmp_path) as post:
        await post.cover()
        os.kill(post.service.pid, signal.SIGKILL)
        await eventually(lambda: post.news.breaks)
        with anyio.fail_after(60):
            while not (covered := await post.cover()).native:  # noqa: ASYNC110 - nothing tells when it may be tried
                await anyio.sleep(0.05)
        assert covered.fresh


async def test_a_root_that_is_not_wanted_any_more_is_silent(tmp_path):
    async with posted(tmp_path) as post:
        await post.cover()
        post.service.remove(post.number)
        assert not (await post.cover()).native
        (tmp_path / "f").write_text("1")
        assert post.news.paths == []


async def test_the_process_costs_nothing_until_something_is_watched_and_ends_with_the_service(tmp_path):
    async with posted(tmp_path) as post:
        assert post.service.pid is None
        await post.cover()
        pid = post.service.pid
        assert str(pid) in os.listdir("/proc")
    await eventually(lambda: str(pid) not in os.listdir("/proc"))


async def test_an_idle_watch_wakes_up_once_a_step(tmp_path):
    """Counted, not timed: the kernel knows how often each thread has slept."""
    async with posted(tmp_path) as post:
        await post.cover()
        task = f"/proc/{post.service.pid}/task"
        before = {name: voluntary(f"{task}/{name}/status") for name in os.listdir(task)}

        def woken():
            return sorted(voluntary(f"{task}/{name}/status") - before[name] for name in before)

        await eventually(lambda: woken()[-1] >= 40)
        # The lookout's thread alone: not the library's, nor the one that waits for orders (it has just answered one).
        assert sum(woken()[:-1]) <= 4


def voluntary(path):
    with open(path) as file:
        return int(next(line for line in file if line.startswith("voluntary")).split()[1])
