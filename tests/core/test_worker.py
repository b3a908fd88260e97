"""The thread: order, exceptions, cancellation, end."""

import asyncio
import contextlib
import threading

import pytest

from ckptd.core.worker import Worker
from ckptd.errors import DomainError
from support.faulty_stores import Gate
from support.poll import eventually

pytestmark = pytest.mark.core


async def test_jobs_run_in_order_on_one_named_thread():
    worker = Worker("ckptd-test order")
    seen = []
    await asyncio.gather(
        *(worker.run(lambda n=n: seen.append((n, threading.current_thread().name))) for n in range(50))
    )
    await worker.close()
    assert seen == [(n, "ckptd-test order") for n in range(50)]


@contextlib.contextmanager
def no_new_threads():
    """No thread can be started: none gets a stack of that size."""
    before = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(before)


async def test_without_a_thread_a_job_is_refused_and_the_next_one_tries_again():
    worker = Worker("ckptd-test none")
    with no_new_threads():
        for _ in range(3):
            with pytest.raises(DomainError, match="no more threads"):
                await worker.run(lambda: "never")
    assert await worker.run(lambda: "done") == "done"
    await worker.close()


async def test_a_worker_that_never_got_a_thread_can_be_closed():
    worker = Worker("ckptd-test none")
    with no_new_threads(), pytest.raises(DomainError):
        await worker.run(lambda: "never")
    await worker.close()


async def test_exceptions_come_back_as_they_are():
    worker = Worker("ckptd-test errors")
    error = KeyError("mine")

    def fail():
        raise error

    with pytest.raises(KeyError) as caught:
        await worker.run(fail)
    assert caught.value is error
    assert await worker.run(lambda: "still alive") == "still alive"
    await worker.close()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, StopIteration, asyncio.CancelledError])
async def test_what_would_hurt_the_loop_comes_wrapped(kind):
    worker = Worker("ckptd-test exit")

    def leave():
        raise kind

    with pytest.raises(RuntimeError, match=kind.__name__) as caught:
        await worker.run(leave)
    assert isinstance(caught.value.__cause__, kind)
    await worker.close()


async def test_cancelled_caller_leaves_the_job_and_the_thread_alone():
    worker, gate, done = Worker("ckptd-test cancel"), Gate(), []

    def job():
        gate.wait()
        done.append("first")

    waiting = asyncio.ensure_future(worker.run(job))
    await eventually(gate.reached.is_set)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    second = asyncio.ensure_future(worker.run(lambda: done.append("second")))
    gate.open()
    await second
    assert done == ["first", "second"]
    await worker.close()


async def test_close_waits_for_what_is_queued_and_ends_the_thread():
    worker, gate, done = Worker("ckptd-test close"), Gate(), []
    for job in (gate.wait, lambda: done.append(1), lambda: done.append(2)):
        worker.submit(job)
    closing = [asyncio.ensure_future(worker.close()) for _ in range(2)]
    await eventually(gate.reached.is_set)
    closing[0].cancel()
    assert not done
    gate.open()
    await closing[1]
    assert done == [1, 2]
    assert "ckptd-test close" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(RuntimeError, match="closed"):
        worker.submit(lambda: None)


async def test_unused_worker_has_no_thread():
    before = threading.active_count()
    worker = Worker("ckptd-test lazy")
    assert threading.active_count() == before
    await worker.close()


def test_thread_outlives_a_loop_that_was_closed_under_it():
    gate = Gate()

    async def leave_a_job_behind():
        worker = Worker("ckptd-test orphan")
        worker.submit(gate.wait)
        worker._jobs.put(None)

    asyncio.run(leave_a_job_behind())
    orphan = next(thread for thread in threading.enumerate() if thread.name == "ckptd-test orphan")
    gate.open()
    orphan.join(20)
    assert not orphan.is_alive()
