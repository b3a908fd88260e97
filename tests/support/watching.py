"""A watched directory for tests: the real process with the real library, and a listener that keeps what it is told.

``Post``: ``root`` (a Path), ``news`` (a News), ``service`` and ``number``. ``cover(*directories, ...)`` watches;
without directories all that are there. ``told()`` are the paths that were told so far, ``heard(path)`` waits until
one is.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ckptd.core.ports import Coverage
from ckptd.watch.service import WatchService
from support.cli_run import ROOT
from support.poll import eventually

__all__ = ["COMMAND", "Listener", "Post", "posted"]

STEP_S = 0.05
SOURCES = os.pathsep.join(str(ROOT / name) for name in ("protocol", "daemon"))
COMMAND = ("env", f"PYTHONPATH={SOURCES}", sys.executable, "-P", "-m", "ckptd.watch.child")


class Listener:
    """Fulfils News."""

    def __init__(self) -> None:
        self.paths: list[bytes] = []
        self.more = False
        self.breaks: list[str] = []
        self.evicted = False

    def seen(self, paths: Sequence[bytes], *, more: bool) -> None:
        self.paths += paths
        self.more |= more

    def broken(self, reason: str, *, over_budget: bool = False) -> None:
        self.breaks.append(reason)
        self.evicted |= over_budget


class Post:
    """See the module."""

    def __init__(self, service: WatchService, root: Path) -> None:
        self.root = root
        self.news = Listener()
        self.service = service
        self.number = service.add(os.fsencode(root), STEP_S, self.news)

    async def cover(self, *directories: bytes, **options: bool) -> Coverage:
        found = directories or self.directories()
        return await self.service.cover(self.number, found, **options)

    def directories(self) -> list[bytes]:
        top = os.fsencode(self.root)
        walked = [os.path.relpath(folder, top) for folder, _, _ in os.walk(top)]
        return [b"" if path == b"." else path for path in walked]

    def told(self) -> set[bytes]:
        return set(self.news.paths)

    async def heard(self, path: str | bytes) -> None:
        await eventually(lambda: os.fsencode(path) in self.news.paths)

    async def silence(self) -> set[bytes]:
        """Wait until whatever there was to be told has been told: a change that is made now comes after it."""
        mark = f"mark{len(self.news.paths)}"
        (self.root / mark).write_text("")
        await self.heard(mark)
        await asyncio.sleep(2 * STEP_S)
        (self.root / mark).unlink()
        return {path for path in self.told() if not path.startswith(b"mark")}


@asynccontextmanager
async def posted(root: Path, **options: object) -> AsyncIterator[Post]:
    """Watch a directory as the daemon does, and leave no process behind."""
    service = WatchService(**{"command": COMMAND, **options})
    try:
        yield Post(service, root)
    finally:
        await service.aclose()
