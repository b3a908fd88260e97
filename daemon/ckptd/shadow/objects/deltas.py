"""Deltas for old history: libgit2 makes them, in a process of its own, for it holds the interpreter's lock for seconds.

The process gets the ids on its standard input and ends when that ends: with the daemon, or when it is called off. It
writes into a folder of its own, reads all of it back, and only then says so. The daemon takes the pack from there.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, NamedTuple

import ckpt_protocol
import ckptd
from ckptd.errors import DomainError, from_os_error
from ckptd.shadow.objects.packfile import OFS_DELTA, REF_DELTA, PackFile
from ckptd.shadow.objects.packindex import PackIndex
from ckptd.shadow.objects.pieces import Pieces, Portion, beside
from ckptd.shadow.objects.stream import LARGE_BYTES
from ckptd.shadow.objects.syncing import fsync_dir

__all__ = ["WORTH_BYTES", "Candidates", "DeltaRun", "Plain", "clear_deltas", "delta_candidates"]

WORTH_BYTES: Final = 1024 * 1024
"""Below so much that is not in deltas yet, making them is not worth a process."""

_SHARE: Final = 4
_FOLDER: Final = b"ckpt/deltas"
_LOOKED_AT_ONCE: Final = 300


class Candidates(NamedTuple):
    """Packs that one with deltas can stand for, and the ids of all their objects."""

    stems: list[bytes]
    oids: list[bytes]


class Plain(NamedTuple):
    """What a pack is made of: its bytes, and those of them that are not in deltas. ``fits``: it has no large blob."""

    size: int
    plain_bytes: int
    fits: bool


def delta_candidates(
    pack_dir: bytes, free_bytes: int, known: dict[bytes, Plain], most_bytes: int, but: Collection[bytes] = ()
) -> Pieces[Candidates | None]:
    """Choose the packs to make deltas of; None where it is not worth it, or there is no room for it.

    It is where at least a quarter of them is not in deltas yet. Packs with large blobs, and those that somebody keeps,
    are no candidates, nor are the stems ``but``. Up to ``most_bytes`` are chosen, the least in deltas first: what is
    made of them stands beside them for a while, and may be as large. ``known`` are packs that have been looked into,
    for none ever changes; it is brought up to date.
    """
    stems = [
        os.path.join(pack_dir, name[:-4])
        for name in sorted(os.listdir(pack_dir))
        if name.startswith(b"pack-") and name.endswith(b".idx")
    ]
    for stem in known.keys() - stems:
        del known[stem]
    found: dict[bytes, Plain] = {}
    for stem in stems:
        one = known.get(stem) or (yield from _looked_into(stem))
        if one is not None:
            known[stem] = one
            if one.fits and stem not in but and not os.path.exists(stem + b".keep"):
                found[stem] = one
    total, plain = _total(found.values())
    if plain * _SHARE < total:
        return None
    chosen = _chosen(found, most_bytes)
    total, plain = _total(chosen.values())
    if plain < WORTH_BYTES or free_bytes < total * 2:
        return None
    return Candidates(sorted(chosen), (yield from _all_objects(sorted(chosen))))


def _total(packs: Iterable[Plain]) -> tuple[int, int]:
    """Give the bytes of packs, and how many of them are in no deltas."""
    total = plain = 0
    for one in packs:
        total, plain = total + one.size, plain + one.plain_bytes
    return total, plain


def _chosen(found: Mapping[bytes, Plain], most_bytes: int) -> dict[bytes, Plain]:
    chosen: dict[bytes, Plain] = {}
    for stem, one in sorted(found.items(), key=lambda item: (-item[1].plain_bytes / item[1].size, item[0])):
        if one.size <= most_bytes:
            chosen[stem] = one
            most_bytes -= one.size
    return chosen


def _looked_into(stem: bytes) -> Pieces[Plain | None]:
    """Give what a pack is made of; None for one that is damaged or gone."""
    try:
        pack = PackFile(stem + b".idx")
    except DomainError:
        return None
    try:
        plain, fits = 0, True
        portion = Portion(_LOOKED_AT_ONCE)
        for part in pack.parts():
            if not part:
                yield False
            for entry in part:
                head = pack.head(entry)
                fits = fits and head.size <= LARGE_BYTES
                if head.number not in (OFS_DELTA, REF_DELTA):
                    plain += entry.end - entry.start
                if portion.is_full():
                    yield False
        return Plain(pack.size, plain, fits)
    except DomainError:
        return None
    finally:
        pack.close()


def _all_objects(stems: Sequence[bytes]) -> Pieces[list[bytes]]:
    """Give the ids of all objects of some packs once, sorted: a 256th of them at a time. Raises DomainError."""
    parts: list[set[bytes]] = [set() for _ in range(256)]
    for stem in stems:
        index = PackIndex(stem + b".idx")
        try:
            for part in index.parts():
                for oid, _, _ in part:
                    parts[oid[0]].add(oid)
                yield False
        finally:
            index.close()
    every: list[bytes] = []
    for beginning in parts:
        every += sorted(beginning)
        yield False
    return every


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

    def taking(self, pack_dir: bytes, naming: Callable[[], AbstractContextManager[None]]) -> Pieces[bytes | None]:
        """Give the pack that was made its place, durably; give its stem, or None where it is not as it should be.

        ``naming`` is around the moment in which it becomes visible. Raises DomainError where the disk refuses.
        """
        code = self._process.returncode if self._process is not None else None
        if code != 0:
            self.failure = f"the process that makes them ended with {code}"
            return None
        made = os.path.join(self._folder, b"pack")
        try:
            (name,) = (name[:-4] for name in os.listdir(made) if name.endswith(b".idx"))
            if not (yield from self._proving(os.path.join(made, name))):
                return None
            for end in (b".pack", b".idx"):
                yield from beside(partial(_sync, os.path.join(made, name + end)))
            with naming():
                # Readers find a pack by its index, so the index comes last.
                for end in (b".pack", b".idx"):
                    os.rename(os.path.join(made, name + end), os.path.join(pack_dir, name + end))
            yield from beside(partial(fsync_dir, pack_dir))
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

    def _proving(self, stem: bytes) -> Pieces[bool]:
        """Make sure that the pack has all that it is to stand for; its process has read every object back."""
        try:
            pack = PackFile(stem + b".idx")
        except DomainError as error:
            self.failure = error.message
            return False
        try:
            for _ in pack.checksum():
                yield False
            at = 0
            for part in pack.index.parts():
                if [oid for oid, _, _ in part] != self._oids[at : at + len(part)]:
                    break
                at += len(part)
                yield False
            if at == len(self._oids):
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
