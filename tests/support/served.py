"""A server in this process on a real socket, with a fake manager behind it, and a client that says what it likes."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio

from ckptd.dispatch import Dispatcher
from ckptd.listen import Address
from ckptd.server import Server
from support.fake_manager import FakeManager, daemon_on

__all__ = ["Client", "Served", "kind_of", "serving", "until"]


class Client:
    """An asynchronous client that reads answers line by line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, path: Path) -> AsyncIterator["Client"]:
        reader, writer = await asyncio.open_unix_connection(path, limit=2**28)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send(self, method: str, params: object = None, request_id: object = 1) -> None:
        call = {"jsonrpc": "2.0", "method": method, "params": {} if params is None else params, "id": request_id}
        await self.raw(json.dumps(call).encode() + b"\n")

    async def line(self):
        return json.loads(await self.reader.readline())

    async def call(self, method: str, params: object = None):
        await self.send(method, params)
        return await self.line()

    async def ended(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


class Served:
    """A server that runs, on a fake manager."""

    def __init__(self, path: Path, address: Address | None = None, **options: object) -> None:
        self.path = path
        self.manager = FakeManager()
        self.address = address or Address(str(path))
        self.server = Server(self.address, Dispatcher(daemon_on(self.manager)), **options)


@contextlib.asynccontextmanager
async def serving(directory: Path, **options: object) -> AsyncIterator[Served]:
    served = Served(directory / "run" / "d.sock", **options)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(served.server.run)
            with anyio.fail_after(90):
                yield served
            tasks.cancel_scope.cancel()
    finally:
        served.address.close()


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - what is waited for is of the outside world
            await anyio.sleep(0.01)


def kind_of(answer) -> str:
    return answer["error"]["data"]["kind"]
