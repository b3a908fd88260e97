"""``mcp``: the tools of an agent's model, over stdin and stdout."""

from __future__ import annotations

import sys

from fabricatio_checkpoint.cli.failure import UsageError
from fabricatio_checkpoint.cli.output import is_terminal
from fabricatio_checkpoint.errors import error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from fabricatio_checkpoint.cli.session import Session
    from fabricatio_checkpoint.mcp.desk import Desk

__all__ = ["mcp"]


def mcp(session: Session) -> int:
    """Serve until the client hangs up. Nothing but the protocol is ever written to stdout, errors neither."""
    session.out.json = False
    if None in (sys.stdin, sys.stdout, sys.stderr):
        raise error_of("io_error", "ckpt mcp needs stdin, stdout and stderr, and one of them is closed")
    serve = _server()
    from fabricatio_checkpoint.mcp.desk import Desk, new_session

    if is_terminal(sys.stdin):
        session.out.note("waiting for an MCP client on stdin; ckpt help mcp tells how to set one up")
    name = session.arguments.value("session") or new_session()
    serve(Desk(session.socket, session.options["checkpoint_dir"], lambda: session.worktree, name))
    return 0


def _server() -> Callable[[Desk], None]:
    try:
        from fabricatio_checkpoint.mcp.process import serve
    except ImportError as error:
        # It is not there, or of another major version.
        raise UsageError(
            f"ckpt mcp needs the MCP SDK, version 2 ({error})", 'pip install "fabricatio-checkpoint[mcp]"'
        ) from error
    return serve
