"""The server on real sockets: limits, bad clients, and an address that others tamper with."""

import contextlib
import itertools
import json
import os
import resource
import socket
import stat
import subprocess
import sys
import threading
import zlib

import anyio
import pytest

from ckpt_protocol.framing import MAX_REQUEST_BYTES
from ckptd.connection import MAX_IN_FLIGHT
from ckptd.errors import DomainError
from ckptd.listen import Address, AddressInUseError
from ckptd.lock import HeldLock, LockedElsewhereError, this_process
from support.served import Client, serving, until
from support.wire_samples import SAMPLES

pytestmark = pytest.mark.anyio

SAVE = {"checkpoint_dir": "/h/.c", "worktree": {"path": "/w"}, "token": "0" * 32}
NOBODY = 65534


def kind_of(answer) -> str:
    return answer["error"]["data"]["kind"]


async def test_it_answers_on_a_private_socket(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as client:
        assert "result" in await client.call("checkpoint.save", SAVE)
        assert stat.S_IMODE(served.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(served.path.parent.stat().st_mode) == 0o700
        assert sorted(os.listdir(served.path.parent)) == ["d.sock", "d.sock.lock"]
    assert os.listdir(served.path.parent) == ["d.sock.lock"]


async def test_frames_in_any_pieces_are_answered_by_id(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as client:
        frames = b"".join(
            json.dumps({"jsonrpc": "2.0", "method": "daemon.status", "id": number}).encode() + b"\r\n\n"
            for number in range(20)
        )
        for start in range(0, len(frames), 97):
            await client.raw(frames[start : start + 97])
        assert sorted([(await client.line())["id"] for _ in range(20)]) == list(range(20))


async def test_a_slow_request_holds_up_no_other(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as client:
        served.manager.gate = anyio.Event()
        await client.send("checkpoint.save", SAVE, "slow")
        await client.send("daemon.status", None, "quick")
        assert (await client.line())["id"] == "quick"
        served.manager.gate.set()
        assert (await client.line())["id"] == "slow"


async def test_requests_in_flight_are_limited(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as client:
        served.manager.gate = anyio.Event()
        for number in range(MAX_IN_FLIGHT):
            await client.send("checkpoint.save", SAVE, number)
        await until(lambda: served.manager.waiting == MAX_IN_FLIGHT)
        await client.send("daemon.status", None, "over")
        refused = await client.line()
        assert (refused["id"], kind_of(refused)) == ("over", "too_many_requests")
        async with Client.of(served.path) as other:
            assert "result" in await other.call("daemon.status")
        served.manager.gate.set()
        answers = [await client.line() for _ in range(MAX_IN_FLIGHT)]
        assert {answer["id"] for answer in answers} == set(range(MAX_IN_FLIGHT))
        assert "result" in await client.call("daemon.status")


async def test_connections_are_limited(short_dir) -> None:
    async with serving(short_dir, limit=2) as served, Client.of(served.path) as first, Client.of(served.path) as second:
        assert "result" in await first.call("daemon.status")
        assert "result" in await second.call("daemon.status")
        async with Client.of(served.path) as third:
            assert kind_of(await third.line()) == "too_many_requests"
            assert await third.ended()
        second.writer.close()
        await until(lambda: served.server.connections == 1)
        async with Client.of(served.path) as third:
            assert "result" in await third.call("daemon.status")


async def test_a_frame_over_the_limit_ends_its_connection_alone(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as other, Client.of(served.path) as client:

        async def flood() -> None:
            with contextlib.suppress(ConnectionError):
                await client.raw(b"x" * (MAX_REQUEST_BYTES + 100_000))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            answer = await client.line()
        assert (answer["id"], kind_of(answer)) == (None, "frame_too_large")
        assert await client.ended()
        assert "result" in await other.call("daemon.status")


async def test_a_large_frame_within_the_limit_is_read(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as client:
        message = "x" * (MAX_REQUEST_BYTES - 1000)
        assert "result" in await client.call("checkpoint.save", SAVE | {"message": message})


async def test_a_client_that_has_ended_its_input_gets_its_answers(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as client:
        served.manager.gate = anyio.Event()
        await client.send("checkpoint.save", SAVE)
        client.writer.write_eof()
        await until(lambda: served.manager.waiting == 1)
        served.manager.gate.set()
        assert "result" in await client.line()
        assert await client.ended()


async def test_a_cut_frame_is_not_done(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as client:
        call = {"jsonrpc": "2.0", "method": "checkpoint.save", "params": SAVE, "id": 1}
        await client.raw(json.dumps(call).encode())
        client.writer.write_eof()
        assert kind_of(await client.line()) == "parse_error"
        assert served.manager.asked == []


async def test_a_client_that_goes_away_does_not_cut_its_request_short(short_dir) -> None:
    async with serving(short_dir) as served:
        async with Client.of(served.path) as client:
            served.manager.gate = anyio.Event()
            await client.send("checkpoint.save", SAVE)
            await until(lambda: served.manager.waiting == 1)
        assert served.server.connections == 1
        served.manager.gate.set()
        await until(lambda: len(served.manager.callers) == 1)
        await until(lambda: served.server.connections == 0)


async def test_a_client_that_does_not_read_holds_up_no_other(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as other:
        big = SAMPLES["worktree.list"].result.workspaces * 200
        served.manager.instead = type(SAMPLES["worktree.list"].result)(workspaces=big, damaged=[])
        call = {"jsonrpc": "2.0", "method": "worktree.list", "params": {"checkpoint_dir": "/h/.c"}, "id": 1}
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(served.path))
            deaf.sendall((json.dumps(call) + "\n").encode() * 100)
            await until(lambda: len(served.manager.asked) == 100)
            assert "result" in await other.call("daemon.status")
            # Each answer is whole, also those that waited.
            lines = await anyio.to_thread.run_sync(lambda: list(itertools.islice(deaf.makefile("rb"), 100)))
        assert all(len(json.loads(line)["result"]["workspaces"]) == len(big) for line in lines)


async def test_a_raising_handler_stops_nothing(short_dir) -> None:
    async with serving(short_dir) as served, Client.of(served.path) as client:
        served.manager.raises = RuntimeError("boom")
        assert kind_of(await client.call("checkpoint.save", SAVE)) == "internal"
        served.manager.raises = DomainError("worktree_busy", "later")
        assert kind_of(await client.call("checkpoint.save", SAVE)) == "worktree_busy"
        served.manager.raises = None
        assert "result" in await client.call("checkpoint.save", SAVE)


async def test_out_of_descriptors_it_waits_and_goes_on(short_dir, caplog) -> None:
    async with serving(short_dir, rested_s=60) as served, Client.of(served.path) as before:
        assert "result" in await before.call("daemon.status")
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as late:
            lowest_free = os.open(os.devnull, os.O_RDONLY)
            os.close(lowest_free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, limits[1]))
            try:
                late.connect(str(served.path))
                await until(lambda: "cannot accept for now" in caplog.text)
                assert "result" in await before.call("daemon.status")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            late.sendall(b'{"jsonrpc":"2.0","method":"daemon.status","id":1}\n')
            answer = await anyio.to_thread.run_sync(lambda: late.recv(65536))
            assert b'"result"' in answer


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to connect as another user")
async def test_another_user_is_refused(short_dir) -> None:
    async with serving(short_dir) as served:
        for place in (short_dir, served.path.parent):
            os.chmod(place, 0o711)
        os.chmod(served.path, 0o666)
        code = (
            "import os, socket, sys\n"
            "s = socket.socket(socket.AF_UNIX)\n"
            f"os.setuid({NOBODY})\n"
            "s.connect(sys.argv[1])\n"
            "print(s.makefile().read())\n"
        )
        command = [sys.executable, "-c", code, str(served.path)]
        ran = await anyio.to_thread.run_sync(lambda: subprocess.run(command, capture_output=True, timeout=60))
        assert kind_of(json.loads(ran.stdout)) == "forbidden_peer", ran.stderr


@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_a_lost_socket_is_bound_again(short_dir, how) -> None:
    async with serving(short_dir, check_s=0.02) as served, Client.of(served.path) as old:
        assert "result" in await old.call("daemon.status")
        served.path.unlink()
        if how == "replaced":
            with socket.socket(socket.AF_UNIX) as thief:
                thief.bind(str(served.path))
        await until(served.address.is_ours)
        for _ in range(3):
            async with Client.of(served.path) as client:
                assert "result" in await client.call("daemon.status")
        assert "result" in await old.call("daemon.status")
        assert not served.server.lost.is_set()


async def test_a_lost_directory_ends_the_service(short_dir) -> None:
    async with serving(short_dir, check_s=0.02) as served:
        served.path.parent.rename(short_dir / "elsewhere")
        await served.server.lost.wait()
        assert not served.path.parent.exists()


async def test_in_a_directory_that_is_no_longer_ours_alone_nothing_is_bound(short_dir) -> None:
    async with serving(short_dir, check_s=0.02) as served:
        os.chmod(served.path.parent, 0o777)
        served.path.unlink()
        await served.server.lost.wait()
        assert os.listdir(served.path.parent) == ["d.sock.lock"]


async def test_a_lost_lock_ends_the_service_and_leaves_the_socket_of_the_other(short_dir) -> None:
    async with serving(short_dir, check_s=0.02) as served:
        lock = served.path.parent / "d.sock.lock"
        lock.unlink()
        other = HeldLock.take(os.fsencode(lock), this_process("/other"))
        served.path.unlink()
        with socket.socket(socket.AF_UNIX) as theirs:
            theirs.bind(str(served.path))
            await served.server.lost.wait()
        other.close()
    assert served.path.exists()


async def test_a_removed_lock_is_taken_again_before_anybody_else_can(short_dir) -> None:
    async with serving(short_dir, check_s=0.02) as served:
        lock = served.path.parent / "d.sock.lock"
        lock.unlink()
        await until(lock.exists)
        with pytest.raises(LockedElsewhereError):
            HeldLock.take(os.fsencode(lock), this_process("/other"))
        assert not served.server.lost.is_set()


async def test_a_lock_that_another_process_has_got_ends_the_service(short_dir) -> None:
    async with serving(short_dir, check_s=0.2) as served:
        lock = served.path.parent / "d.sock.lock"
        lock.unlink()
        other = HeldLock.take(os.fsencode(lock), this_process("/other"))
        await served.server.lost.wait()
        other.close()


def test_an_address_is_taken_once(short_dir) -> None:
    first = Address(str(short_dir / "run" / "d.sock"))
    with pytest.raises(AddressInUseError, match=str(os.getpid())):
        Address(first.path)
    first.close()
    Address(first.path).close()


def test_a_start_waits_for_the_end_of_a_daemon_that_is_ending(short_dir) -> None:
    first = Address(str(short_dir / "run" / "d.sock"))
    first.remove()
    ending = threading.Timer(0.3, first.close)
    ending.start()
    second = Address(first.path)
    ending.join()
    assert second.is_ours()
    second.close()


def test_leftovers_of_a_killed_daemon_are_replaced(short_dir) -> None:
    for name in ("d.sock", f".{zlib.crc32(b'd.sock'):08x}"):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(short_dir / name))
    made = Address(str(short_dir / "d.sock"))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(made.path)
    assert sorted(os.listdir(short_dir)) == ["d.sock", "d.sock.lock"]
    made.close()


def test_what_is_not_a_socket_is_never_replaced(short_dir) -> None:
    file = short_dir / "notes.txt"
    file.write_text("precious")
    with pytest.raises(OSError, match="something else"):
        Address(str(file))
    assert file.read_text() == "precious"


def test_a_directory_that_others_can_enter_is_refused(short_dir) -> None:
    (short_dir / "open").mkdir()
    os.chmod(short_dir / "open", 0o755)
    with pytest.raises(OSError, match="0700"):
        Address(str(short_dir / "open" / "d.sock"))


async def test_what_is_sent_along_with_a_refused_hello_is_not_done(short_dir) -> None:
    hello = {
        "jsonrpc": "2.0",
        "method": "daemon.hello",
        "id": 1,
        "params": {"protocol": 99, "build": "9", "client": "x"},
    }
    save = {"jsonrpc": "2.0", "method": "checkpoint.save", "id": 2, "params": SAVE}
    status = {"jsonrpc": "2.0", "method": "daemon.status", "id": 3, "params": {}}
    async with serving(short_dir) as served, Client.of(served.path) as client:
        await client.raw(b"".join(json.dumps(call).encode() + b"\n" for call in (hello, save, status)))
        answers = {answer["id"]: answer for answer in [await client.line() for _ in range(3)]}
        assert kind_of(answers[1]) == "protocol_mismatch"
        assert kind_of(answers[2]) == "protocol_mismatch"
        assert "result" in answers[3]
        assert served.manager.asked == []


async def test_a_hello_is_finished_before_what_follows_it(short_dir) -> None:
    hello = {
        "jsonrpc": "2.0",
        "method": "daemon.hello",
        "id": 1,
        "params": {"protocol": 1, "build": "1", "client": "me"},
    }
    save = {"jsonrpc": "2.0", "method": "checkpoint.save", "id": 2, "params": SAVE}
    async with serving(short_dir) as served, Client.of(served.path) as client:
        await client.raw(json.dumps(hello).encode() + b"\n" + json.dumps(save).encode() + b"\n")
        assert [(await client.line())["id"] for _ in range(2)] == [1, 2]
        assert [caller and caller.client for caller in served.manager.callers] in (["me"], [])
