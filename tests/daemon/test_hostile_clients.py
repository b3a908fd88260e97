"""Clients that ask for much and fetch nothing, that sit there, and that come in crowds."""

import contextlib
import gc
import json
import os
import resource
import socket
import struct
import threading
import weakref
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from ckpt_protocol.framing import MAX_REQUEST_BYTES
from ckptd.budget import Budget
from ckptd.connection import MAX_HELD_BYTES, MAX_IN_FLIGHT
from ckptd.descriptors import MAX_CONNECTIONS, connection_limit, store_limit
from support.served import Client, Served, serving, until
from support.wire_samples import SAMPLES

pytestmark = pytest.mark.anyio

SAVE = {"checkpoint_dir": "/h/.c", "worktree": {"path": "/w"}, "token": "0" * 32}
LIST = b'{"jsonrpc":"2.0","method":"worktree.list","params":{"checkpoint_dir":"/h/.c"},"id":1}\n'


def answer_with(served: Served, length_bytes: int) -> None:
    """Let lists be about so long."""
    one = SAMPLES["worktree.list"].result
    times = length_bytes // len(str(one)) + 1
    served.manager.instead = type(one)(workspaces=one.workspaces * times, damaged=[])


@contextlib.contextmanager
def connected(path: Path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(path))
        yield client


async def settled(served: Served, what) -> object:
    """Wait until a number does not change any more; give it."""
    before = None
    while (now := what()) != before:
        before = now
        await anyio.sleep(0.1)
    return now


async def test_who_fetches_no_answers_is_not_read_from(short_dir) -> None:
    budget = Budget()
    async with serving(short_dir, budget=budget) as served, Client.of(served.path) as other:
        answer_with(served, MAX_HELD_BYTES // 16)
        with connected(served.path) as deaf:
            deaf.setblocking(False)
            asked = 0
            with contextlib.suppress(BlockingIOError):
                while asked < 100_000:
                    deaf.sendall(LIST)
                    asked += 1
                    await anyio.lowlevel.checkpoint()
            held = await settled(served, lambda: budget.total_bytes)
            done = len(served.manager.asked)
            assert MAX_HELD_BYTES < held < 40 * MAX_HELD_BYTES
            assert done < asked
            assert "result" in await other.call("daemon.status")
        await until(lambda: budget.total_bytes == 0)


async def test_over_the_budget_the_one_that_holds_most_has_to_go(short_dir) -> None:
    budget = Budget(4_000_000)
    async with serving(short_dir, budget=budget) as served, Client.of(served.path) as other:
        answer_with(served, 500_000)
        with connected(served.path) as deaf, connected(served.path) as modest:
            modest.sendall(LIST)
            deaf.sendall(LIST * 50)
            await until(lambda: served.server.connections == 2)
            assert budget.total_bytes < 4_000_000
            lines = await anyio.to_thread.run_sync(lambda: modest.makefile("rb").readline())
            assert "result" in json.loads(lines)
        served.manager.instead = None
        assert "result" in await other.call("checkpoint.save", SAVE)
        await until(lambda: budget.total_bytes == 0)


async def test_a_connection_that_was_turned_away_leaves_nothing_in_the_budget() -> None:
    budget = Budget()
    account = weakref.ref(budget.account(lambda: None))
    gc.collect()
    assert account() is None
    with budget.account(lambda: None) as entered, entered.holding(5):
        assert budget.total_bytes == 5
    assert budget.total_bytes == 0


async def test_frames_that_never_end_are_counted_too(short_dir) -> None:
    budget = Budget(3 * 1_000_000)
    async with serving(short_dir, budget=budget) as served, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Client.of(served.path)) for _ in range(6)]
        for number, client in enumerate(clients):
            with contextlib.suppress(ConnectionError):
                await client.raw(b" " * (900_000 + number))
        await until(lambda: served.server.connections < 6)
        assert budget.total_bytes <= 3_000_000
        async with Client.of(served.path) as other:
            assert "result" in await other.call("checkpoint.save", SAVE)


async def test_a_long_request_in_pieces_beside_long_ones_under_way_becomes_whole(short_dir) -> None:
    # What arrives counts as held; if it kept itself from being read, it would wait for ever.
    async with serving(short_dir) as served, Client.of(served.path) as client:
        served.manager.gate = anyio.Event()
        long = {"message": "x" * (MAX_REQUEST_BYTES - 1000)}
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(client.send, "checkpoint.save", SAVE | long, number)
                await anyio.lowlevel.checkpoint()
            await until(lambda: served.manager.waiting >= 2)
            served.manager.gate.set()
        assert sorted([(await client.line())["id"] for _ in range(5)]) == list(range(5))


async def test_whoever_rested_longest_makes_room(short_dir) -> None:
    async with serving(short_dir, limit=3, rested_s=0.0) as served, contextlib.AsyncExitStack() as stack:
        silent, used, busy = [await stack.enter_async_context(Client.of(served.path)) for _ in range(3)]
        await until(lambda: served.server.connections == 3)
        assert "result" in await used.call("daemon.status")
        served.manager.gate = anyio.Event()
        await busy.send("checkpoint.save", SAVE)
        await until(lambda: served.manager.waiting == 1)
        for first_to_go in (silent, used):
            new = await stack.enter_async_context(Client.of(served.path))
            assert "result" in await new.call("daemon.status")
            assert await first_to_go.ended()
        served.manager.gate.set()
        assert "result" in await busy.line()


async def test_who_listens_for_events_makes_no_room(short_dir) -> None:
    async with serving(short_dir, limit=2, rested_s=0.0) as served, contextlib.AsyncExitStack() as stack:
        listener, silent = [await stack.enter_async_context(Client.of(served.path)) for _ in range(2)]
        assert "result" in await listener.call("events.subscribe")
        assert "result" in await silent.call("daemon.status")
        new = await stack.enter_async_context(Client.of(served.path))
        assert "result" in await new.call("daemon.status")
        assert await silent.ended()
        assert "result" in await listener.call("daemon.status")


async def test_who_has_just_spoken_makes_no_room(short_dir) -> None:
    async with serving(short_dir, limit=1, rested_s=60) as served, Client.of(served.path) as first:
        assert "result" in await first.call("daemon.status")
        async with Client.of(served.path) as late:
            assert (await late.line())["error"]["data"]["kind"] == "too_many_requests"
        assert "result" in await first.call("daemon.status")


async def test_a_crowd_of_silent_clients_keeps_nobody_out(short_dir, caplog) -> None:
    async with serving(short_dir, rested_s=0.05) as served, contextlib.AsyncExitStack() as stack:
        crowd = []
        for _ in range(2 * MAX_CONNECTIONS):
            with contextlib.suppress(OSError):
                crowd.append(stack.enter_context(connected(served.path)))
            await anyio.lowlevel.checkpoint()
        assert served.server.connections < MAX_CONNECTIONS + 100
        await anyio.sleep(0.1)
        async with Client.of(served.path) as client:
            assert "result" in await client.call("checkpoint.save", SAVE)
    # Neither are the useful lines of the log lost in it.
    assert len(caplog.records) < 100


async def test_out_of_descriptors_whoever_rests_makes_room(short_dir) -> None:
    async with serving(short_dir, rested_s=0.0) as served, contextlib.AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(Client.of(served.path)) for _ in range(3)]
        await until(lambda: served.server.connections == 3)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket(socket.AF_UNIX) as late:
            lowest_free = os.open(os.devnull, os.O_RDONLY)
            os.close(lowest_free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
            try:
                late.connect(str(served.path))
                assert await silent[0].ended()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            late.sendall(b'{"jsonrpc":"2.0","method":"daemon.status","id":1}\n')
            assert b"result" in await anyio.to_thread.run_sync(late.recv, 65536)


@pytest.mark.parametrize(
    ("descriptors", "clients"), [(32, 16), (256, 64), (1024, 256), (4096, MAX_CONNECTIONS), (None, MAX_CONNECTIONS)]
)
def test_clients_leave_descriptors_for_stores(descriptors, clients) -> None:
    assert connection_limit(descriptors) == clients


@pytest.mark.parametrize(
    ("descriptors", "stores"), [(32, 1), (64, 1), (256, 3), (1024, 12), (4096, 51), (100_000, 100), (None, 100)]
)
def test_stores_leave_descriptors_for_clients(descriptors, stores) -> None:
    assert store_limit(descriptors, 100) == stores


@pytest.mark.parametrize("phase", ["at once", "in a frame", "under way", "with answers unread"])
@pytest.mark.parametrize("how", ["close", "reset", "half"])
async def test_a_client_that_leaves_in_any_phase_leaves_nothing(short_dir, phase, how) -> None:
    budget = Budget()
    async with serving(short_dir, budget=budget) as served, Client.of(served.path) as other:
        with connected(served.path) as client:
            if phase == "in a frame":
                client.sendall(LIST[:40])
            elif phase == "under way":
                served.manager.gate = anyio.Event()
                client.sendall(LIST * 5)
                await until(lambda: served.manager.waiting == 5)
            elif phase == "with answers unread":
                answer_with(served, 500_000)
                client.sendall(LIST * 5)
                await until(lambda: len(served.manager.asked) == 5)
            if how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif how == "half":
                client.shutdown(socket.SHUT_WR)
        if served.manager.gate is not None:
            served.manager.gate.set()
        await until(lambda: served.server.connections <= 1)
        await until(lambda: budget.total_bytes == 0)
        served.manager.instead = None
        assert "result" in await other.call("checkpoint.save", SAVE)


async def test_a_frame_that_comes_byte_by_byte_is_read(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as client:
        for byte in LIST:
            await client.raw(bytes([byte]))
        assert "result" in await client.line()


async def test_a_flood_of_one_client_leaves_the_others_their_turn(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as other:
        stop = threading.Event()

        def flood(client: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while not stop.is_set():
                    client.sendall(b'{"nonsense"}\n' * 1000)

        def drain(client: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while client.recv(1 << 16):
                    pass

        with connected(served.path) as client:
            threads = [threading.Thread(target=work, args=(client,)) for work in (flood, drain)]
            for thread in threads:
                thread.start()
            for _ in range(20):
                assert "result" in await other.call("checkpoint.save", SAVE)
            stop.set()
            client.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                await anyio.to_thread.run_sync(thread.join)


async def test_no_more_are_begun_than_the_limit_however_they_come(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as client:
        served.manager.gate = anyio.Event()
        await client.raw(LIST * (MAX_IN_FLIGHT + 50))
        await until(lambda: served.manager.waiting == MAX_IN_FLIGHT)
        refused = [await client.line() for _ in range(50)]
        assert {one["error"]["data"]["kind"] for one in refused} == {"too_many_requests"}
        served.manager.gate.set()
        assert all(["result" in await client.line() for _ in range(MAX_IN_FLIGHT)])
