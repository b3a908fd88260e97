"""Writing a checkpoint to a place outside of the worktree, in small steps beside everything else."""

import contextlib
import errno
import os
import shutil
import tarfile
import time
from collections.abc import Callable, Generator, Iterator
from typing import Final, Protocol

from ckpt_protocol.checkpoint import ExportParams, ExportResult
from ckpt_protocol.structs import from_wire, to_wire
from ckpt_protocol.wirepath import to_text
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.store import ObjectStore
from ckptd.shadow.record.lookup import Lookup
from ckptd.shadow.store.asker import Asker
from ckptd.shadow.trees.step import State
from ckptd.shadow.trees.tree import EXECUTABLE, LINK
from ckptd.shadow.trees.view import DirectoryView, find_state, find_view, not_in_checkpoint

__all__ = ["Exporting"]

_STEP_S: Final = 0.05
_TAR: Final = b".tar"
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_BITS: Final = 0o777
"""An exported program must not run as somebody else because it once did: no setuid, setgid or sticky bits."""


class Exporting:
    """One export under way; step() goes on with it. Used by one thread at a time.

    All is written under a temporary name beside the destination, which is taken when everything is there.
    """

    def __init__(self, lookup: Lookup, objects: ObjectStore, params: ExportParams, asker: Asker) -> None:
        self._objects = objects
        self._asker = asker
        self._destination = from_wire(params.destination)
        loaded = lookup.open(lookup.resolve(params.id))
        self._id = loaded.checkpoint.id
        self._root = loaded.root
        self._paths = [from_wire(path) for path in params.paths]
        self._temporary = self._destination + b".ckpt-" + os.urandom(8).hex().encode() + b".tmp"
        self._tell = asker.progress_of("export")
        self._files = 0
        self._bytes = 0
        self._place: _Place | None = None
        _refuse_taken(self._destination)
        self._time_s = int(loaded.checkpoint.time_s)
        self._run: Final = self._write()

    def step(self) -> ExportResult | None:
        """Go on for a moment; give the result once everything is at its place.

        Raises DomainError ``destination_exists``, ``path_not_in_checkpoint``, ``beyond_symlink``, ``cancelled``,
        for content that is lost, and where the disk refuses; then nothing is left at the destination.
        """
        end = time.monotonic() + _STEP_S
        try:
            for _ in self._run:
                self._asker.check("export")
                if time.monotonic() > end:
                    return None
        except OSError as error:
            self.close()
            raise from_os_error(error, "export to", self._destination) from error
        except BaseException:
            self.close()
            raise
        return ExportResult(id=self._id, destination=to_wire(self._destination), files=self._files, bytes=self._bytes)

    def close(self) -> None:
        """Take away what is not finished."""
        # A full disk refuses the last bytes of a file once more as it is closed.
        with contextlib.suppress(OSError):
            self._run.close()
        if self._place is not None:
            with contextlib.suppress(OSError):
                self._place.close()
            self._place = None
        with contextlib.suppress(OSError):
            if os.path.isdir(self._temporary):
                shutil.rmtree(self._temporary)
            elif os.path.lexists(self._temporary):
                os.unlink(self._temporary)

    def _write(self) -> Generator[None, None, None]:
        chosen = list(_chosen(self._root, self._paths, self._id))
        self._tell = self._asker.progress_of("export", sum(not state.is_dir for _, state in chosen))
        is_tar = self._destination.endswith(_TAR)
        place: _Place = _TarPlace(self._temporary, self._time_s) if is_tar else _FolderPlace(self._temporary)
        self._place = place
        for path, state in chosen:
            if state.is_dir:
                place.add_folder(path, _perm(state))
            elif state.mode == LINK:
                place.add_link(path, b"".join(self._objects.chunks(state.oid)))
            else:
                size = self._objects.size(state.oid)
                yield from self._count(place.add_file(path, _perm(state), size, self._objects.chunks(state.oid)))
            self._files += not state.is_dir
            self._tell(self._files, self._bytes)
            yield
        place.finish()
        _refuse_taken(self._destination)
        if is_tar:
            _take_name(self._temporary, self._destination)
        else:
            # An empty directory may stand there.
            os.rename(self._temporary, self._destination)
        self._place = None

    def _count(self, pieces: Iterator[int]) -> Iterator[None]:
        for number in pieces:
            self._bytes += number
            self._tell(self._files, self._bytes)
            yield


def _take_name(temporary: bytes, path: bytes, link: Callable[[bytes, bytes], None] = os.link) -> None:
    """Give a file its name; raises FileExistsError where somebody has put something there meanwhile."""
    try:
        # Unlike a rename, a link never takes the place of anything.
        link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # A removable disk, for one: an empty file of ours holds the place.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.rename(temporary, path)
    else:
        os.unlink(temporary)


def _refuse_taken(path: bytes) -> None:
    try:
        taken = bool(os.listdir(path)) if os.path.isdir(path) and not path.endswith(_TAR) else os.path.lexists(path)
    except OSError as error:
        raise from_os_error(error, "look at", path) from error
    if taken:
        raise DomainError(
            "destination_exists", f"{to_text(path)} exists already", hint="choose another destination", paths=(path,)
        )


def _chosen(root: DirectoryView, paths: list[bytes], checkpoint_id: str) -> Iterator[tuple[bytes, State]]:
    """Give what is to be written, directories before what is in them; without ``paths`` everything."""
    if not paths:
        yield from _below(root, b"")
        return
    seen: set[bytes] = set()
    for path in sorted(set(paths)):
        state = find_state(root, path)
        if state is None:
            raise not_in_checkpoint(root, path, checkpoint_id[:12])
        wanted = [*_above(root, path), (path, state)]
        view = find_view(root, path) if state.is_dir else None
        for item in (*wanted, *(_below(view, path + b"/") if view is not None else ())):
            if item[0] not in seen:
                seen.add(item[0])
                yield item


def _above(root: DirectoryView, path: bytes) -> Iterator[tuple[bytes, State]]:
    parts = path.split(b"/")[:-1]
    for number in range(1, len(parts) + 1):
        above = b"/".join(parts[:number])
        state = find_state(root, above)
        if state is not None:
            yield above, state


def _below(view: DirectoryView, start: bytes) -> Iterator[tuple[bytes, State]]:
    stack = [(start, view)]
    while stack:
        start, view = stack.pop()
        for name, state in sorted(view.files().items()):
            yield start + name, state
        for name, below in sorted(view.dirs().items()):
            yield start + name, below.state()
            stack.append((start + name + b"/", below))


def _perm(state: State) -> int:
    """Give the permission bits to write; those of a plain file or directory where none are recorded."""
    if state.perm is not None:
        return state.perm & _BITS
    return 0o755 if state.is_dir or state.mode == EXECUTABLE else 0o644


class _Place(Protocol):
    """Where an export is written to."""

    def add_folder(self, path: bytes, perm: int) -> None: ...

    def add_link(self, path: bytes, target: bytes) -> None: ...

    def add_file(self, path: bytes, perm: int, size: int, chunks: Iterator[bytes]) -> Iterator[int]: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


class _FolderPlace:
    """A directory of our own making: nobody but its owner can put links into it meanwhile."""

    def __init__(self, path: bytes) -> None:
        os.mkdir(path, 0o700)
        self._top = path
        self._perms: list[tuple[bytes, int]] = []

    def add_folder(self, path: bytes, perm: int) -> None:
        os.mkdir(os.path.join(self._top, path), 0o700)
        # At the end: what is to go into it must not be refused.
        self._perms.append((path, perm))

    def add_link(self, path: bytes, target: bytes) -> None:
        os.symlink(target, os.path.join(self._top, path))

    def add_file(self, path: bytes, perm: int, size: int, chunks: Iterator[bytes]) -> Iterator[int]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(os.path.join(self._top, path), flags, 0o600), "wb") as file:
            for piece in chunks:
                file.write(piece)
                yield len(piece)
            os.fchmod(file.fileno(), perm)

    def finish(self) -> None:
        for path, perm in reversed(self._perms):
            os.chmod(os.path.join(self._top, path), perm)
        os.chmod(self._top, 0o755)

    def close(self) -> None:
        """Make it possible to take everything away again."""
        for path, _ in self._perms:
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(self._top, path), 0o700)


class _TarPlace:
    """A tar archive in GNU's format, which has room for any name; names are bytes, as on disk."""

    def __init__(self, path: bytes, time_s: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file: Final = os.fdopen(os.open(path, flags, 0o644), "wb")
        self._time_s = time_s

    def add_folder(self, path: bytes, perm: int) -> None:
        self._begin(path, perm, tarfile.DIRTYPE)

    def add_link(self, path: bytes, target: bytes) -> None:
        self._begin(path, 0o777, tarfile.SYMTYPE, target=target)

    def add_file(self, path: bytes, perm: int, size: int, chunks: Iterator[bytes]) -> Iterator[int]:
        self._begin(path, perm, tarfile.REGTYPE, size=size)
        for piece in chunks:
            self._file.write(piece)
            yield len(piece)
        self._file.write(b"\0" * (-size % tarfile.BLOCKSIZE))

    def finish(self) -> None:
        self._file.write(b"\0" * (2 * tarfile.BLOCKSIZE))
        self._file.write(b"\0" * (-self._file.tell() % tarfile.RECORDSIZE))
        self._file.close()

    def close(self) -> None:
        self._file.close()

    def _begin(self, path: bytes, perm: int, kind: bytes, *, size: int = 0, target: bytes = b"") -> None:
        info = tarfile.TarInfo(path.decode("utf-8", "surrogateescape"))
        info.type, info.mode, info.size, info.mtime = kind, perm, size, self._time_s
        info.linkname = target.decode("utf-8", "surrogateescape")
        self._file.write(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
