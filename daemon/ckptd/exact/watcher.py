"""Watches one worktree by inotify, and can tell at any moment what may have changed since the last scan.

The system's queue of events tells when it has lost some; then, and whenever anything is not understood, the answer is
"not known" and a whole scan sets it right. A cookie, a file that is made in a directory watched by the same instance,
shows that every event of the time before has been read. What has no event: a write through a shared mapping until it
is synced, and one through another name of a file if that name was made since the last scan outside of the worktree, or
is gone by the next one.
"""

import contextlib
import errno
import itertools
import logging
import os
import re
import stat
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from inotify_simple import INotify, flags

from ckpt_protocol.wirepath import to_text
from ckpt_protocol.worktree import FallBackKind
from ckptd.doubt import Doubt
from ckptd.exact.dirt import Dirt, Names
from ckptd.exact.watchtree import WatchTree

__all__ = ["COOKIE_WAIT_S", "ExactWatcher"]

_logger = logging.getLogger(__name__)

COOKIE_WAIT_S: Final = 2.0
"""A cookie that takes longer means that this process starves: a scan is not slower then."""

_TELLS: Final = (
    flags.MODIFY
    | flags.ATTRIB
    | flags.MOVED_FROM
    | flags.MOVED_TO
    | flags.CREATE
    | flags.DELETE
    | flags.DELETE_SELF
    | flags.MOVE_SELF
)
# Plain numbers: the enumeration's own cost more than all the rest of an event.
_MASK: Final = int(_TELLS | flags.ONLYDIR | flags.DONT_FOLLOW)
_APPEARED: Final = int(flags.CREATE | flags.MOVED_TO)
_WENT: Final = int(flags.DELETE | flags.MOVED_FROM)
_ENDED: Final = int(flags.DELETE_SELF | flags.MOVE_SELF | flags.UNMOUNT)
_ABOVE: Final = int(flags.MOVE_SELF | flags.ONLYDIR | flags.DONT_FOLLOW)
_IS_DIR: Final = int(flags.ISDIR)
_OVERFLOW: Final = int(flags.Q_OVERFLOW)
_IGNORED: Final = int(flags.IGNORED)
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)
"""Why a directory is passed over: it is none any more, which has an event of its own, or a scan can't enter it."""

_EVENT: Final = struct.Struct("iIII")
_READ_BYTES: Final = 1 << 16
_GATHERED_S: Final = 0.01
"""So long events gather where nobody waits: each of them alone would take the interpreter from whoever makes them."""
_TEMPORARY: Final = re.compile(rb"\.ckpt-[0-9a-f]{16}\.tmp")
"""What a restore calls files in the making: never saved, and most of what it does is about them."""

_LIMITS: Final = (errno.ENOSPC, errno.ENOMEM)
_BEGINNING: Final = Doubt("starting", "the directories are being watched by and by")


class ExactWatcher:
    """See the module. A thread of its own reads the events; everything else may be called from one other thread.

    ``root`` is the worktree, ``folder`` a directory of ours for cookies, ``guard`` the (device, inode) of directories
    that are never entered, ``is_ignored`` tells of a new directory's path whether rules leave it out.
    """

    def __init__(
        self,
        root: bytes,
        folder: bytes,
        guard: frozenset[tuple[int, int]],
        is_ignored: Callable[[bytes], bool],
        *,
        cookie_wait_s: float = COOKIE_WAIT_S,
    ) -> None:
        self._root = root
        self._folder = folder
        self._guard = guard
        self._is_ignored = is_ignored
        self._cookie_wait_s = cookie_wait_s
        self._lock = threading.Condition()
        self._dirt = Dirt()
        self._tree = WatchTree()
        self._device = 0
        self._cookie_wd = -1
        self._cookie_seen = -1
        self._above: set[int] = set()
        self._numbers = itertools.count()
        self._last_cookie = -1
        self._wanted: list[list[bytes]] = []
        self._ready = False
        self._ending = False
        self._awaited = threading.Event()
        self.broken: Doubt | None = None
        self.place: tuple[int, int] = (0, 0)
        self._inotify: INotify | None = None
        self._thread = threading.Thread(target=self._run, name="ckptd-exact", daemon=True)

    @property
    def lost_for(self) -> Doubt:
        """Why the last look() gave None, where it did."""
        return self.broken or (self._dirt.lost_for if self._ready else _BEGINNING)

    @property
    def watches(self) -> int:
        """How many directories are watched."""
        return len(self._tree)

    def start(self, folders: Iterable[bytes]) -> None:
        """Begin to watch directories, given by their paths in the worktree, parents before children."""
        self._wanted.append(list(folders))
        try:
            self._thread.start()
        except RuntimeError as error:
            self._break(Doubt("error", str(error)))

    def look(self) -> Names | None:
        """Give what may have changed since the last adopted(), up to this moment; None where that is not known."""
        if not self._ready or self.broken is not None:
            with self._lock:
                self._dirt.look_away()
            return None
        if not self._round_trip():
            self._lose(Doubt("cookie", "its cookie did not come back"))
        with self._lock:
            return self._dirt.look()

    def adopted(self, folders: Callable[[], Iterable[bytes]], *, whole: bool) -> None:
        """The scan that began with the last look() counts now; ``whole`` says that it looked at everything.

        ``folders`` gives the directories that it has listed, parents first: those that are not watched yet will be, and
        looked at again.
        """
        with self._lock:
            self._dirt.adopted(whole=whole)
        wanted = list(folders()) if self._ready and self.broken is None else []
        if wanted:
            self._wanted.append(wanted)
            self._cookie()

    def doubt(self, reason: Doubt) -> None:
        """Forget what is known, as somebody has found it wrong: the next answer is "not known"."""
        self._lose(reason)

    def wait_until_ready(self, seconds: float) -> bool:
        """Wait until all directories are watched; False where that takes longer or cannot be."""
        with self._lock:
            self._lock.wait_for(lambda: self._ready or self.broken is not None, seconds)
            return self._ready and self.broken is None

    def close(self) -> None:
        """End the thread and give the watches back."""
        self._ending = True
        self._awaited.set()
        if self._thread.is_alive():
            # That is an event, and a full disk cannot refuse it. The thread may be at its end already.
            with contextlib.suppress(ValueError):
                self._give_back([self._cookie_wd])
            self._thread.join(self._cookie_wait_s)
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):
                os.unlink(os.path.join(self._folder, name))

    # -- cookies

    def _round_trip(self) -> bool:
        number = self._cookie()
        if number is None:
            return False
        with self._lock:
            return self._lock.wait_for(
                lambda: self._cookie_seen >= number or self.broken is not None, self._cookie_wait_s
            )

    def _cookie(self) -> int | None:
        number = self._last_cookie = next(self._numbers)
        path = os.path.join(self._folder, b"%d" % number)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            os.unlink(path)
        except OSError as error:
            _logger.warning("no cookie for the watcher of a worktree: %s", error.strerror)
            return None
        self._awaited.set()
        return number

    # -- the thread

    def _run(self) -> None:
        try:
            self._inotify = INotify()
        except OSError as error:
            self._break(Doubt("limit", f"no inotify instance: {error.strerror}"))
            return
        try:
            self._begin()
            while not self._ending and self.broken is None:
                data = os.read(self._inotify.fileno(), _READ_BYTES)
                self._work_off(data)
                # While there is more the queue may run over, and a cookie may be behind it.
                if len(data) < _READ_BYTES // 2:
                    self._awaited.wait(_GATHERED_S)
                # A cookie that comes now is in the queue before it is said.
                self._awaited.clear()
        except OSError as error:
            self._break(Doubt("error", f"{error.strerror}"))
        except Exception as error:
            # Whatever it is, nobody reads the events from here on.
            _logger.exception("the watcher of a worktree has failed")
            self._break(Doubt("error", repr(error)))
        finally:
            self._inotify.close()

    def _begin(self) -> None:
        self._watch_above()
        found = os.lstat(self._root)
        self.place, self._device = (found.st_dev, found.st_ino), found.st_dev
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        for name in os.listdir(self._folder):
            os.unlink(os.path.join(self._folder, name))
        assert self._inotify is not None
        self._cookie_wd = self._inotify.add_watch(self._folder, int(flags.CREATE | flags.ONLYDIR))
        first = self._wanted.pop(0)
        for path in (b"", *first):
            if self._ending:
                return
            self._watch(path)
        with self._lock:
            self._ready = self.broken is None
            self._lock.notify_all()

    def _watch_above(self) -> None:
        """Notice that the way to the worktree leads elsewhere: new directories would be watched at a wrong place."""
        assert self._inotify is not None
        path = self._root
        while path != os.path.dirname(path):
            path = os.path.dirname(path)
            # Where we may not look, nothing tells; then a scan finds another root.
            with contextlib.suppress(OSError):
                self._above.add(self._inotify.add_watch(path, _ABOVE))

    def _watch_all(self, folders: list[bytes]) -> None:
        """Watch what is not watched yet; what happened in there until now has to be looked at."""
        for path in folders:
            if not self._tree.is_watched(path) and self._watch(path):
                self._note(path)

    def _watch(self, path: bytes) -> bool:
        assert self._inotify is not None
        full = os.path.join(self._root, path) if path else self._root
        try:
            self._tree.put(path, self._inotify.add_watch(full, _MASK))
        except OSError as error:
            if error.errno in _GONE and path:
                return False
            kind: FallBackKind = "limit" if error.errno in _LIMITS else "error"
            self._break(Doubt(kind, f"cannot watch {to_text(full)}: {error.strerror}"))
            return False
        return True

    def _watch_below(self, top: bytes) -> None:
        """Watch a directory that has appeared, and what is in it: first the watch, then the list of names."""
        stack = [top]
        while stack and self.broken is None and not self._ending:
            path = stack.pop()
            if (path and self._is_out(path)) or not self._watch(path):
                continue
            start = path + b"/" if path else b""
            stack += [start + name for name in self._folders_in(path)]

    def _folders_in(self, path: bytes) -> Iterator[bytes]:
        try:
            with os.scandir(os.path.join(self._root, path)) as listing:
                yield from [item.name for item in listing if item.is_dir(follow_symlinks=False)]
        except OSError:
            return

    def _is_out(self, path: bytes) -> bool:
        """Tell whether a scan would not enter a directory; to watch one too many does no harm."""
        if path.rpartition(b"/")[2] == b".git":
            return True
        try:
            found = os.lstat(os.path.join(self._root, path))
        except OSError:
            return True
        place = (found.st_dev, found.st_ino)
        return (
            not stat.S_ISDIR(found.st_mode)
            or found.st_dev != self._device
            or place in self._guard
            or (self._is_ignored(path))
        )

    def _work_off(self, data: bytes) -> None:
        seen, at = -1, 0
        while at < len(data):
            wd, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            name = data[at - length : at].rstrip(b"\0")
            if wd == self._cookie_wd:
                seen = self._cookie_of(mask, name, seen)
            elif wd in self._above:
                self._break(Doubt("replaced", "a directory above the worktree was moved or unmounted"))
            elif mask & _OVERFLOW:
                self._overflow()
            elif mask & _IS_DIR or _TEMPORARY.fullmatch(name) is None:
                self._take(wd, mask, name)
        # Before the cookie is answered: who looks now asked for these directories before it made the cookie.
        while self._wanted and self.broken is None:
            self._watch_all(self._wanted.pop(0))
        if seen >= 0:
            with self._lock:
                self._cookie_seen = seen
                self._lock.notify_all()

    def _cookie_of(self, mask: int, name: bytes, seen: int) -> int:
        if mask & _IGNORED:
            self._break(Doubt("error", "its directory for cookies is gone"))
        # Somebody else's file says nothing.
        return int(name) if name.isdigit() and int(name) <= self._last_cookie else seen

    def _take(self, wd: int, mask: int, name: bytes) -> None:
        node = self._tree.by_wd(wd)
        if mask & _IGNORED:
            self._tree.forget(wd)
            return
        if node is None:
            # A watch that was given back: what it tells happened in a directory that is looked at whole.
            return
        if mask & _ENDED:
            if node.parent is None:
                self._break(Doubt("replaced", "the worktree was moved, deleted or unmounted"))
            return
        path = node.path
        if not name:
            self._note_folder(path)
        elif mask & _IS_DIR:
            self._take_folder(mask, path, name)
        else:
            self._note_name(path, name)

    def _take_folder(self, mask: int, path: bytes, name: bytes) -> None:
        below = path + b"/" + name if path else name
        if mask & _WENT:
            node = self._tree.find(path)
            if node is not None:
                self._give_back(self._tree.cut(node, name))
        if mask & _APPEARED:
            self._watch_below(below)
        if mask & (_WENT | _APPEARED):
            self._note_name(path, name)
        elif self._tree.is_watched(below):
            # Its permission bits at most: what is in it has watches of its own.
            self._note_folder(below)
        else:
            # It may have become one that can be entered.
            self._watch_below(below)
            self._note_name(path, name)

    def _give_back(self, descriptors: list[int]) -> None:
        inotify = self._inotify
        if inotify is None:
            return
        for wd in descriptors:
            # A directory that is gone has taken its watch with it.
            with contextlib.suppress(OSError):
                inotify.rm_watch(wd)

    def _overflow(self) -> None:
        """Events are lost, those of new directories among them: every directory there is gets its watch again."""
        self._lose(Doubt("overflow", "too many events at once"))
        found = os.lstat(self._root)
        if (found.st_dev, found.st_ino) != self.place:
            self._break(Doubt("replaced", "the worktree was replaced"))
            return
        # What is known of watches may be wrong as well: a directory may have been another one in between.
        before, self._tree = self._tree, WatchTree()
        self._watch_below(b"")
        self._give_back([wd for wd in before.descriptors() if self._tree.by_wd(wd) is None])

    def _note(self, path: bytes) -> None:
        folder, _, name = path.rpartition(b"/")
        if name:
            self._note_name(folder, name)

    def _note_name(self, folder: bytes, name: bytes) -> None:
        with self._lock:
            self._dirt.add(folder, name)

    def _note_folder(self, path: bytes) -> None:
        with self._lock:
            self._dirt.add_folder(path)

    def _lose(self, reason: Doubt) -> None:
        with self._lock:
            self._dirt.lose(reason)

    def _break(self, reason: Doubt) -> None:
        with self._lock:
            self._dirt.lose(reason)
            self.broken = reason
            self._lock.notify_all()
