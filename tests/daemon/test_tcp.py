"""TCP on loopback, for real: who knows the token is served, and nobody else hears or holds anything."""

import contextlib
import json
import os
import random
import socket
import stat
import time
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import pytest

from ckpt_protocol import remote
from ckpt_protocol.endpoint import Endpoint, InsecureFileError, published, read_token
from ckpt_protocol.proof import ClientSide, UnprovedError
from ckptd import tcp
from ckptd.listen import AddressInUseError
from ckptd.tcp import TcpAddress
from support.served import Served, until

SECONDS = 20.0
ASK = b'{"jsonrpc":"2.0","method":"daemon.status","id":1}\n'


@pytest.fixture
def endpoint(short_dir) -> Endpoint:
    return Endpoint("tcp", "127.0.0.1:0", str(short_dir / "run" / "ckptd.tcp"))


@contextlib.asynccontextmanager
async def serving(endpoint: Endpoint, **options: object) -> AsyncIterator[Served]:
    address = TcpAddress(endpoint)
    served = Served(endpoint.file, address, **options)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(served.server.run)
            with anyio.fail_after(60):
                yield served
            tasks.cancel_scope.cancel()
    finally:
        address.close()


def dialled(endpoint: Endpoint) -> socket.socket:
    """Connected, and nothing said."""
    found = published(endpoint)
    assert found is not None
    return socket.create_connection(found.host_and_port, timeout=SECONDS)


def answer(connected: socket.socket) -> dict:
    with connected, connected.makefile("rb") as lines:
        return json.loads(lines.readline())


def asked(endpoint: Endpoint) -> dict:
    """As a client that knows the token."""
    connected = remote.connect(endpoint)
    assert connected is not None
    sock = socket.socket(fileno=connected.detach())
    sock.settimeout(SECONDS)
    sock.sendall(ASK)
    return answer(sock)


def told(endpoint: Endpoint, *pieces: bytes) -> bytes:
    """All that one hears who says this and then no more."""
    heard = b""
    with dialled(endpoint) as connected:
        with contextlib.suppress(OSError):
            for piece in pieces:
                connected.sendall(piece)
            connected.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while piece := connected.recv(65536):
                heard += piece
    return heard


def is_refusal(heard: bytes) -> bool:
    return json.loads(heard.splitlines()[-1])["error"]["data"]["kind"] == "forbidden_peer"


def test_the_files_are_the_user_s_alone(endpoint):
    address = TcpAddress(endpoint)
    try:
        for file in (endpoint.file, endpoint.token_file):
            assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(os.path.dirname(endpoint.file)).st_mode) == 0o700
        host, port = published(endpoint).host_and_port
        assert (host, port > 0) == ("127.0.0.1", True)
        assert len(read_token(endpoint.token_file)) == 32
    finally:
        address.close()
    # The address goes with the daemon; the token stays for the next one.
    assert sorted(os.listdir(os.path.dirname(endpoint.file))) == ["ckptd.tcp.lock", "ckptd.tcp.token"]


async def test_who_knows_the_token_is_served(endpoint):
    async with serving(endpoint):
        reply = await anyio.to_thread.run_sync(asked, endpoint)
    assert reply["result"]["protocol"] == 1


async def test_a_first_frame_right_behind_the_proof_is_not_lost(endpoint):
    def pipelined() -> dict:
        with dialled(endpoint) as connected:
            side = ClientSide(read_token(endpoint.token_file), published(endpoint).name)
            connected.sendall(side.greeting())
            connected.sendall(side.answer(connected.recv(500)) + ASK)
            return answer(connected.dup())

    async with serving(endpoint):
        assert "result" in await anyio.to_thread.run_sync(pipelined)


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"\n",),
        (ASK,),
        (ASK * 100,),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",),
        (b"CKPT-AUTH 1 ",),
        (b"CKPT-AUTH 1 " + b"0" * 64 + b"\n",),
        (b"CKPT-AUTH 1 " + b"0" * 64 + b"\n", b"0" * 64 + b"\n", ASK),
        (b"CKPT-AUTH 1 " + b"0" * 64 + b"\n", b"0" * 10),
        (b"x" * 100_000,),
    ],
    ids=["nothing", "line end", "no proof", "many frames", "http", "half", "one line", "wrong proof", "cut", "flood"],
)
async def test_who_does_not_prove_it_gets_a_refusal_and_nothing_else(endpoint, pieces):
    async with serving(endpoint) as served:
        heard = await anyio.to_thread.run_sync(told, endpoint, *pieces)
        assert b"result" not in heard
        # A flood may meet a reset before it reads why.
        assert not heard or is_refusal(heard)
        await until(lambda: served.server.connections == 0)
        assert "result" in await anyio.to_thread.run_sync(asked, endpoint)
    assert served.manager.asked == []


async def test_whatever_is_said_before_a_proof_no_answer_is_a_result(endpoint):
    chance = random.Random("before the proof")
    words = [b"CKPT-AUTH 1 ", b"0" * 64, b"\n", b" ", ASK, b"\0", b"\xff", b"f" * 64 + b"\n"]
    said = [[chance.choice(words) for _ in range(chance.randrange(1, 12))] for _ in range(200)]

    def say_all() -> list[bytes]:
        return [told(endpoint, *pieces) for pieces in said]

    async with serving(endpoint) as served:
        for heard in await anyio.to_thread.run_sync(say_all):
            assert b"result" not in heard
            assert not heard or is_refusal(heard)
        await until(lambda: served.server.connections == 0)
        assert "result" in await anyio.to_thread.run_sync(asked, endpoint)
    assert served.manager.asked == []


async def test_an_old_proof_is_worth_nothing(endpoint):
    def replayed() -> bytes:
        side = ClientSide(read_token(endpoint.token_file), published(endpoint).name)
        with dialled(endpoint) as first:
            first.sendall(side.greeting())
            proof = side.answer(first.recv(500))
            first.sendall(proof + ASK)
            assert b"result" in first.recv(65536)
        return told(endpoint, side.greeting(), proof, ASK)

    async with serving(endpoint):
        heard = await anyio.to_thread.run_sync(replayed)
    assert b"result" not in heard
    assert is_refusal(heard)


async def test_who_says_nothing_is_hung_up_on(endpoint, short_dir):
    listener = TcpAddress(endpoint)
    turnstile = tcp.Turnstile(bytes(32), "tcp:127.0.0.1:1", patience_s=0.05)
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        with theirs, pytest.raises(tcp.NotProvedError, match="within"):
            await turnstile.prove(tcp.SocketStream(ours))
    finally:
        ours.close()
        listener.close()


async def test_those_who_only_wait_hold_nobody_up(endpoint):
    def crowd() -> list[socket.socket]:
        return [dialled(endpoint) for _ in range(tcp.MAX_UNPROVED)]

    async with serving(endpoint) as served:
        crowded = await anyio.to_thread.run_sync(crowd)
        await until(lambda: served.server.connections == tcp.MAX_UNPROVED)
        heard = await anyio.to_thread.run_sync(told, endpoint, b"CKPT-AUTH 1 ")
        assert is_refusal(heard)
        assert b"others are about to prove" in heard
        crowded.pop().close()
        await until(lambda: served.server.connections == tcp.MAX_UNPROVED - 1)
        assert "result" in await anyio.to_thread.run_sync(asked, endpoint)
        for one in crowded:
            one.close()


async def test_a_listener_that_passes_on_to_the_daemon_is_found_out(endpoint, short_dir):
    """Somebody has the port that an old address file names, and knows where the daemon listens now."""
    trap = socket.create_server(("127.0.0.1", 0))

    def pass_on() -> None:
        client, _ = trap.accept()
        with client, dialled(endpoint) as onward:
            onward.sendall(client.recv(500))
            client.sendall(onward.recv(500))

    stale = Endpoint("tcp", "127.0.0.1:0", str(short_dir / "stale.tcp"))
    async with serving(endpoint):
        tcp.write_private(stale.file, f"tcp:127.0.0.1:{trap.getsockname()[1]}\n")
        tcp.write_private(stale.token_file, read_token(endpoint.token_file).hex())
        with trap:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, pass_on)
                with pytest.raises(UnprovedError, match="does not know the token"):
                    await anyio.to_thread.run_sync(remote.connect, stale)


async def test_an_address_file_that_was_removed_comes_back_at_the_same_port(endpoint):
    async with serving(endpoint, check_s=0.01):
        before = published(endpoint)
        os.unlink(endpoint.file)
        await until(lambda: os.path.exists(endpoint.file))
        assert published(endpoint) == before
        assert "result" in await anyio.to_thread.run_sync(asked, endpoint)


async def test_a_token_that_was_removed_is_made_anew(endpoint):
    async with serving(endpoint, check_s=0.01):
        before = read_token(endpoint.token_file)
        os.unlink(endpoint.token_file)
        await until(lambda: os.path.exists(endpoint.token_file))
        assert read_token(endpoint.token_file) != before
        await until(lambda: os.path.exists(endpoint.file))
        assert "result" in await anyio.to_thread.run_sync(asked, endpoint)


def test_a_second_daemon_at_the_address_is_refused(endpoint):
    first = TcpAddress(endpoint)
    try:
        with pytest.raises(AddressInUseError, match="another ckptd"):
            TcpAddress(endpoint)
    finally:
        first.close()
    TcpAddress(endpoint).close()


def test_a_port_can_be_had_again_at_once(endpoint):
    first = TcpAddress(endpoint)
    fixed = published(endpoint)
    first.close()
    again = TcpAddress(fixed)
    assert published(endpoint) == fixed
    again.close()


def test_a_token_that_others_may_read_is_refused(endpoint):
    TcpAddress(endpoint).close()
    os.chmod(endpoint.token_file, 0o640)
    with pytest.raises(InsecureFileError, match="0600"):
        TcpAddress(endpoint)


def test_a_socket_is_not_replaced_by_an_address_file(endpoint):
    os.mkdir(os.path.dirname(endpoint.file), 0o700)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(endpoint.file)
        with pytest.raises(FileExistsError):
            TcpAddress(endpoint)


def test_a_client_gives_up_on_a_listener_that_trickles(short_dir):
    trap = socket.create_server(("127.0.0.1", 0))
    file = short_dir / "trap.tcp"
    tcp.write_private(str(file), f"tcp:127.0.0.1:{trap.getsockname()[1]}\n")
    tcp.write_private(f"{file}.token", "00" * 32)
    begun = time.monotonic()
    with trap, pytest.raises(UnprovedError, match="proved nothing"):
        remote.connect(Endpoint("tcp", "127.0.0.1:0", str(file)), patience_s=0.1)
    assert time.monotonic() - begun < SECONDS
