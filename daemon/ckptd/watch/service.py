"""The daemon's side of the watching process: starts it, gives it orders, and hands on what it says.

A process, not a thread: the constructor of watchfiles holds the interpreter's lock while it adds its watches, 10 us a
directory and more on a cold disk, and would stall every request of the daemon for that long. It is one process for
all worktrees: each costs 20 MB. It is started with the first worktree that is watched and ends when the pipe to it
does, however the daemon ends.
"""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import anyio
import msgspec

from ckpt_protocol.version import BUILD
from ckptd.core.ports import Coverage, News
from ckptd.watch.budget import Budget
from ckptd.watch.frame import HEADER_BYTES, Broken, Cover, Covered, Drop, FromChild, Hello, Seen, ToChild, to_frame

__all__ = ["WatchService"]

_COMMAND: Final = (sys.executable, "-P", "-m", "ckptd.watch.child")
_PATIENCE_S: Final = 60.0
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0

_logger = logging.getLogger(__name__)


class _Root:
    """One watched worktree, as the daemon knows it."""

    def __init__(self, number: int, path: bytes, step_s: float, news: News) -> None:
        self.number: Final = number
        self.path: Final = path
        self.step_s: Final = step_s
        self.news: Final = news
        self.native = False
        self.directories = 0
        self.answer: asyncio.Future[Covered] | None = None


class WatchService:
    """Watches roots for the core, and fulfils its port. Used in one event loop."""

    def __init__(
        self, budget: Budget | None = None, command: Sequence[str] = _COMMAND, patience_s: float = _PATIENCE_S
    ) -> None:
        self._budget = budget or Budget.of_system()
        self._command = tuple(command)
        self._patience_s = patience_s
        # In the order of their last coverage, the longest unused first.
        self._roots: dict[int, _Root] = {}
        self._last_number = 0
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._pause_s = _FIRST_PAUSE_S
        self._not_before = 0.0
        self._trouble: str | None = None

    @property
    def pid(self) -> int | None:
        """The process that watches, if there is one."""
        return None if self._process is None else self._process.pid

    def add(self, path: bytes, step_s: float, news: News) -> int:
        """Take a root; its number stands for it from now on. ``news`` is called in the event loop."""
        self._last_number += 1
        self._roots[self._last_number] = _Root(self._last_number, path, step_s, news)
        return self._last_number

    def remove(self, number: int) -> None:
        """Forget a root."""
        root = self._roots.pop(number, None)
        if root is not None and root.answer is not None and not root.answer.done():
            root.answer.set_result(Covered(number, False, reason="it is not wanted any more"))
        self._order(Drop(number))

    async def cover(
        self, number: int, directories: Sequence[bytes], *, try_out: bool = False, afresh: bool = False
    ) -> Coverage:
        """Watch these directories of a root and no others; never fails, but may come to nothing, with a reason.

        Where as many roots are watched as may be, the one whose last coverage is the longest ago makes room.
        """
        if number not in self._roots:
            return Coverage(False, False, 0, 0, "it is not wanted any more")
        root = self._roots[number] = self._roots.pop(number)
        trouble = await self._living_process()
        if trouble is not None:
            root.native = False
            return Coverage(False, False, 0, len(directories), trouble)
        self._make_room(root)
        others = sum(one.directories for one in self._roots.values() if one is not root)
        limit = max(0, self._budget.directories - others)
        step_ms = max(1, int(root.step_s * 1000))
        root.answer = asyncio.get_running_loop().create_future()
        self._order(Cover(number, root.path, list(directories), step_ms, limit, try_out or not root.native, afresh))
        covered = await self._answer_of(root)
        root.native, root.directories = covered.native, covered.watched if covered.native else 0
        return Coverage(covered.native, covered.fresh, covered.watched, covered.left, covered.reason)

    async def aclose(self) -> None:
        """End the process and wait for its end."""
        self._roots.clear()
        process, self._process = self._process, None
        if process is not None:
            with anyio.CancelScope(shield=True):
                await _end(process)
        if self._reader is not None:
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._reader])

    def _make_room(self, root: _Root) -> None:
        others = [one for one in self._roots.values() if one.native and one is not root]
        for one in others[: max(0, len(others) + 1 - self._budget.roots)]:
            one.native, one.directories = False, 0
            self._order(Drop(one.number))
            one.news.broken(f"no more than {self._budget.roots} worktrees are watched at a time", over_budget=True)

    async def _answer_of(self, root: _Root) -> Covered:
        if root.answer is None:
            raise RuntimeError("an answer was waited for that nobody was asked for")
        with anyio.move_on_after(self._patience_s):
            return await asyncio.shield(root.answer)
        # A dead network mount, for one: it holds up all that this process watches, so the process is given up.
        _logger.warning("the watching process did not answer for %s s: it is ended", self._patience_s)
        self._kill()
        return Covered(root.number, False, reason="the watching process did not answer")

    async def _living_process(self) -> str | None:
        """Make sure that there is a process; give what is wrong if there is none."""
        async with self._starting:
            loop = asyncio.get_running_loop()
            if self._process is None and loop.time() >= self._not_before:
                await self._start()
            return None if self._process is not None else self._trouble or "the watching process has ended"

    async def _start(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            self._wait_longer(f"the watching process cannot be started: {error.strerror}")
            return
        self._process = process
        hello = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._listen(process, hello), name="watching process")
        with anyio.move_on_after(self._patience_s):
            await asyncio.shield(hello)
        problem = hello.result() if hello.done() else "the watching process did not say a word"
        if problem is not None:
            self._kill()
            self._wait_longer(problem)

    def _wait_longer(self, trouble: str) -> None:
        _logger.warning("%s", trouble)
        self._trouble = trouble
        self._not_before = asyncio.get_running_loop().time() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    async def _listen(self, process: asyncio.subprocess.Process, hello: "asyncio.Future[str | None]") -> None:
        """Hand on what the process says until it ends; then say so to everyone who relies on it."""
        stream = process.stdout
        if stream is None:
            raise RuntimeError("the watching process was started without a pipe")
        frames: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)
        try:
            while True:
                header = await stream.readexactly(HEADER_BYTES)
                self._hear(frames.decode(await stream.readexactly(int.from_bytes(header, "big"))), hello)
        except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError):
            if not hello.done():
                hello.set_result("the watching process ended before its first word")
        finally:
            await _end(process)
            if self._process is process:
                self._process = None
                self._wait_longer("the watching process has ended")
                self._all_broken("the watching process has ended")

    def _hear(self, message: FromChild, hello: "asyncio.Future[str | None]") -> None:
        match message:
            case Hello(build):
                # After an upgrade below a living daemon the process is of the other build.
                hello.set_result(None if build == BUILD else f"the watching process is of build {build}")
            case Covered(number):
                root = self._roots.get(number)
                if root is not None and root.answer is not None and not root.answer.done():
                    root.answer.set_result(message)
                    self._pause_s = _FIRST_PAUSE_S
            case Seen(number, paths, more):
                if (root := self._roots.get(number)) is not None:
                    root.news.seen(paths, more=more)
            case Broken(number, reason):
                if (root := self._roots.get(number)) is not None:
                    root.native, root.directories = False, 0
                    root.news.broken(reason)

    def _all_broken(self, reason: str) -> None:
        for root in list(self._roots.values()):
            root.native, root.directories = False, 0
            if root.answer is not None and not root.answer.done():
                root.answer.set_result(Covered(root.number, False, reason=reason))
            root.news.broken(reason)

    def _order(self, order: ToChild) -> None:
        """Queue an order; a process that has ended is found out by its reader."""
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(to_frame(order))

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _kill_quietly(process)
            self._wait_longer("the watching process was ended")
            self._all_broken("the watching process was ended")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the pipe to a process, which ends it, and wait; end it by force where that does not help."""
    if process.stdin is not None:
        process.stdin.close()
    with anyio.move_on_after(5.0):
        await process.wait()
        return
    _kill_quietly(process)


def _kill_quietly(process: asyncio.subprocess.Process) -> None:
    try:
        process.kill()
    except ProcessLookupError:
        return
