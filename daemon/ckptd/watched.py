"""Which checkpoint directories have worktrees that are saved by themselves: a hint for the start of the next daemon.

Whether a worktree is, its store says. A hint too many costs a look, one that is lost costs autosave until the next
client comes.
"""

import json
import os
from typing import Final

from ckpt_protocol.wirepath import PathError, decode, encode

__all__ = ["WatchedDirectories"]

_NAME: Final = "watched.json"
_MOST_BYTES: Final = 1024 * 1024


class WatchedDirectories:
    """The file in the state directory. Small, so that it is read and written in place; errors cost the hint alone."""

    def __init__(self, state_dir: str) -> None:
        self._path = os.path.join(state_dir, _NAME)

    def read(self) -> list[bytes]:
        """Give the directories, sorted; none where there is no file that can be read."""
        try:
            with open(self._path, "rb") as file:
                found = json.loads(file.read(_MOST_BYTES))
            return sorted({decode(one) for one in found["checkpoint_dirs"]})
        except (OSError, ValueError, KeyError, TypeError, PathError):
            return []

    def add(self, checkpoint_dir: bytes) -> None:
        """Keep a directory; raises OSError."""
        known = self.read()
        if checkpoint_dir in known:
            return
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        text = json.dumps({"checkpoint_dirs": [encode(one) for one in sorted([*known, checkpoint_dir])]})
        temporary = f"{self._path}.{os.getpid()}.new"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, self._path)
