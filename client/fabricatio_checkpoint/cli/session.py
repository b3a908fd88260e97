"""One run of ``ckpt``: its arguments, its streams, and its questions to the daemon."""

from __future__ import annotations

import os
import sys

from ckpt_protocol.wirepath import encode, to_text
from fabricatio_checkpoint import wire
from fabricatio_checkpoint.cli import worktree
from fabricatio_checkpoint.cli.text import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from fabricatio_checkpoint.cli.arguments import Arguments
    from fabricatio_checkpoint.cli.output import Output
    from fabricatio_checkpoint.cli.progress import Line
    from fabricatio_checkpoint.connection import Connection

__all__ = ["Session"]


class Session:
    """Connects on the first question; what it raises are CheckpointErrors.

    With ``may_start`` false no question starts a daemon: without one it is an error. ``session_name`` is what the
    daemon is told to tell this run apart by; it counts from the first question on.
    """

    def __init__(self, arguments: Arguments, out: Output) -> None:
        self.arguments = arguments
        self.out = out
        self.may_start = True
        self.session_name: str | None = None
        self._options: dict[str, Any] | None = None
        self._connection: Connection | None = None
        self._worktree: bytes | None = None
        self._line: Line | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Where the daemon and the stores are, by the configuration chain of the current directory."""
        if self._options is None:
            from fabricatio_checkpoint.config import read_options

            self._options = read_options(os.environ, _configured_directory(), ("checkpoint_dir", "socket"))
        return self._options

    @property
    def socket(self) -> str:
        """Where the daemon listens."""
        from fabricatio_checkpoint.launch import socket_path

        return socket_path(self.options["socket"])

    def call(self, method: str, params: dict[str, Any], *, start: bool = True) -> dict[str, Any]:
        """Ask the daemon; without ``start`` one that does not run is an error."""
        if self._connection is None:
            from fabricatio_checkpoint.connection import Connection

            self._connection = Connection(self.socket, client="ckpt", session=self.session_name)
        if not self.out.shows_progress():
            return self._connection.call(method, params, start=start and self.may_start)
        try:
            return self._connection.call(method, params, start=start and self.may_start, on_notice=self._tell)
        finally:
            if self._line is not None:
                self._line.clear()
                self._line = None

    def _tell(self, notice: dict[str, Any]) -> None:
        if self._line is None:
            from fabricatio_checkpoint.cli.progress import Line

            self._line = Line(sys.stderr, colour=self.out.colours_notes())
        self._line.tell(notice)

    def ask_directory(self, method: str, **params: object) -> dict[str, Any]:
        """Ask about the checkpoint directory as a whole."""
        folder = os.fsencode(self.options["checkpoint_dir"])
        return self.call(method, {"checkpoint_dir": wire.directory(folder), **params})

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        """Ask about the worktree of this run."""
        from fabricatio_checkpoint.errors import StateError, error_of

        try:
            return self.ask_directory(method, worktree=wire.worktree(self.worktree), **params)
        except StateError as error:
            if error.kind == "not_tracked" and not os.path.isdir(self.worktree):
                # "Not tracked" would send its user to make a checkpoint of what is more likely a misspelt name.
                name = quoted(to_text(self.worktree))
                if os.path.lexists(self.worktree):
                    raise error_of("not_a_directory", f"{name} is not a directory") from error
                raise error_of("worktree_missing", f"{name} does not exist") from error
            raise

    @property
    def worktree(self) -> bytes:
        """The real path of the worktree: ``-w``, else the tracked one around the current directory, else that."""
        if self._worktree is None:
            self._worktree = self._locate()
        return self._worktree

    def paths(self, arguments: Iterable[str]) -> list[wire.Json]:
        """Turn paths of the command line into the wire's; raises InputError for one outside the worktree."""
        return [encode(wire.relative_path(argument, (self.worktree,))) for argument in arguments]

    def filter(self, arguments: list[str]) -> dict[str, Any]:
        """Give paths as a filter; the worktree itself stands for all that is in it, which is no filter."""
        if not arguments or any(worktree.is_whole(self.worktree, argument) for argument in arguments):
            return {}
        return {"paths": self.paths(arguments)}

    def is_tracked(self, path: bytes) -> bool:
        """Tell whether a directory has a store, by the cheapest question there is; it never makes one.

        An error that only a directory with a store can give means yes: the command itself will meet it again.
        """
        from fabricatio_checkpoint.errors import CheckpointError, InputError, TransportError

        try:
            self.ask_directory("checkpoint.head", worktree=wire.worktree(path))
        except InputError:
            return False
        except CheckpointError as error:
            if isinstance(error, TransportError) and error.kind != "worktree_busy":
                raise
            return error.kind != "not_tracked"
        return True

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()

    def _locate(self) -> bytes:
        given = self.arguments.value("workspace")
        if given is not None:
            return wire.real_directory(given)
        here = worktree.current_directory()
        found = worktree.innermost_tracked(here, self.is_tracked)
        if found is not None and found != here:
            self.out.note(f"in the tracked worktree {quoted(to_text(found))}")
        return here if found is None else found


def _configured_directory() -> str | None:
    """The current directory; None, which has no configuration, where it is gone."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None
