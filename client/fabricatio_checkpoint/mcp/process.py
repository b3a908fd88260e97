"""The server as a process: stdin and stdout belong to the protocol, Ctrl-C and a closed stdin end it."""

import signal
from functools import partial
from typing import TYPE_CHECKING, cast

import anyio
from anyio.abc import TaskStatus
from mcp.server.stdio import stdio_server

from ckpt_protocol.framing import MAX_REQUEST_BYTES, FrameTooLargeError
from fabricatio_checkpoint.errors import error_of
from fabricatio_checkpoint.mcp.desk import Desk
from fabricatio_checkpoint.mcp.server import make_server
from fabricatio_checkpoint.mcp.streams import Lines, Outlet, own_stdout

if TYPE_CHECKING:
    from anyio import AsyncFile

__all__ = ["serve"]

_STDIN = 0


def serve(desk: Desk) -> None:
    """Serve until the client hangs up. Raises KeyboardInterrupt for Ctrl-C, TransportError for an endless message."""
    interrupted = endless = False
    try:
        interrupted = anyio.run(_serve, desk)
    except* BrokenPipeError:
        # The client has gone without a word; there is nobody left to tell.
        pass
    except* FrameTooLargeError:
        endless = True
    finally:
        desk.close()
    if endless:
        raise error_of("frame_too_large", f"the client sent a message of more than {MAX_REQUEST_BYTES} bytes")
    if interrupted:
        raise KeyboardInterrupt


async def _serve(desk: Desk) -> bool:
    server = make_server(desk)
    async with anyio.create_task_group() as group:
        interrupted = anyio.Event()
        await group.start(partial(_watch_for_interrupt, interrupted, group.cancel_scope))
        with own_stdout() as stdout:
            # A file is to the SDK whatever gives lines, or takes text.
            ends = cast("AsyncFile[str]", Lines(_STDIN)), cast("AsyncFile[str]", Outlet(stdout))
            async with stdio_server(*ends) as (requests, replies):
                await server.run(requests, replies, server.create_initialization_options())
        group.cancel_scope.cancel()
    return interrupted.is_set()


async def _watch_for_interrupt(
    interrupted: anyio.Event, scope: anyio.CancelScope, *, task_status: TaskStatus[None]
) -> None:
    with anyio.open_signal_receiver(signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            # Should anything hold up a clean end: another Ctrl-C needs none.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            interrupted.set()
            scope.cancel()
