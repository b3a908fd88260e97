"""The parts that requests have in common: tokens, directories and paths as the wire carries them.

Cheap to import: the command line's hot path uses it.
"""

from __future__ import annotations

import os

from ckpt_protocol.wirepath import encode
from fabricatio_checkpoint.errors import error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "AnyPath",
    "Json",
    "destination",
    "directory",
    "former_place",
    "new_token",
    "real_directory",
    "relative_path",
    "searched_text",
    "worktree",
]

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
"""A path as callers may give it."""

Json = str | dict[str, str]
"""A path as the wire carries it."""


def new_token() -> str:
    """Make the token of one writing request: a repeated request with the same token is done once."""
    return os.urandom(16).hex()


def directory(path: bytes) -> Json:
    """Give the wire form of an absolute directory such as ``checkpoint_dir``."""
    return encode(path)


def worktree(path: bytes) -> dict[str, Json | None]:
    """Give the wire form of a worktree, as this process sees the directory now.

    The daemon refuses a worktree whose device and inode are not those that it sees at the path.
    """
    try:
        found = os.stat(path)
    except OSError:
        return {"path": encode(path), "dev": None, "ino": None}
    return {"path": encode(path), "dev": str(found.st_dev), "ino": str(found.st_ino)}


def real_directory(path: AnyPath) -> bytes:
    """Give the real absolute path of a directory; a relative one starts at the process's directory.

    The directory need not exist. Raises InputError for an empty path and one with NUL.
    """
    name = _name(path)
    if not name:
        raise error_of("bad_path", "an empty path where a directory is needed")
    return os.path.realpath(name)


def former_place(path: AnyPath) -> bytes:
    """Give the absolute path of a directory that was moved away; a relative one starts at the process's directory.

    Links on the way are resolved, but not a last one: it may lead to where the directory is now. Raises InputError
    for an empty path and one with NUL.
    """
    name = _name(path)
    if not name:
        raise error_of("bad_path", "an empty path where a directory is needed")
    parent, base = os.path.split(os.path.abspath(name))
    return os.path.join(os.path.realpath(parent), base)


def destination(path: AnyPath) -> Json:
    """Give the wire form of a place that is to be made; a relative one starts at the process's directory.

    Links are not followed: the place itself must not exist. Raises InputError for an empty path and one with NUL.
    """
    name = _name(path)
    if not name:
        raise error_of("bad_path", "an empty path where a destination is needed")
    place = os.path.abspath(name)
    # Two slashes in front mean what one means, but abspath leaves them.
    return encode(place[1:] if place.startswith(b"//") else place)


def searched_text(text: str | bytes) -> Json:
    """Give the wire form of a text to look for; lone surrogates stand for bytes, as in the arguments of a program.

    Raises InputError for other text that UTF-8 does not have.
    """
    try:
        return encode(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)
    except UnicodeEncodeError as error:
        raise error_of("bad_option", "a text to search for must be valid Unicode text, or bytes") from error


def relative_path(path: AnyPath, roots: Iterable[bytes]) -> bytes:
    """Give a path relative to the worktree, whatever the process's directory.

    A relative path means one below the worktree. An absolute one has to lie below one of ``roots``, the spellings
    of the worktree's path, the real one first; the last component is never resolved, as a link is a thing of its
    own. Raises InputError: ``outside_worktree`` ("prefix not found") for a path that leads out, ``bad_path`` for
    the worktree itself and for NUL.
    """
    name = _name(path)
    known = list(roots)
    below = _below(name, known) if name.startswith(b"/") else _without_dots(name)
    if below is None:
        raise error_of(
            "outside_worktree",
            f"prefix not found: {os.fsdecode(name)!r} is outside the worktree {os.fsdecode(known[0])!r}",
            hint="give a path inside the worktree: relative to it, or absolute",
            paths=[os.fsdecode(name)],
        )
    if not below:
        raise error_of("bad_path", f"{os.fsdecode(name)!r} is not a path below the worktree", hint="name what is in it")
    return below


def _name(path: AnyPath) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise error_of("bad_path", f"NUL in path {os.fsdecode(name)!r}")
    return name


def _without_dots(name: bytes) -> bytes | None:
    """Drop empty, ``.`` and ``..`` components; None where one of these would lead above the start."""
    kept: list[bytes] = []
    for part in name.split(b"/"):
        if part == b"..":
            if not kept:
                return None
            kept.pop()
        elif part not in (b"", b"."):
            kept.append(part)
    return b"/".join(kept)


def _below(name: bytes, roots: list[bytes]) -> bytes | None:
    plain = os.path.normpath(name)
    found = _after_prefix(plain, roots)
    if found is not None:
        return found
    # Another spelling of the worktree, as /tmp and /private/tmp: resolve all but the last component.
    parent, last = os.path.split(plain)
    return _after_prefix(os.path.join(os.path.realpath(parent), last), roots[:1])


def _after_prefix(name: bytes, roots: list[bytes]) -> bytes | None:
    for root in roots:
        if name == root:
            return b""
        prefix = root.rstrip(b"/") + b"/"
        if name.startswith(prefix):
            return name[len(prefix) :]
    return None
