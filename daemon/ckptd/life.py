"""The life of a daemon that has its address: serve, wait for a reason to end, drain, end."""

import logging
import signal
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import anyio
import anyio.abc

from ckpt_protocol.version import BUILD
from ckpt_protocol.worktree import WatchReboot
from ckptd.config import Config
from ckptd.core.manager import Manager
from ckptd.core.ports import Catalog
from ckptd.deadline import Deadline
from ckptd.descriptors import descriptors, store_limit
from ckptd.dispatch import Dispatcher
from ckptd.handlers import Daemon
from ckptd.listen import Address
from ckptd.lock import DataLocks
from ckptd.modules import build_on_disk
from ckptd.notify import Supervisor
from ckptd.server import Server
from ckptd.watch.service import WatchService

__all__ = ["Watching", "live"]

_SETTLE_S: Final = 5.0
"""How long the last answers may take to be sent."""

_RESTING: Final = ("idle", "halted", "closed")
"""States of an actor that keep no daemon from ending."""

_WATCHDOG_TIMES: Final = 3
"""So many signs of life in the time that the service manager allows for one."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_logger = logging.getLogger(__name__)


class Watching(NamedTuple):
    """What autosave has to do with the world outside: ``directories`` are those where it was on.

    ``remember`` keeps a directory for the next daemon; ``reboot`` tells what is prepared for a reboot.
    """

    directories: Sequence[bytes]
    remember: Callable[[bytes], None]
    reboot: Callable[[], WatchReboot]


async def live(
    address: Address,
    config: Config,
    catalog: Catalog,
    locks: DataLocks,
    supervisor: Supervisor,
    deadline: Deadline,
    watching: Watching,
) -> None:
    """Serve until a signal, ``daemon.stop``, idleness or the loss of the address; then drain.

    ``deadline`` is started with the drain.
    """
    stop = anyio.Event()
    watches = WatchService()
    stores = store_limit(descriptors(), config.cache_size)
    manager = Manager(catalog, locks.claim, cache_size=stores, watches=watches, release=locks.release)
    daemon = Daemon(
        manager=manager,
        socket=address.text.encode("utf-8", "surrogateescape"),
        connections=lambda: server.connections,
        stop=stop.set,
        may_be_replaced=lambda: _may_be_replaced(address, server, manager),
        started=time.monotonic(),
        bus=manager.bus,
        remember=watching.remember,
        reboot=watching.reboot,
    )
    server = Server(address, Dispatcher(daemon))
    async with anyio.create_task_group() as tasks:
        await tasks.start(manager.run)
        await tasks.start(_on_signal, stop)
        tasks.start_soon(_on_loss, server, stop)
        tasks.start_soon(_on_idleness, server, manager, config.idle_exit_s, stop)
        tasks.start_soon(_feed_watchdog, supervisor)
        tasks.start_soon(server.run)
        _logger.info("serving %s", address.text)
        for checkpoint_dir in watching.directories:
            tasks.start_soon(manager.resume_watching, checkpoint_dir)
        supervisor.tell(f"READY=1\nSTATUS=serving {address.text}")
        await stop.wait()
        supervisor.tell("STOPPING=1\nSTATUS=finishing what runs")
        deadline.start()
        await _drain(address, server, manager)
        await watches.aclose()
        tasks.cancel_scope.cancel()


async def _drain(address: Address, server: Server, manager: Manager) -> None:
    # The server goes on meanwhile: who asks now is told that the daemon is stopping, and can come back.
    _logger.info("draining")
    await manager.drain()
    address.remove()
    await server.settle(_SETTLE_S)
    _logger.info("drained")


def _may_be_replaced(address: Address, server: Server, manager: Manager) -> bool:
    # The request that asks is one.
    if server.in_flight > 1 or not _all_rest(manager):
        return False
    # What a service manager starts next is whatever is installed there, not what the client has.
    return not address.adopted or build_on_disk() not in (None, BUILD)


async def _feed_watchdog(supervisor: Supervisor) -> None:
    while supervisor.watchdog_s:
        supervisor.tell("WATCHDOG=1")
        await anyio.sleep(supervisor.watchdog_s / _WATCHDOG_TIMES)


async def _on_signal(stop: anyio.Event, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as received:
        task_status.started()
        async for number in received:
            _logger.info("signal %s", signal.Signals(number).name)
            stop.set()


async def _on_loss(server: Server, stop: anyio.Event) -> None:
    await server.lost.wait()
    stop.set()


async def _on_idleness(server: Server, manager: Manager, idle_exit_s: float, stop: anyio.Event) -> None:
    if idle_exit_s == 0:
        return
    while True:
        busy = server.connections > 0 or manager.watching or not _all_rest(manager)
        # Busy now means a whole idle time from now at the earliest; else what is left since the last one left.
        left = idle_exit_s if busy else server.last_active + idle_exit_s - time.monotonic()
        if left <= 0:
            _logger.info("idle for %s s", idle_exit_s)
            stop.set()
            return
        await anyio.sleep(left)


def _all_rest(manager: Manager) -> bool:
    return all(store.state.lower() in _RESTING and store.queued == 0 for store in manager.stores())
