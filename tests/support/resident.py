"""A whole daemon in a thread of this process: the real server, manager and stores, behind a real socket.

``Resident(base)`` has ``ws`` (an empty worktree), ``checkpoint_dir``, ``socket`` and ``clock``, by which stores tell
the time. ``start()`` and ``stop()`` may be called again and again: what was saved stays. ``service()`` is a client.
"""

import os
import threading
import time
from pathlib import Path

import anyio

from ckptd.core.manager import Manager
from ckptd.dispatch import Dispatcher
from ckptd.handlers import Daemon
from ckptd.listen import Address
from ckptd.lock import DataLocks, this_process
from ckptd.server import Server
from ckptd.shadow.store.catalog import ShadowCatalog
from ckptd.shadow.store.settings import Settings
from fabricatio_checkpoint.service import CheckpointService
from support import poll
from support.worktrees import Clock, verify

__all__ = ["Resident"]


class Resident:
    """See the module."""

    def __init__(self, base: Path, name: str = "ws") -> None:
        self.base = base
        self.ws = base / name
        self.checkpoint_dir = base / "cd"
        self.socket = str(base / "run" / "d.sock")
        self.clock = Clock()
        self.ws.mkdir()
        self.checkpoint_dir.mkdir(mode=0o700)
        self._home = base / "home"
        self._home.mkdir()
        self._thread: threading.Thread | None = None
        self._loop_stop: tuple[anyio.abc.BlockingPortal, anyio.Event] | None = None
        self._up = threading.Event()
        self._failed: BaseException | None = None
        self._services: list[CheckpointService] = []

    def start(self) -> None:
        """Serve, from a thread."""
        self._up.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._up.wait(poll.DEADLINE_S), "the daemon did not come up"
        assert self._failed is None, self._failed

    def stop(self) -> None:
        """Drain, hang up on all clients, and end."""
        if self._thread is None:
            return
        assert self._loop_stop is not None
        portal, stop = self._loop_stop
        portal.call(stop.set)
        self._thread.join(poll.DEADLINE_S)
        assert not self._thread.is_alive()
        self._thread = None

    def service(self) -> CheckpointService:
        """Give a client, closed at the end."""
        made = CheckpointService(self.checkpoint_dir, socket=self.socket)
        self._services.append(made)
        return made

    def close(self) -> None:
        """End everything, and let git look at the stores."""
        for service in self._services:
            service.close()
        self.stop()
        for head in self.checkpoint_dir.glob("*/HEAD"):
            verify(os.fsencode(head.parent))

    def _run(self) -> None:
        try:
            anyio.run(self._serve)
        except BaseException as error:
            self._failed = error
            raise
        finally:
            self._up.set()

    async def _serve(self) -> None:
        address = Address(self.socket)
        locks = DataLocks(this_process(self.socket))
        settings = Settings(home=os.fsencode(self._home), temporary=os.fsencode(self._home))
        manager = Manager(ShadowCatalog(settings, self.clock), locks.claim)
        stop = anyio.Event()
        daemon = Daemon(
            manager=manager,
            socket=os.fsencode(self.socket),
            connections=lambda: server.connections,
            stop=stop.set,
            may_be_replaced=lambda: False,
            started=time.monotonic(),
            bus=manager.bus,
        )
        server = Server(address, Dispatcher(daemon))
        try:
            async with anyio.from_thread.BlockingPortal() as portal, anyio.create_task_group() as tasks:
                self._loop_stop = portal, stop
                await tasks.start(manager.run)
                tasks.start_soon(server.run)
                self._up.set()
                await stop.wait()
                await manager.drain()
                address.remove()
                await server.settle(poll.DEADLINE_S)
                tasks.cancel_scope.cancel()
        finally:
            address.close()
            locks.close()
