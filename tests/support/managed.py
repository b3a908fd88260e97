"""A manager that runs on stores in memory, and what is asked of it."""

import asyncio
import threading
from contextlib import asynccontextmanager

import anyio
import pytest

from ckpt_protocol.checkpoint import HeadParams, SaveParams
from ckptd.core.manager import Manager
from ckptd.core.ports import Caller
from ckptd.errors import DomainError
from support.faulty_stores import place

__all__ = ["DIR", "OTHER_DIR", "A", "B", "claim", "head", "kind_of", "running", "save", "write"]

DIR, OTHER_DIR = b"/data", b"/elsewhere"
A, B = b"/home/u/a", b"/home/u/b"


def save(writer):
    params = SaveParams(checkpoint_dir="/data", worktree=place(A), token="0" * 32)
    return writer.save(params, Caller("test"))


def head(reader):
    return reader.head(HeadParams(checkpoint_dir="/data", worktree=place(A))).id


def claim(_checkpoint_dir, _make):
    assert threading.current_thread().name.startswith("ckptd-claim ")
    return True


@asynccontextmanager
async def running(catalog, take=claim, **options):
    manager = Manager(catalog, take, **options)
    async with anyio.create_task_group() as tasks:
        await tasks.start(lambda *, task_status: manager.run(task_status=task_status))
        try:
            yield manager
        finally:
            await manager.drain()
    assert manager.stores() == []
    catalog.check()


def write(manager, job=save, path=A, *, create=True, directory=DIR, ino=1, **options):
    call = manager.write(directory, place(path, ino), job, Caller("test"), create=create, **options)
    return asyncio.ensure_future(call)


async def kind_of(awaitable):
    with pytest.raises(DomainError) as caught:
        await awaitable
    return caught.value.kind
