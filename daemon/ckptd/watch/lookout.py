"""One root, watched with watchfiles: the only file that knows this library.

Its weaknesses, and what is made of them. Its constructor holds the interpreter's lock, so this runs in a process of
its own. Recursion would follow links out of the root, watch ignored trees, stop at an unreadable directory and miss
what is made while it adds watches: it gets a list of directories instead, and which of them the kernel watches is
read from the kernel afterwards. A name that is not UTF-8 breaks an instance for good: it is thrown away, and the
daemon asks for a new one. Lost events are never noticed by it: its word only wakes a scan up, and the daemon scans
from time to time without being asked. Its polling compares whole seconds: it is never used, the daemon's own scan is
a better one.
"""

import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from ckptd.watch.frame import Broken, Cover, Covered, Seen
from ckptd.watch.kernel import instances, watched_inodes

__all__ = ["Lookout"]

_MOST_PATHS: Final = 256
_CANARY_PATIENCE_S: Final = 3.0
_CANARY_STEP_MS: Final = 10

Say = Callable[[Seen | Broken], None]


class _Found(NamedTuple):
    """Directories that are there, by inode, and those that cannot be watched, with a reason."""

    paths: dict[int, str]
    left: int
    reason: str | None


class Lookout:
    """Watches the directories of one root. ``say`` is called from its thread; cover() and drop() from one other."""

    def __init__(self, number: int, say: Say) -> None:
        self._number = number
        self._say = say
        self._listener: _Listener | None = None

    def cover(self, order: Cover) -> Covered:
        """Watch what is asked for, anew if it is not watched already; say what has come of it."""
        try:
            root = os.fsdecode(order.root)
            found = _look(root, order.directories)
            if os.lstat(order.root).st_ino not in found.paths:
                return self._give_up(found.reason or "the worktree is not a directory that can be read")
        except OSError as error:
            return self._give_up(f"the worktree cannot be looked at: {error.strerror}")
        if len(found.paths) > order.limit:
            return self._give_up(f"{len(found.paths)} directories are more than may be watched ({order.limit})")
        if not order.afresh and self._listener is not None and self._listener.watches() == found.paths.keys():
            return Covered(self._number, True, False, len(found.paths), found.left, found.reason)
        return self._anew(order, root, found)

    def drop(self) -> None:
        """Watch nothing any more."""
        if self._listener is not None:
            self._listener.stop()
            self._listener = None

    def _anew(self, order: Cover, root: str, found: _Found) -> Covered:
        self.drop()
        try:
            listener = _Listener(self._number, root, found.paths, order.step_ms, self._say)
        except (OSError, RuntimeError) as error:
            return self._give_up(f"directories cannot be watched: {error}")
        if order.try_out:
            problem = listener.try_out()
            if problem is not None:
                listener.close()
                return self._give_up(problem)
        listener.start()
        self._listener = listener
        # What went away meanwhile needs no watch, and what came will be asked for by the next scan.
        lost = len(found.paths.keys() - listener.watches())
        reason = found.reason or (f"{lost} directories changed while they were put under watch" if lost else None)
        return Covered(self._number, True, True, len(found.paths) - lost, found.left + lost, reason)

    def _give_up(self, reason: str) -> Covered:
        self.drop()
        return Covered(self._number, False, reason=reason)


class _Listener:
    """One instance of watchfiles and the thread that reads it."""

    def __init__(self, number: int, root: str, paths: dict[int, str], step_ms: int, say: Say) -> None:
        self._number = number
        self._root = root
        self._step_ms = step_ms
        self._say = say
        self._stopped = threading.Event()
        self._inodes = frozenset(paths)
        before = instances()
        self._notify = RustNotify(list(paths.values()), False, False, 0, False, False)
        new = instances() - before
        self._instance = max(new, default=None)
        self._broken = False

    def watches(self) -> frozenset[int]:
        """Give the inodes that are watched, as the kernel says; where it does not, those that were asked for."""
        if self._broken:
            return frozenset()
        return self._inodes if self._instance is None else watched_inodes(self._instance)

    def try_out(self) -> str | None:
        """Make a file in the root and take it away; give what is wrong if nothing is heard of it."""
        name = f".ckpt-{secrets.token_hex(8)}.tmp"
        path = os.path.join(self._root, name)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            os.unlink(path)
        except OSError as error:
            return f"it cannot be tried out whether changes are told: {error.strerror}"
        if self._hears_of(path):
            return None
        return "a change that was made to try it out was not told"

    def start(self) -> None:
        """Listen in a thread, until stop() or until it breaks."""
        threading.Thread(target=self._listen, name=f"lookout {self._number}", daemon=True).start()

    def stop(self) -> None:
        """Let the thread end within a step."""
        self._stopped.set()

    def close(self) -> None:
        """Let go of the watches; for one that was never started."""
        self._notify.close()

    def _hears_of(self, path: str) -> bool:
        end = time.monotonic() + _CANARY_PATIENCE_S
        while (left := end - time.monotonic()) > 0:
            step = _CANARY_STEP_MS
            try:
                heard = self._notify.watch(step, step, max(1, int(left * 1000)), None)
            except WatchfilesRustInternalError:
                # Broken already by an odd name: but it has heard something. The thread will find out.
                return True
            if isinstance(heard, str):
                continue
            self._tell(found for _, found in heard)
            if any(found == path for _, found in heard):
                return True
        return False

    def _listen(self) -> None:
        try:
            while not self._stopped.is_set():
                heard = self._notify.watch(self._step_ms, self._step_ms, 0, self._stopped)
                if not isinstance(heard, str):
                    self._tell(found for _, found in heard)
                elif not self._stopped.is_set():
                    self._say(Seen(self._number, [], True))
        except (OSError, RuntimeError) as error:
            self._broken = True
            if not self._stopped.is_set():
                self._say(Broken(self._number, _why(error)))
        finally:
            self._notify.close()

    def _tell(self, heard: Iterable[str]) -> None:
        paths: list[bytes] = []
        more = False
        for path in heard:
            name = os.path.basename(path)
            if name.lower() == ".git" or _is_temporary(name):
                continue
            more = len(paths) == _MOST_PATHS
            if more:
                break
            paths.append(os.fsencode(os.path.relpath(path, self._root)))
        if paths:
            self._say(Seen(self._number, [b"" if path == b"." else path for path in paths], more))


def _look(root: str, directories: Iterable[bytes]) -> _Found:
    """Look which of the directories are there and can be watched."""
    paths: dict[int, str] = {}
    left, reason = 0, None
    for relative in directories:
        path = os.path.join(root, os.fsdecode(relative)) if relative else root
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            # Below a directory that cannot be entered nothing can be saved, and nothing be watched.
            continue
        if not stat.S_ISDIR(found.st_mode):
            continue
        if not _is_text(path):
            left, reason = left + 1, "names that are not UTF-8 cannot be watched"
        elif not os.access(path, os.R_OK | os.X_OK):
            continue
        else:
            paths[found.st_ino] = path
    return _Found(paths, left, reason)


def _why(error: Exception) -> str:
    text = str(error)
    return f"a name that is not UTF-8 ended the watching: {text}" if "decode" in text else f"watching ended: {text}"


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_temporary(name: str) -> bool:
    digits = name.removeprefix(".ckpt-").removesuffix(".tmp")
    return len(digits) == 16 and name == f".ckpt-{digits}.tmp" and all(char in "0123456789abcdef" for char in digits)
