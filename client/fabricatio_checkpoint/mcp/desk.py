"""Asks the daemon on behalf of a model: about one worktree, as one session."""

import os
from binascii import b2a_hex
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final

from ckpt_protocol.wirepath import PathError, decode, encode, to_text
from fabricatio_checkpoint import wire
from fabricatio_checkpoint.connection import Connection
from fabricatio_checkpoint.errors import StateError, error_of
from fabricatio_checkpoint.mcp.shelf import Shelf

__all__ = ["Desk", "Notice", "new_session"]

Notice = Callable[[dict[str, Any]], None]

_CLIENT: Final = "ckpt-mcp"


class Desk:
    """Blocks; safe for threads. ``locate`` finds the worktree, once and when it is first needed.

    ``session`` tells this server apart from whoever else works in the worktree.
    """

    def __init__(self, socket: str, checkpoint_dir: str, locate: Callable[[], bytes], session: str) -> None:
        self.session = session
        self.shelf = Shelf()
        self._connection = Connection(socket, client=_CLIENT, session=session)
        self._checkpoint_dir = os.fsencode(checkpoint_dir)
        self._locate = locate
        self._lock = Lock()
        self._worktree: bytes | None = None

    @property
    def worktree(self) -> bytes:
        """The real path of the worktree."""
        with self._lock:
            if self._worktree is None:
                self._worktree = self._locate()
            return self._worktree

    def ask(self, method: str, params: Mapping[str, object], tell: Notice | None = None) -> dict[str, Any]:
        """Ask about the worktree; raises CheckpointError. ``tell`` gets the daemon's notifications of progress."""
        place = self.worktree
        whole = {
            "checkpoint_dir": wire.directory(self._checkpoint_dir),
            "worktree": wire.worktree(place),
            **{name: value for name, value in params.items() if value is not None},
        }
        try:
            return self._connection.call(method, whole, on_notice=tell)
        except StateError as error:
            if error.kind == "not_tracked" and not os.path.isdir(place):
                raise error_of("worktree_missing", f"{to_text(place)} is not there") from error
            raise

    def write(self, method: str, params: Mapping[str, object], tell: Notice | None = None) -> dict[str, Any]:
        """Ask for a change: a request that is sent again after a broken connection is done once."""
        return self.ask(method, {**params, "token": wire.new_token()}, tell)

    def path(self, given: object) -> wire.Json:
        """Read a path as a model gives it; raises InputError for one outside of the worktree, or of a wrong form."""
        return encode(wire.relative_path(self._bytes(given), (self.worktree,)))

    def place(self, given: object) -> wire.Json | None:
        """Read the path after which a page begins, if there is one: any path, whether it is there or not."""
        return None if given is None else encode(self._bytes(given))

    def filter(self, given: list[object]) -> list[wire.Json]:
        """Read paths that narrow a question; the worktree itself stands for all that is in it, which is no filter."""
        if any(os.path.normpath(os.path.join(self.worktree, self._bytes(path))) == self.worktree for path in given):
            return []
        return [self.path(path) for path in given]

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    @staticmethod
    def _bytes(given: object) -> bytes:
        try:
            return decode(given)
        except PathError as error:
            raise error_of("bad_path", str(error)) from error


def new_session() -> str:
    """Make a name for the session of a server that was given none."""
    return f"mcp-{b2a_hex(os.urandom(4)).decode()}"
