"""Deltas for old history: libgit2 makes them, in a process of its own, for it holds the interpreter's lock for seconds.

The process gets the ids on its standard input and ends when that ends: with the daemon, or when it is called off. It
writes into a folder of its own, reads all of it back, and only then says so. The daemon takes the pack from there.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

import ckpt_protocol
import ckptd
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.packfile import OFS_DELTA, REF_DELTA, PackFile
from ckptd.shadow.objects.stream import LARGE_BYTES
from ckptd.shadow.objects.syncing import fsync_dir

__all__ = ["WORTH_BYTES", "Candidates", "DeltaRun", "clear_deltas", "delta_candidates"]

WORTH_BYTES: Final = 1024 * 1024
"""Below so much that is not in deltas yet, making them is not worth a process."""

_SHARE: Final = 4
_FOLDER: Final = b"ckpt/deltas"


class Candidates(NamedTuple):
    """Packs that one with deltas can stand for, and the ids of all their objects."""

    stems: list[bytes]
    oids: list[bytes]


class _Contents(NamedTuple):
    oids: list[bytes]
    plain_bytes: int
    size: int


def delta_candidates(pack_dir: bytes, free_bytes: int) -> Candidates | None:
    """Choose the packs to make deltas of; None where it is not worth it, or there is no room for it.

    It is where at least a quarter of them is not in deltas yet. Packs with large blobs, and those that somebody keeps,
    are no candidates.
    """
    found: dict[bytes, _Contents] = {}
    for name in sorted(os.listdir(pack_dir)):
        stem = os.path.join(pack_dir, name[:-4])
        if name.startswith(b"pack-") and name.endswith(b".idx") and not os.path.exists(stem + b".keep"):
            contents = _contents(stem)
            if contents is not None:
                found[stem] = contents
    total, plain = sum(one.size for one in found.values()), sum(one.plain_bytes for one in found.values())
    if plain < WORTH_BYTES or plain * _SHARE < total or free_bytes < total * 2:
        return None
    oids = sorted({oid for one in found.values() for oid in one.oids})
    return Candidates(sorted(found), oids)


def _contents(stem: bytes) -> _Contents | None:
    try:
        pack = PackFile(stem + b".idx")
    except DomainError:
        return None
    try:
        plain, oids = 0, []
        for entry in pack.entries():
            head = pack.head(entry)
            if head.size > LARGE_BYTES:
                return None
            oids.append(entry.oid)
            if head.number not in (OFS_DELTA, REF_DELTA):
                plain += entry.end - entry.start
        return _Contents(oids, plain, pack.size)
    except DomainError:
        return None
    finally:
        pack.close()


def clear_deltas(git_dir: bytes) -> None:
    """Remove what a run that was killed has left."""
    shutil.rmtree(os.path.join(git_dir, _FOLDER), ignore_errors=True)


class DeltaRun:
    """One such process; ``failure`` says why nothing came of it."""

    def __init__(self, git_dir: bytes, candidates: Candidates) -> None:
        self.failure = ""
        self._oids = candidates.oids
        self._folder: Final = os.path.join(git_dir, _FOLDER)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.makedirs(os.path.join(self._folder, b"pack"), 0o700)
            self._ids = os.path.join(self._folder, b"ids")
            with open(self._ids, "xb") as file:
                file.writelines(self._oids)
            self._process = subprocess.Popen(
                _command(git_dir, self._folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            self.close()
            raise from_os_error(error, "make deltas for", git_dir) from error

    def is_done(self) -> bool:
        """Tell whether the process has ended."""
        return self._process is None or self._process.poll() is not None

    def take(self, pack_dir: bytes) -> bytes | None:
        """Give the pack that was made its place, durably; give its stem, or None where it is not as it should be.

        Raises DomainError where the disk refuses.
        """
        code = self._process.returncode if self._process is not None else None
        if code != 0:
            self.failure = f"the process that makes them ended with {code}"
            return None
        made = os.path.join(self._folder, b"pack")
        try:
            (name,) = (name[:-4] for name in os.listdir(made) if name.endswith(b".idx"))
            if not self._is_whole(os.path.join(made, name)):
                return None
            for end in (b".pack", b".idx"):
                _sync(os.path.join(made, name + end))
            # Readers find a pack by its index, so the index comes last.
            for end in (b".pack", b".idx"):
                os.rename(os.path.join(made, name + end), os.path.join(pack_dir, name + end))
            fsync_dir(pack_dir)
        except OSError as error:
            raise from_os_error(error, "write a pack to", pack_dir) from error
        except ValueError:
            self.failure = "it made no pack"
            return None
        return os.path.join(pack_dir, name)

    def close(self) -> None:
        """End the process if it runs, and remove its folder."""
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                process.kill()
            if process.stdin is not None:
                process.stdin.close()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_whole(self, stem: bytes) -> bool:
        """Make sure that the pack has all that it is to stand for; its process has read every object back."""
        try:
            pack = PackFile(stem + b".idx")
        except DomainError as error:
            self.failure = error.message
            return False
        try:
            for _ in pack.checksum():
                pass
            if pack.index.oids() == self._oids:
                return True
            self.failure = "its pack lacks objects"
        except DomainError as error:
            self.failure = error.message
        finally:
            pack.close()
        return False


def _command(git_dir: bytes, folder: bytes) -> Sequence[str]:
    # The path of this very interpreter, and nothing of the environment: the same code, whatever is set.
    # Paths that are relative to wherever this process was started would lead nowhere.
    own = [os.path.dirname(os.path.abspath(each.__path__[0])) for each in (ckptd, ckpt_protocol)]
    paths = [*own, *filter(os.path.isabs, sys.path)]
    call = f"from ckptd.shadow.objects.deltachild import main; main({git_dir!r}, {folder!r})"
    return [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {paths!r}; {call}"]


def _sync(path: bytes) -> None:
    os.chmod(path, 0o400)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
