"""The named pipe of Windows, both ends, over stand-ins for what Windows does. Nothing here ran on Windows."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import pytest

from ckpt_protocol.endpoint import Endpoint, read_token
from ckpt_protocol.proof import UnprovedError
from ckptd.pipe import PipeAddress, PipeListener, pipe_path
from ckptd.tcp import Turnstile, write_private
from fabricatio_checkpoint import pipe
from fabricatio_checkpoint.link import BrokenLinkError, Link
from support.fake_winapi import FakeWinApi
from support.served import Served, until


@pytest.fixture
def endpoint(short_dir) -> Endpoint:
    return Endpoint("pipe", "ckptd-test", str(short_dir / "run" / "ckptd.pipe"))


class FakePipeAddress(PipeAddress):
    """A pipe address whose event loop serves a Unix socket instead."""

    def listen(self, file):
        super().listen(file)

        async def serve(factory, path):
            assert path == r"\\.\pipe\ckptd-test"
            return [await asyncio.get_running_loop().create_unix_server(factory, self.path + ".fake")]

        turnstile = Turnstile(read_token(self._endpoint.token_file), self._endpoint.name)
        return PipeListener(pipe_path(self._endpoint), turnstile, serve)


@contextlib.asynccontextmanager
async def serving(endpoint: Endpoint) -> AsyncIterator[Served]:
    address = FakePipeAddress(endpoint)
    served = Served(endpoint.file, address)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(served.server.run)
            with anyio.fail_after(60):
                await until(lambda: address.listener._servers is not None)
                yield served
            tasks.cancel_scope.cancel()
    finally:
        address.close()


def fake(endpoint: Endpoint, **options) -> FakeWinApi:
    return FakeWinApi(lambda name: endpoint.file + ".fake" if name == r"\\.\pipe\ckptd-test" else "/nowhere", **options)


def link_over(channel: pipe.PipeChannel) -> Link:
    hello = {"protocol": 1, "build": "1.0.0", "client": "test", "session": None}
    return Link(channel, "pipe", hello)


async def test_a_call_goes_over_a_pipe(endpoint):
    api = fake(endpoint, busy=2)

    def call() -> dict:
        channel = pipe.connect(endpoint, api)
        assert channel is not None
        link = link_over(channel)
        reply = link.request("daemon.status", {})
        assert link.is_idle()
        again = link.request("worktree.list", {"checkpoint_dir": "/c"})
        link.close()
        assert "result" in again
        return reply["result"]

    async with serving(endpoint) as served:
        assert (await anyio.to_thread.run_sync(call))["protocol"] == 1
        await until(lambda: served.server.connections == 0)
    assert api.open == {}


async def test_without_the_token_nobody_is_served_and_no_daemon_is_believed(endpoint):
    api = fake(endpoint)
    async with serving(endpoint) as served:
        token = read_token(endpoint.token_file)
        other = bytes(32).hex()
        write_private(endpoint.token_file, other)
        with pytest.raises(UnprovedError, match="does not know the token"):
            await anyio.to_thread.run_sync(pipe.connect, endpoint, api)
        write_private(endpoint.token_file, token.hex())
        await until(lambda: served.server.connections == 0)
    assert served.manager.asked == []
    assert api.open == {}


def test_no_address_file_is_no_daemon(endpoint):
    assert pipe.connect(endpoint, fake(endpoint)) is None


def test_an_address_file_without_a_pipe_is_no_daemon(endpoint):
    address = PipeAddress(endpoint)
    try:
        assert pipe.connect(endpoint, fake(endpoint)) is None
    finally:
        address.close()


async def test_another_thread_can_end_the_waiting(endpoint):
    def wait() -> None:
        channel = pipe.connect(endpoint, fake(endpoint))
        assert channel is not None
        ending = threading.Timer(0.05, channel.shutdown, (2,))
        ending.start()
        with pytest.raises(ConnectionAbortedError):
            channel.recv(1)
        channel.close()
        channel.close()
        ending.join()

    async with serving(endpoint):
        await anyio.to_thread.run_sync(wait)


async def test_a_time_limit_and_an_end_are_those_of_a_socket(endpoint):
    def wait(served: Served) -> None:
        channel = pipe.connect(endpoint, fake(endpoint))
        assert channel is not None
        channel.settimeout(0.01)
        with pytest.raises(TimeoutError):
            channel.recv(1)
        assert channel.gettimeout() == 0.01
        channel.settimeout(None)
        link = link_over(channel)
        # In one go: the loop may take one out meanwhile.
        for connection in tuple(served.server._connections):
            served.loop.call_soon_threadsafe(connection.abandon)
        with pytest.raises(BrokenLinkError):
            link.request("daemon.status", {})
        assert not link.is_idle()
        link.close()

    async with serving(endpoint) as served:
        served.loop = asyncio.get_running_loop()
        await anyio.to_thread.run_sync(wait, served)
