"""Holding a whole worktree against what the last scan saw: which names are not as they were.

A walk decides about every name. Here most names only have to be found as they were, which takes a look at each file
and each directory and little else; what is named is left to the scanner, which decides.

A directory whose identity and times are as they were when its names were last compared has those names still, and is
not listed: a name that comes, goes or is replaced sets its ctime, which no program can set back. As with files, a ctime
that is too young proves nothing; and only local file systems are taken at their word.
"""

import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ckptd.shadow.objects.pulse import Pulse
from ckptd.shadow.scan.entry import SETTLED, is_young
from ckptd.shadow.scan.folder import folder_sign, place_of
from ckptd.shadow.scan.foreignstore import is_store_folder, may_be_store
from ckptd.shadow.scan.frames import DIR_FLAGS
from ckptd.shadow.scan.model import DirNode
from ckptd.shadow.scan.temporary import is_temporary

__all__ = ["Survey"]

_RULES: Final = frozenset({b".gitignore", b".ckptignore"})
_ENCODING: Final = sys.getfilesystemencoding()
_ERRORS: Final = sys.getfilesystemencodeerrors()


class Survey:
    """One look at everything that a model knows.

    ``root_fd`` is the worktree, ``margin_ns`` as the scanner has it, ``is_dated`` whether the file system is known to
    date its directories. Afterwards ``names`` holds, by the path of their directory, the names that may not be what
    they were, an empty one where it is the directory itself; ``looked_at`` counts directories.
    """

    def __init__(
        self, root_fd: int, clock_ns: Callable[[], int], margin_ns: int, pulse: Pulse, *, is_dated: bool
    ) -> None:
        self._root_fd = root_fd
        self._root_dev = os.fstat(root_fd).st_dev
        self._clock_ns = clock_ns
        self._margin_ns = margin_ns
        self._pulse = pulse
        self._is_dated = is_dated
        self.names: Final[dict[bytes, set[bytes]]] = {}
        self.looked_at = 0

    def run(self, root: DirNode) -> None:
        """Look. Raises DomainError ``cancelled``; what cannot be looked at is named, whatever the reason."""
        stack = [(b"", root)]
        while stack:
            path, node = stack.pop()
            self._pulse.beat()
            if self._look(path, node):
                prefix = path + b"/" if path else b""
                stack.extend([(prefix + name, child) for name, child in node.children.items()])

    def name(self, path: bytes) -> None:
        """Name a path."""
        folder, _, name = path.rpartition(b"/")
        self.names.setdefault(folder, set()).add(name)

    def _look(self, path: bytes, node: DirNode) -> bool:
        """Look at one directory; False where it is another one, and named itself."""
        # The way there may be another one by now. Then so is what it leads to, or else it is what it was all the same.
        try:
            fd = os.open(path or b".", DIR_FLAGS, dir_fd=self._root_fd)
        except OSError:
            self.name(path)
            return False
        try:
            self.looked_at += 1
            now_ns = self._clock_ns()
            found = os.fstat(fd)
            sign = folder_sign(found)
            if found.st_dev != self._root_dev or place_of(sign) != place_of(node.sign):
                self.name(path)
                return False
            differing = set(_differing_files(fd, node))
            if stat.S_IMODE(found.st_mode) != node.perm:
                differing.add(b"")
            if sign != node.sign or may_be_store(node.entries, node.children, node.ignored):
                with os.scandir(fd) as listing:
                    items = {item.name.encode(_ENCODING, _ERRORS): item for item in listing}
                if path and is_store_folder(fd, items):
                    self.name(path)
                    return False
                others = set(_differing_names(items, node))
                if not others and self._is_dated:
                    # True whatever becomes of this scan: it is about a moment of the directory, and names.
                    young = is_young(found.st_ctime_ns, now_ns, self._margin_ns)
                    node.sign = place_of(sign) if young else sign
                differing |= others
            if differing:
                self.names.setdefault(path, set()).update(differing)
            return True
        except OSError:
            self.name(path)
            return False
        finally:
            os.close(fd)


def _differing_files(fd: int, node: DirNode) -> Iterator[bytes]:
    """Give the files whose stat data are not the settled ones that the model has."""
    pack = SETTLED.pack
    lstat = os.lstat
    for name, entry in node.entries.items():
        try:
            found = lstat(name, dir_fd=fd)
            # As is_settled() but for times before 1970 and after 2262: such a file is named, and no harm is done.
            if entry[20:] != pack(found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino):
                yield name
        except (OSError, struct.error):
            yield name
    # Rules that are in no tree have no entry that tells whether they are what they were.
    yield from _RULES & node.ignored


def _differing_names(items: "Mapping[bytes, os.DirEntry[str]]", node: DirNode) -> Iterator[bytes]:
    """Give the names that have come, gone, or become something else."""
    children, entries, ignored = node.children, node.entries, node.ignored
    known = 0
    for name, item in items.items():
        is_dir = item.is_dir(follow_symlinks=False)
        if name in (children if is_dir else entries):
            known += 1
        elif name in ignored if not is_dir or name == b".git" else name + b"/" in ignored:
            continue
        elif not is_temporary(name):
            yield name
    if known < len(children) + len(entries):
        yield from (name for name in (*entries, *children) if name not in items)
    yield from (plain for plain in (name.rstrip(b"/") for name in ignored) if plain not in items)
