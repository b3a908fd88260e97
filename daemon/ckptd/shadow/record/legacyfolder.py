"""Where the predecessor, fabricatio-checkpoint 0.3.6, keeps what it saved of a worktree."""

import os
import re
import stat
from typing import Final

from ckptd.regular import read_regular

__all__ = ["config_values", "legacy_folders"]

# Ours end with 16 digits, so that none of them looks like this.
_FOLDER: Final = re.compile(rb".*_[0-9a-f]{8}", re.DOTALL)
_SECTION: Final = re.compile(rb"\s*\[\s*([^\]\"]*?)\s*(?:\"((?:[^\"\\]|\\.)*)\"\s*)?\]")
_SETTING: Final = re.compile(rb"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(.*)")
_PIECE: Final = re.compile(rb"\\(.)|(\")|([#;])|([^\\\"#;]+)")
_ESCAPES: Final = {b"n": b"\n", b"t": b"\t", b"b": b"\b"}
_MAX_CONFIG_BYTES: Final = 1024 * 1024


def legacy_folders(checkpoint_dir: bytes, worktree: bytes) -> list[bytes]:
    """Give the folders of 0.3.6 for a worktree (a real path), sorted; one for each name that it was used under.

    What cannot be read is passed over: an old folder is no reason not to open a store.
    """
    try:
        names = sorted(os.listdir(checkpoint_dir))
    except OSError:
        return []
    folders = [os.path.join(checkpoint_dir, name) for name in names if _FOLDER.fullmatch(name)]
    return [folder for folder in folders if _is_of(folder, worktree)]


def _is_of(folder: bytes, worktree: bytes) -> bool:
    try:
        found = os.lstat(folder)
        # One that another user has put there is not believed: whatever it holds could be restored.
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        if os.path.lexists(os.path.join(folder, b"ckpt")):
            return False
        data = read_regular(os.path.join(folder, b"config"), _MAX_CONFIG_BYTES)
    except OSError:
        return False
    values = config_values(data or b"")
    path = values.get(b"core.worktree", b"")
    # 0.3.6 took a path as it was given to it, links and all.
    return values.get(b"core.bare") == b"false" and path[:1] == b"/" and os.path.realpath(path) == worktree


def config_values(data: bytes) -> dict[bytes, bytes]:
    """Read what a Git configuration file says itself, by ``section.name`` in lower case; the last one counts.

    Sections with a name in quotes are passed over, ``include`` among them means nothing: no other file is read.
    """
    values: dict[bytes, bytes] = {}
    section: bytes | None = None
    for line in data.splitlines():
        if header := _SECTION.match(line):
            section = None if header[2] is not None else header[1].lower()
            line = line[header.end() :]
        if section is not None and (setting := _SETTING.fullmatch(line)):
            values[section + b"." + setting[1].lower()] = _unquoted(setting[2])
    return values


def _unquoted(text: bytes) -> bytes:
    """Give the value that git reads in the rest of a line: quotes, escapes and comments are resolved."""
    value, quoted, kept = b"", False, 0
    for escaped, quote, comment, plain in _PIECE.findall(text):
        if comment and not quoted:
            break
        value += _ESCAPES.get(escaped, escaped) + comment + plain
        if quote:
            quoted = not quoted
        if quoted or quote or escaped:
            # Only spaces that were written without quotes may be stripped from the end.
            kept = len(value)
    return value[:kept] + value[kept:].rstrip()
