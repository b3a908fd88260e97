"""Notes that a hook could not save: kept until one can, so that ``ckpt status`` says it loudly."""

from __future__ import annotations

import os

from ckpt_protocol.address import state_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["clear_marks", "read_marks", "set_mark"]

_LONGEST_BYTES = 8000


def set_mark(environ: Mapping[str, str], directory: bytes, text: str) -> None:
    """Note why nothing was saved in a directory. Nothing is raised: who is told by this has other work to do."""
    from hashlib import sha256

    folder = _folder(environ)
    place = os.path.join(folder, sha256(directory).hexdigest()[:32])
    data = directory.hex().encode() + b"\n" + text.encode("utf-8", "backslashreplace")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, data[:_LONGEST_BYTES])
        finally:
            os.close(fd)
    except OSError:
        pass


def read_marks(environ: Mapping[str, str], worktree: bytes) -> list[str]:
    """Give the notes about a worktree and the directories in it."""
    return [text for _, text in _marks(environ, worktree)]


def clear_marks(environ: Mapping[str, str], worktree: bytes) -> None:
    """Remove the notes about a worktree and the directories in it: it is saved again."""
    for place, _ in _marks(environ, worktree):
        try:
            os.unlink(place)
        except OSError:
            pass


def _folder(environ: Mapping[str, str]) -> str:
    return os.path.join(state_dir(environ), "hooks")


def _marks(environ: Mapping[str, str], worktree: bytes) -> Iterator[tuple[str, str]]:
    folder = _folder(environ)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        place = os.path.join(folder, name)
        try:
            with open(place, "rb") as file:
                about, _, text = file.read(_LONGEST_BYTES).partition(b"\n")
            directory = bytes.fromhex(about.decode("ascii"))
        except (OSError, ValueError):
            continue
        if directory == worktree or directory.startswith(worktree.rstrip(b"/") + b"/"):
            yield place, text.decode("utf-8", "replace")
